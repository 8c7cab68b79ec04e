//! Many watchers, with selectors of all kinds and from revisions of all ages, while writers write, the
//! history is compacted and the server restarts. Each stream must be exactly what the history says:
//! nothing lost, doubled or out of order, and changes that enter or leave a selector told as such.
//!
//! `KEELSON_TORTURE_LIVES=20` starts the server that often (3 without it); `KEELSON_TORTURE_SEED=N`
//! repeats a run's choices.

use crate::connection::{Connection, Watch, plain};
use crate::http::{PATIENCE, quiet, revision_of};
use crate::random::Random;
use keelson::{Builder, Limits};
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
/// Writes of each writer in one life of the server.
const WRITES: usize = 15;
const HISTORY: Duration = Duration::from_secs(2);
const BOOKMARKS: Duration = Duration::from_millis(20);
const COLORS: [&str; 3] = ["red", "green", "blue"];
const PHASES: [&str; 3] = ["Pending", "Running", "Failed"];

/// What of an object decides whether a watcher sees it, and tells two states apart.
#[derive(Clone, Debug, PartialEq)]
struct State {
    name: String,
    color: String,
    phase: String,
    /// Of all that the server told; 0 where it told nothing.
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

/// What a watcher was told.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    word: &'static str,
    rev: u64,
    state: State,
}

impl Event {
    /// A deletion tells the last state with the revision of the deletion, so its text is another one.
    fn deleted(rev: u64, mut state: State) -> Event {
        state.hash = 0;
        Event { word: "DELETED", rev, state }
    }
}

/// What a watcher wants to see.
#[derive(Clone, Debug)]
struct Wish {
    query: String,
    colors: Vec<&'static str>,
    phases: Vec<&'static str>,
    name: Option<String>,
}

impl Wish {
    fn random(random: &mut Random) -> Wish {
        let (mut labels, mut fields) = ("", String::new());
        let mut wish = Wish {
            query: String::new(),
            colors: COLORS.to_vec(),
            phases: PHASES.to_vec(),
            name: None,
        };
        match random.below(4) {
            0 => (labels, wish.colors) = ("color%3Dred", vec!["red"]),
            1 => (labels, wish.colors) = ("color%20in%20(red,blue)", vec!["red", "blue"]),
            2 => (labels, wish.colors) = ("color!%3Dgreen", vec!["red", "blue"]),
            _ => {}
        }
        match random.below(4) {
            0 => (fields, wish.phases) = ("status.phase%3DRunning".to_owned(), vec!["Running"]),
            1 => {
                fields = "status.phase!%3DFailed".to_owned();
                wish.phases = vec!["Pending", "Running"];
            }
            2 => {
                let name = format!("w{}-{}", random.below(WRITERS), random.below(NAMES));
                fields = format!("metadata.name%3D{name}");
                wish.name = Some(name);
            }
            _ => {}
        }
        wish.query = format!("&labelSelector={labels}&fieldSelector={fields}");
        wish
    }

    fn fits(&self, state: &State) -> bool {
        self.colors.contains(&state.color.as_str())
            && self.phases.contains(&state.phase.as_str())
            && self.name.as_ref().is_none_or(|name| *name == state.name)
    }
}

/// Where the server is, and how far the test has come.
#[derive(Default)]
struct Stage {
    place: Mutex<(usize, Option<SocketAddr>)>,
    moved: Condvar,
    /// Writers that have done their part of this life.
    rested: AtomicUsize,
    /// The last revision that watchers wait for; 0 while it is not known.
    end: AtomicU64,
    /// Revisions that were acknowledged.
    known: Mutex<Vec<u64>>,
    /// Watches that were told that they ask for too old a revision.
    expired: AtomicUsize,
}

impl Stage {
    /// Waits for life `life` or a later one: which it is, and a connection.
    fn connect(&self, life: usize) -> (usize, Connection) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let guard = self.place.lock().expect("a place");
            let ready =
                |(now, address): &mut (usize, Option<SocketAddr>)| *now < life || address.is_none();
            let waited = self.moved.wait_timeout_while(guard, PATIENCE, ready);
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
    let builder = quiet().plain_http().token("t", "admin");
    Builder { limits, history: HISTORY, ..builder.data_dir(dir) }
}

