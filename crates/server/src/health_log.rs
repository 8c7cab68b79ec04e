//! The log of health checks. A check that fails is asked again each second or so: the log has a line for
//! each change and none for each request.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The last answers of the health checks, so that changes are logged once.
#[derive(Debug, Default)]
pub(crate) struct HealthLog {
    last: Mutex<Last>,
}

/// Why a check failed, or nothing when it passed.
#[derive(Debug, Default)]
struct Last {
    ready: Option<String>,
    live: Option<String>,
}

impl HealthLog {
    /// Logs the state of `/readyz`, or of `/livez`, where it is not what it was.
    pub fn note(&self, is_ready: bool, state: &Result<(), String>) {
        if !self.changes(is_ready, state) {
            return;
        }
        let check = if is_ready { "readyz" } else { "livez" };
        match state {
            Ok(()) => tracing::info!(check, "health check passes again"),
            Err(why) => tracing::warn!(check, why, "health check fails"),
        }
    }

    /// Keeps the state; true where it is not what it was.
    fn changes(&self, is_ready: bool, state: &Result<(), String>) -> bool {
        let mut last = self.lock();
        let last = if is_ready { &mut last.ready } else { &mut last.live };
        let now = state.as_ref().err();
        if last.as_ref() == now {
            return false;
        }
        *last = now.cloned();
        true
    }

    fn lock(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_check_is_logged_once_per_change() {
        let log = HealthLog::default();
        let bad = |why: &str| Err(why.to_owned());
        let check = |is_ready, state, want: bool| {
            assert_eq!(log.changes(is_ready, &state), want, "{is_ready} {state:?}");
        };
        check(true, Ok(()), false);
        check(true, bad("store: full"), true);
        check(true, bad("store: full"), false);
        check(false, bad("store: full"), true);
        check(true, bad("shutting down"), true);
        check(true, Ok(()), true);
        check(true, Ok(()), false);
    }
}
