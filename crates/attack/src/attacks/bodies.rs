//! Request bodies that are deep, wide or repetitive, in all encodings. Bodies that could be stored
//! are sent as dry runs. Each must get a response in time, whatever the response is.

use super::{Entry, Outcome};
use crate::target::Target;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::time::{Duration, Instant};

/// The longest time that a response may take.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(5);
/// How often a body is sent at most.
const TIMES_MAX: usize = 10;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps?dryRun=All";
const PODS: &str = "/api/v1/namespaces/default/pods?dryRun=All";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

pub const ATTACKS: [Entry; 16] = [
    ("json-deep", "500,000 nested objects", None, |t, e| {
        post_repeatedly(
            t,
            e,
            CONFIG_MAPS,
            JSON,
            format!("{{\"data\":{}", "{\"a\":".repeat(500_000)),
        )
    }),
    ("json-deep-lists", "1,400,000 nested lists", None, |t, e| {
        post_repeatedly(t, e, CONFIG_MAPS, JSON, format!("{{\"data\":{}", "[".repeat(1_400_000)))
    }),
    ("json-wide", "200,000 members", None, |t, e| {
        post_repeatedly(t, e, CONFIG_MAPS, JSON, wide_map())
    }),
    ("json-repeated", "one member 150,000 times", None, |t, e| {
        let member = "\"a\":\"b\",".repeat(150_000);
        post_repeatedly(t, e, CONFIG_MAPS, JSON, format!("{{\"data\":{{{member}\"a\":\"b\"}}}}"))
    }),
    ("json-unknown", "200,000 unknown fields", None, |t, e| {
        let members: Vec<String> = (0..200_000).map(|n| format!("\"f{n}\":1")).collect();
        post_repeatedly(t, e, CONFIG_MAPS, JSON, format!("{{{}}}", members.join(",")))
    }),
    ("json-containers", "0.9 MB of containers without a field", None, |t, e| {
        post_repeatedly(
            t,
            e,
            PODS,
            JSON,
            pod(&format!("\"containers\":[{}{{}}]", "{},".repeat(300_000))),
        )
    }),
    ("json-env", "60,000 environment variables", None, |t, e| {
        let variables: Vec<String> =
            (0..60_000).map(|n| format!("{{\"name\":\"V{n}\",\"value\":\"$(V{n})\"}}")).collect();
        let container = format!(
            "\"containers\":[{{\"name\":\"a\",\"image\":\"a\",\"env\":[{}]}}]",
            variables.join(",")
        );
        post_repeatedly(t, e, PODS, JSON, pod(&container))
    }),
    ("json-owners", "10,000 owner references", None, |t, e| {
        let owner = |n| {
            format!("{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"name\":\"p{n}\",\"uid\":\"u{n}\"}}")
        };
        let owners: Vec<String> = (0..10_000).map(owner).collect();
        let metadata = format!("\"name\":\"a\",\"ownerReferences\":[{}]", owners.join(","));
        post_repeatedly(t, e, CONFIG_MAPS, JSON, format!("{{\"metadata\":{{{metadata}}}}}"))
    }),
    ("json-quantity", "a quantity of 300,000 digits", None, |t, e| {
        let limits = format!("{{\"limits\":{{\"cpu\":\"{}\"}}}}", "9".repeat(300_000));
        let container =
            format!("\"containers\":[{{\"name\":\"a\",\"image\":\"a\",\"resources\":{limits}}}]");
        post_repeatedly(t, e, PODS, JSON, pod(&container))
    }),
    ("json-patch", "copies of copies, and 10,001 operations", None, json_patch),
    ("yaml-aliases", "aliases of aliases", None, |t, e| {
        let mut text = "data:\n  a: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let before = level - 1;
            let aliases = vec![format!("*a{before}"); 9].join(", ");
            text.push_str(&format!("  b{level}: &a{level} [{aliases}]\n"));
        }
        post_repeatedly(t, e, CONFIG_MAPS, YAML, text)
    }),
    ("yaml-nested-anchors", "200 anchors around one list of 100,000 items", None, |t, e| {
        let begin: String = (0..200).map(|n| format!("&a{n} [")).collect();
        let end: String = "]".repeat(200);
        post_repeatedly(
            t,
            e,
            CONFIG_MAPS,
            YAML,
            format!("data: {begin}{}1{end}\n", "1,".repeat(100_000)),
        )
    }),
    ("yaml-deep", "1,000,000 nested lists", None, |t, e| {
        post_repeatedly(t, e, CONFIG_MAPS, YAML, format!("data: {}", "[".repeat(1_000_000)))
    }),
    ("protobuf-wide", "1,000,000 empty map entries", None, |t, e| {
        post_repeatedly(t, e, CONFIG_MAPS, PROTOBUF, protobuf(&[0x12, 0x00].repeat(1_000_000)))
    }),
    ("protobuf-deep", "nested messages", None, |t, e| {
        let mut message = vec![];
        for _ in 0..20_000 {
            message = [&[0x0a][..], &varint(message.len()), &message].concat();
            if message.len() > 60_000 {
                break;
            }
        }
        post_repeatedly(t, e, CONFIG_MAPS, PROTOBUF, protobuf(&message))
    }),
    ("labels", "stored objects with a label key of 128 bytes, or 128 labels", None, labels),
];

