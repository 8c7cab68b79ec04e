//! Owns the background tasks, and restarts those that end.
//!
//! A control loop that panics is restarted with exponential backoff. When the commit thread of the
//! store or the feed of the cache has stopped, the server cannot work any more: the health check
//! fails, and [`Keelson::fatal_error`](crate::Keelson::fatal_error) returns.

use keelson_registry::Registry;
use keelson_server::Health;
use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Delay from the first panic of a loop to its restart; it doubles with each further panic.
const RESTART_DELAY: Duration = Duration::from_secs(1);
const RESTART_DELAY_MAX: Duration = Duration::from_secs(60);
/// A loop that ran for this long restarts with the first delay again.
const BACKOFF_RESET_TIME: Duration = Duration::from_secs(120);
/// Interval of the health checks of store and cache.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// A set of background loops. Dropping it aborts them.
pub(crate) struct Loops {
    tasks: JoinSet<()>,
    health: Arc<Health>,
}

impl Loops {
    pub(crate) fn new(health: Arc<Health>) -> Loops {
        Loops { tasks: JoinSet::new(), health }
    }

    /// Creates a set with the health check of the components that cannot be restarted. Their first
    /// failure is received.
    pub(crate) fn monitored(
        health: &Arc<Health>,
        registry: &Arc<Registry>,
    ) -> (Loops, watch::Receiver<Option<String>>) {
        let mut loops = Loops::new(health.clone());
        let (failed, fatal_error) = watch::channel(None);
        loops.tasks.spawn(monitor(registry.clone(), health.clone(), failed));
        (loops, fatal_error)
    }

    /// Starts a loop, and restarts it whenever it panics or ends.
    pub(crate) fn run<F>(&mut self, name: &'static str, start: impl Fn() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(keep_running(name, start, self.health.clone(), false));
    }

    /// Aborts all loops and waits until they have ended.
    pub(crate) async fn shutdown(&mut self) {
        self.tasks.shutdown().await;
    }
}

/// Runs a loop, and restarts it when it panics; also when it ends, unless `may_end`.
pub(crate) async fn keep_running<F: Future<Output = ()> + Send>(
    name: &'static str,
    start: impl Fn() -> F,
    health: Arc<Health>,
    may_end: bool,
) {
    let mut delay = RESTART_DELAY;
    loop {
        let began = Instant::now();
        let result = catch_panic(start()).await;
        if may_end && result.is_ok() {
            return;
        }
        if began.elapsed() >= BACKOFF_RESET_TIME {
            delay = RESTART_DELAY;
        }
        let why = result.map_or_else(|panic| panic_message(&*panic), |()| "it ended".to_owned());
        tracing::error!(component = name, why, restart = ?delay, "control loop panicked; restarting");
        health.fail(name, format!("the control loop panicked, restarting in {delay:?}"));
        tokio::time::sleep(delay).await;
        health.recover(name);
        delay = RESTART_DELAY_MAX.min(delay * 2);
    }
}

/// Awaits a future, and returns its panic as an error.
async fn catch_panic<T>(future: impl Future<Output = T>) -> Result<T, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    poll_fn(|ctx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(ctx))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => std::task::Poll::Ready(Err(panic)),
    })
    .await
}

/// Returns the first line of a panic message.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

async fn monitor(
    registry: Arc<Registry>,
    health: Arc<Health>,
    fatal_error: watch::Sender<Option<String>>,
) {
    let (component, why) = loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        if let Err(error @ keelson_store::HealthError::Stopped { .. }) = registry.store.health() {
            break ("store-commit", with_source(&error));
        }
        if let Err(why) = registry.cache.health() {
            break ("cache-feed", why.to_string());
        }
    };
    tracing::error!(component, why, "component stopped; ending the server");
    health.fail(component, why.clone());
    fatal_error.send_replace(Some(format!("{component} failed: {why}")));
}

fn with_source(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_panics_is_restarted_and_unhealthy_until_then() {
        let health: Arc<Health> = Arc::default();
        let mut loops = Loops::new(health.clone());
        let starts = Arc::new(AtomicUsize::new(0));
        let began = Instant::now();
        let (start_count, mut started) = watch::channel(0);
        loops.run("test-controller", {
            let starts = starts.clone();
            move || {
                let n = starts.fetch_add(1, Ordering::SeqCst) + 1;
                start_count.send_replace(n);
                async move {
                    assert!(n > 3, "this panic is part of a test");
                    std::future::pending().await
                }
            }
        });
        for (n, after) in [(1, 0), (2, 1), (3, 3), (4, 7)] {
            started.wait_for(|count| *count == n).await.expect("it starts");
            assert_eq!(began.elapsed().as_secs(), after, "start {n}");
            tokio::task::yield_now().await;
            let failing = health.failures();
            if n == 4 {
                assert_eq!(failing, []);
            } else {
                let why = format!("the control loop panicked, restarting in {}s", 1 << (n - 1));
                assert_eq!(failing, [("test-controller", why)]);
            }
        }
        loops.shutdown().await;
    }
}
