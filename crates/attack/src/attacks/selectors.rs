//! Lists and watches with selectors of thousands of requirements and values, over many objects,
//! several at once.

use super::{Entry, Outcome};
use crate::target::Target;
use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

/// Objects that the selectors are compared with.
const OBJECTS: usize = 1_000;
/// Labels of an object.
const LABELS: usize = 10;
/// Requirements or values of a selector, unless its text gets too long.
const REQUIREMENTS: usize = 9_000;
/// The longest text of a selector; a server accepts 64 KiB in a URL.
const SELECTOR_BYTES_MAX: usize = 60_000;
/// Lists at once: more than a server on two cores has threads. Clients share the cores with the
/// server.
const LISTS: usize = 4;
/// Watches at once.
const WATCHES: usize = 8;
/// The longest time that a list may take.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(5);
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Selects the objects of these attacks.
const OWN: &str = "labelSelector=attack%3Dselectors";

pub const ATTACKS: [Entry; 2] = [
    ("wide-lists", "lists with up to 9,000 requirements, four at once", None, wide_lists),
    ("wide-watches", "8 watches with up to 9,000 requirements, during writes", None, wide_watches),
];

/// Returns the queries: absent labels, sets of values, and fields.
fn queries() -> Vec<String> {
    let list = |item: fn(usize) -> String| {
        let mut text = item(0);
        for at in 1..REQUIREMENTS {
            let next = format!(",{}", item(at));
            if text.len() + next.len() > SELECTOR_BYTES_MAX {
                break;
            }
            text.push_str(&next);
        }
        text
    };
    vec![
        format!("labelSelector=none,{}", list(|at| format!("!z{at}"))),
        format!("labelSelector=n%20in%20({})", list(|at| format!("v{at}"))),
        format!("labelSelector=n%20notin%20({})", list(|at| format!("w{at}"))),
        format!("labelSelector={}", list(|at| format!("n!%3Dw{at}"))),
        format!("fieldSelector={}", list(|at| format!("metadata.name!%3Dx{at}"))),
    ]
}

fn object(at: usize) -> Value {
    let mut labels: Map<String, Value> =
        (0..LABELS).map(|label| (format!("l{label}"), json!("v"))).collect();
    labels.insert("attack".to_owned(), json!("selectors"));
    labels.insert("n".to_owned(), json!(format!("v{at}")));
    json!({"metadata": {"name": format!("selected-{at}"), "labels": labels}})
}

/// Stores the objects, runs `attack` for as long as there is until `end`, and deletes them.
fn with_objects(
    target: &Target,
    end: Instant,
    attack: impl FnOnce(Instant) -> Result<Outcome>,
) -> Result<Outcome> {
    let time = end.saturating_duration_since(Instant::now());
    let mut admin = target.admin()?;
    for at in 0..OBJECTS {
        let status = admin.send_json("POST", CONFIG_MAPS, &object(at))?.status;
        ensure!(matches!(status, 201 | 409), "create an object: {status}");
    }
    let outcome = attack(Instant::now() + time);
    admin.send("DELETE", &format!("{CONFIG_MAPS}?{OWN}"), &[], b"")?;
    outcome
}

fn wide_lists(target: &Target, end: Instant) -> Result<Outcome> {
    let queries = queries();
    let sent = AtomicUsize::new(0);
    let list = |first: usize, end: Instant| -> Result<()> {
        let mut admin = target.admin()?;
        for query in queries.iter().cycle().skip(first) {
            if Instant::now() >= end {
                break;
            }
            let start = Instant::now();
            let response = admin.get(&format!("{CONFIG_MAPS}?limit=1&{query}"))?;
            let name = &query[..20];
            let taken = start.elapsed();
            ensure!(matches!(response.status, 200 | 429), "{name}: {}", response.status);
            ensure!(taken < RESPONSE_TIME_MAX, "{name}: {taken:?}");
            sent.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    with_objects(target, end, |end| {
        scope(|scope| {
            let lists: Vec<_> = (0..LISTS).map(|at| scope.spawn(move || list(at, end))).collect();
            lists.into_iter().try_for_each(|it| it.join().ok().context("a list panicked")?)
        })?;
        Ok(Outcome::sent(sent.load(Ordering::Relaxed)))
    })
}

fn wide_watches(target: &Target, end: Instant) -> Result<Outcome> {
    let queries = queries();
    let sent = AtomicUsize::new(0);
    let watch = |query: &str, end: Instant| -> Result<()> {
        let mut admin = target.admin()?;
        while Instant::now() < end {
            let path = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=1&{query}");
            let status = admin.get(&path)?.status;
            ensure!(matches!(status, 200 | 429), "a watch: {status}");
            sent.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let write = |end: Instant| -> Result<()> {
        let mut admin = target.admin()?;
        let patch = [("Content-Type", "application/merge-patch+json".as_bytes())];
        for at in (0..OBJECTS).cycle() {
            if Instant::now() >= end {
                break;
            }
            let path = format!("{CONFIG_MAPS}/selected-{at}");
            let body = json!({"data": {"at": format!("{:?}", end - Instant::now())}}).to_string();
            let status = admin.send("PATCH", &path, &patch, body.as_bytes())?.status;
            ensure!(matches!(status, 200 | 429), "a write: {status}");
        }
        Ok(())
    };
    with_objects(target, end, |end| {
        scope(|scope| {
            let mut threads = vec![scope.spawn(|| write(end))];
            for query in queries.iter().cycle().take(WATCHES) {
                threads.push(scope.spawn(move || watch(query, end)));
            }
            threads.into_iter().try_for_each(|it| it.join().ok().context("a watch panicked")?)
        })?;
        Ok(Outcome::sent(sent.load(Ordering::Relaxed)))
    })
}
