//! The loop that plays Stages: for each object of a kind for which there are some, it chooses one
//! that matches, waits for its delay, and does what it says. Any change of the object meanwhile
//! makes it choose again, as KWOK does.

mod book;

pub(crate) use book::StageBook;

use crate::nodes::node;
use crate::nodes::state::{NodeFacts, State};
use crate::stages::rule::{StageRule, StageStep, TemplatedApply, TemplatedPatch};
use crate::stages::template::TemplateFacts;
use crate::stages::{StageRules, choice, play};
use crate::stored::name_of;
use keelson_loops::client::Client;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::events::Recorder;
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, GroupVersion, Object, Status, Str, Timestamp};
use keelson_records::Entry;
use keelson_registry::options::{DeleteOptions, PatchForm};
use keelson_registry::{InformerEvent, InformerScope, NewObject, Registry, Subresource, Target};
use keelson_resources::Kind;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The source of events, and the name of the user.
const COMPONENT: &str = "simulated-stages";
/// Stages that are played on one object one after the other without a delay. Further ones wait.
const QUICK_PLAYS_MAX: u32 = 50;
/// How long they wait.
const QUICK_PLAYS_PAUSE: Duration = Duration::from_secs(1);

/// Returns the client that does what Stages say. Who may create Stages may do anything with it.
fn client(registry: &Arc<Registry>) -> Client {
    let user = format!("system:{COMPONENT}");
    Client::of_user(registry, &user, &["system:masters"]).with_field_manager(COMPONENT)
}

/// Plays Stages until it is dropped; without Stages, it only waits.
pub(crate) async fn run(
    registry: &Arc<Registry>,
    rules: Arc<StageRules>,
    nodes: Arc<Mutex<State>>,
    started: Timestamp,
) {
    if rules.is_empty() {
        return std::future::pending().await;
    }
    let client = client(registry);
    let events = Recorder::new(&client, COMPONENT);
    let progress = Mutex::default();
    let powered = Mutex::default();
    let player = Player { client, events, rules, nodes, started, progress, powered };
    control_loop::run(registry, player).await;
}

struct Player {
    client: Client,
    events: Recorder,
    rules: Arc<StageRules>,
    /// What the loop of the nodes knows, for addresses.
    nodes: Arc<Mutex<State>>,
    started: Timestamp,
    progress: Mutex<HashMap<StagedKey, Progress>>,
    /// The simulated nodes that have power.
    powered: Mutex<HashSet<Str>>,
}

/// Group and resource, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct StagedKey {
    group: Str,
    resource: Str,
    namespace: Str,
    name: Str,
}

/// Which Stage was chosen for a version of an object.
#[derive(Clone, Debug)]
struct Progress {
    version: Str,
    /// `None`: none matches, or it was played.
    rule: Option<Arc<StageRule>>,
    due: Timestamp,
    /// How many were played one after the other without a delay.
    quick_plays: u32,
}

