//! The watches of one stream: which of them are up to date, and what each gets of a batch of
//! events. No IO.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use keelson_store::{Batch, Event, Revision};

use crate::kv::Interval;
use crate::limits::{STREAM_RANGES_BYTES_MAX, STREAM_WATCHES_MAX};
use crate::proto::{FilterType, WatchCreateRequest};
use crate::record::{from_etcd, to_etcd};

/// The id of a watch that could not be made, and of responses for all watches.
pub(crate) const INVALID_ID: i64 = -1;

/// One watch.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub interval: Interval,
    pub prev_kv: bool,
    pub fragment: bool,
    pub progress_notify: bool,
    /// Whether it got something since the last tick of progress.
    pub was_served: bool,
    /// The next revision that it has not got.
    next: Revision,
    no_put: bool,
    no_delete: bool,
}

impl Watcher {
    /// Reads a request at the newest revision of etcd.
    pub(crate) fn new(req: &WatchCreateRequest, newest: i64) -> Self {
        let start = if req.start_revision > 0 { req.start_revision } else { newest + 1 };
        let has = |filter: FilterType| req.filters.contains(&filter.into());
        // The smallest key.
        let key = if req.key.is_empty() { Bytes::from_static(b"\0") } else { req.key.clone() };
        let key = Bytes::copy_from_slice(&key);
        let end = Bytes::copy_from_slice(&req.range_end);
        Self {
            interval: Interval::new(&key, &end),
            prev_kv: req.prev_kv,
            fragment: req.fragment,
            progress_notify: req.progress_notify,
            was_served: false,
            next: from_etcd(start),
            no_put: has(FilterType::NoPut),
            no_delete: has(FilterType::NoDelete),
        }
    }

    fn wants(&self, event: &Event) -> bool {
        let is_filtered = if event.value.is_some() { self.no_put } else { self.no_delete };
        event.revision >= self.next && !is_filtered
    }

    fn bytes(&self) -> usize {
        self.interval.start.len() + self.interval.end.len()
    }
}

/// Why a watch could not be made; the texts are etcd's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum CreateError {
    #[error("mvcc: watcher range is empty")]
    EmptyRange,
    #[error("mvcc: duplicate watch ID provided on the WatchStream")]
    DuplicateId,
    #[error("etcdserver: too many requests")]
    TooMany,
}

/// The watches of a stream.
#[derive(Default)]
pub(crate) struct Watchers {
    all: HashMap<i64, Watcher>,
    /// Invariant: the watches that are up to date with the feed: of one key, and of ranges.
    singles: HashMap<Bytes, Vec<i64>>,
    ranges: Vec<i64>,
    /// Invariant: the others, with the next revision of each.
    behind: BTreeMap<i64, Revision>,
    next_id: i64,
    /// Bytes of all ranges.
    bytes: usize,
}

impl Watchers {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn get(&self, id: i64) -> Option<&Watcher> {
        self.all.get(&id)
    }

    /// Adds a watch that is behind until [`Watchers::catch_up`]; returns its id.
    pub(crate) fn add(&mut self, asked_id: i64, watcher: Watcher) -> Result<i64, CreateError> {
        let Interval { start, end } = &watcher.interval;
        if !end.is_empty() && start >= end {
            return Err(CreateError::EmptyRange);
        }
        let bytes = self.bytes + watcher.bytes();
        if self.all.len() >= STREAM_WATCHES_MAX || bytes > STREAM_RANGES_BYTES_MAX {
            return Err(CreateError::TooMany);
        }
        let id = match asked_id {
            0 => self.free_id(),
            _ if self.all.contains_key(&asked_id) => return Err(CreateError::DuplicateId),
            _ => asked_id,
        };
        self.bytes = bytes;
        self.behind.insert(id, watcher.next);
        self.all.insert(id, watcher);
        Ok(id)
    }

    fn free_id(&mut self) -> i64 {
        while self.all.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        self.next_id - 1
    }

    /// Removes a watch; returns whether it existed.
    pub(crate) fn remove(&mut self, id: i64) -> bool {
        let Some(watcher) = self.all.remove(&id) else { return false };
        self.bytes -= watcher.bytes();
        if self.behind.remove(&id).is_some() {
            return true;
        }
        if watcher.interval.is_single() {
            if let Some(ids) = self.singles.get_mut(&watcher.interval.start) {
                ids.retain(|other| *other != id);
                if ids.is_empty() {
                    self.singles.remove(&watcher.interval.start);
                }
            }
        } else {
            self.ranges.retain(|other| *other != id);
        }
        true
    }

