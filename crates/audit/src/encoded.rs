//! [`Encoded`]: an event whose JSON is made once for all backends. [`Format`]: the form of its
//! text.

use crate::event::{Event, write_object};
use crate::legacy;
use bytes::Bytes;
use keelson_meta::Str;
use std::cell::OnceCell;

/// What begins the JSON of an event that stands alone.
const KIND: &[u8] = b"{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\"";

/// Room for the JSON of an event without objects.
const EVENT_BYTES: usize = 1024;

/// The form of an event's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A line of JSON.
    Json,
    /// A line of text.
    Legacy,
    /// JSON as part of a list.
    Item,
}

/// An event whose JSON is made once for all backends.
pub(crate) struct Encoded<'e> {
    pub event: &'e Event,
    item: OnceCell<Bytes>,
}

impl<'e> Encoded<'e> {
    pub fn new(event: &'e Event) -> Encoded<'e> {
        Encoded { event, item: OnceCell::new() }
    }

    /// Returns the item of an `EventList`.
    fn item(&self) -> Bytes {
        self.item.get_or_init(|| item(self.event)).clone()
    }

    /// Returns the text in a format, with an annotation more.
    pub fn text(&self, format: Format, annotation: Option<(Str, Str)>) -> Bytes {
        match annotation {
            None => text(self.event, format, || self.item()),
            Some((key, value)) => {
                let mut event = self.event.clone();
                event.annotate(key, value);
                text(&event, format, || item(&event))
            }
        }
    }
}

fn text(event: &Event, format: Format, item: impl FnOnce() -> Bytes) -> Bytes {
    match format {
        Format::Item => item(),
        Format::Json => {
            let mut line = Vec::with_capacity(EVENT_BYTES);
            line.extend_from_slice(KIND);
            event.write_members(&mut line);
            line.push(b'\n');
            Bytes::from(line)
        }
        Format::Legacy => {
            let mut line = legacy::line(event);
            line.push('\n');
            Bytes::from(line)
        }
    }
}

fn item(event: &Event) -> Bytes {
    let mut out = Vec::with_capacity(EVENT_BYTES);
    write_object(&mut out, |out| event.write_members(out));
    Bytes::from(out)
}

#[cfg(test)]
pub(crate) mod tests;
