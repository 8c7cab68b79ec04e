//! Owners and dependents, built in and custom, that come, go and come again by many writers at once, while the
//! server is killed and started again: at the end exactly the right objects are there, with the right owners.
//!
//! `KEELSON_CHAOS_SECONDS=60` goes on for so long (6 without it); `KEELSON_CHAOS_SEED=N` repeats a run's choices.

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
/// From one start of the server to its next end.
const LIVES: Duration = Duration::from_secs(2);
/// Names that a writer uses again and again.
const NAMES: usize = 12;
const POLL_TIMEOUT: Duration = Duration::from_secs(60);
const WIDGETS: &str = "/apis/test.dev/v1/namespaces/default/widgets";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const ABSENT: &str = "00000000-0000-0000-0000-000000000001";

/// Whether an object of this name is a custom one.
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

/// Where the server is at present; nowhere while it is dead.
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

/// Asks the server, wherever it is.
struct Caller<'s> {
    site: &'s Site,
    api: Option<Api>,
}

impl Caller<'_> {
    /// `None`: the server died, and the request was done or not.
    fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> Option<Response> {
        let api = self.api.take().unwrap_or_else(|| self.site.connect());
        let answer = api.call(method, path, "application/json", body).ok()?;
        // Definitions are read again after the start: until then, this is no path.
        if answer.code == 404 && answer.body.is_null() {
            return None;
        }
        self.site.acknowledged.fetch_add(1, Ordering::Relaxed);
        self.api = Some(api);
        Some(answer)
    }

    /// Asks until there is an answer.
    fn call_until_answered(&mut self, method: &str, path: &str) -> Response {
        poll(POLL_TIMEOUT, || self.call(method, path, None)).expect("an answer in the end")
    }
}

/// The objects of one writer that must exist in the end: name, uid and owners.
#[derive(Default)]
struct Model {
    objects: BTreeMap<String, OwnedObject>,
    /// Every uid that an object had, by its name.
    seen: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Clone, Debug, PartialEq)]
struct OwnedObject {
    uid: String,
    /// By name and uid.
    owners: Vec<(String, String)>,
}

impl Model {
    /// Leaves out what has owners of which none is left; what loses its owners one by one.
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
            // What may have been collected meanwhile is out of the model, and its name will be free.
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
            // It was made if there is one that was not there before.
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
        // Its dependents are free once it is gone, and not before.
        let gone = poll(POLL_TIMEOUT, || {
            (self.caller.call("GET", &path(name), None)?.code == 404).then_some(())
        });
        assert!(gone.is_some(), "{name} is not let go");
        let uids: Vec<String> = self.model.objects.values().map(|held| held.uid.clone()).collect();
        for held in self.model.objects.values_mut() {
            held.owners.retain(|(_, uid)| uids.contains(uid));
        }
    }

    /// Waits until the dependents of an object have the owners that they are to have.
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

/// What there is, as the models have it.
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

/// Waits until all loops have taken in what was written before: an object without an owner is collected only after
/// what came before it was looked at.
fn settle(caller: &mut Caller<'_>) {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": ABSENT});
    let object = json!({"metadata": {"name": "settle", "ownerReferences": [owner]}});
    let made = caller.call("POST", MAPS, Some(&object)).expect("an answer");
    assert_eq!(made.code, 201, "{made:?}");
    let path = format!("{MAPS}/settle");
    let gone = poll(POLL_TIMEOUT, || (caller.call("GET", &path, None)?.code == 404).then_some(()));
    assert!(gone.is_some(), "nothing is collected");
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
    let (end, mut kills) = (Instant::now() + lasts, 0);
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
    let (answers, objects) = (site.acknowledged.load(Ordering::Relaxed), wanted.len());
    println!("{kills} kills, {answers} answers, {objects} objects left");
    drop(server);
}
