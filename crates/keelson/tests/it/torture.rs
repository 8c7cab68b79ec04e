//! Many watches, with different selectors and start revisions, while clients write, the
//! history is compacted and the server restarts. Each watch must match the history exactly:
//! no event lost, duplicated or out of order, and ADDED and DELETED for objects that start or stop
//! matching.
//!
//! `KEELSON_TORTURE_LIVES` sets the number of starts of the server (default 3);
//! `KEELSON_TORTURE_SEED` repeats a run's choices.

use crate::http::{POLL_TIMEOUT, revision_of, without_controllers};
use crate::random::Random;
use keelson::{Builder, Limits};
use keelson_testkit::connection::{Connection, Watch, plain};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const PODS: &str = "/api/v1/namespaces/default/pods";
const LIVES: usize = 3;
const WRITERS: usize = 20;
const WATCHERS: usize = 200;
/// Objects of each writer.
const NAMES: usize = 3;
/// Writes of each writer in one run of the server.
const WRITES: usize = 15;
const HISTORY: Duration = Duration::from_secs(2);
const BOOKMARKS: Duration = Duration::from_millis(20);
const COLORS: [&str; 3] = ["red", "green", "blue"];
const PHASES: [&str; 3] = ["Pending", "Running", "Failed"];

/// The state of an object: the fields of selectors, and a hash.
#[derive(Clone, Debug, PartialEq)]
struct State {
    name: String,
    color: String,
    phase: String,
    /// Hash of the whole object; 0 if the response had no object.
    hash: u64,
}

impl State {
    fn of(obj: &Value) -> State {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut hasher = DefaultHasher::new();
        obj.to_string().hash(&mut hasher);
        State {
            name: text(&obj["metadata"]["name"]),
            color: text(&obj["metadata"]["labels"]["color"]),
            phase: text(&obj["status"]["phase"]),
            hash: hasher.finish(),
        }
    }
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    word: &'static str,
    rev: u64,
    state: State,
}

impl Event {
    /// The object of a deletion has the revision of the deletion, so its hash is unknown.
    fn deleted(rev: u64, mut state: State) -> Event {
        state.hash = 0;
        Event { word: "DELETED", rev, state }
    }
}

/// The query parameters of a watch, and the objects that match them.
#[derive(Clone, Debug)]
struct WatchFilter {
    query: String,
    colors: Vec<&'static str>,
    phases: Vec<&'static str>,
    name: Option<String>,
}

impl WatchFilter {
    fn random(random: &mut Random) -> WatchFilter {
        let mut labels = "";
        let mut fields = String::new();
        let mut watch_filter = WatchFilter {
            query: String::new(),
            colors: COLORS.to_vec(),
            phases: PHASES.to_vec(),
            name: None,
        };
        match random.below(4) {
            0 => (labels, watch_filter.colors) = ("color%3Dred", vec!["red"]),
            1 => (labels, watch_filter.colors) = ("color%20in%20(red,blue)", vec!["red", "blue"]),
            2 => (labels, watch_filter.colors) = ("color!%3Dgreen", vec!["red", "blue"]),
            _ => {}
        }
        match random.below(4) {
            0 => {
                (fields, watch_filter.phases) =
                    ("status.phase%3DRunning".to_owned(), vec!["Running"])
            }
            1 => {
                fields = "status.phase!%3DFailed".to_owned();
                watch_filter.phases = vec!["Pending", "Running"];
            }
            2 => {
                let name = format!("w{}-{}", random.below(WRITERS), random.below(NAMES));
                fields = format!("metadata.name%3D{name}");
                watch_filter.name = Some(name);
            }
            _ => {}
        }
        watch_filter.query = format!("&labelSelector={labels}&fieldSelector={fields}");
        watch_filter
    }

    fn fits(&self, state: &State) -> bool {
        self.colors.contains(&state.color.as_str())
            && self.phases.contains(&state.phase.as_str())
            && self.name.as_ref().is_none_or(|name| *name == state.name)
    }
}

/// The address of the server, and the progress of the test.
#[derive(Default)]
struct SharedState {
    place: Mutex<(usize, Option<SocketAddr>)>,
    moved: Condvar,
    /// Number of writers that are done with this run of the server.
    rested: AtomicUsize,
    /// The last revision, for which watchers wait; 0 while it is unknown.
    end: AtomicU64,
    /// Acknowledged revisions.
    known: Mutex<Vec<u64>>,
    /// Number of watches that were rejected because their revision was compacted.
    expired: AtomicUsize,
}

