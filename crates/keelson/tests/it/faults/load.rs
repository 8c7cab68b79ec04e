//! Clients that write, read and watch during faults, and the check of all their responses and
//! events.

use super::linear::{self, Call, Id, NEVER, Operation, Outcome};
use crate::http::{POLL_TIMEOUT, revision_of};
use crate::random::Random;
use keelson_testkit::connection::{Connect, Connection};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CLIENTS: usize = 6;
/// Longest time without an expected answer, on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Few objects, so that clients conflict.
const KEYS: usize = 4;
const JSON: &str = "application/json";

/// What the clients write.
#[derive(Clone, Debug)]
pub struct Objects {
    /// The path of the collection.
    pub path: String,
    pub api_version: String,
    pub kind: &'static str,
    /// Whether an update may leave out the resourceVersion.
    pub updates_unconditionally: bool,
}

impl Objects {
    fn config_maps() -> Objects {
        let path = MAPS.to_owned();
        let api_version = "v1".to_owned();
        Objects { path, api_version, kind: "ConfigMap", updates_unconditionally: true }
    }

    fn object(&self, key: &str, id: Id, expected: Option<u64>) -> Value {
        let rev = expected.map(|rev| rev.to_string());
        // Large enough that the data file grows.
        let pad = "x".repeat(2_000);
        json!({"apiVersion": self.api_version, "kind": self.kind,
            "metadata": {"name": key, "resourceVersion": rev},
            "data": {"id": id.to_string(), "pad": pad}})
    }
}

/// The running clients.
pub struct Load {
    reads: Reads,
    objects: Objects,
    connect: Mutex<Option<Connect>>,
    began: Instant,
    ids: AtomicU64,
    acknowledged: AtomicUsize,
    refused: AtomicUsize,
    answered: AtomicUsize,
    is_over: AtomicBool,
    /// Whether the script has panicked, so that no last write comes.
    is_broken: AtomicBool,
    /// The first rejection without a message.
    unclear: Mutex<Option<String>>,
}

/// Expected result of reads during a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reads {
    GoOn,
    MayFail,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    word: String,
    name: String,
    rev: u64,
    id: Id,
}

fn name(key: usize) -> String {
    format!("fault-{key}")
}

fn id(obj: &Value) -> Id {
    obj["data"]["id"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Runs the clients while `script` causes faults, then checks that all responses are linearizable.
/// At the end the server must work.
pub fn run(random: &mut Random, reads: Reads, connect: Connect, script: impl FnOnce(&Load)) {
    run_on(Objects::config_maps(), random, reads, connect, script);
}

/// Like [`run`], on other objects.
pub fn run_on(
    objects: Objects,
    random: &mut Random,
    reads: Reads,
    connect: Connect,
    script: impl FnOnce(&Load),
) {
    let load = Load {
        reads,
        objects,
        connect: Mutex::new(Some(connect)),
        began: Instant::now(),
        ids: AtomicU64::new(1),
        acknowledged: AtomicUsize::new(0),
        refused: AtomicUsize::new(0),
        answered: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
        is_broken: AtomicBool::new(false),
        unclear: Mutex::new(None),
    };
    let (code, list) = load.connection().call("GET", load.path(), "", None).expect("a list");
    assert_eq!(code, 200, "{list}");
    let after = revision_of(&list);
    let (mut calls, events) = std::thread::scope(|scope| {
        let load = &load;
        // The clients stop even if the script panics.
        let _stop = StopOnDrop(load);
        let watcher = scope.spawn(move || watch(load, after));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let random = random.split();
                scope.spawn(move || work(load, random))
            })
            .collect();
        script(load);
        load.is_over.store(true, Ordering::Release);
        let calls: Vec<(usize, Call)> =
            clients.into_iter().flat_map(|client| client.join().expect("a log")).collect();
        load.write_last();
        (calls, watcher.join().expect("a log"))
    });
    if let Some(answer) = load.unclear.lock().expect("an answer").take() {
        panic!("refused, and not said why: {answer}");
    }
    for key in 0..KEYS {
        calls.push((key, load.read_at_last(key)));
    }
    check(&calls, after, &events);
    println!("{} calls, {} events", calls.len(), events.len());
}

struct StopOnDrop<'a>(&'a Load);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
        self.0.is_broken.store(std::thread::panicking(), Ordering::Release);
    }
}

impl Load {
    /// Waits until this many further writes are acknowledged.
    pub fn wait_acknowledged(&self, count: usize) {
        wait(&self.acknowledged, count, "no write is acknowledged");
    }

    /// Waits until this many further writes are rejected.
    pub fn wait_refused(&self, count: usize) {
        wait(&self.refused, count, "no write is refused");
    }

    /// Waits until this many further writes have a response.
    pub fn wait_answered(&self, count: usize) {
        wait(&self.answered, count, "no write is answered");
    }

