//! The server: listeners, and the loops beside them.

use std::sync::Arc;
use std::time::Duration;

use keelson_store::CompactionWindow;
use keelson_store::Store;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::engine::{Engine, StartError};
use crate::error::EtcdError;
use crate::options::{AutoCompaction, EtcdOptions};
use crate::record::to_etcd;
use crate::wire::{Listener, Routes, Shared, connection_slots};

/// How often the history is looked at that is kept by its number of revisions, as in etcd.
const REVISIONS_CHECK: Duration = Duration::from_secs(300);
/// The history of a time is looked at so often within it.
const CHECKS_PER_WINDOW: u32 = 10;
const WINDOW_CHECK_MIN: Duration = Duration::from_millis(100);
const WINDOW_CHECK_MAX: Duration = Duration::from_secs(60);

/// A server in the place of etcd.
pub struct EtcdServer {
    engine: Arc<Engine>,
}

impl EtcdServer {
    /// Opens the data.
    pub async fn open(options: EtcdOptions) -> Result<Self, StartError> {
        Ok(Self { engine: Engine::open(options).await? })
    }

    /// Serves clients until the future is dropped.
    pub async fn run(self, listeners: Vec<Listener>) {
        let mut running = JoinSet::new();
        let slots = connection_slots();
        let shared = Shared::default();
        for listener in listeners {
            let engine = Arc::clone(&self.engine);
            let shared = shared.clone();
            let routes = Routes { engine, shared, has_calls: true };
            running.spawn(listener.run(routes, Arc::clone(&slots)));
        }
        running.spawn(learn_leases(Arc::clone(&self.engine)));
        running.spawn(Arc::clone(&self.engine).expire_leases());
        running.spawn(compact_by_itself(Arc::clone(&self.engine)));
        while let Some(ended) = running.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                tracing::error!(%error, "a task of the server ended");
            }
        }
    }
}

/// Reads the leases of keys, on a thread of its own: it reads every value.
async fn learn_leases(engine: Arc<Engine>) {
    if engine.leases.are_loaded() {
        return;
    }
    let runtime = tokio::runtime::Handle::current();
    let learning = tokio::task::spawn_blocking(move || runtime.block_on(engine.learn_leases()));
    match learning.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(%error, "the leases of keys cannot be read"),
        Err(error) => tracing::error!(%error, "the leases of keys are not read"),
    }
}

/// Compacts the history as the options say.
async fn compact_by_itself(engine: Arc<Engine>) {
    let (mut window, interval) = match engine.options.auto_compaction {
        AutoCompaction::Off => return,
        AutoCompaction::Revisions(_) => (None, REVISIONS_CHECK),
        AutoCompaction::Periodic(kept) => {
            let check = (kept / CHECKS_PER_WINDOW).clamp(WINDOW_CHECK_MIN, WINDOW_CHECK_MAX);
            (Some(CompactionWindow::new(kept)), check)
        }
    };
    let start = Instant::now();
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let newest = engine.store.revision();
        let through = match (&mut window, engine.options.auto_compaction) {
            (Some(window), _) => window.observe(start.elapsed(), newest).map(to_etcd),
            (None, AutoCompaction::Revisions(kept)) => {
                Some(to_etcd(newest).saturating_sub(i64::try_from(kept).unwrap_or(i64::MAX)))
            }
            (None, _) => None,
        };
        let Some(through) = through.filter(|through| *through > engine.compacted().max(0)) else {
            continue;
        };
        match engine.compact(through).await {
            // A client may have compacted more meanwhile.
            Ok(()) | Err(EtcdError::Compacted) => {}
            Err(error) => tracing::warn!(%error, "the history could not be compacted"),
        }
    }
}
