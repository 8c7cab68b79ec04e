//! Stored objects and deterministic random numbers, for the tests of this crate and of the cache.

use crate::entry::Record;
use bytes::Bytes;
use keelson_store::{KeyValue, Revision};

/// The prefix of the keys of test objects.
pub const PREFIX: &str = "/registry/ks/";

/// Returns a stored object with labels, last written at a revision.
pub fn stored(key: &str, labels: &[(&str, &str)], revision: u64) -> KeyValue {
    stored_with(key, labels, revision, r#","x":1"#)
}

/// Returns a stored object with further members.
pub fn stored_with(key: &str, labels: &[(&str, &str)], revision: u64, more: &str) -> KeyValue {
    let json = r#"{"kind":"K","apiVersion":"v1","metadata":{"resourceVersion":"0"}"#;
    let at = json.len() - 3;
    let json = format!("{json}{more}}}");
    let record = Record {
        json: json.as_bytes(),
        resource_version_at: at,
        item_at: 30,
        labels,
        fields: &[("spec.nodeName", "n1".into())],
    };
    KeyValue {
        key: Bytes::from(format!("{PREFIX}{key}")),
        value: record.encode(),
        created: Revision(1),
        modified: Revision(revision),
    }
}

/// A linear congruential generator; its low bits are not used.
pub struct Random(
    /// The state; any number may begin.
    pub u64,
);

impl Random {
    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}