    /// Returns a connection once the server runs.
    pub fn move_to(&self, connect: Option<Connect>) {
        *self.connect.lock().expect("a place") = connect;
    }

    /// Waits for the server and connects.
    pub fn connection(&self) -> Connection {
        let deadline = Instant::now() + POLL_TIMEOUT;
        loop {
            let connect = self.connect.lock().expect("a place").clone();
            if let Some(connection) = connect.and_then(|connect| connect().ok()) {
                return connection;
            }
            assert!(Instant::now() < deadline, "nothing to connect to");
            std::thread::yield_now();
        }
    }

    /// Returns the path of the objects.
    pub fn path(&self) -> &str {
        &self.objects.path
    }

    /// Creates the object whose event is the last. The store may still elect a leader: a write
    /// without an outcome is sent again, and may turn out to be there.
    fn write_last(&self) {
        let last = self.objects.object("fault-last", 0, None);
        let deadline = Instant::now() + WAIT_MAX;
        let mut is_first = true;
        loop {
            let answer = self.connection().call("POST", self.path(), JSON, Some(&last));
            match answer {
                Ok((201, _)) => return,
                Ok((409, _)) if !is_first => return,
                Ok((500 | 503 | 504, _)) | Err(_) if Instant::now() < deadline => {}
                answer => panic!("the last write: {answer:?}"),
            }
            is_first = false;
        }
    }

    /// Reads a key; a server may still have to find a member of etcd that works.
    fn read_at_last(&self, key: usize) -> Call {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let call = self.call(key, Operation::Read);
            if matches!(call.outcome, Outcome::Saw(_)) || Instant::now() > deadline {
                return call;
            }
        }
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Sends a request over a new connection.
    fn call(&self, key: usize, operation: Operation) -> Call {
        self.call_over(&mut self.connection(), key, operation).0
    }

    /// Sends an operation. Returns the call, and whether the connection can be used further.
    fn call_over(
        &self,
        connection: &mut Connection,
        key: usize,
        operation: Operation,
    ) -> (Call, bool) {
        let name = name(key);
        let all = self.path().to_owned();
        let one = format!("{}/{name}", self.path());
        let object = |id, expected| Some(self.objects.object(&name, id, expected));
        let (method, path, body) = match operation {
            Operation::Read => ("GET", one, None),
            Operation::Create(id) => ("POST", all, object(id, None)),
            Operation::Update(id, expected) => ("PUT", one, object(id, expected)),
            Operation::Delete => ("DELETE", one, None),
        };
        let began = self.now();
        let result = connection.call(method, &path, JSON, body.as_ref());
        let ended = self.now();
        let outcome = match &result {
            Ok((code, answer)) => self.outcome(operation, *code, answer),
            Err(_) => Outcome::Unknown,
        };
        (Call { began, ended, operation, outcome }, result.is_ok())
    }

    fn outcome(&self, operation: Operation, code: u16, answer: &Value) -> Outcome {
        let is_write = operation != Operation::Read;
        let result = match (operation, code) {
            (Operation::Read, 200) => Outcome::Saw(Some((id(answer), revision_of(answer)))),
            (Operation::Read, 404) => Outcome::Saw(None),
            (Operation::Create(_), 201) | (Operation::Update(..), 200) => {
                Outcome::Wrote(revision_of(answer))
            }
            (Operation::Delete, 200) => Outcome::Deleted,
            (_, 404) => Outcome::NotFound,
            (Operation::Create(_), 409) => Outcome::Exists,
            (_, 409) => Outcome::Conflict,
            (_, 503) => Outcome::Refused,
            _ => Outcome::Unknown,
        };
        self.answered.fetch_add(1, Ordering::Release);
        match result {
            Outcome::Wrote(_) | Outcome::Deleted => {
                self.acknowledged.fetch_add(1, Ordering::Release);
            }
            Outcome::Unknown | Outcome::Refused => {
                let is_clear = answer["kind"] == "Status"
                    && answer["code"] == code
                    && matches!(code, 500 | 503 | 504)
                    && answer["message"].as_str().is_some_and(|text| !text.is_empty());
                if !is_clear || !(is_write || self.reads == Reads::MayFail) {
                    self.unclear.lock().expect("an answer").get_or_insert(answer.to_string());
                }
                self.refused.fetch_add(1, Ordering::Release);
            }
            _ => {}
        }
        result
    }
}

fn wait(counter: &AtomicUsize, count: usize, why: &str) {
    let mut seen = counter.load(Ordering::Acquire);
    let end = seen + count;
    let mut deadline = Instant::now() + WAIT_MAX;
    while seen < end {
        assert!(Instant::now() < deadline, "{why}");
        std::thread::yield_now();
        let now = counter.load(Ordering::Acquire);
        if now > seen {
            seen = now;
            deadline = Instant::now() + WAIT_MAX;
        }
    }
}

