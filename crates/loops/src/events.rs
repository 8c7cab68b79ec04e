//! [`Recorder`]: events about objects, as client-go's recorder stores them. Equal events are
//! counted in one object, many similar ones are combined, and a source that repeats itself is cut
//! off.
//!
//! Events are stored in order by a task of their own, so that no sync waits for them.

use crate::client::{Client, InvolvedObject};
use keelson_meta::{Failure, Map, Object, Str, Timestamp, Value, value};
use keelson_registry::options::PatchForm;
use keelson_registry::{Subresource, Target};
use std::collections::HashMap;
use std::sync::OnceLock;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Maximum number of events that wait to be stored. Further ones are dropped.
const WAITING_EVENTS_MAX: usize = 1000;
/// Number of different messages of one kind of event after which they are combined.
const SIMILAR_MESSAGES_MAX: usize = 10;
/// Similar events that are further apart than this are not combined.
const SIMILAR_SECONDS_MAX: i64 = 600;
/// Number of events about one object that are stored at once, and the time in which one more is.
const BURST_EVENTS: f64 = 25.0;
const REFILL_SECONDS: f64 = 300.0;
/// Maximum number of remembered events, groups of similar events and sources.
const REMEMBERED_MAX: usize = 4096;

/// Records events of one source.
pub struct Recorder {
    client: Client,
    component: &'static str,
    runtime: Handle,
    /// Begins with the first event: most sources have none.
    writer: OnceLock<Writer>,
}

/// The task that stores events.
struct Writer {
    events: mpsc::Sender<Event>,
    task: JoinHandle<()>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An event that is not stored yet.
#[derive(Clone, Debug)]
struct Event {
    /// `involvedObject`.
    involved: Map,
    kind: &'static str,
    reason: Str,
    message: Str,
    at: Timestamp,
}

impl Recorder {
    /// Returns a recorder that writes as `client`. It must be called within a runtime.
    pub fn new(client: &Client, component: &'static str) -> Recorder {
        let client = client.clone();
        Recorder { client, component, runtime: Handle::current(), writer: OnceLock::new() }
    }

    fn start_writer(&self) -> Writer {
        let (events, mut receiver) = mpsc::channel(WAITING_EVENTS_MAX);
        let client = self.client.clone();
        let component = self.component;
        let task = self.runtime.spawn(async move {
            let mut correlator = Correlator::default();
            while let Some(event) = receiver.recv().await {
                store(&client, component, &mut correlator, event).await;
            }
        });
        Writer { events, task }
    }

    /// Records an event about a stored object.
    pub fn about(&self, client: &Client, object: &Object, kind: &'static str, text: (&str, &str)) {
        self.record(client.now(), &InvolvedObject::of(object), kind, text.0, text.1);
    }

