//! [`FinishedSpan`]: what is recorded of a step.

use crate::context::{SpanContext, SpanId};
use std::borrow::Cow;

/// What a span is for its trace (`SpanKind` of OTLP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A step within a process.
    Internal = 1,
    /// The handling of a request.
    Server = 2,
    /// A request to another process.
    Client = 3,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Attribute {
        Attribute::Text(text.to_owned().into())
    }
}

impl From<String> for Attribute {
    fn from(text: String) -> Attribute {
        Attribute::Text(text.into())
    }
}

impl From<usize> for Attribute {
    fn from(number: usize) -> Attribute {
        Attribute::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u16> for Attribute {
    fn from(number: u16) -> Attribute {
        Attribute::Number(number.into())
    }
}

/// Something that happened during a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When: nanoseconds since 1970.
    pub at: u64,
    /// What.
    pub name: &'static str,
    /// Details.
    pub attributes: Vec<(&'static str, Attribute)>,
}

/// A span that has ended.
#[derive(Clone, Debug)]
pub struct FinishedSpan {
    /// What identifies it.
    pub context: SpanContext,
    /// Its parent; `None` for the first span of a trace.
    pub parent: Option<SpanId>,
    /// Whether the parent is in another process.
    pub is_parent_remote: bool,
    /// What was done.
    pub name: Cow<'static, str>,
    /// The part of the program that did it.
    pub scope: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// The start: nanoseconds since 1970.
    pub started: u64,
    /// The end: nanoseconds since 1970.
    pub ended: u64,
    /// Details.
    pub attributes: Vec<(&'static str, Attribute)>,
    /// What happened meanwhile.
    pub events: Vec<Event>,
    /// The traces that it belongs to as well.
    pub links: Vec<SpanContext>,
    /// Whether it failed.
    pub is_error: bool,
}
