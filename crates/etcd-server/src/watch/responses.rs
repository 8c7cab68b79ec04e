//! Responses of watches: events with the values before them, in fragments if asked for.

use keelson_store::{Range, Revision, Store, key_after};
use prost::Message;

use crate::engine::Engine;
use crate::error::EtcdError;
use crate::proto::{Event, EventType, KeyValue, WatchResponse};
use crate::record::{decode, decode_kv, to_etcd};

/// Makes the message of an event.
pub(crate) fn event(event: &keelson_store::Event) -> Result<Event, EtcdError> {
    let key = event.key.clone();
    let (kind, kv) = match &event.value {
        Some(value) => (EventType::Put, decode(key, event.created, event.revision, value.clone())?),
        None => {
            let mod_revision = to_etcd(event.revision);
            (EventType::Delete, KeyValue { key, mod_revision, ..KeyValue::default() })
        }
    };
    Ok(Event { r#type: kind.into(), kv: Some(kv), prev_kv: None })
}

/// Returns the key as it was before an event; `None` if it did not exist, or that is compacted.
pub(crate) async fn before(
    engine: &Engine,
    event: &keelson_store::Event,
) -> Result<Option<KeyValue>, EtcdError> {
    let is_create = event.value.is_some() && event.created == event.revision;
    if is_create {
        return Ok(None);
    }
    let at = Revision(event.revision.0.saturating_sub(1));
    if to_etcd(at) < engine.compacted() {
        return Ok(None);
    }
    let range =
        Range { start: event.key.clone(), end: key_after(&event.key), limit: 1, at: Some(at) };
    match engine.store.range(range).await.map_err(EtcdError::from) {
        Ok(page) => page.items.into_iter().next().map(decode_kv).transpose(),
        Err(EtcdError::Compacted) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Divides a response into fragments of at most this size, but of at least one event.
pub(crate) fn fragments(response: WatchResponse, bytes_max: usize) -> Vec<WatchResponse> {
    if response.events.len() < 2 || response.encoded_len() < bytes_max {
        return vec![response];
    }
    let WatchResponse { events, .. } = response;
    let empty = WatchResponse { events: Vec::new(), fragment: true, ..response };
    let head_bytes = empty.encoded_len();
    let mut fragments = vec![];
    let mut current = empty.clone();
    let mut bytes = head_bytes;
    for event in events {
        // Its tag and its length.
        let event_bytes = event.encoded_len() + 6;
        if !current.events.is_empty() && bytes + event_bytes >= bytes_max {
            fragments.push(std::mem::replace(&mut current, empty.clone()));
            bytes = head_bytes;
        }
        bytes += event_bytes;
        current.events.push(event);
    }
    fragments.push(WatchResponse { fragment: false, ..current });
    fragments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_have_every_event_and_only_the_last_one_ends() {
        let event = |size: usize| Event {
            kv: Some(KeyValue { value: vec![0; size].into(), ..KeyValue::default() }),
            ..Event::default()
        };
        let sizes = [10, 400, 2000, 10, 10, 600];
        let response = WatchResponse {
            watch_id: 3,
            events: sizes.iter().map(|size| event(*size)).collect(),
            ..WatchResponse::default()
        };
        let parts = fragments(response.clone(), 1000);
        let counts: Vec<_> = parts.iter().map(|part| part.events.len()).collect();
        assert_eq!(counts, [2, 1, 3]);
        assert_eq!(parts.iter().map(|part| part.fragment).collect::<Vec<_>>(), [true, true, false]);
        assert!(parts.iter().all(|part| part.watch_id == 3));
        let joined: Vec<_> = parts.into_iter().flat_map(|part| part.events).collect();
        assert_eq!(joined, response.events);
        assert_eq!(fragments(response.clone(), 1 << 20), [response]);
    }
}
