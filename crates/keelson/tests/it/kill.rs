//! `kill -9` of the server under load. Writers record acknowledged writes, a watch records events;
//! the server is killed at a random moment and restarted with the same directory. Then all of these
//! writes must exist, once, in order, and no others.
//!
//! `KEELSON_KILLS` sets the number of kills (default 20); `KEELSON_KILL_SEED` repeats a run's
//! choices.

use crate::http::revision_of;
use crate::random::Random;
use keelson_testkit::connection::{Connect, Connection, Wire, authorities, secure, tls_client};
use rustls::ClientConfig;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const KILLS: usize = 20;
const WRITERS: usize = 6;
/// Objects of each writer; few, so that each is created, updated and deleted many times.
const NAMES: usize = 5;
/// Maximum number of acknowledged writes before the server is killed.
const ACKNOWLEDGED_MAX: usize = 250;

/// A server process. Dropping it kills it with SIGKILL.
pub struct Server {
    child: Child,
    address: SocketAddr,
    tls: Arc<ClientConfig>,
}

impl Server {
    /// Starts a server with a data directory, without controllers.
    pub fn start(dir: &Path) -> Server {
        Server::start_with(dir, "-*")
    }

    /// Starts a server with a data directory and a value of `--controllers`.
    pub fn start_with(dir: &Path, controllers: &str) -> Server {
        Server::start_with_flags(dir, &[&format!("--controllers={controllers}")])
    }

    /// Starts a server with a data directory and flags.
    pub fn start_with_flags(dir: &Path, flags: &[&str]) -> Server {
        std::fs::create_dir_all(dir).expect("a folder");
        let tokens = dir.join("tokens.csv");
        std::fs::write(&tokens, "t,admin,u,\"system:masters\"\n").expect("a token file");
        let mut child = Command::new(env!("CARGO_BIN_EXE_keelson"))
            .args(["serve", "--secure-port=0", "--bind-address=127.0.0.1"])
            .args(flags)
            .arg("--data-dir")
            .arg(dir)
            .arg("--token-auth-file")
            .arg(tokens)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let banner = BufReader::new(child.stdout.take().expect("a banner")).lines();
        let address = banner
            .map_while(Result::ok)
            .find_map(|line| line.split_once("https://")?.1.split(' ').next()?.parse().ok())
            .expect("the banner says where");
        let kubeconfig =
            std::fs::read_to_string(dir.join("admin.kubeconfig")).expect("a kubeconfig");
        let tls = tls_client(authorities(&kubeconfig)).with_no_client_auth();
        Server { child, address, tls: Arc::new(tls) }
    }

    /// Returns where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connects to the server.
    pub fn connect(&self) -> Connection {
        self.connect_later()().expect("a connection")
    }

    /// Returns a function that connects, for clients that outlive the server.
    pub fn connect_later(&self) -> Connect {
        let address = self.address;
        let tls = self.tls.clone();
        Arc::new(move || Ok(Connection::over(secure(address, &tls)?)))
    }

    /// Opens a TLS connection without a request.
    pub fn open(&self) -> impl Wire + use<> {
        secure(self.address, &self.tls).expect("a connection")
    }

    /// Sends a signal to the process.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Waits for the end of the process. Returns its exit status, or `None` if a signal killed it.
    pub fn exit_status(&mut self) -> Option<i32> {
        self.child.wait().expect("the process can be waited for").code()
    }

    /// Returns all objects by name, and the revision of the list.
    fn list(&self) -> (BTreeMap<String, ObjectState>, u64) {
        let (code, list) = self.connect().call("GET", MAPS, "", None).expect("a list");
        assert_eq!(code, 200, "{list}");
        let items = list["items"].as_array().expect("items").iter();
        let by_name =
            items.map(|obj| (name(obj), ObjectState { rev: revision_of(obj), value: value(obj) }));
        (by_name.collect(), revision_of(&list))
    }

