//! [`OpenApiIndexCache`]: a cache of the index of OpenAPI v3 documents.

use crate::api_table::ApiTable;
use bytes::Bytes;
use keelson_meta::Str;
use keelson_schema::catalogue::Catalogue;
use keelson_schema::openapi::{DocumentHash, OpenApi, group_of_document};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The index of OpenAPI v3 documents.
#[derive(Clone, Debug)]
pub struct OpenApiIndex {
    /// The index as JSON.
    pub text: Bytes,
    /// The hash of the text, in hexadecimal digits.
    pub hash: String,
}

/// The last index that was requested. After a change of the API table only the documents of the
/// changed groups are hashed again.
#[derive(Default)]
pub struct OpenApiIndexCache(Mutex<Option<CachedIndex>>);

/// The index after a change of the API table.
struct CachedIndex {
    number: u64,
    documents: BTreeMap<String, DocumentHash>,
    index: OpenApiIndex,
}

impl fmt::Debug for OpenApiIndexCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenApiIndexCache").finish_non_exhaustive()
    }
}

impl OpenApiIndexCache {
    /// Returns the index of a table that has at least change `number`. `changed_since` returns the
    /// groups that have changed after a change; `None`: too many, all are hashed.
    pub fn index(
        &self,
        api: &ApiTable,
        catalogue: &Arc<Catalogue>,
        number: u64,
        changed_since: impl FnOnce(u64) -> Option<BTreeSet<Str>>,
    ) -> OpenApiIndex {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = cached.as_ref().filter(|cached| cached.number == number) {
            return cached.index.clone();
        }
        let before = cached
            .take()
            .and_then(|cached| Some((cached.documents, changed_since(cached.number)?)));
        let documents = match before {
            Some((documents, groups)) => hashes_after(api, catalogue, documents, &groups),
            None => api.documents(catalogue, |all| all.v3_hashes(|_| true)).into_iter().collect(),
        };
        let text = OpenApi::v3_index(&documents);
        let index = OpenApiIndex { hash: OpenApi::hash_of(&text), text: text.into() };
        *cached = Some(CachedIndex { number, documents, index: index.clone() });
        index
    }
}

/// Returns the hashes of all documents after these groups have changed.
fn hashes_after(
    api: &ApiTable,
    catalogue: &Arc<Catalogue>,
    mut documents: BTreeMap<String, DocumentHash>,
    groups: &BTreeSet<Str>,
) -> BTreeMap<String, DocumentHash> {
    documents.retain(|path, _| group_of_document(path).is_none_or(|group| !groups.contains(group)));
    for group in groups {
        let of_group = |of: Option<&str>| of == Some(group);
        documents.extend(api.documents_of(catalogue, group, |found| found.v3_hashes(of_group)));
    }
    documents
}
