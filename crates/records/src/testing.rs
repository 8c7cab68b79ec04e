//! Stored objects for the tests of this crate.

use bytes::Bytes;
use keelson_records::Record;
use keelson_store::{KeyValue, Revision};

/// The prefix of the keys of test objects.
pub(crate) const PREFIX: &str = "/registry/ks/";

pub(crate) fn stored(key: &str, labels: &[(&str, &str)], revision: u64) -> KeyValue {
    stored_with(key, labels, revision, r#","x":1"#)
}

/// Returns a stored object with further members.
pub(crate) fn stored_with(
    key: &str,
    labels: &[(&str, &str)],
    revision: u64,
    more: &str,
) -> KeyValue {
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