    /// Returns the events after a revision, up to that of the object `last`.
    fn events(&self, after: u64, last: &str) -> Vec<Event> {
        let path = format!("{MAPS}?watch=1&resourceVersion={after}");
        let mut watch = self.connect().watch(&path).expect("the history is there");
        let mut events: Vec<Event> = vec![];
        while events.last().is_none_or(|event| event.name != last) {
            events.push(Event::of(&watch.next().expect("the watch goes on")));
        }
        events
    }
}

impl Drop for Server {
    /// `kill -9`.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Clone, Debug, PartialEq)]
struct ObjectState {
    rev: u64,
    value: String,
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    word: String,
    name: String,
    seen: ObjectState,
}

impl Event {
    fn of(event: &Value) -> Event {
        let obj = &event["object"];
        Event {
            word: event["type"].as_str().unwrap_or_default().to_owned(),
            name: name(obj),
            seen: ObjectState { rev: revision_of(obj), value: value(obj) },
        }
    }
}

fn name(obj: &Value) -> String {
    obj["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn value(obj: &Value) -> String {
    obj["data"]["value"].as_str().unwrap_or_default().to_owned()
}

/// A write and its response; the response to a deletion has no revision.
#[derive(Clone, Debug)]
struct Write {
    word: &'static str,
    name: String,
    value: String,
    rev: Option<u64>,
}

/// Writes until the server is killed. The last write may or may not have been executed.
fn write(
    mut connection: Connection,
    mut random: Random,
    mut there: BTreeMap<String, bool>,
    acknowledged: &AtomicUsize,
) -> (Vec<Write>, Write) {
    let mut done: Vec<Write> = vec![];
    let names: Vec<String> = there.keys().cloned().collect();
    loop {
        let name = names[random.below(names.len())].clone();
        let path = format!("{MAPS}/{name}");
        // Never the current value, because a no-op write has no event.
        let number = random.below(usize::MAX);
        let filler = "x".repeat(random.below(2_000));
        let text = format!("{}-{number}-{filler}", done.len());
        let obj = json!({"metadata": {"name": name}, "data": {"value": text}});
        let json = "application/json";
        let (word, method, path, media) = match (there[&name], random.below(4)) {
            (false, _) => ("ADDED", "POST", MAPS, json),
            (true, 0) => ("DELETED", "DELETE", path.as_str(), json),
            (true, 1) => ("MODIFIED", "PATCH", path.as_str(), "application/merge-patch+json"),
            (true, _) => ("MODIFIED", "PUT", path.as_str(), json),
        };
        let body = (word != "DELETED").then_some(&obj);
        let mut write = Write { word, name: name.clone(), value: text.clone(), rev: None };
        let Ok((code, answer)) = connection.call(method, path, media, body) else {
            return (done, write);
        };
        assert!(matches!(code, 200 | 201), "{method} {path}: {answer}");
        write.rev = body.map(|_| revision_of(&answer));
        there.insert(name, word != "DELETED");
        done.push(write);
        acknowledged.fetch_add(1, Ordering::Release);
    }
}

/// What clients know of one run of the server after it was killed.
struct RunLog {
    /// For each writer its acknowledged writes, and the write that was in flight.
    writers: Vec<(Vec<Write>, Write)>,
    /// The events of a watch.
    watched: Vec<Event>,
}

/// Starts writers and a watch, and kills the server once it has acknowledged `count` writes.
fn run_until_killed(
    server: Server,
    base: &BTreeMap<String, ObjectState>,
    after: u64,
    count: usize,
    random: &mut Random,
) -> RunLog {
    let acknowledged = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let path = format!("{MAPS}?watch=1&resourceVersion={after}");
        let mut watch = server.connect().watch(&path).expect("a watch");
        let watcher = scope.spawn(move || {
            let mut seen = vec![];
            while let Ok(event) = watch.next() {
                seen.push(Event::of(&event));
            }
            seen
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let names = (0..NAMES).map(|n| format!("w{writer}-{n}"));
                let there = names.map(|name| (name.clone(), base.contains_key(&name))).collect();
                let connection = server.connect();
                let random = random.split();
                let acknowledged = &acknowledged;
                scope.spawn(move || write(connection, random, there, acknowledged))
            })
            .collect();
        while acknowledged.load(Ordering::Acquire) < count {
            assert!(!writers.iter().any(|writer| writer.is_finished()), "a writer gave up");
            std::thread::yield_now();
        }
        drop(server);
        let writers = writers.into_iter().map(|writer| writer.join().expect("a log")).collect();
        RunLog { writers, watched: watcher.join().expect("a log") }
    })
}

