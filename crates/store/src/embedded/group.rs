//! A group of transactions that share one sync: decides each of them against what is durable and
//! what the group itself is about to write. No disk is written here.

use std::collections::HashMap;

use bytes::Bytes;

use super::disk::{Head, Record, RecordId};
use super::index::Version;
use super::shared::{Shared, key_value};
use crate::{Compare, KeyValue, Op, ReadError, Revision, Txn, TxnOutcome};

/// Up to this many records are searched in a row: most groups have one.
const LINEAR_RECORDS_MAX: usize = 8;

pub(super) struct Group<'a> {
    shared: &'a Shared,
    /// What the group writes, in order.
    pub(super) records: Vec<Record>,
    /// The place in `records` of the newest change of a key in this group. Filled once there are more
    /// than [`LINEAR_RECORDS_MAX`].
    changed: HashMap<Bytes, usize>,
    newest: Revision,
}

impl<'a> Group<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        let newest = shared.newest();
        Self { shared, records: Vec::with_capacity(1), changed: HashMap::new(), newest }
    }

    /// Takes the transaction into the group, or finds its conflict. The outcome must not be told
    /// before the group is durable: it may rest on writes of the group.
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
            self.newest = revision;
            // The contract's maximum of a value is far below.
            let value_bytes = value.len() as u32;
            let head = Head { id, key, created, is_delete, value_bytes, expires };
            self.records.push(Record { head, value });
            self.note_last();
        }
        Ok(TxnOutcome::Committed(self.newest))
    }

    fn note_last(&mut self) {
        let count = self.records.len();
        if count <= LINEAR_RECORDS_MAX {
            return;
        }
        let noted = if self.changed.is_empty() { 0 } else { count - 1 };
        for (place, record) in self.records.iter().enumerate().skip(noted) {
            self.changed.insert(record.head.key.clone(), place);
        }
    }

    /// The place of the newest change of a key in this group.
    fn changed(&self, key: &Bytes) -> Option<usize> {
        if self.records.len() > LINEAR_RECORDS_MAX {
            return self.changed.get(key).copied();
        }
        self.records.iter().rposition(|record| record.head.key == *key)
    }

    fn current(&self, key: &Bytes) -> Option<Version> {
        match self.changed(key) {
            Some(place) => {
                let version = Version::of(&self.records[place].head);
                (!version.is_delete).then_some(version)
            }
            None => self.shared.current(key),
        }
    }

    fn key_value(&self, key: &Bytes, version: Version) -> Result<KeyValue, ReadError> {
        let value = match self.changed(key) {
            Some(place) => self.records[place].value.clone(),
            // Prunes happen on this thread, between groups: the record stands.
            None => self.shared.recent_value(key, version.id())?,
        };
        Ok(key_value(key.clone(), value, version))
    }
}
