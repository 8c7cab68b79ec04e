//! [`KeptIndex`]: the index of OpenAPI v3 documents as it was last made.

use bytes::Bytes;
use keelson_schema::openapi::DocumentHash;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The index of OpenAPI v3 documents.
#[derive(Clone, Debug)]
pub struct OpenApiIndex {
    /// JSON.
    pub text: Bytes,
    /// A name for the text, in hexadecimal digits.
    pub hash: String,
}

/// The index as it was last asked for. Of a table that has changed since, only the groups that changed are looked at.
#[derive(Default)]
pub(crate) struct KeptIndex(pub(crate) Mutex<Option<IndexAt>>);

/// The index at a number of the API table's changes.
pub(crate) struct IndexAt {
    pub(crate) number: u64,
    pub(crate) documents: BTreeMap<String, DocumentHash>,
    pub(crate) made: OpenApiIndex,
}