/// Compares the writes of an object with its watch events.
fn check_object(name: &str, log: &RunLog, events: &[Event]) {
    let of_name = |write: &&Write| write.name == name;
    let all = log.writers.iter();
    let acknowledged: Vec<&Write> =
        all.clone().flat_map(|(done, _)| done).filter(of_name).collect();
    let under_way = all.map(|(_, last)| last).find(of_name);
    let watched: Vec<&Event> = events.iter().filter(|event| event.name == name).collect();
    let known: Vec<&Write> = acknowledged.iter().copied().chain(under_way).collect();
    assert!(
        watched.len() == acknowledged.len() || watched.len() == known.len(),
        "{name}: {known:?} became {watched:?}"
    );
    for (write, event) in known.iter().zip(watched) {
        assert_eq!(write.word, event.word, "{name}: {write:?} became {event:?}");
        assert!(write.rev.is_none_or(|rev| rev == event.seen.rev), "{write:?} became {event:?}");
        let is_same = write.word == "DELETED" || write.value == event.seen.value;
        assert!(is_same, "{write:?} became {event:?}");
    }
}

/// Applies events to the objects of `base`.
fn replay(
    mut base: BTreeMap<String, ObjectState>,
    events: &[Event],
) -> BTreeMap<String, ObjectState> {
    for event in events {
        match event.word.as_str() {
            "DELETED" => base.remove(&event.name),
            _ => base.insert(event.name.clone(), event.seen.clone()),
        };
    }
    base
}

#[test]
fn acknowledged_writes_survive_a_kill_and_watches_resume() {
    let kills = std::env::var("KEELSON_KILLS").ok().and_then(|text| text.parse().ok());
    let mut random = Random::seeded("KEELSON_KILL_SEED");
    let dir = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(dir.path());
    let mut writes = 0;
    let mut watched = 0;
    for round in 0..kills.unwrap_or(KILLS) {
        let (base, after) = server.list();
        let log =
            run_until_killed(server, &base, after, 1 + random.below(ACKNOWLEDGED_MAX), &mut random);
        server = Server::start(dir.path());
        let (now, _) = server.list();
        // Marks the end of this round for the watches below.
        let last = format!("round-{round}");
        let marker = json!({"metadata": {"name": last}});
        let made = server.connect().call("POST", MAPS, "application/json", Some(&marker));
        assert_eq!(made.expect("an answer").0, 201);

        let mut events = server.events(after, &last);
        let mut before = after;
        for event in &events {
            assert!(event.seen.rev > before, "{event:?} after {before}");
            before = event.seen.rev;
        }
        let seen = log.watched.len();
        assert_eq!(log.watched, events[..seen], "what was watched was taken back");
        let resumed = log.watched.last().map_or(after, |event| event.seen.rev);
        assert_eq!(server.events(resumed, &last), events[seen..], "the watch did not resume");
        events.pop();
        for writer in 0..WRITERS {
            (0..NAMES).for_each(|n| check_object(&format!("w{writer}-{n}"), &log, &events));
        }
        assert_eq!(replay(base, &events), now, "the list is not what happened");
        writes += events.len();
        watched += seen;
    }
    println!("{writes} writes, {watched} of them watched before the kill");
}
