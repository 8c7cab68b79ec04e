//! Logs changes of the health checks. Failing checks are polled about every second, so a line for
//! each request would be too many.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The last results of the health checks, so that each change is logged once.
#[derive(Debug, Default)]
pub(crate) struct HealthLog {
    last: Mutex<Last>,
}

/// Why each check failed; `None` if it passed.
#[derive(Debug, Default)]
struct Last {
    ready: Option<String>,
    live: Option<String>,
}

impl HealthLog {
    /// Logs the state of `/readyz` or `/livez` if it has changed.
    pub fn log_change(&self, is_ready: bool, state: &Result<(), String>) {
        if !self.update(is_ready, state) {
            return;
        }
        let check = if is_ready { "readyz" } else { "livez" };
        match state {
            Ok(()) => tracing::info!(check, "health check passes again"),
            Err(why) => tracing::warn!(check, why, "health check fails"),
        }
    }

    /// Stores the state. Returns whether it has changed.
    fn update(&self, is_ready: bool, state: &Result<(), String>) -> bool {
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
            assert_eq!(log.update(is_ready, &state), want, "{is_ready} {state:?}");
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