impl ControlLoop for Player {
    type Key = StagedKey;
    const NAME: &'static str = COMPONENT;
    const SCOPE: InformerScope = InformerScope::All;
    const WORKERS_MAX: usize = 32;
    const OBSERVE_INTERVAL: Duration = crate::OBSERVE_INTERVAL;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<StagedKey>) -> bool {
        for event in &events {
            match event {
                InformerEvent::Listed(kind, all) => {
                    all.range("", "").for_each(|entry| self.observe_put(kind, entry, queue));
                }
                InformerEvent::Put { kind, entry, .. } => self.observe_put(kind, entry, queue),
                InformerEvent::Deleted { kind, entry } => {
                    lock(&self.progress).remove(&key_of(kind, entry));
                }
                InformerEvent::Withdrawn(_) => {}
            }
        }
        false
    }

    async fn sync(&self, key: StagedKey) -> Result<Option<Duration>, Failure> {
        let registry = &self.client.registry;
        let Some(kind) = registry.kind(&key.group, &key.resource) else { return Ok(None) };
        let entry = registry.cached(&kind, &key.namespace, &key.name);
        let Some(entry) = entry else { return Ok(None) };
        let object = kind.decode(&entry)?;
        let Some(facts) = self.facts(&kind, &object)? else { return Ok(None) };
        let progress = self.progress(&key, &kind, &object);
        let Some(rule) = progress.rule else { return Ok(None) };
        let now = self.client.now();
        if progress.due > now {
            return Ok(Some(crate::nodes::span(progress.due.since(now))));
        }
        let target = Target::of(&kind, &key.namespace, &key.name);
        match self.play(&rule, &target, &object, &facts).await {
            // It is gone.
            Err(status) if status.code == 404 => {}
            Err(status) if status.code == 409 || status.code >= 500 => return Err(status),
            Err(status) => {
                let message = format!("Stage {:?} failed: {}", rule.name, status.message);
                self.events.about(&self.client, &object, "Warning", ("StageFailed", &message));
            }
            Ok(()) => {}
        }
        // Nothing more happens to this version of the object.
        if let Some(progress) = lock(&self.progress).get_mut(&key) {
            progress.rule = None;
        }
        Ok(None)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key_of(kind: &Kind, entry: &Entry) -> StagedKey {
    let (namespace, name) = name_of(entry);
    StagedKey {
        group: kind.gvr.group.clone(),
        resource: kind.gvr.resource.clone(),
        namespace,
        name,
    }
}

fn is_core(kind: &Kind, name: &str) -> bool {
    kind.gvr.group.is_empty() && kind.storage.gvk.kind == name
}

impl Player {
    fn observe_put(&self, kind: &Kind, entry: &Entry, queue: &mut Queue<StagedKey>) {
        if self.rules.decide(&kind.gvr.group, &kind.storage.gvk.kind) {
            queue.add(key_of(kind, entry));
        }
        if is_core(kind, "Node") && self.rules.decide("", "Pod") {
            let Ok(object) = kind.decode(entry) else { return };
            let has_power = node::is_simulated(&object) && !node::is_failed(&object);
            let mut powered = lock(&self.powered);
            if !has_power {
                powered.remove(entry.name());
            } else if powered.insert(entry.name().into()) {
                let pods = lock(&self.nodes).pods_on(entry.name());
                queue.extend(pods.map(|(namespace, name)| StagedKey {
                    group: Str::default(),
                    resource: "pods".into(),
                    namespace,
                    name,
                }));
            }
        }
    }

    /// Returns what templates are told about an object; `None`: nothing happens to it, because its
    /// node is not simulated or has no power.
    fn facts(&self, kind: &Kind, object: &Object) -> Result<Option<TemplateFacts>, Failure> {
        let registry = &self.client.registry;
        let now = self.client.now();
        let random = registry.clock.random();
        let mut facts =
            TemplateFacts { now, started: self.started, random, ..TemplateFacts::default() };
        let is_pod = is_core(kind, "Pod");
        let name = match is_pod {
            true => object.str_at(&["spec", "nodeName"]),
            false if is_core(kind, "Node") => object.name(),
            false => return Ok(Some(facts)),
        };
        let node = registry
            .kind("", "nodes")
            .and_then(|nodes| registry.cached(&nodes, "", name).map(|entry| nodes.decode(&entry)));
        let Some(node) = node.transpose()? else { return Ok(None) };
        if !node::is_simulated(&node) || node::is_failed(&node) {
            return Ok(None);
        }
        let known = NodeFacts::of(&node);
        facts.node = node.name().into();
        facts.node_ips = known.addresses.to_vec();
        if facts.node_ips.is_empty() {
            facts.node_ips.push(node::address(node.name()).into());
        }
        if is_pod {
            let key = (object.namespace().into(), object.name().into());
            let given = object.str_at(&["status", "podIP"]);
            let mut state = lock(&self.nodes);
            state.place_pod(&key, node.name(), given);
            facts.pod_ips.extend(state.address_for(&key, &known));
        }
        Ok(Some(facts))
    }

    /// Returns the Stage for the present version of an object: that of the last look, or else a new
    /// one.
    fn progress(&self, key: &StagedKey, kind: &Kind, object: &Object) -> Progress {
        let mut all = lock(&self.progress);
        let known = all.get(key);
        if let Some(known) = known.filter(|known| known.version == object.resource_version()) {
            return known.clone();
        }
        let now = self.client.now();
        let random = self.client.registry.clock.random();
        let half = |from: usize| {
            random[from..from + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let rules = self.rules.of(&kind.gvr.group, &kind.storage.gvk.kind);
        let rule = choice::choose(rules, object, half(0));
        let delay =
            rule.as_ref().map(|rule| choice::delay(rule, object, now, half(8))).unwrap_or_default();
        let mut quick_plays = known.map_or(0, |known| known.quick_plays) + 1;
        if delay.0 > 0 || rule.is_none() {
            quick_plays = 0;
        }
        let mut due = now.plus(delay);
        if quick_plays > QUICK_PLAYS_MAX {
            due = now.plus(QUICK_PLAYS_PAUSE.into());
            quick_plays = QUICK_PLAYS_MAX;
        }
        let version = object.resource_version().into();
        let progress = Progress { version, rule, due, quick_plays };
        all.insert(key.clone(), progress.clone());
        progress
    }

    /// Does what a Stage says.
    async fn play(
        &self,
        rule: &StageRule,
        target: &Target,
        object: &Object,
        facts: &TemplateFacts,
    ) -> Result<(), Failure> {
        for step in &rule.steps {
            match step {
                StageStep::Event { kind, reason, message } => {
                    self.events.about(&self.client, object, kind, (reason, message));
                }
                StageStep::Finalizers { adds, removes, empties } => {
                    let change = |live: Option<&Object>| {
                        let live = live.filter(|live| live.uid() == object.uid());
                        let mut object = live.cloned().ok_or_else(|| target.not_found())?;
                        play::change_finalizers(&mut object, adds, removes, *empties);
                        Ok(NewObject { object, managed: false, warnings: vec![] })
                    };
                    self.client.modify(target, Subresource::None, &change).await?;
                }
                StageStep::Delete => return self.delete(target, object).await,
                StageStep::Patch(patch) => self.patch(patch, target, object, facts).await?,
                StageStep::Apply(apply) => self.apply(apply, object, facts).await?,
            }
        }
        Ok(())
    }

    async fn delete(&self, target: &Target, object: &Object) -> Result<(), Failure> {
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            uid: Some(object.uid().into()),
            ..DeleteOptions::default()
        };
        self.client.delete(target, &options).await.map(drop)
    }

    /// Returns the client of a user, or that of the simulation.
    fn client_as(&self, user: &str) -> Client {
        match user {
            "" => self.client.clone(),
            user => Client::of_user(&self.client.registry, user, &[]).with_field_manager(COMPONENT),
        }
    }

    async fn patch(
        &self,
        patch: &TemplatedPatch,
        target: &Target,
        object: &Object,
        facts: &TemplateFacts,
    ) -> Result<(), Failure> {
        let rendered = play::patch(patch, object, facts).map_err(Status::bad_request)?;
        let Some((form, body)) = rendered else { return Ok(()) };
        let client = self.client_as(&patch.user);
        client.patch(target, patch.subresource, form, &body).await.map(drop)
    }

    async fn apply(
        &self,
        apply: &TemplatedApply,
        object: &Object,
        facts: &TemplateFacts,
    ) -> Result<(), Failure> {
        let wanted = play::applied(apply, object, facts).map_err(Status::bad_request)?;
        let registry = &self.client.registry;
        let version = GroupVersion::parse(wanted.api_version()).unwrap_or_default();
        let kinds = registry.kinds();
        let is_it = |kind: &&Arc<Kind>| {
            kind.gvr.group == version.group && kind.storage.gvk.kind == wanted.kind()
        };
        let kind = kinds.iter().find(is_it).ok_or_else(|| {
            let name = format!("{} of {}", wanted.kind(), wanted.api_version());
            Status::bad_request(format!("the kind {name} is not served"))
        })?;
        let namespace = match (kind.namespaced, wanted.namespace()) {
            (false, _) => "",
            (true, "") => object.namespace(),
            (true, given) => given,
        };
        let target = Target::of(kind, namespace, wanted.name());
        let client = self.client_as(&apply.user);
        let is_new = registry.cached(kind, namespace, wanted.name()).is_none();
        if is_new && apply.form != PatchForm::ApplyYaml && apply.subresource == Subresource::None {
            return client.create(&target, wanted).await.map(drop);
        }
        let body = wanted.into_value();
        client.patch(&target, apply.subresource, apply.form, &body).await.map(drop)
    }
}
