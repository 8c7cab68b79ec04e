//! [`Metrics`]: what the registry and those who use it count: lists, waits for the cache,
//! transactions of the store, addresses and ports of services, work queues. Names, types, labels
//! and buckets are those of kube-apiserver.

mod lists;
mod queues;
mod services;
mod transactions;

pub use lists::{ListMetrics, Scan};
pub use queues::{QueueMetrics, RunningWork, WorkQueues};
pub use services::{AllocationWay, ServiceMetrics};
pub use transactions::{TransactionMetrics, Transactions};

use keelson_metrics::Exposition;
use tokio::time::Instant;

/// Most resources with their own series.
const RESOURCES_MAX: usize = 4096;

/// The metrics of one registry.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Lists and waits for the cache.
    pub lists: ListMetrics,
    /// Transactions of the store.
    pub transactions: Transactions,
    /// Addresses and ports of services.
    pub services: ServiceMetrics,
    /// The queues of control loops.
    pub queues: WorkQueues,
}

impl Metrics {
    /// Writes all metrics; `now` is what running work is measured by.
    pub fn write(&self, now: Instant, out: &mut Exposition) {
        self.lists.write(out);
        self.transactions.write(out);
        self.services.write(out);
        self.queues.write(now, out);
        keelson_resources::rule_metrics::write(out);
    }
}
