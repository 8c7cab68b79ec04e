//! Everything costly that a user with the role `edit` can send, over several connections at once,
//! while another user reads an object of another namespace.

use super::{Entry, Outcome};
use crate::client::Connection;
use crate::target::{BYSTANDER_TOKEN, EDITOR_TOKEN, Target};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

/// Connections of the editor.
const CONNECTIONS: usize = 4;
/// ConfigMaps that selectors are compared with.
const OBJECTS: usize = 500;
/// The longest time that a response may take.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(8);
/// The part of the time in which the other user is measured without an attack, and its bounds.
const QUIET_PARTS: u32 = 4;
const QUIET_MIN: Duration = Duration::from_millis(500);
const QUIET_MAX: Duration = Duration::from_secs(10);
/// The shortest time of the attack.
const ATTACK_MIN: Duration = Duration::from_secs(1);
/// The interval of the other user's requests.
const INTERVAL: Duration = Duration::from_millis(5);
/// How many times longer the other user's requests may take than without an attack, in the 99th
/// percentile.
const SLOWER_MAX: u32 = 5;
/// A percentile below this counts as this: in a short run it is that of a hundred requests, and the
/// machine is busy.
const QUIET_LEAST: Duration = Duration::from_millis(10);

const JSON: &str = "application/json";
const CORE: &str = "/api/v1/namespaces/default";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims?dryRun=All";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const READ: &str = "/api/v1/namespaces/bystanders/configmaps/read";

pub const ATTACKS: [Entry; 1] = [(
    "editor",
    "costly requests of a user with the role edit, beside those of another user",
    None,
    editor,
)];

/// A request that costs more to answer than to send.
struct Costly {
    name: &'static str,
    method: &'static str,
    path: String,
    media: &'static str,
    body: String,
}

fn request(
    name: &'static str,
    method: &'static str,
    path: impl Into<String>,
    media: &'static str,
    body: impl ToString,
) -> Costly {
    Costly { name, method, path: path.into(), media, body: body.to_string() }
}

/// A ResourceClaim whose requests each have a selector with this expression.
fn claim(expression: &str, requests: usize) -> Value {
    let request = |at| {
        let selectors = json!([{"cel": {"expression": expression}}]);
        json!({"name": format!("r{at}"), "exactly": {"deviceClassName": "c", "selectors": selectors}})
    };
    let requests: Vec<Value> = (0..requests).map(request).collect();
    json!({"metadata": {"name": "costly"}, "spec": {"devices": {"requests": requests}}})
}

fn expressions() -> Vec<Costly> {
    let patterns: Vec<String> =
        (1..200).map(|at| format!("device.driver.matches(\"\\\\pL{{{at}}}\")")).collect();
    let repeated = vec!["device.driver.matches(\"(\\\\pL{100}){3}\")"; 200].join("||");
    let doubled = format!("[device.driver]{}.size() > 0", ".map(x, x+x)".repeat(25));
    let lists = format!("[0]{}.size() > 0", ".map(x, [x,x,x,x])".repeat(40));
    vec![
        request("patterns", "POST", CLAIMS, JSON, claim(&patterns.join("||"), 1)),
        request("pattern", "POST", CLAIMS, JSON, claim(&repeated, 8)),
        request("doubled", "POST", CLAIMS, JSON, claim(&doubled, 32)),
        request("nested", "POST", CLAIMS, JSON, claim(&lists, 32)),
    ]
}

fn selectors() -> Vec<Costly> {
    let absent: Vec<String> = (0..8_000).map(|at| format!("!z{at}")).collect();
    let values: Vec<String> = (0..8_000).map(|at| format!("v{at}")).collect();
    let absent = format!("{CORE}/configmaps?labelSelector={}", absent.join(","));
    let values = format!("{CORE}/configmaps?labelSelector=n%20in%20({})", values.join(","));
    let deleted = format!("{values}&dryRun=All");
    vec![
        request("absent labels", "GET", format!("{absent}&limit=1"), JSON, ""),
        request("values", "GET", values.clone(), JSON, ""),
        request("watch", "GET", format!("{values}&watch=1&timeoutSeconds=1"), JSON, ""),
        request("collection", "DELETE", deleted, JSON, ""),
    ]
}