impl SharedState {
    /// Waits for run `life` of the server or a later one. Returns its number, and a connection.
    fn connect(&self, life: usize) -> (usize, Connection) {
        let deadline = Instant::now() + POLL_TIMEOUT;
        loop {
            let guard = self.place.lock().expect("a place");
            let ready =
                |(now, address): &mut (usize, Option<SocketAddr>)| *now < life || address.is_none();
            let waited = self.moved.wait_timeout_while(guard, POLL_TIMEOUT, ready);
            let (now, address) = *waited.expect("a place").0;
            if let Some(stream) = address.and_then(|address| plain(address).ok()) {
                return (now, Connection::over(stream));
            }
            assert!(Instant::now() < deadline, "nothing to connect to");
        }
    }

    fn move_to(&self, life: usize, address: Option<SocketAddr>) {
        *self.place.lock().expect("a place") = (life, address);
        self.moved.notify_all();
    }
}

fn start(dir: &Path) -> Builder {
    let limits = Limits { bookmark_period: BOOKMARKS, ..Limits::default() };
    let builder = without_controllers().plain_http().token("t", "admin");
    builder.data_dir(dir).with(|builder| {
        builder.serving.limits = limits;
        builder.storage.history = HISTORY;
    })
}

/// The result of a write.
#[derive(Debug)]
struct Write {
    name: String,
    after: After,
}

#[derive(Debug)]
enum After {
    /// The object at a revision.
    Is(u64, State),
    /// The object has a deletionTimestamp; the response has no revision.
    Going,
    /// The object is deleted.
    Gone,
}

/// Writes in each run of the server, and records the results.
fn write(shared: &SharedState, writer: usize, lives: usize, mut random: Random) -> Vec<Write> {
    let mut done = vec![];
    let mut there = [false; NAMES];
    let mut newest = [0; NAMES];
    for life in 0..lives {
        let (_, mut connection) = shared.connect(life);
        for _ in 0..WRITES {
            let number = random.below(NAMES);
            let name = format!("w{writer}-{number}");
            let one = format!("{PODS}/{name}");
            let color = COLORS[random.below(COLORS.len())];
            let labels = json!({"metadata": {"labels": {"color": color}}});
            let phase = json!({"status": {"phase": PHASES[random.below(PHASES.len())]}});
            let merge = "application/merge-patch+json";
            let json = "application/json";
            let (method, path, media, body) = match (there[number], random.below(5)) {
                (false, _) => ("POST", PODS.to_owned(), json, pod(&name, color)),
                (true, 0) => ("DELETE", format!("{one}?gracePeriodSeconds=0"), json, json!({})),
                (true, 1 | 2) => ("PATCH", one, merge, labels),
                (true, _) => ("PATCH", format!("{one}/status"), merge, phase),
            };
            let body = (method != "DELETE").then_some(&body);
            let (code, answer) =
                connection.call(method, &path, media, body).expect("the server lives");
            assert!(matches!(code, 200 | 201), "{method} {path}: {answer}");
            there[number] = method != "DELETE";
            if body.is_none() {
                done.push(Write { name: name.clone(), after: After::Going });
                done.push(Write { name, after: After::Gone });
                continue;
            }
            // A no-op patch is not a change.
            let rev = revision_of(&answer);
            if std::mem::replace(&mut newest[number], rev) != rev {
                shared.known.lock().expect("revisions").push(rev);
                done.push(Write { name, after: After::Is(rev, State::of(&answer)) });
            }
        }
        shared.rested.fetch_add(1, Ordering::Release);
    }
    done
}

fn pod(name: &str, color: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"color": color}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

/// The events of a watch without a gap.
struct Stream {
    watch_filter: WatchFilter,
    /// The list at its start, if any.
    list: Option<Vec<State>>,
    after: u64,
    through: u64,
    events: Vec<Event>,
}

enum Ended {
    /// The watch has seen all events.
    AtTheEnd,
    /// The watch can resume.
    Cut,
    /// Its revision was compacted.
    Expired,
}

/// Reads a watch until it ends or a limit is reached.
fn read(shared: &SharedState, watch: &mut Watch, stream: &mut Stream, enough: usize) -> Ended {
    for _ in 0..enough {
        let end = shared.end.load(Ordering::Acquire);
        if end != 0 && stream.through >= end {
            return Ended::AtTheEnd;
        }
        let Ok(event) = watch.next() else { return Ended::Cut };
        let obj = &event["object"];
        let word = match event["type"].as_str() {
            Some("ERROR") => {
                assert_eq!(obj["code"], 410, "{event}");
                return Ended::Expired;
            }
            Some("BOOKMARK") => {
                assert!(revision_of(obj) >= stream.through, "{event} after {}", stream.through);
                stream.through = revision_of(obj);
                continue;
            }
            Some("ADDED") => "ADDED",
            Some("MODIFIED") => "MODIFIED",
            _ => "DELETED",
        };
        stream.through = revision_of(obj);
        stream.events.push(match word {
            "DELETED" => Event::deleted(revision_of(obj), State::of(obj)),
            word => Event { word, rev: revision_of(obj), state: State::of(obj) },
        });
    }
    Ended::Cut
}

