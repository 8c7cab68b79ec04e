//! The simplest implementation of the contract: every version of every key in one map, one lock.
//!
//! Tests compare the engines with it, or use it where they need a store but no engine.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use crate::contract::{
    Batch, BoxFuture, Compare, Event, KeyValue, Lease, Op, Page, Range, Store, Timestamp, Txn,
    TxnOutcome, Watch,
};
use crate::limits::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX, PAGE_BYTES_MAX};
use crate::revision::Revision;
use crate::{HealthError, ReadError, WatchError, WriteError};

/// A simple in-memory store for tests. It copies a lot and frees memory late.
#[derive(Debug, Default)]
pub struct Model {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// Versions of a key, oldest first; a version without a value is a delete.
    versions: BTreeMap<Bytes, Vec<Event>>,
    /// Every event above the floor, in order.
    log: Vec<Event>,
    /// When keys expire.
    leases: BTreeMap<Bytes, Timestamp>,
    newest: Revision,
    floor: Revision,
}

struct ModelWatch {
    // Keeps the sender alive: watches of a dropped model wait instead of failing.
    shared: Arc<Shared>,
    newest: watch::Receiver<u64>,
    prefix: Bytes,
    after: Revision,
}

impl Model {
    /// Creates an empty store at revision 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Store for Model {
    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<KeyValue>, ReadError>> {
        let state = self.shared.lock();
        let found = state.live(key, state.newest);
        Box::pin(async move { Ok(found) })
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<Page, ReadError>> {
        let page = self.shared.lock().range(&range);
        Box::pin(async move { page })
    }

    fn load<'a>(
        &'a self,
        prefix: &'a [u8],
        at: Option<Revision>,
        sink: &'a mut (dyn FnMut(KeyValue) + Send),
    ) -> BoxFuture<'a, Result<Revision, ReadError>> {
        Box::pin(async move {
            let state = self.shared.lock();
            let at = state.resolve_revision(at)?;
            for key in state.versions.keys().filter(|key| key.starts_with(prefix)) {
                state.live(key, at).into_iter().for_each(&mut *sink);
            }
            Ok(at)
        })
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, WriteError>> {
        Box::pin(async move {
            txn.check()?;
            let mut state = self.shared.lock();
            let outcome = state.txn(txn);
            self.shared.newest.send_replace(state.newest.0);
            Ok(outcome)
        })
    }

    fn watch(&self, prefix: Bytes, after: Revision) -> Result<Box<dyn Watch>, WatchError> {
        let floor = self.floor();
        if after < floor {
            return Err(WatchError::Compacted { asked: after, floor });
        }
        let newest = self.shared.newest.subscribe();
        Ok(Box::new(ModelWatch { shared: Arc::clone(&self.shared), newest, prefix, after }))
    }

    fn revision(&self) -> Revision {
        self.shared.lock().newest
    }

