//! The verb watch: a cursor into the history of a resource, and a filter.

use crate::conversion::{Growth, list_failure};
use crate::options::{WatchOptions, WatchStart};
use crate::registry::{FUTURE_WAIT, Registry};
use crate::target::Target;
use crate::verbs::list::Filter;
use crate::verbs::pace::Pace;
use keelson_auth::Permit;
use keelson_cache::{Change, ChangeKind, Cursor, CursorError};
use keelson_meta::{Failure, Status};
use keelson_records::Entry;
use keelson_store::Revision;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::time::timeout;

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The object is new, or matches for the first time.
    Added,
    /// The object changed.
    Modified,
    /// The object was deleted, or no longer matches.
    Deleted,
}

/// One event of a watch.
#[derive(Clone, Debug)]
pub struct WatchEvent {
    /// The type of the event.
    pub kind: EventKind,
    /// The object; for DELETED its last state that matched.
    pub entry: Entry,
    /// The change, whose frame all watchers share; `None` for initial events and when filters cause
    /// the event.
    pub change: Option<Arc<Change>>,
}

/// A running watch.
pub struct WatchSession {
    initial: VecDeque<Entry>,
    cursor: Cursor,
    filter: Filter,
    changes: Vec<Arc<Change>>,
    /// The revision after which changes are sent.
    pub began_at: Revision,
    /// Whether a bookmark must mark the end of the initial events.
    pub sends_initial_events_end: bool,
    pace: Pace,
    /// Whether other tasks must run before more changes are taken.
    is_paused: bool,
    /// The state of conversion, for a kind with a conversion webhook.
    converting: Option<Box<Converting>>,
}

/// Converted events of a kind with a conversion webhook. Filters are applied after the conversion.
struct Converting {
    registry: Arc<Registry>,
    target: Target,
    /// Changes that are not converted yet.
    changes: VecDeque<Arc<Change>>,
    ready: VecDeque<WatchEvent>,
}

/// Initial objects that are converted in one batch.
const CONVERSION_BATCH_ITEMS: usize = 256;
/// Bytes of converted events after which no further change is converted until they were taken. A
/// webhook may make small objects large.
const READY_BYTES_MAX: usize = 1 << 20;

/// Why a watch cannot continue.
#[derive(Debug)]
pub enum WatchError {
    /// Its position in the history is gone.
    Cursor(CursorError),
    /// An object cannot be converted to the version of the watch.
    Conversion(Failure),
}

impl From<CursorError> for WatchError {
    fn from(error: CursorError) -> WatchError {
        WatchError::Cursor(error)
    }
}

/// Why a watch does not start, and how the client receives the error.
#[derive(Debug)]
pub enum WatchRefusal {
    /// As the response to the request.
    Answer(Failure),
    /// As the only event of the stream. kube-apiserver finds out after it has started the response.
    Event(Failure),
}

impl WatchRefusal {
    /// Returns the error without the way in which it is sent.
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
    /// Waits for the state that a watch begins with. Returns the revision after which it sends
    /// changes; `None`: that of the state.
    async fn watch_start(
        &self,
        target: &Target,
        options: &WatchOptions,
    ) -> Result<Option<Revision>, WatchRefusal> {
        Ok(match options.start {
            WatchStart::Latest | WatchStart::Any => {
                self.wait_for_latest_of(&target.kind).await?;
                None
            }
            WatchStart::After(revision) if options.initial_events == Some(true) => {
                self.wait_for_revision(&target.kind, revision)
                    .await
                    .map_err(WatchRefusal::Event)?;
                None
            }
            WatchStart::After(revision) => Some(revision),
        })
    }

    /// Starts a watch. An error event is returned when the state or the history for it is missing.
    pub async fn watch(
        &self,
        permit: &Permit,
        target: &Target,
        options: &WatchOptions,
    ) -> Result<WatchSession, WatchRefusal> {
        target.assert_covered_collection(permit, "watch", &options.fields);
        let _span = target.collection_span("cacher.Watch");
        let filter = Filter::new(target, &options.labels, &options.fields)?;
        let objects = self.objects(&target.kind);
        let sends_state = options.initial_events.unwrap_or(match options.start {
            WatchStart::Latest | WatchStart::Any => true,
            WatchStart::After(_) => false,
        });
        let after = self.watch_start(target, options).await?;
        let snapshot = self.cache.snapshot(&objects);
        let began_at = after.unwrap_or(snapshot.revision);
        let cursor = objects.cursor(began_at).ok_or_else(|| {
            let asked = began_at.0;
            let oldest = objects.floor().0;
            let why = format!("too old resource version: {asked} ({oldest})");
            WatchRefusal::Event(Status::expired(why))
        })?;
        let converting = match target.kind.has_conversion_webhook {
            false => None,
            true => Some(Box::new(Converting {
                registry: self.shared()?,
                target: target.clone(),
                changes: VecDeque::new(),
                ready: VecDeque::new(),
            })),
        };
        let initial = if !sends_state {
            VecDeque::new()
        } else if converting.is_some() {
            snapshot.range(&filter.prefix, "").cloned().collect()
        } else {
            // Objects that cannot be read are left out, as in upstream's watch cache.
            // Boxed because the future of every watch would hold it.
            let all = Box::pin(filter.select(&objects, &snapshot, "", usize::MAX));
            all.await.items.into()
        };
        objects.count_initial_events(initial.len());
        let sends_initial_events_end = options.initial_events == Some(true) && options.bookmarks;
        let mut session = WatchSession {
            initial,
            cursor,
            filter,
            changes: vec![],
            began_at,
            sends_initial_events_end,
            pace: Pace::default(),
            is_paused: false,
            converting,
        };
        // A kube-apiserver waits as long for its watch cache, which holds converted objects.
        match timeout(FUTURE_WAIT, Box::pin(session.prepare())).await {
            Ok(Err(WatchError::Conversion(why))) => {
                Err(WatchRefusal::Answer(list_failure(target.schema(), &why)))
            }
            Ok(_) => Ok(session),
            Err(_) if !sends_state => Ok(session),
            Err(_) => {
                let converted = objects.floor().0;
                Err(WatchRefusal::Event(Status::too_large_resource_version(began_at.0, converted)))
            }
        }
    }
}

