//! Conversion webhooks that misbehave: this program is the webhook. Each of its behaviors serves
//! the kind of a definition of its own, while several clients read and write its objects in the
//! version that needs the webhook.

use super::{Entry, Outcome};
use crate::far_side::{Connection, FarSide};
use crate::target::Target;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

/// Objects of each kind.
const OBJECTS: usize = 20;
/// Clients of each kind. The server also has to parse what the webhook sends, on the same
/// processors.
const CLIENTS: usize = 4;
/// The text that a converted object gets; a few of them are as long as a response may be.
const GROWN_BYTES: usize = 400_000;
/// Bytes of the responses that are long for nothing.
const LONG_BYTES: usize = 7 << 20;
/// Longest time of a request that waits for the webhook.
const WAIT: Duration = Duration::from_secs(4);
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub const ATTACKS: [Entry; 1] =
    [("conversions", "conversion webhooks that hang, never end, and send much", None, conversions)];

/// What the webhook does with a review; the last part of its URL.
const BEHAVIORS: [&str; 6] = ["hangs", "endless", "containers", "grows", "long-error", "deep"];

fn conversions(target: &Target, end: Instant) -> Result<Outcome> {
    let webhook = FarSide::start(&["127.0.0.1"], serve)?;
    let sent = AtomicUsize::new(0);
    let mut admin = target.admin()?;
    for behavior in BEHAVIORS {
        let definition = definition(behavior, &webhook);
        let status = admin.send_json("POST", DEFINITIONS, &definition)?.status;
        ensure!(status == 201, "define {behavior}: {status}");
        let things = things(behavior, "v1");
        let deadline = Instant::now() + WAIT;
        while admin.get(&things)?.status != 200 {
            ensure!(Instant::now() < deadline, "{behavior} is not served");
        }
        for at in 0..OBJECTS {
            let status = admin.send_json("POST", &things, &thing(behavior, "v1", at))?.status;
            ensure!(status == 201, "create a thing: {status}");
        }
    }
    let result = scope(|scope| {
        let clients: Vec<_> = BEHAVIORS
            .iter()
            .flat_map(|behavior| [behavior; CLIENTS])
            .map(|behavior| scope.spawn(|| use_things(target, behavior, end, &sent)))
            .collect();
        clients.into_iter().try_for_each(|it| it.join().ok().context("a client panicked")?)
    });
    // The connections of requests that wait for the webhook end with it.
    drop(webhook);
    for behavior in BEHAVIORS {
        admin.send(
            "DELETE",
            &format!("{DEFINITIONS}/things.{behavior}.attack.example"),
            &[],
            b"",
        )?;
    }
    result?;
    Ok(Outcome::sent(sent.load(Ordering::Relaxed)))
}

/// Reads and writes objects until the end.
fn use_things(target: &Target, behavior: &str, end: Instant, sent: &AtomicUsize) -> Result<()> {
    let stored = things(behavior, "v1");
    let converted = things(behavior, "v2");
    let mut admin = target.admin()?;
    let patch = [("Content-Type", "application/merge-patch+json".as_bytes())];
    let mut is_first = true;
    while is_first || Instant::now() < end {
        is_first = false;
        let requests: [(&str, String, &[u8]); 5] = [
            ("GET", format!("{converted}?timeout=300ms"), b""),
            ("GET", format!("{converted}/thing-1?timeout=300ms"), b""),
            ("GET", format!("{converted}?watch=true&timeoutSeconds=1"), b""),
            ("PATCH", format!("{converted}/thing-2?timeout=300ms"), br#"{"spec":{"x":"a"}}"#),
            ("GET", stored.clone(), b""),
        ];
        for (method, path, body) in requests {
            let start = Instant::now();
            let headers = if method == "PATCH" { patch.as_slice() } else { &[] };
            let status = admin.send(method, &path, headers, body)?.status;
            let taken = start.elapsed();
            ensure!(matches!(status, 200 | 429 | 500 | 504), "{behavior}: {path}: {status}");
            ensure!(taken < WAIT, "{behavior}: {path} took {taken:?}");
            sent.fetch_add(1, Ordering::Relaxed);
        }
        let status = admin.get(&stored)?.status;
        ensure!(matches!(status, 200 | 429), "{behavior}: stored objects: {status}");
    }
    Ok(())
}

fn things(behavior: &str, version: &str) -> String {
    format!("/apis/{behavior}.attack.example/{version}/namespaces/default/things")
}

fn thing(behavior: &str, version: &str, at: usize) -> Value {
    json!({"apiVersion": format!("{behavior}.attack.example/{version}"), "kind": "Thing",
        "metadata": {"name": format!("thing-{at}")}, "spec": {"x": "y"}})
}

fn definition(behavior: &str, webhook: &FarSide) -> Value {
    let group = format!("{behavior}.attack.example");
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let client = json!({"url": format!("https://{}/{behavior}", webhook.address), "caBundle": webhook.bundle});
    json!({
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [version("v1"), version("v2")],
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"], "clientConfig": client}}
        }
    })
}

/// Answers the requests of a connection.
fn serve(connection: &mut Connection) -> Result<()> {
    while connection.goes_on() {
        let (behavior, review) = read_review(connection)?;
        let body = match behavior.as_str() {
            // Until the server gives up and closes the connection.
            "hangs" => return connection.drain(),
            "endless" => return send_without_end(connection),
            "containers" => containers(&review),
            "grows" => grown(&review).to_string(),
            "long-error" => long_error(&review).to_string(),
            _ => format!("{{\"a\":{}", "[".repeat(LONG_BYTES)),
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        connection.send(&[head.as_bytes(), body.as_bytes()].concat())?;
    }
    Ok(())
}

/// Reads a request; returns its behavior and its review.
fn read_review(connection: &mut Connection) -> Result<(String, Value)> {
    let (path, lines) = connection.read_head()?;
    let behavior = path.split('?').next().unwrap_or_default().trim_start_matches('/').to_owned();
    Ok((behavior, serde_json::from_slice(&connection.read_body(&lines)?)?))
}

fn send_without_end(connection: &mut Connection) -> Result<()> {
    connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
    connection.send_without_end(&chunk)
}

/// Returns a review with one object, which is full of empty maps.
fn containers(review: &Value) -> String {
    let mut answer = converted(review);
    let Some(objects) = answer["response"]["convertedObjects"].as_array_mut() else {
        return String::new();
    };
    objects.truncate(1);
    objects[0]["spec"]["x"] = json!("MAPS");
    let maps = vec!["{}"; LONG_BYTES / 3].join(",");
    answer.to_string().replace("\"MAPS\"", &format!("[{maps}]"))
}

/// Returns a correct review whose objects are long.
fn grown(review: &Value) -> Value {
    let mut answer = converted(review);
    for object in answer["response"]["convertedObjects"].as_array_mut().into_iter().flatten() {
        object["spec"]["x"] = json!("x".repeat(GROWN_BYTES));
    }
    answer
}

fn long_error(review: &Value) -> Value {
    let mut answer = converted(review);
    answer["response"]["result"] = json!({"status": "Failure", "message": "e".repeat(LONG_BYTES)});
    answer
}

/// Returns a correct review.
fn converted(review: &Value) -> Value {
    let mut objects = review["request"]["objects"].clone();
    for object in objects.as_array_mut().into_iter().flatten() {
        object["apiVersion"] = review["request"]["desiredAPIVersion"].clone();
    }
    json!({
        "apiVersion": review["apiVersion"], "kind": review["kind"],
        "response": {"uid": review["request"]["uid"], "convertedObjects": objects,
            "result": {"status": "Success"}}
    })
}