    fn floor(&self) -> Revision {
        self.shared.lock().floor
    }

    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), WriteError>> {
        let result = self.shared.lock().compact(through);
        Box::pin(async move { result })
    }

    fn expire(&self, now: Timestamp) -> BoxFuture<'_, Result<usize, WriteError>> {
        let mut state = self.shared.lock();
        let count = state.expire(now);
        self.shared.newest.send_replace(state.newest.0);
        drop(state);
        Box::pin(async move { Ok(count) })
    }

    fn health(&self) -> Result<(), HealthError> {
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the revision to read at, or an error if it cannot be read.
    fn resolve_revision(&self, at: Option<Revision>) -> Result<Revision, ReadError> {
        let floor = self.floor;
        let newest = self.newest;
        match at {
            None => Ok(newest),
            Some(asked) if asked < floor => Err(ReadError::Compacted { asked, floor }),
            Some(asked) if asked > newest => Err(ReadError::Future { asked, newest }),
            Some(asked) => Ok(asked),
        }
    }

    fn live(&self, key: &[u8], at: Revision) -> Option<KeyValue> {
        let version =
            self.versions.get(key)?.iter().rev().find(|version| version.revision <= at)?;
        let Event { key, value, revision, created } = version.clone();
        value.map(|value| KeyValue { key, value, created, modified: revision })
    }

    fn range(&self, range: &Range) -> Result<Page, ReadError> {
        let at = self.resolve_revision(range.at)?;
        let mut page = Page { items: Vec::new(), at, more: false };
        if !range.end.is_empty() && range.end <= range.start {
            return Ok(page);
        }
        let limit = range.items_max();
        let end = if range.end.is_empty() { Bound::Unbounded } else { Bound::Excluded(&range.end) };
        let mut bytes = 0;
        for (key, _) in self.versions.range::<Bytes, _>((Bound::Included(&range.start), end)) {
            let Some(item) = self.live(key, at) else { continue };
            if page.items.len() == limit || bytes >= PAGE_BYTES_MAX {
                page.more = true;
                break;
            }
            bytes += item.value.len();
            page.items.push(item);
        }
        Ok(page)
    }

    fn txn(&mut self, txn: Txn) -> TxnOutcome {
        for Compare { key, modified } in txn.compare {
            let current = self.live(&key, self.newest);
            if current.as_ref().map_or(Revision(0), |kv| kv.modified) != modified {
                return TxnOutcome::Conflict { key, current };
            }
        }
        let revision = self.newest.next();
        for op in txn.ops {
            let current = self.live(op.key(), self.newest);
            let created = current.as_ref().map_or(revision, |kv| kv.created);
            self.leases.remove(op.key());
            let event = match op {
                Op::Put { key, value, lease } => {
                    if let Some(Lease { expires, .. }) = lease {
                        self.leases.insert(key.clone(), expires);
                    }
                    Event { key, value: Some(value), revision, created }
                }
                Op::Delete { key } if current.is_some() => {
                    Event { key, value: None, revision, created }
                }
                Op::Delete { .. } => continue,
            };
            self.versions.entry(event.key.clone()).or_default().push(event.clone());
            self.log.push(event);
        }
        self.newest = self.log.last().map_or(self.newest, |event| event.revision.max(self.newest));
        TxnOutcome::Committed(self.newest)
    }

    fn expire(&mut self, now: Timestamp) -> usize {
        let ended = self.leases.iter().filter(|(_, expires)| **expires <= now);
        let ops: Vec<_> = ended.map(|(key, _)| Op::Delete { key: key.clone() }).collect();
        let count = ops.len();
        self.txn(Txn { compare: vec![], ops });
        count
    }

    fn compact(&mut self, through: Revision) -> Result<(), WriteError> {
        if through > self.newest {
            return Err(WriteError::Future { asked: through, newest: self.newest });
        }
        self.floor = self.floor.max(through);
        self.log.retain(|event| event.revision > through);
        self.versions.retain(|_, versions| {
            let old = versions.iter().take_while(|version| version.revision <= through).count();
            versions.drain(..old.saturating_sub(1));
            let is_gone = old > 0 && versions[0].value.is_none();
            versions.drain(..usize::from(is_gone));
            !versions.is_empty()
        });
        Ok(())
    }

    /// Returns the next batch of a watch, or `None` if there is no revision after `after` yet.
    fn batch(&self, prefix: &[u8], after: Revision) -> Result<Option<Batch>, WatchError> {
        if after < self.floor {
            return Err(WatchError::Compacted { asked: after, floor: self.floor });
        }
        if after >= self.newest {
            return Ok(None);
        }
        let mut batch = Batch { events: Vec::new(), through: self.newest };
        let mut bytes = 0;
        let start = self.log.partition_point(|event| event.revision <= after);
        for event in self.log[start..].iter().filter(|event| event.key.starts_with(prefix)) {
            let last = batch.events.last().map_or(event.revision, |last: &Event| last.revision);
            let is_full = batch.events.len() >= BATCH_EVENTS_MAX || bytes >= BATCH_BYTES_MAX;
            if is_full && event.revision > last {
                batch.through = last;
                break;
            }
            bytes += event.value.as_ref().map_or(0, Bytes::len);
            batch.events.push(event.clone());
        }
        Ok(Some(batch))
    }
}

impl Watch for ModelWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, WatchError>> {
        Box::pin(async move {
            loop {
                self.newest.borrow_and_update();
                let batch = self.shared.lock().batch(&self.prefix, self.after)?;
                if let Some(batch) = batch {
                    self.after = batch.through;
                    return Ok(batch);
                }
                self.newest.changed().await.map_err(|_| WatchError::Closed)?;
            }
        })
    }
}
