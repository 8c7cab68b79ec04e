//! A kube-controller-manager is started and stopped while owners, dependents and namespaces are
//! created and deleted. Whichever process runs the controllers, all garbage is collected, and no
//! object that still has an owner.
//!
//! `KEELSON_SWAP_RESTARTS` is the number of starts (default 2).

use super::cluster::{Programs, items, start_keelson, start_manager};
use super::scene::name;
use keelson_testkit::api::Api;
use keelson_testkit::poll;
use keelson_testkit::process::Process;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const RESTARTS: usize = 2;
const WRITERS: usize = 4;
/// Rounds of all writers between two starts or stops of kube-controller-manager.
const ROUNDS_BETWEEN: usize = 20;
/// A writer creates and deletes a namespace once in this number of rounds.
const ROUNDS_A_NAMESPACE: usize = 4;
/// Lease duration of kube-controller-manager.
const LEASE: Duration = Duration::from_secs(3);
/// Tolerance on a busy machine: for noticing a change of the leader, and for collecting a dependent
/// after that.
const NOTICE_TIME_MAX: Duration = Duration::from_secs(8);
const POLL_TIMEOUT: Duration = Duration::from_secs(90);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LEASE_FLAGS: [&str; 3] = [
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
];

fn make(api: &Api, path: &str, name: &str, owners: &[&Value]) -> Value {
    let reference = |owner: &&Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true})
    };
    let owners: Vec<Value> = owners.iter().map(reference).collect();
    let object = json!({"metadata": {"name": name, "ownerReferences": owners}});
    let made = api.post(path, &object).expect("an answer");
    assert_eq!(made.code, 201, "{made:?}");
    made.body
}

/// State that the writers share.
struct Load {
    anchor: Value,
    rounds: AtomicUsize,
    is_over: AtomicBool,
}

impl Load {
    /// Creates and deletes objects until the end. Returns the longest time without a collection.
    fn write(&self, api: &Api, writer: usize) -> Duration {
        let mut longest = Duration::ZERO;
        for round in 0.. {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            longest = longest.max(self.round(api, &format!("w{writer}-{round}"), round));
            self.rounds.fetch_add(1, Ordering::Relaxed);
        }
        longest
    }

    /// Deletes an owner with dependents, one of which has another owner.
    fn round(&self, api: &Api, id: &str, round: usize) -> Duration {
        let owner = make(api, MAPS, &format!("{id}-owner"), &[]);
        let dependents: Vec<String> =
            (0..3).map(|number| format!("{id}-dependent-{number}")).collect();
        dependents.iter().for_each(|name| drop(make(api, MAPS, name, &[&owner])));
        make(api, MAPS, &format!("{id}-kept"), &[&owner, &self.anchor]);
        let namespace = format!("/api/v1/namespaces/{id}");
        let has_namespace = round.is_multiple_of(ROUNDS_A_NAMESPACE);
        if has_namespace {
            let made = api.post("/api/v1/namespaces", &json!({"metadata": {"name": id}}));
            assert_eq!(made.expect("an answer").code, 201);
            make(api, &format!("{namespace}/configmaps"), "inside", &[]);
            assert!(api.delete(&namespace, None).expect("an answer").is_ok());
        }
        let policy = ["Background", "Foreground"][round % 2];
        let options = json!({"propagationPolicy": policy});
        let path = format!("{MAPS}/{id}-owner");
        assert!(api.delete(&path, Some(&options)).expect("an answer").is_ok());
        let began = Instant::now();
        let mut paths: Vec<String> =
            dependents.iter().map(|name| format!("{MAPS}/{name}")).collect();
        paths.push(path);
        paths.extend(has_namespace.then_some(namespace));
        for path in paths {
            let gone = poll(POLL_TIMEOUT, || (api.get(&path).ok()?.code == 404).then_some(()));
            assert!(gone.is_some(), "{path} stays: {:?}", api.get(&path));
        }
        began.elapsed()
    }

    fn wait_rounds(&self) {
        let target = self.rounds.load(Ordering::Relaxed) + ROUNDS_BETWEEN;
        let done =
            poll(POLL_TIMEOUT, || (self.rounds.load(Ordering::Relaxed) >= target).then_some(()));
        assert!(done.is_some(), "the writers do not go on");
    }
}

/// Waits until the server has logged `words` at least `count` times.
fn wait_for_log(server: &Process, words: &str, count: usize) {
    let said = || (server.log().matches(words).count() >= count).then_some(());
    assert!(poll(POLL_TIMEOUT, said).is_some(), "not {count} times {words:?}: {}", server.log());
}

