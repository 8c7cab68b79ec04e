//! Owners and dependents, built-in and custom, are created and deleted by concurrent writers while
//! the server is killed and restarted. At the end exactly the expected objects exist, with the
//! expected owners.
//!
//! `KEELSON_CHAOS_SECONDS` sets the duration (default 6); `KEELSON_CHAOS_SEED` repeats a run's
//! choices.

use super::MAPS;
use crate::kill::Server;
use crate::random::Random;
use keelson_testkit::api::{Api, Response};
use keelson_testkit::poll;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const WRITERS: usize = 16;
const LASTS_SECONDS: u64 = 6;
/// Time between a start of the server and the next kill.
const LIVES: Duration = Duration::from_secs(2);
/// Names that a writer reuses.
const NAMES: usize = 12;
const POLL_TIMEOUT: Duration = Duration::from_secs(60);
const WIDGETS: &str = "/apis/test.dev/v1/namespaces/default/widgets";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const ABSENT: &str = "00000000-0000-0000-0000-000000000001";

/// Returns whether the object with this name is a custom resource.
fn is_widget(name: &str) -> bool {
    name.ends_with(['1', '3', '5', '7', '9'])
}

fn collection(name: &str) -> &'static str {
    if is_widget(name) { WIDGETS } else { MAPS }
}

fn path(name: &str) -> String {
    format!("{}/{name}", collection(name))
}

fn kind(name: &str) -> (&'static str, &'static str) {
    if is_widget(name) { ("test.dev/v1", "Widget") } else { ("v1", "ConfigMap") }
}

/// The current address of the server; `None` while it is not running.
#[derive(Default)]
struct Site {
    api: Mutex<Option<Arc<Api>>>,
    acknowledged: AtomicUsize,
}

impl Site {
    fn set(&self, api: Option<Arc<Api>>) {
        *self.api.lock().expect("nobody panics with it") = api;
    }

    fn connect(&self) -> Api {
        let there = || self.api.lock().expect("nobody panics with it").clone();
        poll(POLL_TIMEOUT, there).expect("the server comes back").with_new_connection()
    }
}

/// A client that reconnects after a restart of the server.
struct Caller<'s> {
    site: &'s Site,
    api: Option<Api>,
}

impl Caller<'_> {
    /// Returns `None` if the server was killed; the request may have been executed.
    fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> Option<Response> {
        let api = self.api.take().unwrap_or_else(|| self.site.connect());
        let answer = api.call(method, path, "application/json", body).ok()?;
        // After a start the path is unknown until the definitions were read.
        if answer.code == 404 && answer.body.is_null() {
            return None;
        }
        self.site.acknowledged.fetch_add(1, Ordering::Relaxed);
        self.api = Some(api);
        Some(answer)
    }

    /// Repeats a request until there is a response.
    fn call_until_answered(&mut self, method: &str, path: &str) -> Response {
        poll(POLL_TIMEOUT, || self.call(method, path, None)).expect("an answer in the end")
    }
}

/// The objects of one writer that must exist in the end: name, uid and owners.
#[derive(Default)]
struct Model {
    objects: BTreeMap<String, OwnedObject>,
    /// All uids that objects with a name had.
    seen: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Clone, Debug, PartialEq)]
struct OwnedObject {
    uid: String,
    /// By name and uid.
    owners: Vec<(String, String)>,
}

impl Model {
    /// Removes objects whose owners are all deleted, and repeats this for their dependents.
    fn collect(&mut self) {
        loop {
            let uids: Vec<String> = self.objects.values().map(|held| held.uid.clone()).collect();
            let before = self.objects.len();
            self.objects.retain(|_, held| {
                let had_owners = !held.owners.is_empty();
                held.owners.retain(|(_, uid)| uids.contains(uid));
                !had_owners || !held.owners.is_empty()
            });
            if self.objects.len() == before {
                return;
            }
        }
    }