/// Runs a client, which records its calls, until the end.
fn work(load: &Load, mut random: Random) -> Vec<(usize, Call)> {
    let mut calls = vec![];
    // The last state that this client has read; often stale, as others write too.
    let mut known = [None; KEYS];
    let mut connection = load.connection();
    while !load.is_over.load(Ordering::Acquire) {
        let key = random.below(KEYS);
        let operation = match (known[key], random.below(8)) {
            (_, 0..3) => Operation::Read,
            (None, _) => Operation::Create(load.ids.fetch_add(1, Ordering::Relaxed)),
            (Some(_), 3) => Operation::Delete,
            (Some(_), 4) if load.objects.updates_unconditionally => {
                Operation::Update(load.ids.fetch_add(1, Ordering::Relaxed), None)
            }
            (Some(rev), _) => {
                Operation::Update(load.ids.fetch_add(1, Ordering::Relaxed), Some(rev))
            }
        };
        let (call, is_open) = load.call_over(&mut connection, key, operation);
        match call.outcome {
            Outcome::Saw(Some((_, rev))) | Outcome::Wrote(rev) => known[key] = Some(rev),
            Outcome::Saw(None) | Outcome::Deleted | Outcome::NotFound => known[key] = None,
            Outcome::Exists => known[key] = Some(1),
            Outcome::Conflict | Outcome::Unknown | Outcome::Refused => {}
        }
        calls.push((key, call));
        if !is_open {
            connection = load.connection();
        }
    }
    calls
}

/// Watches the objects, with a new watch whenever one ends, until the event of the last write.
fn watch(load: &Load, mut after: u64) -> Vec<Event> {
    let mut events: Vec<Event> = vec![];
    let is_last = |event: &Event| event.name == "fault-last";
    while !events.last().is_some_and(is_last) && !load.is_broken.load(Ordering::Acquire) {
        let path = format!("{}?watch=1&resourceVersion={after}", load.path());
        let mut watch = match load.connection().watch(&path) {
            Ok(watch) => watch,
            Err(error) => {
                // A stopping server may have accepted the connection already.
                assert!(!error.to_string().ends_with(": 410"), "no history: {error}");
                continue;
            }
        };
        while let Ok(event) = watch.next() {
            let word = event["type"].as_str().unwrap_or_default().to_owned();
            if word == "ERROR" {
                assert_ne!(event["object"]["code"], 410, "no history after {after}");
                break;
            }
            let obj = &event["object"];
            after = revision_of(obj);
            let name = obj["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            events.push(Event { word, name, rev: after, id: id(obj) });
            if events.last().is_some_and(is_last) {
                break;
            }
        }
    }
    events
}

/// Takes from the watch what became of a write without a response; it may have happened at any
/// later time, or not at all. Then the call is removed.
fn settle(call: &mut Call, written: &HashMap<Id, &Event>) -> bool {
    let (Operation::Create(id) | Operation::Update(id, _), Outcome::Unknown) =
        (call.operation, call.outcome)
    else {
        return true;
    };
    let Some(event) = written.get(&id) else { return false };
    (call.outcome, call.ended) = (Outcome::Wrote(event.rev), NEVER);
    true
}

fn check(calls: &[(usize, Call)], after: u64, events: &[Event]) {
    let mut before = after;
    for event in events {
        assert!(event.rev > before, "doubled or out of order: {event:?} after {before}");
        before = event.rev;
    }
    let mut written: HashMap<u64, &Event> = HashMap::new();
    let mut left: BTreeMap<&str, (Id, u64)> = BTreeMap::new();
    for event in events {
        match event.word.as_str() {
            "DELETED" => assert!(left.remove(event.name.as_str()).is_some(), "{event:?}"),
            word => {
                let old = left.insert(&event.name, (event.id, event.rev));
                assert_eq!(old.is_none(), word == "ADDED", "{event:?} after {old:?}");
                written.insert(event.rev, event);
            }
        }
    }
    let by_id: HashMap<Id, &Event> = written.values().map(|event| (event.id, *event)).collect();
    for key in 0..KEYS {
        let name = name(key);
        let mut of_key: Vec<Call> =
            calls.iter().filter(|(of, _)| *of == key).map(|(_, call)| call.clone()).collect();
        for call in &of_key {
            let (Operation::Create(id) | Operation::Update(id, _), Outcome::Wrote(rev)) =
                (call.operation, call.outcome)
            else {
                continue;
            };
            let result = written.get(&rev).filter(|event| event.name == name && event.id == id);
            assert!(result.is_some(), "acknowledged, and never watched: {name} {call:?}");
        }
        let seen = of_key.last().map(|call| call.outcome);
        assert_eq!(seen, Some(Outcome::Saw(left.get(name.as_str()).copied())), "{name}");
        of_key.retain_mut(|call| settle(call, &by_id));
        if let Err(why) = linear::check(&of_key) {
            panic!("{name} cannot have been so: {why}");
        }
    }
}