fn patches() -> Vec<Costly> {
    let object = format!("{CORE}/configmaps/patched?dryRun=All");
    let copies: Vec<Value> = (0..10_000)
        .map(|at| json!({"op": "copy", "from": "/data", "path": format!("/data/c{at}")}))
        .collect();
    let moves: Vec<Value> = (0..10_000)
        .map(|at| {
            let from = at % 2;
            let to = (at + 1) % 2;
            json!({"op": "move", "from": format!("/data/k{from}"), "path": format!("/data/k{to}")})
        })
        .collect();
    let containers: Vec<Value> = (0..4_000)
        .map(|at| json!({"name": format!("c{at}"), "image": "i", "env": [{"name": "A"}]}))
        .collect();
    let template = json!({"spec": {"containers": containers}});
    let strategic = json!({"spec": {"template": template}});
    let selector = json!({"matchLabels": {"a": "b"}});
    let applied = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "applied"},
        "spec": {"selector": selector, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}}});
    let applied_to = format!("{DEPLOYMENTS}/applied?dryRun=All&fieldManager=m&force=true");
    vec![
        request("copies", "PATCH", &object, "application/json-patch+json", json!(copies)),
        request("moves", "PATCH", &object, "application/json-patch+json", json!(moves)),
        request(
            "strategic",
            "PATCH",
            format!("{DEPLOYMENTS}/patched?dryRun=All"),
            "application/strategic-merge-patch+json",
            strategic,
        ),
        request("applied", "PATCH", applied_to, "application/apply-patch+yaml", applied),
    ]
}

fn bodies() -> Vec<Costly> {
    let config_maps = format!("{CORE}/configmaps?dryRun=All");
    let pods = format!("{CORE}/pods?dryRun=All");
    let members: Vec<String> = (0..80_000).map(|at| format!("\"k{at}\":\"\"")).collect();
    let wide = format!("{{\"metadata\":{{\"name\":\"w\"}},\"data\":{{{}}}}}", members.join(","));
    let variables: Vec<Value> = (0..30_000)
        .map(|at| json!({"name": format!("V{at}"), "value": format!("$(V{at})")}))
        .collect();
    let tolerations: Vec<Value> =
        (0..15_000).map(|at| json!({"key": format!("k{at}"), "operator": "Exists"})).collect();
    let container = json!({"name": "c", "image": "i", "env": variables});
    let pod = json!({"metadata": {"name": "p"},
        "spec": {"containers": [container], "tolerations": tolerations}});
    let ports: Vec<Value> =
        (0..8_000).map(|at| json!({"name": format!("p{at}"), "port": at + 1})).collect();
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": ports}});
    let anchors: String =
        (1..20).map(|at| format!("a{at}: &a{at} [*a{0},*a{0},*a{0},*a{0}]\n", at - 1)).collect();
    let yaml = format!("a0: &a0 [x,x,x,x]\n{anchors}");
    vec![
        request("members", "POST", &config_maps, JSON, wide),
        request("pod", "POST", &pods, JSON, pod),
        request("ports", "POST", format!("{CORE}/services?dryRun=All"), JSON, service),
        request("aliases", "POST", &config_maps, "application/yaml", yaml),
    ]
}

