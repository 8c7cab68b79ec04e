//! Compaction: removes old history from the store and the cache.

use keelson_registry::Registry;
use keelson_store::CompactionWindow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long old revisions are kept by default.
pub const HISTORY_DEFAULT: Duration = Duration::from_secs(300);
/// Interval of compaction.
const INTERVAL: Duration = Duration::from_secs(15);

/// Removes history that is older than `history` until the task is aborted. A store that several
/// servers share is compacted by its own loop instead.
pub async fn run(registry: Arc<Registry>, history: Duration) {
    let mut window = CompactionWindow::new(history);
    let began = Instant::now();
    loop {
        tokio::time::sleep(INTERVAL.min(history)).await;
        let Some(through) = window.observe(began.elapsed(), registry.store.revision()) else {
            continue;
        };
        match registry.store.compact(through).await {
            Ok(()) => registry.cache.compact(0, through),
            Err(error) => tracing::warn!(%error, "compaction failed"),
        }
    }
}
