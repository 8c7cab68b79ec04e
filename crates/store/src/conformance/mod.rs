//! The conformance suite for implementations of [`Store`], and a random comparison with a model.
//!
//! A backend's tests run every case on a store without keys. Its revision may have any value, so
//! the suite can also run on a shared cluster under a separate prefix, as long as nothing else
//! writes to it.
//!
//! ```
//! # use std::sync::Arc;
//! # use keelson_store::{Model, conformance};
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
//! # runtime.block_on(async {
//! for case in conformance::cases() {
//!     case.run(Arc::new(Model::new())).await;
//! }
//! conformance::Walk::new(7).steps(&Model::new(), 200).await;
//! # });
//! ```
// Like a test, a case fails by panicking.
#![allow(clippy::missing_panics_doc, clippy::unwrap_used)]

mod history;
mod inverted;
mod leases;
mod order;
mod power_disk;
mod reads;
mod walk;
mod writes;

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;

use crate::{
    BoxFuture, Compare, Event, KeyValue, Op, Range, Revision, Store, Txn, TxnOutcome, Watch,
    key_after,
};

pub use inverted::Inverted;
pub use leases::leases;
pub use power_disk::{Fault, PowerDisk, Snapshot};
pub use walk::{Rng, Walk};

/// A test of one behaviour that every store must have.
pub struct Case {
    /// The behaviour, as an identifier.
    pub name: &'static str,
    run: Box<dyn Fn(Arc<dyn Store>) -> BoxFuture<'static, ()> + Send + Sync>,
}

impl Case {
    fn new<F>(name: &'static str, run: impl Fn(Arc<dyn Store>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { name, run: Box::new(move |store| Box::pin(run(store))) }
    }

    /// Runs the case on a store without keys. Panics with its name if it fails.
    pub async fn run(&self, store: Arc<dyn Store>) {
        let mut run = (self.run)(store);
        let step = |ctx: &mut Context<'_>| {
            let step = catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(ctx)));
            step.unwrap_or_else(|_| panic!("{}", self.name))
        };
        poll_fn(step).await;
    }
}

/// Returns all cases.
#[must_use]
pub fn cases() -> Vec<Case> {
    let groups = [writes::cases(), reads::cases(), history::cases(), order::cases()];
    groups.into_iter().flatten().collect()
}

/// Puts a key without a compare. Returns the revision.
pub async fn put(store: &dyn Store, key: &str, value: &str) -> Revision {
    let op = Op::Put { key: key.to_owned().into(), value: value.to_owned().into(), lease: None };
    commit(store, Txn { compare: vec![], ops: vec![op] }).await
}

/// Deletes a key without a compare. Returns the revision.
pub async fn delete(store: &dyn Store, key: &str) -> Revision {
    let op = Op::Delete { key: key.to_owned().into() };
    commit(store, Txn { compare: vec![], ops: vec![op] }).await
}

/// Runs a transaction that must commit. Returns the revision.
pub async fn commit(store: &dyn Store, txn: Txn) -> Revision {
    match store.txn(txn).await.expect("txn") {
        TxnOutcome::Committed(revision) => revision,
        TxnOutcome::Conflict { key, current } => panic!("conflict on {key:?}: {current:?}"),
    }
}

/// Lists every live key under a prefix, page by page at one revision, as `key=value` in order.
pub async fn list(store: &dyn Store, prefix: &str, at: Option<Revision>) -> Vec<String> {
    let mut query = Range { at, limit: 3, ..Range::prefix(prefix.as_bytes()) };
    let mut shown = Vec::new();
    loop {
        let page = store.range(query.clone()).await.expect("range");
        shown.extend(page.items.iter().map(show));
        let Some(last) = page.items.last().filter(|_| page.more) else { return shown };
        query.start = key_after(&last.key);
        query.at = Some(page.at);
    }
}

/// Returns the events of a watch until it has delivered everything through `until`.
pub async fn drain(watch: &mut dyn Watch, until: Revision) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let mut through = Revision(0);
    while through < until {
        let batch = watch.next().await.expect("watch");
        assert!(batch.through > through, "a batch through {} after {through}", batch.through);
        for event in batch.events {
            let last = events.last().map_or(Revision(0), |event| event.revision);
            assert!(event.revision >= last, "{event:?} after {last}");
            assert!(event.revision > through && event.revision <= batch.through, "{event:?}");
            events.push(event);
        }
        through = batch.through;
    }
    events
}

fn show(kv: &KeyValue) -> String {
    format!("{}={}", kv.key.escape_ascii(), kv.value.escape_ascii())
}

/// Formats an event: `+key=value` (created), `key=value` (updated) or `-key` (deleted).
fn show_event(event: &Event) -> String {
    let key = event.key.escape_ascii();
    match &event.value {
        Some(value) if event.created == event.revision => format!("+{key}={}", show_value(value)),
        Some(value) => format!("{key}={}", show_value(value)),
        None => format!("-{key}"),
    }
}

fn show_value(value: &Bytes) -> String {
    value.escape_ascii().to_string()
}

fn compare(key: &str, modified: Revision) -> Compare {
    Compare { key: key.to_owned().into(), modified }
}

fn put_op(key: &str, value: &str) -> Op {
    Op::Put { key: key.to_owned().into(), value: value.to_owned().into(), lease: None }
}

fn delete_op(key: &str) -> Op {
    Op::Delete { key: key.to_owned().into() }
}