    fn insert(&mut self, name: &str, uid: String, owners: Vec<(String, String)>) {
        self.seen.entry(name.to_owned()).or_default().insert(uid.clone());
        self.objects.insert(name.to_owned(), OwnedObject { uid, owners });
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn owners_of(object: &Value) -> Vec<(String, String)> {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.map(|owner| (text(&owner["name"]), text(&owner["uid"]))).collect()
}

/// Creates and deletes objects under names that no other writer uses.
struct Writer<'s> {
    caller: Caller<'s>,
    random: Random,
    model: Model,
    number: usize,
}

impl Writer<'_> {
    fn run(mut self, deadline: Instant) -> Model {
        while Instant::now() < deadline {
            let name = format!("w{}-{}", self.number, self.random.below(NAMES));
            // Objects that may have been collected meanwhile are not in the model, and their names
            // become free.
            self.model.collect();
            let is_there = self.model.objects.contains_key(&name);
            match (self.random.below(3) > 0, is_there) {
                (true, false) => self.create(&name),
                (false, true) => self.delete(&name),
                _ => {}
            }
        }
        self.model.collect();
        self.model
    }

    fn create(&mut self, name: &str) {
        let all: Vec<(String, String)> = self
            .model
            .objects
            .iter()
            .map(|(name, held)| (name.clone(), held.uid.clone()))
            .collect();
        let count = self.random.below(3).min(all.len());
        let mut owners: Vec<_> =
            (0..count).map(|_| all[self.random.below(all.len())].clone()).collect();
        owners.sort();
        owners.dedup();
        let reference = |(name, uid): &(String, String), blocks: bool| {
            let (version, kind) = kind(name);
            json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid,
                "blockOwnerDeletion": blocks})
        };
        let references: Vec<Value> =
            owners.iter().map(|owner| reference(owner, self.random.below(2) == 0)).collect();
        let (version, kind) = kind(name);
        let object = json!({"apiVersion": version, "kind": kind,
            "metadata": {"name": name, "ownerReferences": references}});
        let made = match self.caller.call("POST", collection(name), Some(&object)) {
            Some(made) => made,
            // It was created if an object with a new uid exists.
            None => {
                let got = self.caller.call_until_answered("GET", &path(name));
                let uid = text(&got.body["metadata"]["uid"]);
                let seen = self.model.seen.get(name);
                if got.code == 404 || seen.is_some_and(|seen| seen.contains(&uid)) {
                    return;
                }
                Response { code: 201, ..got }
            }
        };
        if made.code == 201 {
            self.model.insert(name, text(&made.body["metadata"]["uid"]), owners);
        } else {
            assert_eq!(made.code, 409, "{made:?}");
        }
    }

    fn delete(&mut self, name: &str) {
        let policy = ["Background", "Foreground", "Orphan"][self.random.below(3)];
        if policy == "Orphan" {
            // A dependent without other owners that is not processed yet would be deleted.
            self.await_owners(name);
        }
        self.model.objects.remove(name);
        let asked = format!("{}?propagationPolicy={policy}", path(name));
        let deleted = self.caller.call_until_answered("DELETE", &asked);
        assert!(matches!(deleted.code, 200 | 404), "{deleted:?}");
        if policy != "Orphan" {
            return;
        }
        // Its dependents lose the reference once it is deleted.
        let deleted = poll(POLL_TIMEOUT, || {
            (self.caller.call("GET", &path(name), None)?.code == 404).then_some(())
        });
        assert!(deleted.is_some(), "{name} is not let go");
        let uids: Vec<String> = self.model.objects.values().map(|held| held.uid.clone()).collect();
        for held in self.model.objects.values_mut() {
            held.owners.retain(|(_, uid)| uids.contains(uid));
        }
    }

    /// Waits until the dependents of an object have the expected owners.
    fn await_owners(&mut self, owner: &str) {
        for (name, held) in &self.model.objects {
            if !held.owners.iter().any(|(name, _)| name == owner) {
                continue;
            }
            let right = poll(POLL_TIMEOUT, || {
                let got = self.caller.call("GET", &path(name), None)?;
                (owners_of(&got.body) == held.owners).then_some(())
            });
            assert!(right.is_some(), "{name} has not the owners {:?}", held.owners);
        }
    }
}