    /// Records an event with a reason and a message.
    pub fn record(
        &self,
        at: Timestamp,
        involved: &InvolvedObject<'_>,
        kind: &'static str,
        reason: &str,
        message: &str,
    ) {
        let involved = involved.facts();
        let reason = reason.into();
        let message = message.into();
        let writer = self.writer.get_or_init(|| self.start_writer());
        if writer.events.try_send(Event { involved, kind, reason, message, at }).is_err() {
            tracing::debug!("too many events wait to be stored; one is dropped");
        }
    }
}

impl<'a> InvolvedObject<'a> {
    /// Refers to a stored object, in the state that it has.
    pub fn of(object: &'a Object) -> InvolvedObject<'a> {
        InvolvedObject {
            kind: object.kind(),
            api_version: object.api_version(),
            namespace: object.namespace(),
            name: object.name(),
            uid: object.uid(),
            resource_version: object.resource_version(),
        }
    }

    /// Returns the facts that are known.
    pub fn facts(&self) -> Map {
        let facts = [
            ("kind", self.kind),
            ("namespace", self.namespace),
            ("name", self.name),
            ("uid", self.uid),
            ("apiVersion", self.api_version),
            ("resourceVersion", self.resource_version),
        ];
        let known = facts.into_iter().filter(|(_, fact)| !fact.is_empty());
        known.map(|(name, fact)| (Str::new_static(name), Value::from(fact))).collect()
    }
}

/// What identifies an event: its object, type and reason; for single events the message too.
type EventKey = (Str, &'static str, Str, Option<Str>);

/// Decides how an event is stored. A state machine without a clock of its own.
#[derive(Debug, Default)]
struct Correlator {
    stored: HashMap<EventKey, Stored>,
    similar: HashMap<EventKey, Similar>,
    sources: HashMap<Str, Bucket>,
}

#[derive(Clone, Debug)]
struct Stored {
    name: Str,
    count: i64,
    first: Timestamp,
}

#[derive(Debug)]
struct Similar {
    /// Different ones, fewer than `SIMILAR_MESSAGES_MAX`: a set of one takes five times as much.
    messages: Vec<Str>,
    last: Timestamp,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Timestamp,
}

/// How an event is stored.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// As a new object.
    Create { key: EventKey, name: Str, message: Str },
    /// As one more occurrence of a stored one.
    Count { key: EventKey, name: Str, message: Str, count: i64 },
    /// Not at all.
    Drop,
}

impl Correlator {
    fn decide(&mut self, event: &Event) -> Decision {
        let object = object_key(&event.involved);
        let kind = event.kind;
        let reason = event.reason.clone();
        let group: EventKey = (object.clone(), kind, reason.clone(), None);
        let is_combined = self.is_combined(&group, event);
        let (key, message) = if is_combined {
            (group, Str::from(format!("(combined from similar events): {}", event.message)))
        } else {
            ((object.clone(), kind, reason, Some(event.message.clone())), event.message.clone())
        };
        if self.stored.len() >= REMEMBERED_MAX && !self.stored.contains_key(&key) {
            self.stored.clear();
        }
        let decision = match self.stored.get_mut(&key) {
            Some(stored) => {
                stored.count += 1;
                Decision::Count { key, name: stored.name.clone(), message, count: stored.count }
            }
            None => {
                let name = event_name(event);
                let stored = Stored { name: name.clone(), count: 1, first: event.at };
                self.stored.insert(key.clone(), stored);
                Decision::Create { key, name, message }
            }
        };
        if self.takes_token(object, event.at) { decision } else { Decision::Drop }
    }

    fn is_combined(&mut self, group: &EventKey, event: &Event) -> bool {
        if self.similar.len() >= REMEMBERED_MAX && !self.similar.contains_key(group) {
            self.similar.clear();
        }
        let fresh = || Similar { messages: vec![], last: event.at };
        let similar = self.similar.entry(group.clone()).or_insert_with(fresh);
        if event.at.since(similar.last).0 > SIMILAR_SECONDS_MAX * 1_000_000_000 {
            similar.messages.clear();
        }
        similar.last = event.at;
        if similar.messages.contains(&event.message) {
            return false;
        }
        // The first ones stay, so that further messages are combined too.
        if similar.messages.len() + 1 >= SIMILAR_MESSAGES_MAX {
            return true;
        }
        similar.messages.reserve_exact(1);
        similar.messages.push(event.message.clone());
        false
    }