/// Starts a stream with a list, as an informer does, or at a known revision.
fn begin(
    shared: &SharedState,
    watch_filter: &WatchFilter,
    random: &mut Random,
) -> io::Result<Stream> {
    let known = shared.known.lock().expect("revisions").clone();
    let mut stream = Stream {
        watch_filter: watch_filter.clone(),
        list: None,
        after: 0,
        through: 0,
        events: vec![],
    };
    if random.below(2) == 0 && !known.is_empty() {
        stream.after = known[random.below(known.len())];
    } else {
        let path = format!("{PODS}?limit=0{}", watch_filter.query);
        let (code, list) = shared.connect(0).1.call("GET", &path, "", None)?;
        assert_eq!(code, 200, "{list}");
        stream.after = revision_of(&list);
        let items = list["items"].as_array().expect("items").iter();
        // Items of a list have no kind, so their text differs.
        stream.list = Some(items.map(|obj| State { hash: 0, ..State::of(obj) }).collect());
    }
    stream.through = stream.after;
    Ok(stream)
}

/// Watches until the end, with interruptions by the client and by the server.
fn observe(
    shared: &SharedState,
    watch_filter: &WatchFilter,
    faithful: bool,
    mut random: Random,
) -> Vec<Stream> {
    let mut streams = vec![];
    let mut stream = None;
    loop {
        let mut current = match stream.take() {
            Some(stream) => stream,
            None => match begin(shared, watch_filter, &mut random) {
                Ok(begun) => begun,
                Err(_) => continue,
            },
        };
        let from = current.through;
        let path = format!(
            "{PODS}?watch=1&allowWatchBookmarks=true&resourceVersion={from}{}",
            watch_filter.query
        );
        let enough = if faithful { usize::MAX } else { 1 + random.below(60) };
        let ended = match shared.connect(0).1.watch(&path) {
            Ok(mut watch) => read(shared, &mut watch, &mut current, enough),
            Err(error) if error.to_string().ends_with(": 410") => Ended::Expired,
            Err(_) => Ended::Cut,
        };
        let goes_on = match ended {
            Ended::AtTheEnd => {
                streams.push(current);
                return streams;
            }
            Ended::Cut => faithful || random.below(4) != 0,
            Ended::Expired => {
                assert!(!faithful, "the faithful watcher fell behind");
                shared.expired.fetch_add(1, Ordering::Relaxed);
                false
            }
        };
        if goes_on {
            stream = Some(current);
        } else {
            streams.push(current);
        }
    }
}

/// A change of the history: the states before and after it.
struct Change {
    rev: u64,
    before: Option<State>,
    after: Option<State>,
}

/// Builds the history from a watch of all objects and compares it with the responses to the
/// writers.
fn history(told: &[Event], writers: &[Vec<Write>]) -> Vec<Change> {
    let mut left: BTreeMap<&str, std::collections::VecDeque<&Write>> = BTreeMap::new();
    for write in writers.iter().flatten() {
        left.entry(&write.name).or_default().push_back(write);
    }
    let mut now: BTreeMap<String, State> = BTreeMap::new();
    let mut changes = vec![];
    let mut last = 0;
    for event in told {
        assert!(event.rev > last, "{event:?} after {last}");
        last = event.rev;
        let name = event.state.name.clone();
        let write = left
            .get_mut(name.as_str())
            .and_then(|writes| writes.pop_front())
            .unwrap_or_else(|| panic!("nobody wrote {event:?}"));
        let after = (event.word != "DELETED").then(|| event.state.clone());
        let is_so = match &write.after {
            After::Is(rev, state) => *rev == event.rev && after.as_ref() == Some(state),
            After::Going => event.word == "MODIFIED",
            After::Gone => event.word == "DELETED",
        };
        assert!(is_so, "{write:?} became {event:?}");
        let before = match &after {
            Some(state) => now.insert(name, state.clone()),
            None => now.remove(&name),
        };
        changes.push(Change { rev: event.rev, before, after });
    }
    let lost: Vec<&&Write> = left.values().flatten().collect();
    assert!(lost.is_empty(), "not told: {lost:?}");
    changes
}

