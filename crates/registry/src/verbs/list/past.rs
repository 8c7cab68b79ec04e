//! list at a revision that the cache has forgotten: the store knows its history for longer, and is read page by
//! page, so that a list of many pages comes to its end however much is written meanwhile.

use super::{Filter, Page};
use crate::kind::Target;
use crate::registry::{Registry, unreadable};
use bytes::Bytes;
use keelson_cache::Entry;
use keelson_meta::{Failure, Status};
use keelson_store::{Range, ReadError, Revision, key_after, prefix_end};
use std::error::Error;

impl Registry {
    /// The objects that match, as they were at `revision`, from the key `start` on: at most `limit` of them.
    /// `None`: the store has forgotten them too.
    pub(crate) async fn past_page(
        &self,
        target: &Target,
        filter: &Filter,
        (start, limit): (&str, usize),
        revision: Revision,
    ) -> Result<Option<Page>, Failure> {
        let mut page = Page { items: vec![], revision, more: false, remaining: None };
        let mut range = past_range(&target.kind.prefix, filter, start, revision);
        loop {
            let read = match self.store.range(range.clone()).await {
                Ok(read) => read,
                Err(ReadError::Compacted { .. }) => return Ok(None),
                Err(error) => {
                    tracing::warn!(%error, source = error.source(), "a list of the past cannot be read");
                    return Err(Status::internal(error));
                }
            };
            for kv in &read.items {
                let entry = Entry::from_store(target.kind.prefix.len(), kv)
                    .map_err(|error| unreadable(&error))?;
                if !filter.matches(&entry) {
                    continue;
                }
                page.more = page.items.len() == limit;
                if page.more {
                    return Ok(Some(page));
                }
                page.items.push(entry);
            }
            match read.items.last() {
                Some(last) if read.more => range.start = key_after(&last.key),
                _ => return Ok(Some(page)),
            }
        }
    }
}

/// The keys of the objects that may match.
fn past_range(prefix: &[u8], filter: &Filter, start: &str, revision: Revision) -> Range {
    let key = |key: &str| [prefix, key.as_bytes()].concat();
    let (start, end) = match filter.only_key() {
        Some(only) => (Bytes::from(key(&only)), key_after(&key(&only))),
        None => (key(start.max(&filter.prefix)).into(), prefix_end(&key(&filter.prefix))),
    };
    Range { start, end, limit: 0, at: Some(revision) }
}
