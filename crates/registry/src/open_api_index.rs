//! [`OpenApiIndexCache`]: a cache of the index of OpenAPI v3 documents.

use bytes::Bytes;
use keelson_schema::openapi::DocumentHash;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The index of OpenAPI v3 documents.
#[derive(Clone, Debug)]
pub struct OpenApiIndex {
    /// The index as JSON.
    pub text: Bytes,
    /// The hash of the text, in hexadecimal digits.
    pub hash: String,
}

/// The last index that was requested. After a change of the API table only the changed groups are updated.
#[derive(Default)]
pub(crate) struct OpenApiIndexCache(pub(crate) Mutex<Option<CachedIndex>>);

/// The index after a change of the API table.
pub(crate) struct CachedIndex {
    pub(crate) number: u64,
    pub(crate) documents: BTreeMap<String, DocumentHash>,
    pub(crate) index: OpenApiIndex,
}
