//! For tests only: transcripts of what a kube-apiserver answers, recorded and replayed; a client of any kube-apiserver that needs no async runtime, a fake kubelet on top of it, and
//! stock programs of Kubernetes as child processes with their logs.
//!
//! It speaks with the server over HTTPS alone and depends on no other crate of the workspace, so that the same test
//! runs against Keelson and against kube-apiserver. The programs in `compare/` beside it need both: they ask two servers
//! the same generated requests and compare the answers.
// What fails here fails the test that uses it.
#![allow(clippy::missing_panics_doc)]

pub mod api;
pub mod klog;
pub mod kubelet;
pub mod pods;
pub mod prerequisites;
pub mod process;
pub mod transcript;

use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Between two looks at a condition.
const POLL_PAUSE: Duration = Duration::from_millis(50);

/// Waits until a condition gives something, but no longer than `patience`.
pub fn poll<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::park_timeout(POLL_PAUSE);
    }
}

/// A value whose members stand in the order of their names, whatever features `serde_json` is built with.
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