fn wide_map() -> String {
    let members: Vec<String> = (0..200_000).map(|n| format!("\"k{n}\":\"\"")).collect();
    format!("{{\"metadata\":{{\"name\":\"a\"}},\"data\":{{{}}}}}", members.join(","))
}

fn pod(containers: &str) -> String {
    format!("{{\"metadata\":{{\"name\":\"a\"}},\"spec\":{{{containers}}}}}")
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut out = vec![];
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

/// Encodes a ConfigMap message in the envelope `runtime.Unknown`, with the prefix `k8s\0`.
fn protobuf(message: &[u8]) -> Vec<u8> {
    let kind = b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap";
    [b"k8s\0".as_slice(), kind, &[0x12], &varint(message.len()), message].concat()
}

/// Posts a body until the deadline, at most [`TIMES_MAX`] times.
fn post_repeatedly(
    target: &Target,
    end: Instant,
    path: &str,
    content_type: &str,
    body: impl AsRef<[u8]>,
) -> Result<Outcome> {
    let mut admin = target.admin()?;
    let headers = [("Content-Type", content_type.as_bytes())];
    let mut sent = 0;
    let mut longest = Duration::ZERO;
    let mut statuses = vec![];
    while sent < TIMES_MAX && (sent == 0 || Instant::now() < end) {
        let start = Instant::now();
        let response = admin.send("POST", path, &headers, body.as_ref()).context("no response")?;
        longest = longest.max(start.elapsed());
        sent += 1;
        statuses.push(response.status);
        ensure!(
            (200..500).contains(&response.status) || response.status == 504,
            "{}",
            response.status
        );
        if response.status == 413 {
            // The server may close the connection after 413.
            admin = target.admin()?;
        }
    }
    statuses.dedup();
    let note = format!("{statuses:?} in at most {} ms", longest.as_millis());
    ensure!(longest < RESPONSE_TIME_MAX, "{note}");
    Ok(Outcome { sent, note })
}

fn json_patch(target: &Target, end: Instant) -> Result<Outcome> {
    let mut admin = target.admin()?;
    let path = "/api/v1/namespaces/default/configmaps/canary-0?dryRun=All";
    let doubling: Vec<_> = std::iter::once(json!({"op": "add", "path": "/x", "value": {"a": "b"}}))
        .chain((0..60).map(|n| json!({"op": "copy", "from": "/x", "path": format!("/x/c{n}")})))
        .collect();
    let many: Vec<_> = (0..10_001)
        .map(|n| json!({"op": "add", "path": format!("/data/k{n}"), "value": "v"}))
        .collect();
    let headers = [("Content-Type", b"application/json-patch+json".as_slice())];
    let mut sent = 0;
    while sent == 0 || (Instant::now() < end && sent < TIMES_MAX) {
        for patch in [&doubling, &many] {
            let body = json!(patch).to_string();
            let status = admin.send("PATCH", path, &headers, body.as_bytes())?.status;
            let operations = patch.len();
            ensure!((400..500).contains(&status), "a patch of {operations} operations: {status}");
            sent += 1;
        }
    }
    Ok(Outcome::sent(sent))
}

fn labels(target: &Target, _: Instant) -> Result<Outcome> {
    // Uses a kind that no other attack uses, in case the list of it fails afterwards.
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let mut admin = target.admin()?;
    let key = format!("{}/{}", "a".repeat(64), "b".repeat(63));
    let many: serde_json::Map<_, _> = (0..128).map(|n| (format!("k{n}"), json!("v"))).collect();
    for (name, labels) in [("long", json!({key: "v"})), ("many", json!(many))] {
        let body = json!({"metadata": {"name": name, "labels": labels}});
        let status = admin.send_json("POST", leases, &body)?.status;
        ensure!(matches!(status, 201 | 422), "{name}: {status}");
        let listed = admin.get(leases)?.status;
        ensure!(listed == 200, "the list after {name}: {listed}");
        let deleted = admin.send("DELETE", &format!("{leases}/{name}"), &[], b"")?.status;
        ensure!(matches!(deleted, 200 | 404), "deleting {name}: {deleted}");
    }
    Ok(Outcome::sent(2))
}