/// What became of a writer's object.
#[derive(Debug)]
struct Write {
    name: String,
    after: After,
}

#[derive(Debug)]
enum After {
    /// It is so, from a revision on.
    Is(u64, State),
    /// It is marked as going; a deletion does so first, and is not told the revision.
    Going,
    /// It is gone.
    Gone,
}

/// Writes in every life, and remembers.
fn write(stage: &Stage, writer: usize, lives: usize, mut random: Random) -> Vec<Write> {
    let mut done = vec![];
    let (mut there, mut newest) = ([false; NAMES], [0; NAMES]);
    for life in 0..lives {
        let (_, mut connection) = stage.connect(life);
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
            // A patch that changes nothing is no change.
            let rev = revision_of(&answer);
            if std::mem::replace(&mut newest[number], rev) != rev {
                stage.known.lock().expect("revisions").push(rev);
                done.push(Write { name, after: After::Is(rev, State::of(&answer)) });
            }
        }
        stage.rested.fetch_add(1, Ordering::Release);
    }
    done
}

fn pod(name: &str, color: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"color": color}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

/// All that a watcher saw without a gap.
struct Stream {
    wish: Wish,
    /// The list that it began with, if any.
    list: Option<Vec<State>>,
    after: u64,
    through: u64,
    events: Vec<Event>,
}

enum Ended {
    /// It saw all that there is.
    AtTheEnd,
    /// It can go on from where it is.
    Cut,
    /// Its revision is forgotten.
    Expired,
}