/// Returns the existing objects in the form of the model.
fn list_remaining(caller: &mut Caller<'_>) -> BTreeMap<String, OwnedObject> {
    let mut left = BTreeMap::new();
    for collection in [MAPS, WIDGETS] {
        let list = caller.call_until_answered("GET", collection).body;
        for object in list["items"].as_array().into_iter().flatten() {
            let held =
                OwnedObject { uid: text(&object["metadata"]["uid"]), owners: owners_of(object) };
            left.insert(text(&object["metadata"]["name"]), held);
        }
    }
    left.retain(|name, _| name.starts_with('w'));
    left
}

fn start(dir: &Path) -> (Server, Arc<Api>) {
    let server = Server::start_with(dir, "*");
    let api = Api::from_kubeconfig(&dir.join("admin.kubeconfig")).expect("a kubeconfig");
    (server, Arc::new(api))
}

fn define_widgets(caller: &mut Caller<'_>) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({"metadata": {"name": "widgets.test.dev"}, "spec": {
        "group": "test.dev", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": schema}}]}});
    let made = caller.call("POST", DEFINITIONS, Some(&definition)).expect("an answer");
    assert_eq!(made.code, 201, "{made:?}");
    caller.call_until_answered("GET", WIDGETS);
}

/// Waits until all loops have taken in what was written before: an object without an owner is
/// collected only after what came before it was looked at.
fn settle(caller: &mut Caller<'_>) {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": ABSENT});
    let object = json!({"metadata": {"name": "settle", "ownerReferences": [owner]}});
    let made = caller.call("POST", MAPS, Some(&object)).expect("an answer");
    assert_eq!(made.code, 201, "{made:?}");
    let path = format!("{MAPS}/settle");
    let deleted =
        poll(POLL_TIMEOUT, || (caller.call("GET", &path, None)?.code == 404).then_some(()));
    assert!(deleted.is_some(), "nothing is collected");
}

#[test]
fn garbage_collection_is_exact_over_kills_of_the_server() {
    let lasts = std::env::var("KEELSON_CHAOS_SECONDS").ok().and_then(|text| text.parse().ok());
    let lasts = Duration::from_secs(lasts.unwrap_or(LASTS_SECONDS));
    let mut random = Random::seeded("KEELSON_CHAOS_SEED");
    let dir = tempfile::tempdir().expect("a folder");
    let site = Site::default();
    let (server, api) = start(dir.path());
    let mut server = Some(server);
    site.set(Some(api));
    let mut caller = Caller { site: &site, api: None };
    define_widgets(&mut caller);
    let end = Instant::now() + lasts;
    let mut kills = 0;
    let mut wanted: BTreeMap<String, OwnedObject> = BTreeMap::new();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let caller = Caller { site: &site, api: None };
                let model = Model::default();
                let writer = Writer { caller, random: random.split(), model, number };
                scope.spawn(move || writer.run(end))
            })
            .collect();
        while Instant::now() + LIVES < end {
            let dies = Instant::now() + LIVES / 2 + LIVES.mul_f64(random.below(100) as f64 / 100.0);
            while Instant::now() < dies {
                std::thread::park_timeout(dies.saturating_duration_since(Instant::now()));
            }
            site.set(None);
            drop(server.take());
            let (started, api) = start(dir.path());
            server = Some(started);
            site.set(Some(api));
            kills += 1;
        }
        for writer in writers {
            wanted.extend(writer.join().expect("a writer does not panic").objects);
        }
    });
    caller.api = None;
    let is_right = poll(POLL_TIMEOUT, || (list_remaining(&mut caller) == wanted).then_some(()));
    assert!(is_right.is_some(), "wanted {wanted:#?}, left {:#?}", list_remaining(&mut caller));
    settle(&mut caller);
    assert_eq!(list_remaining(&mut caller), wanted);
    let answers = site.acknowledged.load(Ordering::Relaxed);
    let objects = wanted.len();
    println!("{kills} kills, {answers} answers, {objects} objects left");
    drop(server);
}
