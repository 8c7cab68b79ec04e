//! Test utilities: recording and replay of transcripts, blocking clients, a fake kubelet, the HTTPS
//! server of a fake node, scripted webhooks, a fake key management service, and Kubernetes programs
//! as child processes.
//!
//! The crate uses only HTTP and, of the workspace, only the protocols of streams, so that a test
//! can run against Keelson and against kube-apiserver. The Python programs in `compare/` send the
//! same generated requests to two servers and compare the responses.
// A panic fails the test.
#![allow(clippy::missing_panics_doc)]

pub mod api;
pub mod collector;
pub mod connection;
pub mod grpc;
pub mod handshakes;
pub mod http;
pub mod https_peer;
pub mod klog;
pub mod kms;
pub mod kubelet;
pub mod node;
pub mod pods;
pub mod prerequisites;
pub mod process;
pub mod recorded;
pub mod things;
pub mod transcript;
pub mod webhook;
pub mod websocket;

use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Interval of polls.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Polls a condition until it returns `Some`; returns `None` after `timeout`.
pub fn poll<T>(timeout: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(value) = condition() {
            return Some(value);
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::park_timeout(POLL_INTERVAL);
    }
}

/// Returns a value with the members of all objects sorted by name, whatever features `serde_json`
/// is built with.
#[must_use]
pub fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let members: BTreeMap<_, _> = map.into_iter().collect();
            members.into_iter().map(|(name, value)| (name, sorted(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}