/// Compares a stream with the history.
fn check(stream: &Stream, changes: &[Change]) {
    let Stream { watch_filter, after, through, .. } = stream;
    let mut there: BTreeMap<&str, &State> = BTreeMap::new();
    let past = changes.iter().take_while(|change| change.rev <= *after);
    for change in past {
        if let Some(before) = &change.before {
            there.remove(before.name.as_str());
        }
        if let Some(state) = change.after.as_ref().filter(|state| watch_filter.fits(state)) {
            there.insert(&state.name, state);
        }
    }
    if let Some(list) = &stream.list {
        let want: Vec<State> =
            there.values().map(|state| State { hash: 0, ..(*state).clone() }).collect();
        assert_eq!(*list, want, "the list at {after} for {}", watch_filter.query);
    }
    let seen = changes.iter().filter(|change| change.rev > *after && change.rev <= *through);
    let want: Vec<Event> = seen
        .filter_map(|change| {
            let before = change.before.as_ref().filter(|state| watch_filter.fits(state));
            let after = change.after.as_ref().filter(|state| watch_filter.fits(state));
            let rev = change.rev;
            match (before, after) {
                (None, None) => None,
                (None, Some(state)) => Some(Event { word: "ADDED", rev, state: state.clone() }),
                (Some(_), Some(state)) => {
                    Some(Event { word: "MODIFIED", rev, state: state.clone() })
                }
                (Some(state), None) => Some(Event::deleted(rev, state.clone())),
            }
        })
        .collect();
    assert_eq!(stream.events, want, "after {after} through {through} for {}", watch_filter.query);
}

/// Waits for the writers of this run, and for the compaction of its start.
fn wait_for_writers_and_compaction(shared: &SharedState, life: usize, began_at: u64) {
    let deadline = Instant::now() + POLL_TIMEOUT + HISTORY * 4;
    let old = format!("{PODS}?resourceVersion={began_at}&resourceVersionMatch=Exact");
    let (_, mut connection) = shared.connect(life);
    loop {
        let rested = shared.rested.load(Ordering::Acquire) >= WRITERS * (life + 1);
        let (code, _) = connection.call("GET", &old, "", None).expect("an answer");
        if rested && code == 410 {
            return;
        }
        assert!(Instant::now() < deadline, "life {life}: rested {rested}, history {code}");
        std::thread::yield_now();
    }
}

fn latest(shared: &SharedState) -> u64 {
    let (code, list) = shared.connect(0).1.call("GET", PODS, "", None).expect("a list");
    assert_eq!(code, 200, "{list}");
    revision_of(&list)
}

#[test]
fn every_watch_matches_the_history() {
    let lives = std::env::var("KEELSON_TORTURE_LIVES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(LIVES);
    let mut random = Random::seeded("KEELSON_TORTURE_SEED");
    let dir = tempfile::tempdir().expect("a folder");
    let runtime = Runtime::new().expect("a runtime");
    let shared = SharedState::default();
    std::thread::scope(|scope| {
        let shared = &shared;
        let everything = WatchFilter {
            query: String::new(),
            colors: COLORS.to_vec(),
            phases: PHASES.to_vec(),
            name: None,
        };
        let mut keelson = runtime.block_on(start(dir.path()).start()).expect("the server starts");
        shared.move_to(0, Some(keelson.address()));
        let began_at = latest(shared);
        let mut faithful = random.split();
        let faithful = scope.spawn(move || {
            let mut streams = observe(shared, &everything, true, faithful.split());
            streams.pop().expect("a stream")
        });
        let watchers: Vec<_> = (0..WATCHERS)
            .map(|_| {
                let watch_filter = WatchFilter::random(&mut random);
                let random = random.split();
                scope.spawn(move || observe(shared, &watch_filter, false, random))
            })
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let random = random.split();
                scope.spawn(move || write(shared, writer, lives, random))
            })
            .collect();
        let mut began_at = began_at;
        for life in 0..lives {
            wait_for_writers_and_compaction(shared, life, began_at);
            if life + 1 < lives {
                shared.move_to(life, None);
                runtime.block_on(keelson.stop());
                keelson = runtime.block_on(start(dir.path()).start()).expect("it starts again");
                shared.move_to(life + 1, Some(keelson.address()));
                began_at = latest(shared);
            }
        }
        let writers: Vec<_> = writers.into_iter().map(|w| w.join().expect("a log")).collect();
        shared.end.store(latest(shared), Ordering::Release);
        let faithful = faithful.join().expect("a log");
        let changes = history(&faithful.events, &writers);
        let mut events = 0;
        let mut streams = 0;
        for watcher in watchers {
            for stream in watcher.join().expect("a log") {
                check(&stream, &changes);
                events += stream.events.len();
                streams += 1;
            }
        }
        runtime.block_on(keelson.stop());
        let expired = shared.expired.load(Ordering::Relaxed);
        println!(
            "{} changes, {streams} streams, {events} events, {expired} expired",
            changes.len()
        );
    });
}
