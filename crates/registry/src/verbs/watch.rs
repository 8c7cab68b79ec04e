//! watch: a cursor into the history of a resource, and what matches on its way.

use crate::kind::Target;
use crate::options::{WatchOptions, WatchStart};
use crate::registry::Registry;
use crate::verbs::list::Filter;
use keelson_auth::Permit;
use keelson_cache::{Change, ChangeKind, Cursor, CursorError, Entry};
use keelson_meta::{Failure, Status};
use keelson_store::Revision;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a watch event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The object is new to the watcher.
    Added,
    /// The object changed.
    Modified,
    /// The object is gone, or no longer matches.
    Deleted,
}

/// One event of a watch.
#[derive(Clone, Debug)]
pub struct WatchEvent {
    /// What happened.
    pub kind: EventKind,
    /// The object; its last matching state when it is gone.
    pub entry: Entry,
    /// The change behind it, whose encoded frame all watchers share; absent for initial events and
    /// for objects that left the selection.
    pub change: Option<Arc<Change>>,
}

/// A running watch.
pub struct WatchSession {
    initial: VecDeque<Entry>,
    cursor: Cursor,
    filter: Filter,
    taken: Vec<Arc<Change>>,
    /// The revision of the state with which the watch began.
    pub began_at: Revision,
    /// The client asked to be told when the initial events are through.
    pub marks_initial_end: bool,
}

/// Why a watch does not begin, by the way in which the client is told.
#[derive(Debug)]
pub enum WatchRefusal {
    /// As the answer to the request.
    Answer(Failure),
    /// As the only event of a stream: kube-apiserver looks for the history when it has begun to
    /// answer, and its clients expect to read there that the history is gone.
    Event(Failure),
}

impl WatchRefusal {
    /// What the client is told, in whichever way.
    pub fn into_failure(self) -> Failure {
        match self {
            WatchRefusal::Answer(failure) | WatchRefusal::Event(failure) => failure,
        }
    }
}

impl From<Failure> for WatchRefusal {
    fn from(failure: Failure) -> Self {
        WatchRefusal::Answer(failure)
    }
}

impl Registry {
    /// Starts a watch. Without the state or the history that it asks for it is refused by an event.
    pub async fn watch(
        &self,
        permit: &Permit,
        target: &Target,
        options: &WatchOptions,
    ) -> Result<WatchSession, WatchRefusal> {
        target.assert_covered_collection(permit, "watch", &options.fields);
        let filter = Filter::new(target, &options.labels, &options.fields)?;
        let objects = self.objects(&target.kind);
        let sends_state = options.initial_events.unwrap_or(match options.start {
            WatchStart::Latest | WatchStart::Any => true,
            WatchStart::After(_) => false,
        });
        let after = match options.start {
            WatchStart::Latest | WatchStart::Any => {
                self.fresh().await?;
                None
            }
            WatchStart::After(revision) if options.initial_events == Some(true) => {
                self.not_older(revision).await.map_err(WatchRefusal::Event)?;
                None
            }
            WatchStart::After(revision) => Some(revision),
        };
        let snapshot = self.cache.snapshot(&objects);
        let began_at = after.unwrap_or(snapshot.revision);
        let cursor = objects.cursor(began_at).ok_or_else(|| {
            let (asked, oldest) = (began_at.0, objects.floor().0);
            let why = format!("too old resource version: {asked} ({oldest})");
            WatchRefusal::Event(Status::expired(why))
        })?;
        let initial = if sends_state {
            // An object that cannot be read is left out, as upstream's watch cache does.
            filter.select(&objects, &snapshot, "").cloned().collect()
        } else {
            VecDeque::new()
        };
        let marks_initial_end = options.initial_events == Some(true) && options.bookmarks;
        Ok(WatchSession { initial, cursor, filter, taken: vec![], began_at, marks_initial_end })
    }
}

impl WatchSession {
    /// Appends events at hand to `out`, without waiting; none when there are none at all. Initial events come
    /// first.
    pub fn take(&mut self, out: &mut Vec<WatchEvent>) -> Result<(), CursorError> {
        if !self.initial.is_empty() {
            let entries = self.initial.drain(..self.initial.len().min(256));
            out.extend(entries.map(|entry| WatchEvent {
                kind: EventKind::Added,
                entry,
                change: None,
            }));
            if self.initial.is_empty() {
                self.initial = VecDeque::new();
            }
            return Ok(());
        }
        let before = out.len();
        // As long as nothing matches there may be more: to say that all was told would be a lie.
        while out.len() == before {
            self.cursor.take(&mut self.taken)?;
            if self.taken.is_empty() {
                break;
            }
            // A watch may begin ahead of the newest revision; what leads up to there is not for it.
            let taken = self.taken.drain(..).filter(|change| change.revision > self.began_at);
            out.extend(taken.filter_map(|change| event(&self.filter, change)));
        }
        Ok(())
    }

    /// Whether the objects that were there at the start have all been taken.
    pub fn initial_is_through(&self) -> bool {
        self.initial.is_empty()
    }

    /// Waits until there may be a further event.
    pub async fn changed(&mut self) -> Result<(), CursorError> {
        self.cursor.changed().await
    }
}

/// What a change is to a watcher with this filter.
fn event(filter: &Filter, change: Arc<Change>) -> Option<WatchEvent> {
    let before = change.previous.as_ref().is_some_and(|entry| filter.matches(entry));
    let now = change.kind == ChangeKind::Put && filter.matches(&change.entry);
    let entry = change.entry.clone();
    match (before, now) {
        (false, false) => None,
        (false, true) => Some(WatchEvent { kind: EventKind::Added, entry, change: Some(change) }),
        (true, true) => Some(WatchEvent { kind: EventKind::Modified, entry, change: Some(change) }),
        (true, false) if change.kind == ChangeKind::Delete => {
            Some(WatchEvent { kind: EventKind::Deleted, entry, change: Some(change) })
        }
        (true, false) => {
            let previous = change.previous.as_ref()?;
            let entry = previous.at_revision(change.revision);
            Some(WatchEvent { kind: EventKind::Deleted, entry, change: None })
        }
    }
}