    /// Whether watches are up to date with the feed.
    pub(crate) fn has_current(&self) -> bool {
        !self.singles.is_empty() || !self.ranges.is_empty()
    }

    /// Returns the smallest next revision of the watches that are behind.
    pub(crate) fn oldest_behind(&self) -> Option<Revision> {
        self.behind.values().min().copied()
    }

    /// Makes the watches current that need nothing up to a revision, which the feed has reached.
    pub(crate) fn catch_up(&mut self, reached: Revision) {
        let ready: Vec<_> =
            self.behind.iter().filter(|(_, next)| **next > reached).map(|(id, _)| *id).collect();
        for id in ready {
            self.behind.remove(&id);
            let Some(watcher) = self.all.get(&id) else { continue };
            if watcher.interval.is_single() {
                self.singles.entry(watcher.interval.start.clone()).or_default().push(id);
            } else {
                self.ranges.push(id);
            }
        }
    }

    /// Puts all watches behind again, after the feed had reached a revision.
    pub(crate) fn fall_behind(&mut self, reached: Revision) {
        let singles = std::mem::take(&mut self.singles).into_values().flatten();
        for id in singles.chain(std::mem::take(&mut self.ranges)) {
            if let Some(watcher) = self.all.get_mut(&id) {
                watcher.next = watcher.next.max(reached.next());
                self.behind.insert(id, watcher.next);
            }
        }
    }

    /// Returns the watches that need revisions of etcd before this one.
    pub(crate) fn lost_before(&self, compacted: i64) -> Vec<i64> {
        let lost = self.behind.iter().filter(|(_, next)| to_etcd(**next) < compacted);
        lost.map(|(id, _)| *id).collect()
    }

    /// Returns the current watches that a batch of the feed may have something for, in order.
    pub(crate) fn current_for(&self, batch: &Batch) -> Vec<i64> {
        let keys = batch.events.iter().map(|event| &event.key);
        let singles = keys.filter_map(|key| self.singles.get(key)).flatten();
        let found: BTreeSet<i64> = singles.chain(&self.ranges).copied().collect();
        found.into_iter().collect()
    }

    /// Returns the watches that are behind, in order.
    pub(crate) fn behind(&self) -> Vec<i64> {
        self.behind.keys().copied().collect()
    }

    /// Returns the positions of the events of a batch that a watch wants. Its cost grows with the
    /// batch.
    pub(crate) fn wanted(&self, id: i64, batch: &Batch) -> Vec<usize> {
        let Some(watcher) = self.all.get(&id) else { return Vec::new() };
        let events = batch.events.iter().enumerate();
        let wanted = events
            .filter(|(_, event)| watcher.interval.contains(&event.key) && watcher.wants(event));
        wanted.map(|(position, _)| position).collect()
    }

    /// Records that the watches that are behind have got everything up to a revision.
    pub(crate) fn advance_behind(&mut self, through: Revision) {
        for (id, next) in &mut self.behind {
            let Some(watcher) = self.all.get_mut(id) else { continue };
            watcher.next = watcher.next.max(through.next());
            *next = watcher.next;
        }
    }

    pub(crate) fn mark_served(&mut self, id: i64) {
        if let Some(watcher) = self.all.get_mut(&id) {
            watcher.was_served = true;
        }
    }

    /// Returns the current watches that asked for progress and got nothing since the last call.
    pub(crate) fn take_silent(&mut self) -> Vec<i64> {
        let mut silent = Vec::new();
        for (id, watcher) in &mut self.all {
            let was_served = std::mem::take(&mut watcher.was_served);
            if watcher.progress_notify && !was_served && !self.behind.contains_key(id) {
                silent.push(*id);
            }
        }
        silent.sort_unstable();
        silent
    }