/// Reads a watch until it ends, or the watcher has had enough.
fn read(stage: &Stage, watch: &mut Watch, stream: &mut Stream, enough: usize) -> Ended {
    for _ in 0..enough {
        let end = stage.end.load(Ordering::Acquire);
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

/// A stream that begins with a list, as an informer's does, or at a revision that somebody knows.
fn begin(stage: &Stage, wish: &Wish, random: &mut Random) -> io::Result<Stream> {
    let known = stage.known.lock().expect("revisions").clone();
    let mut stream =
        Stream { wish: wish.clone(), list: None, after: 0, through: 0, events: vec![] };
    if random.below(2) == 0 && !known.is_empty() {
        stream.after = known[random.below(known.len())];
    } else {
        let path = format!("{PODS}?limit=0{}", wish.query);
        let (code, list) = stage.connect(0).1.call("GET", &path, "", None)?;
        assert_eq!(code, 200, "{list}");
        stream.after = revision_of(&list);
        let items = list["items"].as_array().expect("items").iter();
        // Items of a list do not say their kind, so their text is another one.
        stream.list = Some(items.map(|obj| State { hash: 0, ..State::of(obj) }).collect());
    }
    stream.through = stream.after;
    Ok(stream)
}

/// Watches until the end, with cuts of its own and of the server's.
fn observe(stage: &Stage, wish: &Wish, faithful: bool, mut random: Random) -> Vec<Stream> {
    let mut streams = vec![];
    let mut stream = None;
    loop {
        let mut current = match stream.take() {
            Some(stream) => stream,
            None => match begin(stage, wish, &mut random) {
                Ok(begun) => begun,
                Err(_) => continue,
            },
        };
        let from = current.through;
        let path =
            format!("{PODS}?watch=1&allowWatchBookmarks=true&resourceVersion={from}{}", wish.query);
        let enough = if faithful { usize::MAX } else { 1 + random.below(60) };
        let ended = match stage.connect(0).1.watch(&path) {
            Ok(mut watch) => read(stage, &mut watch, &mut current, enough),
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
                stage.expired.fetch_add(1, Ordering::Relaxed);
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

/// One change of the history: the states before and after.
struct Change {
    rev: u64,
    before: Option<State>,
    after: Option<State>,
}

/// The history, from what was told to a watcher of everything, held against what the writers know.
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
        let write = left.get_mut(name.as_str()).and_then(|writes| writes.pop_front());
        let write = write.unwrap_or_else(|| panic!("nobody wrote {event:?}"));
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
    let Stream { wish, after, through, .. } = stream;
    let mut there: BTreeMap<&str, &State> = BTreeMap::new();
    let past = changes.iter().take_while(|change| change.rev <= *after);
    for change in past {
        if let Some(before) = &change.before {
            there.remove(before.name.as_str());
        }
        if let Some(state) = change.after.as_ref().filter(|state| wish.fits(state)) {
            there.insert(&state.name, state);
        }
    }
    if let Some(list) = &stream.list {
        let want: Vec<State> =
            there.values().map(|state| State { hash: 0, ..(*state).clone() }).collect();
        assert_eq!(*list, want, "the list at {after} for {}", wish.query);
    }
    let seen = changes.iter().filter(|change| change.rev > *after && change.rev <= *through);
    let want: Vec<Event> = seen
        .filter_map(|change| {
            let before = change.before.as_ref().filter(|state| wish.fits(state));
            let after = change.after.as_ref().filter(|state| wish.fits(state));
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
    assert_eq!(stream.events, want, "after {after} through {through} for {}", wish.query);
}

/// Waits for what the writers do in this life, and until its beginning is forgotten.
fn live(stage: &Stage, life: usize, began_at: u64) {
    let deadline = Instant::now() + PATIENCE + HISTORY * 4;
    let old = format!("{PODS}?resourceVersion={began_at}&resourceVersionMatch=Exact");
    let (_, mut connection) = stage.connect(life);
    loop {
        let rested = stage.rested.load(Ordering::Acquire) >= WRITERS * (life + 1);
        let (code, _) = connection.call("GET", &old, "", None).expect("an answer");
        if rested && code == 410 {
            return;
        }
        assert!(Instant::now() < deadline, "life {life}: rested {rested}, history {code}");
        std::thread::yield_now();
    }
}

fn latest(stage: &Stage) -> u64 {
    let (code, list) = stage.connect(0).1.call("GET", PODS, "", None).expect("a list");
    assert_eq!(code, 200, "{list}");
    revision_of(&list)
}

#[test]
fn every_watch_matches_the_history() {
    let lives = std::env::var("KEELSON_TORTURE_LIVES").ok().and_then(|text| text.parse().ok());
    let lives = lives.unwrap_or(LIVES);
    let mut random = Random::seeded("KEELSON_TORTURE_SEED");
    let dir = tempfile::tempdir().expect("a folder");
    let runtime = Runtime::new().expect("a runtime");
    let stage = Stage::default();
    std::thread::scope(|scope| {
        let stage = &stage;
        let everything = Wish {
            query: String::new(),
            colors: COLORS.to_vec(),
            phases: PHASES.to_vec(),
            name: None,
        };
        let mut keelson = runtime.block_on(start(dir.path()).start()).expect("the server starts");
        stage.move_to(0, Some(keelson.address()));
        let began_at = latest(stage);
        let mut faithful = random.split();
        let faithful = scope.spawn(move || {
            let mut streams = observe(stage, &everything, true, faithful.split());
            streams.pop().expect("a stream")
        });
        let watchers: Vec<_> = (0..WATCHERS)
            .map(|_| {
                let (wish, random) = (Wish::random(&mut random), random.split());
                scope.spawn(move || observe(stage, &wish, false, random))
            })
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let random = random.split();
                scope.spawn(move || write(stage, writer, lives, random))
            })
            .collect();
        let mut began_at = began_at;
        for life in 0..lives {
            live(stage, life, began_at);
            if life + 1 < lives {
                stage.move_to(life, None);
                runtime.block_on(keelson.stop());
                keelson = runtime.block_on(start(dir.path()).start()).expect("it starts again");
                stage.move_to(life + 1, Some(keelson.address()));
                began_at = latest(stage);
            }
        }
        let writers: Vec<_> = writers.into_iter().map(|w| w.join().expect("a log")).collect();
        stage.end.store(latest(stage), Ordering::Release);
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
        let expired = stage.expired.load(Ordering::Relaxed);
        println!(
            "{} changes, {streams} streams, {events} events, {expired} expired",
            changes.len()
        );
    });
}