impl WatchSession {
    /// Returns the newest revision of the store of what is watched of which all events can be
    /// taken.
    pub fn applied(&self, registry: &Registry) -> Revision {
        registry.cache.revision_of(self.cursor.resource())
    }

    /// Appends available events to `out` without waiting; none if there are none, or after much
    /// work until [`WatchSession::changed`] was awaited. Initial events come first.
    pub fn take(&mut self, out: &mut Vec<WatchEvent>) -> Result<(), CursorError> {
        if let Some(converting) = &mut self.converting {
            out.extend(converting.ready.drain(..));
            return Ok(());
        }
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
        // When no change matches, continue: an empty result means that there are no more changes.
        while out.len() == before && !self.is_paused {
            self.cursor.take(&mut self.changes)?;
            if self.changes.is_empty() {
                break;
            }
            // A watch may start ahead of the newest revision. Changes up to there are not part of
            // it.
            for change in self.changes.drain(..).filter(|change| change.revision > self.began_at) {
                self.is_paused |= self.pace.is_due(self.filter.stretch());
                out.extend(event(&self.filter, change, None));
            }
        }
        Ok(())
    }

    /// Whether there may be more events although none was taken. [`WatchSession::changed`] lets
    /// other tasks run.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Whether all initial events have been taken.
    pub fn initial_events_are_complete(&self) -> bool {
        self.initial.is_empty()
            && self.converting.as_ref().is_none_or(|converting| converting.ready.is_empty())
    }

    /// Whether [`WatchSession::prepare`] must be called before events are taken.
    pub fn is_converting(&self) -> bool {
        self.converting.is_some()
    }

    /// Converts the next events of a kind with a conversion webhook.
    pub async fn prepare(&mut self) -> Result<(), WatchError> {
        let Some(converting) = &mut self.converting else { return Ok(()) };
        let Converting { registry, target, changes, ready } = &mut **converting;
        while ready.is_empty() && !self.initial.is_empty() {
            let count = self.initial.len().min(CONVERSION_BATCH_ITEMS);
            let entries = self.initial.drain(..count).collect();
            let converted = registry
                .converted_entries(target, entries, &mut Growth::default())
                .await
                .map_err(WatchError::Conversion)?;
            let matching = converted.into_iter().filter(|entry| self.filter.matches(entry));
            let kind = EventKind::Added;
            ready.extend(matching.map(|entry| WatchEvent { kind, entry, change: None }));
        }
        let mut ready_bytes: usize = ready.iter().map(|event| event.entry.size()).sum();
        while ready_bytes < READY_BYTES_MAX {
            // Not lost if this is cancelled.
            let Some(change) = changes.front().cloned() else {
                if !ready.is_empty() {
                    break;
                }
                self.cursor.take(&mut self.changes)?;
                if self.changes.is_empty() {
                    break;
                }
                let is_part = |change: &Arc<Change>| change.revision > self.began_at;
                changes.extend(self.changes.drain(..).filter(is_part));
                continue;
            };
            let convert = async |entry: &Entry| registry.converted_for_watch(target, entry).await;
            let entry = convert(&change.entry).await.map_err(WatchError::Conversion)?;
            let previous = match &change.previous {
                None => None,
                Some(entry) => Some(convert(entry).await.map_err(WatchError::Conversion)?),
            };
            changes.pop_front();
            let converted = Some(Converted { entry, previous });
            if self.pace.is_due(self.filter.stretch()) {
                tokio::task::yield_now().await;
            }
            if let Some(event) = event(&self.filter, change, converted) {
                ready_bytes += event.entry.size();
                ready.push_back(event);
            }
        }
        Ok(())
    }

    /// Waits until there may be another event.
    pub async fn changed(&mut self) -> Result<(), CursorError> {
        if self.is_paused {
            tokio::task::yield_now().await;
            self.is_paused = false;
            return Ok(());
        }
        self.cursor.changed().await
    }
}

/// The objects of a change, converted to the version of a watch.
struct Converted {
    entry: Entry,
    previous: Option<Entry>,
}

/// Returns the event that a change is to a watcher. `converted`: its objects after a webhook's
/// conversion.
fn event(filter: &Filter, change: Arc<Change>, converted: Option<Converted>) -> Option<WatchEvent> {
    let (entry, previous) = match &converted {
        None => (&change.entry, change.previous.as_ref()),
        Some(converted) => (&converted.entry, converted.previous.as_ref()),
    };
    let before = previous.is_some_and(|entry| filter.matches(entry));
    let now = change.kind == ChangeKind::Put && filter.matches(entry);
    let (kind, entry) = match (before, now) {
        (false, false) => return None,
        (false, true) => (EventKind::Added, entry.clone()),
        (true, true) => (EventKind::Modified, entry.clone()),
        (true, false) if change.kind == ChangeKind::Delete => (EventKind::Deleted, entry.clone()),
        (true, false) => {
            let entry = previous?.at_revision(change.revision);
            return Some(WatchEvent { kind: EventKind::Deleted, entry, change: None });
        }
    };
    Some(WatchEvent { kind, entry, change: Some(change) })
}