/// Creates what the requests are about, and gives both users their rights.
fn prepare(target: &Target) -> Result<()> {
    let mut admin = target.admin()?;
    let mut create = |path: &str, body: Value| -> Result<()> {
        let response = admin.send_json("POST", path, &body)?;
        ensure!(matches!(response.status, 201 | 409), "create in {path}: {}", response.status);
        Ok(())
    };
    create("/api/v1/namespaces", json!({"metadata": {"name": "bystanders"}}))?;
    let read = json!({"metadata": {"name": "read"}, "data": {"a": "b"}});
    create(READ.trim_end_matches("/read"), read)?;
    for (namespace, role, user) in
        [("default", "edit", "editor"), ("bystanders", "view", "bystander")]
    {
        let group = "rbac.authorization.k8s.io";
        let path = format!("/apis/{group}/v1/namespaces/{namespace}/rolebindings");
        create(
            &path,
            json!({"metadata": {"name": user},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": user, "apiGroup": group}]}),
        )?;
    }
    let config_maps = format!("{CORE}/configmaps");
    for at in 0..OBJECTS {
        let labels = json!({"n": format!("v{at}"), "attack": "editor"});
        let metadata = json!({"name": format!("edited-{at}"), "labels": labels});
        create(&config_maps, json!({"metadata": metadata, "data": {"k": "v".repeat(200)}}))?;
    }
    let data = json!({"k0": "v".repeat(500)});
    create(&config_maps, json!({"metadata": {"name": "patched"}, "data": data}))?;
    let pod = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    create(
        DEPLOYMENTS,
        json!({"metadata": {"name": "patched"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": pod}}),
    )
}

fn editor(target: &Target, end: Instant) -> Result<Outcome> {
    let time = end.saturating_duration_since(Instant::now());
    prepare(target)?;
    let requests: Vec<Costly> =
        [expressions(), selectors(), patches(), bodies()].into_iter().flatten().collect();
    let quiet_time = (time / QUIET_PARTS).clamp(QUIET_MIN, QUIET_MAX);
    let quiet = bystander(target, Instant::now() + quiet_time)?;
    let end = Instant::now() + time.saturating_sub(quiet_time).max(ATTACK_MIN);
    let sent = AtomicUsize::new(0);
    let slowest = Mutex::new(BTreeMap::new());
    let attack = |first: usize| -> Result<()> {
        let mut connection = target.anonymous()?;
        for costly in requests.iter().cycle().skip(first) {
            if Instant::now() >= end {
                break;
            }
            let taken = send(&mut connection, costly)?;
            sent.fetch_add(1, Ordering::Relaxed);
            let mut slowest = slowest.lock().ok().context("a thread panicked")?;
            let of_name = slowest.entry(costly.name).or_insert(taken);
            *of_name = taken.max(*of_name);
        }
        Ok(())
    };
    let disturbed = scope(|scope| {
        let attack = &attack;
        let first = |at| at * requests.len() / CONNECTIONS;
        let threads: Vec<_> =
            (0..CONNECTIONS).map(first).map(|at| scope.spawn(move || attack(at))).collect();
        let disturbed = bystander(target, end);
        threads.into_iter().try_for_each(|it| it.join().ok().context("a thread panicked")?)?;
        disturbed
    })?;
    let slowest = slowest.into_inner().ok().context("a thread panicked")?;
    let (name, taken) = slowest.iter().max_by_key(|(_, taken)| **taken).context("no request")?;
    ensure!(*taken < RESPONSE_TIME_MAX, "{name}: {taken:?}");
    let limit = quiet.max(QUIET_LEAST) * SLOWER_MAX;
    ensure!(disturbed <= limit, "gets of another user: p99 {disturbed:?}, quiet {quiet:?}");
    let note =
        format!("{name} in {taken:.1?}; gets of another user: p99 {quiet:.1?} to {disturbed:.1?}");
    Ok(Outcome { sent: sent.into_inner(), note })
}

/// Sends a request as the editor. Returns how long the response took.
fn send(connection: &mut Connection, costly: &Costly) -> Result<Duration> {
    let token = format!("Bearer {EDITOR_TOKEN}");
    let headers = [("Authorization", token.as_bytes()), ("Content-Type", costly.media.as_bytes())];
    let start = Instant::now();
    let response =
        connection.send(costly.method, &costly.path, &headers, costly.body.as_bytes())?;
    let Costly { name, .. } = costly;
    let is_refused = matches!(response.status, 401 | 403 | 404 | 405 | 415);
    let is_answered = !is_refused && response.status < 500 || response.status == 504;
    let text = String::from_utf8_lossy(&response.body);
    ensure!(is_answered, "{name}: {} {:.200}", response.status, text);
    Ok(start.elapsed())
}

/// Reads an object as the other user until the deadline. Returns the 99th percentile of the
/// response times.
fn bystander(target: &Target, end: Instant) -> Result<Duration> {
    let token = format!("Bearer {BYSTANDER_TOKEN}");
    let headers = [("Authorization", token.as_bytes())];
    let mut connection = target.anonymous()?;
    let mut times = vec![];
    while Instant::now() < end {
        let start = Instant::now();
        let status = connection.send("GET", READ, &headers, b"")?.status;
        ensure!(status == 200, "a get of another user: {status}");
        times.push(start.elapsed());
        crate::pause(INTERVAL.saturating_sub(start.elapsed()));
    }
    times.sort_unstable();
    times.get(times.len() * 99 / 100).copied().context("no request of another user")
}
