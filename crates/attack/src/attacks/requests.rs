//! Attacks with single requests: odd impersonation headers, writes that time out, and requests
//! without permission.

use super::{Entry, Outcome};
use crate::target::{ADMIN_TOKEN, Target, UNPRIVILEGED_TOKEN};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::time::Instant;

/// More services than the default range has cluster IPs, so that leaks would exhaust it.
const SERVICES: usize = 600;
const SELF_SUBJECT_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const NAMESPACES: &str = "/api/v1/namespaces";

pub const ATTACKS: [Entry; 3] = [
    ("impersonation", "odd Impersonate-* headers", None, impersonation),
    ("cancelled-writes", "services with ?timeout=1us: no address may leak", None, cancelled_writes),
    ("no-rights", "requests of a user without permissions", None, no_rights),
];

fn impersonation(target: &Target, _: Instant) -> Result<Outcome> {
    let token = format!("Bearer {ADMIN_TOKEN}").into_bytes();
    let cases: [&[(&str, &[u8])]; 11] = [
        &[("Impersonate-User", "j\u{f6}rg".as_bytes())],
        &[("Impersonate-User", b"\xff\xfe")],
        &[("Impersonate-User", b"")],
        &[("Impersonate-User", b" ")],
        &[("Impersonate-Extra-scopes", b"view")],
        &[("Impersonate-Group", b"devs")],
        &[("Impersonate-Uid", b"1")],
        &[("Impersonate-Users", b"bob")],
        &[("Impersonate-Node", b"n")],
        &[("Impersonate-User", b"bob"), ("Impersonate-User", b"eve")],
        &[("Impersonate-User", b"bob"), ("Impersonate-Group", b"\xff")],
    ];
    let mut accepted = vec![];
    for case in cases {
        let mut headers: Vec<(&str, &[u8])> = vec![("Authorization", &token)];
        headers.extend_from_slice(case);
        let status = target.anonymous()?.send("GET", NAMESPACES, &headers, b"")?.status;
        if !matches!(status, 400 | 403) {
            let (name, value) = case[0];
            accepted.push(format!("{name}: {} is {status}", value.escape_ascii()));
        }
    }
    ensure!(accepted.is_empty(), "served as the administrator: {}", accepted.join(", "));
    Ok(Outcome::sent(cases.len()))
}

fn cancelled_writes(target: &Target, end: Instant) -> Result<Outcome> {
    let services = "/api/v1/namespaces/default/services";
    let mut admin = target.admin()?;
    let service = |number: usize| {
        json!({
            "metadata": {"name": format!("cancelled-{number}")}, "spec": {"ports": [{"port": 80}]}
        })
    };
    let mut sent = 0;
    while sent < SERVICES && Instant::now() < end {
        for timeout in ["1us", "50us", "200us", "1ms"] {
            admin.send_json("POST", &format!("{services}?timeout={timeout}"), &service(sent))?;
            admin.send("DELETE", &format!("{services}/cancelled-{sent}"), &[], b"")?;
            sent += 1;
        }
    }
    // A cancelled write may still complete, and the repair loop may still release addresses.
    let mut orphans = usize::MAX;
    let deadline = Instant::now() + std::time::Duration::from_secs(5);
    while orphans > 0 && Instant::now() < deadline {
        for number in 0..sent {
            admin.send("DELETE", &format!("{services}/cancelled-{number}"), &[], b"")?;
        }
        let values = |list: &Value, pointer: &str| -> HashSet<String> {
            let items = list["items"].as_array().cloned().unwrap_or_default();
            items
                .iter()
                .filter_map(|obj| obj.pointer(pointer)?.as_str().map(str::to_owned))
                .collect()
        };
        let allocated: Value =
            serde_json::from_slice(&admin.get("/apis/networking.k8s.io/v1/ipaddresses")?.body)?;
        let services: Value = serde_json::from_slice(&admin.get("/api/v1/services")?.body)?;
        let used = values(&services, "/spec/clusterIP");
        orphans = values(&allocated, "/metadata/name").difference(&used).count();
    }
    ensure!(orphans == 0, "{orphans} addresses without a service");
    Ok(Outcome::sent(sent))
}

fn no_rights(target: &Target, end: Instant) -> Result<Outcome> {
    let token = format!("Bearer {UNPRIVILEGED_TOKEN}").into_bytes();
    let mut connection = target.anonymous()?;
    let body = vec![b'x'; 100_000];
    let mut sent = 0;
    while Instant::now() < end && sent < 20_000 {
        for (method, path) in [("GET", NAMESPACES), ("POST", NAMESPACES), ("DELETE", NAMESPACES)] {
            let headers = [("Authorization", token.as_slice())];
            let body = if method == "POST" { body.as_slice() } else { b"" };
            let status = connection.send(method, path, &headers, body)?.status;
            ensure!(matches!(status, 403 | 405 | 429), "{method} {path}: {status}");
            sent += 1;
        }
        let headers = [("Authorization", b"Bearer wrong".as_slice())];
        let status = connection.send("POST", SELF_SUBJECT_REVIEWS, &headers, &body)?.status;
        ensure!(status == 401, "an unknown token: {status}");
        sent += 1;
    }
    Ok(Outcome::sent(sent))
}