/// Returns the names in the DELETED events of dependents, in the order of a watch from the first
/// revision.
fn deleted(api: &Api, revision: &str, count: usize) -> Vec<String> {
    let path = format!("{MAPS}?watch=1&timeoutSeconds=60&resourceVersion={revision}");
    let mut watch = api.watch(&path).expect("the history is there");
    let mut names = vec![];
    while names.len() < count {
        let event = watch.next_event().expect("the watch goes on");
        if event["type"] == "DELETED" {
            names.push(name(&event["object"]).to_owned());
        }
    }
    names
}

/// Returns the time of each manager from its lease to the start of its garbage collector, from its
/// log.
fn start_times(log: &str) -> Vec<Duration> {
    // `I1123 04:36:00.903954 12226 file.go:1] "words"`
    let time = |line: &str| {
        let mut parts = line.split(' ').nth(1)?.split(':').map(|part| part.parse::<f64>().ok());
        let hours = parts.next()??;
        let minutes = parts.next()??;
        let seconds = parts.next()??;
        Some(hours * 3600.0 + minutes * 60.0 + seconds)
    };
    let of =
        |words: &str| log.lines().filter(|line| line.contains(words)).filter_map(time).collect();
    let held: Vec<f64> = of("Successfully acquired lease");
    let collecting: Vec<f64> = of("Proceeding to collect garbage");
    let pairs = held.into_iter().zip(collecting);
    // Midnight may lie between the two.
    pairs.map(|(from, to)| Duration::from_secs_f64((to - from).rem_euclid(86_400.0))).collect()
}

#[test]
fn restarts_of_a_controller_manager_under_load_leave_no_garbage() {
    let Some(programs) = Programs::find() else { return };
    let restarts = std::env::var("KEELSON_SWAP_RESTARTS").ok().and_then(|text| text.parse().ok());
    let (server, files) = start_keelson(&[]);
    let admin = files.api("admin", &["system:masters"]);
    let anchor = make(&admin, MAPS, "anchor", &[]);
    let begun = anchor["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    let load = Load { anchor, rounds: AtomicUsize::new(0), is_over: AtomicBool::new(false) };
    let mut logs = String::new();
    let longest = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let api = admin.with_new_connection();
                let load = &load;
                scope.spawn(move || load.write(&api, writer))
            })
            .collect();
        for restart in 1..=restarts.unwrap_or(RESTARTS) {
            let manager = start_manager(&programs, &files, &LEASE_FLAGS);
            wait_for_log(&server, "stopping controllers", restart);
            load.wait_rounds();
            // The processes share the log file.
            logs = manager.log();
            manager.terminate();
            let ended = Instant::now();
            wait_for_log(&server, "starting controllers", restart + 1);
            let idle = ended.elapsed();
            assert!(idle < LEASE + NOTICE_TIME_MAX, "no loops for {idle:?} after the manager");
            load.wait_rounds();
        }
        load.is_over.store(true, Ordering::Relaxed);
        let writers = writers.into_iter().map(|writer| writer.join().expect("a writer ends well"));
        writers.max().unwrap_or_default()
    });
    let rounds = load.rounds.load(Ordering::Relaxed);
    let start = start_times(&logs).into_iter().max().expect("a manager collected");
    println!(
        "{rounds} rounds; the longest wait for anything to be collected: {longest:?}; \
         the longest start of a manager: {start:?}"
    );
    assert!(longest < LEASE.max(start) + NOTICE_TIME_MAX, "loops were idle for {longest:?}");
    // An object with a remaining owner exists, without the reference to the deleted owner.
    let kept = poll(POLL_TIMEOUT, || {
        let list = admin.get(MAPS).ok()?.body;
        let owners =
            |one: &Value| one["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
        let kept: Vec<usize> =
            items(&list).filter(|one| name(one).starts_with('w')).map(owners).collect();
        (kept.len() == rounds && kept.iter().all(|owners| *owners == 1)).then_some(())
    });
    assert!(kept.is_some(), "{rounds} rounds: {:?}", admin.get(MAPS));
    let namespaces = admin.get("/api/v1/namespaces").expect("an answer").body;
    assert_eq!(items(&namespaces).filter(|one| name(one).starts_with('w')).count(), 0);
    let deleted = deleted(&admin, &begun, rounds * 4);
    let distinct: BTreeSet<&String> = deleted.iter().collect();
    assert_eq!(
        (distinct.len(), distinct.iter().any(|name| name.ends_with("kept"))),
        (rounds * 4, false)
    );
}