    /// Whether the object may have one more event.
    fn takes_token(&mut self, object: Str, now: Timestamp) -> bool {
        if self.sources.len() >= REMEMBERED_MAX && !self.sources.contains_key(&object) {
            self.sources.clear();
        }
        let full = Bucket { tokens: BURST_EVENTS, at: now };
        let bucket = self.sources.entry(object).or_insert(full);
        let seconds = now.since(bucket.at).0 as f64 / 1e9;
        bucket.tokens = BURST_EVENTS.min(bucket.tokens + seconds.max(0.0) / REFILL_SECONDS);
        bucket.at = now;
        let has_token = bucket.tokens >= 1.0;
        if has_token {
            bucket.tokens -= 1.0;
        }
        has_token
    }
}

fn object_key(involved: &Map) -> Str {
    let names = ["kind", "namespace", "name", "uid", "apiVersion"];
    let texts = names.map(|name| involved.get(name).and_then(Value::as_str).unwrap_or_default());
    texts.join("/").into()
}

fn event_name(event: &Event) -> Str {
    let name = event.involved.get("name").and_then(Value::as_str).unwrap_or_default();
    let nanos = i128::from(event.at.seconds) * 1_000_000_000 + i128::from(event.at.nanos);
    format!("{name}.{nanos:x}").into()
}

async fn store(
    client: &Client,
    component: &'static str,
    correlator: &mut Correlator,
    event: Event,
) {
    let result = match correlator.decide(&event) {
        Decision::Drop => return,
        Decision::Create { key, name, message } => {
            let created = create(client, component, &event, &name, &message, 1, event.at).await;
            if created.is_err() {
                correlator.stored.remove(&key);
            }
            created
        }
        Decision::Count { key, name, message, count } => {
            match patch(client, &event, &name, &message, count).await {
                Err(status) if status.code == 404 => {
                    let first = correlator.stored.get(&key).map_or(event.at, |one| one.first);
                    create(client, component, &event, &name, &message, count, first).await
                }
                result => result,
            }
        }
    };
    if let Err(error) = result {
        tracing::warn!(%error, component, reason = event.reason.as_str(), "event not stored");
    }
}

fn target(client: &Client, event: &Event, name: &str) -> Option<Target> {
    let namespace = event.involved.get("namespace").and_then(Value::as_str).unwrap_or("default");
    Some(Target::of(&client.kind("", "events")?, namespace, name))
}

async fn create(
    client: &Client,
    component: &'static str,
    event: &Event,
    name: &str,
    message: &str,
    count: i64,
    first: Timestamp,
) -> Result<(), Failure> {
    let Some(target) = target(client, event, name) else { return Ok(()) };
    // As in client-go, combined events do not repeat their source here.
    let reporting = if message == event.message { component } else { "" };
    let fields = value!({
        "metadata": {"name": name, "namespace": (target.namespace.clone())},
        "involvedObject": (event.involved.clone()), "reason": (event.reason.clone()),
        "message": message, "source": {"component": component},
        "firstTimestamp": (first.text()), "lastTimestamp": (event.at.text()),
        "count": count, "type": (event.kind), "reportingComponent": reporting
    });
    let new = Object::from_value(fields).unwrap_or_default();
    client.create(&target, new).await.map(drop)
}

async fn patch(
    client: &Client,
    event: &Event,
    name: &str,
    message: &str,
    count: i64,
) -> Result<(), Failure> {
    let Some(target) = target(client, event, name) else { return Ok(()) };
    let change = value!({
        "count": count, "lastTimestamp": (event.at.text()), "message": message
    });
    client.patch(&target, Subresource::None, PatchForm::Strategic, &change).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(message: &str, second: i64) -> Event {
        let involved = InvolvedObject { kind: "Pod", name: "a", ..InvolvedObject::default() };
        let kind = "Normal";
        let reason = "Made".into();
        let at = Timestamp::new(second, 1);
        Event { involved: involved.facts(), kind, reason, message: message.into(), at }
    }

    fn word(decision: &Decision) -> String {
        match decision {
            Decision::Create { message, .. } => format!("new {message}"),
            Decision::Count { message, count, .. } => format!("{count} {message}"),
            Decision::Drop => "none".into(),
        }
    }

    /// Proves: R-EVT-04.
    #[test]
    fn equal_events_are_counted() {
        let mut correlator = Correlator::default();
        let mut next = |message, second| word(&correlator.decide(&event(message, second)));
        assert_eq!(next("a", 1), "new a");
        assert_eq!(next("a", 2), "2 a");
        assert_eq!(next("b", 2), "new b");
        assert_eq!(next("a", 2), "3 a");
    }

    #[test]
    fn the_tenth_of_similar_events_is_combined_with_later_ones() {
        let mut correlator = Correlator::default();
        let mut next = |message: &str, second| word(&correlator.decide(&event(message, second)));
        for number in 1..10 {
            assert_eq!(next(&number.to_string(), 1), format!("new {number}"));
        }
        assert_eq!(next("10", 1), "new (combined from similar events): 10");
        assert_eq!(next("11", 1), "2 (combined from similar events): 11");
        assert_eq!(next("12", 700), "new 12");
    }

    #[test]
    fn an_object_has_a_burst_of_events_and_then_one_in_five_minutes() {
        let mut correlator = Correlator::default();
        let mut next = |second| word(&correlator.decide(&event("a", second)));
        next(0);
        for _ in 1..25 {
            assert_ne!(next(0), "none");
        }
        assert_eq!(next(1), "none");
        assert_ne!(next(301), "none");
        assert_eq!(next(302), "none");
    }
}
