//! Lists at a revision that the cache no longer has. The store keeps its history longer and is read
//! page by page, so that a list of many pages completes however much is written meanwhile.

use super::{Filter, Page};
use crate::registry::{Registry, unreadable};
use crate::target::Target;
use crate::verbs::pace::Pace;
use bytes::Bytes;
use keelson_meta::{Failure, Status};
use keelson_records::Entry;
use keelson_store::{Range, ReadError, Revision, key_after, prefix_end};
use std::error::Error;

/// Objects that are read between two looks at the time.
const PAST_STRETCH: usize = 32;

impl Registry {
    /// Returns up to `limit` matching objects at `revision`, from key `start` on; `None`: it is
    /// compacted.
    pub(crate) async fn past_page(
        &self,
        target: &Target,
        filter: &Filter,
        start: &str,
        limit: usize,
        revision: Revision,
    ) -> Result<Option<Page>, Failure> {
        let mut page = Page::empty(revision);
        let mut pace = Pace::default();
        let mut range = past_range(&target.kind.prefix, filter, start, revision);
        let store = self.store_of(&target.kind);
        loop {
            let read = match store.range(range.clone()).await {
                Ok(read) => read,
                Err(ReadError::Compacted { .. }) => return Ok(None),
                Err(error) => {
                    tracing::warn!(%error, source = error.source(), "list at a past revision failed");
                    return Err(Status::internal(error));
                }
            };
            page.fetched += read.items.len();
            for kv in &read.items {
                let entry = Entry::from_store(target.kind.prefix.len(), kv)
                    .map_err(|error| unreadable(&error))?;
                if pace.is_due(PAST_STRETCH) {
                    tokio::task::yield_now().await;
                }
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

fn past_range(prefix: &[u8], filter: &Filter, start: &str, revision: Revision) -> Range {
    let key = |key: &str| [prefix, key.as_bytes()].concat();
    let (start, end) = match filter.only_key() {
        Some(only) => (Bytes::from(key(&only)), key_after(&key(&only))),
        None => (key(start.max(&filter.prefix)).into(), prefix_end(&key(&filter.prefix))),
    };
    Range { start, end, limit: 0, at: Some(revision) }
}