    /// Whether every watch has got everything up to a revision, and waits for none that is further
    /// ahead.
    pub(crate) fn are_all_current(&self, reached: Revision) -> bool {
        self.behind.is_empty() && self.all.values().all(|watcher| watcher.next <= reached.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watcher(key: &'static str, end: &'static str, start_revision: i64) -> Watcher {
        let req = WatchCreateRequest {
            key: key.into(),
            range_end: end.into(),
            start_revision,
            ..WatchCreateRequest::default()
        };
        Watcher::new(&req, 10)
    }

    fn batch(events: &[(&'static str, i64)], through: i64) -> Batch {
        let event = |(key, revision): &(&'static str, i64)| Event {
            key: (*key).into(),
            value: Some(Bytes::new()),
            revision: from_etcd(*revision),
            created: from_etcd(*revision),
        };
        Batch { events: events.iter().map(event).collect(), through: from_etcd(through) }
    }

    fn wanted(watchers: &Watchers, ids: &[i64], batch: &Batch) -> Vec<(i64, Vec<usize>)> {
        ids.iter().map(|id| (*id, watchers.wanted(*id, batch))).collect()
    }

    fn of_feed(watchers: &Watchers, batch: &Batch) -> Vec<(i64, Vec<usize>)> {
        wanted(watchers, &watchers.current_for(batch), batch)
    }

    fn of_past(watchers: &mut Watchers, batch: &Batch) -> Vec<(i64, Vec<usize>)> {
        let found = wanted(watchers, &watchers.behind(), batch);
        watchers.advance_behind(batch.through);
        found
    }

    #[test]
    fn each_watch_gets_the_events_of_its_range_from_its_revision_on() {
        let mut watchers = Watchers::default();
        for watcher in [watcher("a", "", 0), watcher("a", "c", 0), watcher("b", "\0", 12)] {
            watchers.add(0, watcher).expect("added");
        }
        watchers.catch_up(from_etcd(10));
        assert!(watchers.has_current() && watchers.oldest_behind().is_none());
        let batch = batch(&[("a", 11), ("b", 11), ("b", 12), ("c", 12)], 12);
        let expected = [(0, vec![0]), (1, vec![0, 1, 2]), (2, vec![2, 3])];
        assert_eq!(of_feed(&watchers, &batch), expected);
    }

    #[test]
    fn a_watch_from_the_past_gets_each_event_once() {
        let mut watchers = Watchers::default();
        watchers.add(7, watcher("a", "\0", 5)).expect("added");
        watchers.catch_up(from_etcd(10));
        assert_eq!(watchers.oldest_behind(), Some(from_etcd(5)));
        let past = batch(&[("a", 4), ("a", 5), ("b", 8)], 8);
        assert_eq!(of_past(&mut watchers, &past), [(7, vec![1, 2])]);
        let past = batch(&[("a", 8), ("a", 12)], 12);
        assert_eq!(of_past(&mut watchers, &past), [(7, vec![1])]);
        // The feed is behind the past that was read: it repeats revision 12.
        watchers.catch_up(from_etcd(10));
        let next = batch(&[("a", 12), ("a", 13)], 13);
        assert_eq!(of_feed(&watchers, &next), [(7, vec![1])]);
    }

    #[test]
    fn watches_that_fall_behind_go_on_where_they_were() {
        let mut watchers = Watchers::default();
        watchers.add(0, watcher("a", "", 0)).expect("added");
        watchers.add(0, watcher("a", "z", 20)).expect("added");
        watchers.catch_up(from_etcd(10));
        watchers.fall_behind(from_etcd(14));
        assert!(!watchers.has_current());
        assert_eq!(watchers.oldest_behind(), Some(from_etcd(15)));
        assert_eq!(watchers.lost_before(16), [0]);
        assert_eq!(watchers.lost_before(15), [0; 0]);
    }

    #[test]
    fn ids_are_free_ones_and_ranges_are_not_empty() {
        let mut watchers = Watchers::default();
        assert_eq!(watchers.add(1, watcher("a", "", 0)), Ok(1));
        assert_eq!(watchers.add(1, watcher("a", "", 0)), Err(CreateError::DuplicateId));
        assert_eq!(watchers.add(0, watcher("a", "", 0)), Ok(0));
        assert_eq!(watchers.add(0, watcher("a", "", 0)), Ok(2));
        assert_eq!(watchers.add(0, watcher("b", "a", 0)), Err(CreateError::EmptyRange));
        assert!(watchers.remove(0) && !watchers.remove(0));
        watchers.catch_up(from_etcd(10));
        assert!(watchers.remove(1) && watchers.remove(2));
        assert!(watchers.is_empty() && !watchers.has_current());
        assert_eq!(watchers.bytes, 0);
    }

    #[test]
    fn only_silent_watches_that_are_current_get_progress() {
        let mut watchers = Watchers::default();
        for id in [1, 2, 3] {
            let watcher = Watcher { progress_notify: id != 3, ..watcher("a", "", 0) };
            watchers.add(id, watcher).expect("added");
        }
        assert_eq!(watchers.take_silent(), [0; 0]);
        watchers.catch_up(from_etcd(10));
        watchers.mark_served(2);
        assert_eq!(watchers.take_silent(), [1]);
        assert_eq!(watchers.take_silent(), [1, 2]);
        assert!(watchers.are_all_current(from_etcd(10)));
        assert!(!watchers.are_all_current(from_etcd(9)));
    }
}
