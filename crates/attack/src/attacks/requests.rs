//! Requests of an administrator that must not be taken for what they are not, or that are given up half-way.

use super::{Line, Outcome};
use crate::target::{ADMIN, NOBODY, Target};
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::time::Instant;

/// Services whose creation is given up; there are fewer addresses.
const SERVICES: usize = 600;
const SELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const NAMESPACES: &str = "/api/v1/namespaces";

pub const ATTACKS: [Line; 3] = [
    ("impersonation", "Impersonate-* headers that are odd", None, impersonation),
    ("cancelled-writes", "services with ?timeout=1us: no address may leak", None, cancelled_writes),
    ("no-rights", "what nobody may do, over and over", None, no_rights),
];

fn impersonation(target: &Target, _: Instant) -> Result<Outcome> {
    let token = format!("Bearer {ADMIN}").into_bytes();
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
    let mut taken = vec![];
    for case in cases {
        let mut headers: Vec<(&str, &[u8])> = vec![("Authorization", &token)];
        headers.extend_from_slice(case);
        let status = target.anonymous()?.ask("GET", NAMESPACES, &headers, b"")?.status;
        if !matches!(status, 400 | 403) {
            let (name, value) = case[0];
            taken.push(format!("{name}: {} is {status}", value.escape_ascii()));
        }
    }
    ensure!(taken.is_empty(), "served as the administrator: {}", taken.join(", "));
    Ok(Outcome::of(cases.len()))
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
        for unit in ["1us", "50us", "200us", "1ms"] {
            admin.send_json("POST", &format!("{services}?timeout={unit}"), &service(sent))?;
            admin.ask("DELETE", &format!("{services}/cancelled-{sent}"), &[], b"")?;
            sent += 1;
        }
    }
    // What was cancelled may still end, and a repair may still run.
    let mut orphans = usize::MAX;
    let deadline = Instant::now() + std::time::Duration::from_secs(5);
    while orphans > 0 && Instant::now() < deadline {
        for number in 0..sent {
            admin.ask("DELETE", &format!("{services}/cancelled-{number}"), &[], b"")?;
        }
        let named = |list: &Value, place: &str| -> HashSet<String> {
            let items = list["items"].as_array().cloned().unwrap_or_default();
            items.iter().filter_map(|obj| obj.pointer(place)?.as_str().map(str::to_owned)).collect()
        };
        let taken: Value =
            serde_json::from_slice(&admin.get("/apis/networking.k8s.io/v1/ipaddresses")?.body)?;
        let used: Value = serde_json::from_slice(&admin.get("/api/v1/services")?.body)?;
        let used = named(&used, "/spec/clusterIP");
        orphans = named(&taken, "/metadata/name").difference(&used).count();
    }
    ensure!(orphans == 0, "{orphans} addresses without a service");
    Ok(Outcome::of(sent))
}

fn no_rights(target: &Target, end: Instant) -> Result<Outcome> {
    let token = format!("Bearer {NOBODY}").into_bytes();
    let mut nobody = target.anonymous()?;
    let body = vec![b'x'; 100_000];
    let mut sent = 0;
    while Instant::now() < end && sent < 20_000 {
        for (method, path) in [("GET", NAMESPACES), ("POST", NAMESPACES), ("DELETE", NAMESPACES)] {
            let headers = [("Authorization", token.as_slice())];
            let body = if method == "POST" { body.as_slice() } else { b"" };
            let status = nobody.ask(method, path, &headers, body)?.status;
            ensure!(matches!(status, 403 | 405 | 429), "{method} {path}: {status}");
            sent += 1;
        }
        let wrong = [("Authorization", b"Bearer wrong".as_slice())];
        let status = nobody.ask("POST", SELF, &wrong, &body)?.status;
        ensure!(status == 401, "a wrong token: {status}");
        sent += 1;
    }
    Ok(Outcome::of(sent))
}
