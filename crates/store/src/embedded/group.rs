//! A group of transactions that share one sync. Each transaction is decided against the durable
//! state and the earlier writes of the group. Nothing is written to disk here.

use std::collections::HashMap;

use bytes::Bytes;

use super::disk::{Head, Record, RecordId};
use super::index::Version;
use super::shared::{Shared, key_value};
use crate::{Compare, KeyValue, Op, ReadError, Revision, Txn, TxnOutcome};

/// Up to this many records are searched linearly: most groups have one.
const LINEAR_RECORDS_MAX: usize = 8;

pub(super) struct Group<'a> {
    pub(super) shared: &'a Shared,
    /// The records that the group writes, in order.
    pub(super) records: Vec<Record>,
    /// Position in `records` of the newest change of a key. Used only if there are more than
    /// [`LINEAR_RECORDS_MAX`] records.
    changed: HashMap<Bytes, usize>,
    pub(super) newest: Revision,
}

impl<'a> Group<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        let newest = shared.newest();
        Self { shared, records: Vec::with_capacity(1), changed: HashMap::new(), newest }
    }

    /// Adds a transaction to the group, or returns its conflict. The outcome must not be sent
    /// before the group is durable, because it may depend on other writes of the group.
    pub(super) fn add(&mut self, txn: Txn) -> Result<TxnOutcome, ReadError> {
        let mut compared = None;
        for Compare { key, modified } in &txn.compare {
            let current = self.current(key);
            compared.get_or_insert((key, current));
            if current.map_or(Revision(0), |version| version.modified()) != *modified {
                let current = current.map(|version| self.key_value(key, version)).transpose()?;
                return Ok(TxnOutcome::Conflict { key: key.clone(), current });
            }
        }
        let revision = self.newest.next();
        let mut index = 0;
        for op in txn.ops {
            // Most transactions change the key that they compare first.
            let current = match compared.take() {
                Some((key, current)) if key == op.key() => current,
                _ => self.current(op.key()),
            };
            let created = current.map_or(revision, |version| version.created);
            let (key, value, is_delete, expires) = match op {
                Op::Put { key, value, lease } => {
                    (key, value, false, lease.map(|lease| lease.expires))
                }
                Op::Delete { key } if current.is_some() => (key, Bytes::new(), true, None),
                Op::Delete { .. } => continue,
            };
            let id = RecordId { revision, index };
            index += 1;
            // `TXN_BYTES_MAX` is far below `u32::MAX`.
            let value_bytes = value.len() as u32;
            let head = Head { id, key, created, is_delete, value_bytes, expires };
            self.push(Record { head, value });
        }
        Ok(TxnOutcome::Committed(self.newest))
    }

    pub(super) fn push(&mut self, record: Record) {
        self.newest = record.head.id.revision;
        self.records.push(record);
        self.index_new_records();
    }

    /// Removes the records from this position on, and returns to the revision before them.
    pub(super) fn truncate(&mut self, count: usize, newest: Revision) {
        self.newest = newest;
        self.records.truncate(count);
        self.changed.clear();
        self.index_new_records();
    }

    fn index_new_records(&mut self) {
        let count = self.records.len();
        if count <= LINEAR_RECORDS_MAX {
            return;
        }
        let indexed = if self.changed.is_empty() { 0 } else { count - 1 };
        for (position, record) in self.records.iter().enumerate().skip(indexed) {
            self.changed.insert(record.head.key.clone(), position);
        }
    }

    /// Returns the position of the newest change of a key in this group.
    pub(super) fn changed(&self, key: &[u8]) -> Option<usize> {
        if self.records.len() > LINEAR_RECORDS_MAX {
            return self.changed.get(key).copied();
        }
        self.records.iter().rposition(|record| record.head.key == *key)
    }

    pub(super) fn current(&self, key: &[u8]) -> Option<Version> {
        match self.changed(key) {
            Some(position) => {
                let version = Version::of(&self.records[position].head);
                (!version.is_delete).then_some(version)
            }
            None => self.shared.current(key),
        }
    }

    fn key_value(&self, key: &Bytes, version: Version) -> Result<KeyValue, ReadError> {
        let value = match self.changed(key) {
            Some(position) => self.records[position].value.clone(),
            // Prunes run on this thread between groups, so the record is still there.
            None => self.shared.recent_value(key, version.id())?,
        };
        Ok(key_value(key.clone(), value, version))
    }
}
