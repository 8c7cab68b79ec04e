//! For tests only: a client of any kube-apiserver that needs no async runtime, a fake kubelet on top of it, and
//! stock programs of Kubernetes as child processes with their logs.
//!
//! It speaks with the server over HTTPS alone and depends on no other crate of the workspace, so that the same test
//! runs against Keelson and against kube-apiserver.
// What fails here fails the test that uses it.
#![allow(clippy::missing_panics_doc)]

pub mod api;
pub mod klog;
pub mod kubelet;
pub mod pods;
pub mod prerequisites;
pub mod process;

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
