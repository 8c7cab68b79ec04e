//! The messages of OTLP that carry spans (opentelemetry.proto.collector.trace.v1 and trace.v1).

use crate::context::SpanContext;
use crate::finished::{Attribute, Event, FinishedSpan};
use prost::Message;
use std::collections::BTreeMap;

/// Says that the bit for a remote context is set or not set on purpose.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
/// The status of a failed span.
const ERROR: i32 = 2;

/// `ExportTraceServiceRequest`.
#[derive(Clone, PartialEq, Message)]
#[expect(missing_docs, reason = "the names are OTLP's")]
pub struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// `ExportTraceServiceResponse`; what it says about rejected spans is not read.
#[derive(Clone, PartialEq, Message)]
pub struct ExportResponse {}

/// The spans of one program.
#[derive(Clone, PartialEq, Message)]
#[expect(missing_docs, reason = "the names are OTLP's")]
pub struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// A program.
#[derive(Clone, PartialEq, Message)]
#[expect(missing_docs, reason = "the names are OTLP's")]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// The spans of a part of a program.
#[derive(Clone, PartialEq, Message)]
#[expect(missing_docs, reason = "the names are OTLP's")]
pub struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<WireSpan>,
}

/// A part of a program.
#[derive(Clone, PartialEq, Message)]
#[expect(missing_docs, reason = "the names are OTLP's")]
pub struct Scope {
    #[prost(string, tag = "1")]
    pub name: String,
}

/// A span.
#[derive(Clone, PartialEq, Message)]
#[expect(missing_docs, reason = "the names are OTLP's")]
pub struct WireSpan {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    pub trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub name: String,
    #[prost(int32, tag = "6")]
    pub kind: i32,
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<WireEvent>,
    #[prost(message, repeated, tag = "13")]
    pub links: Vec<WireLink>,
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
}

/// Something that happened during a span.
#[derive(Clone, PartialEq, Message)]
#[expect(missing_docs, reason = "the names are OTLP's")]
pub struct WireEvent {
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, repeated, tag = "3")]
    pub attributes: Vec<KeyValue>,
}

/// Another trace.
#[derive(Clone, PartialEq, Message)]
#[expect(missing_docs, reason = "the names are OTLP's")]
pub struct WireLink {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    pub trace_state: String,
    #[prost(fixed32, tag = "6")]
    pub flags: u32,
}

/// Whether a span failed.
#[derive(Clone, PartialEq, Message)]
#[expect(missing_docs, reason = "the names are OTLP's")]
pub struct Status {
    #[prost(int32, tag = "3")]
    pub code: i32,
}

/// An attribute.
#[derive(Clone, PartialEq, Message)]
#[expect(missing_docs, reason = "the names are OTLP's")]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// The value of an attribute: one of the fields.
#[derive(Clone, PartialEq, Message)]
#[expect(missing_docs, reason = "the names are OTLP's")]
pub struct AnyValue {
    #[prost(string, optional, tag = "1")]
    pub string_value: Option<String>,
    #[prost(int64, optional, tag = "3")]
    pub int_value: Option<i64>,
}

impl ExportRequest {
    /// Returns the message that carries the spans of a program with these attributes.
    #[must_use]
    pub fn new(program: &[(&str, &str)], spans: Vec<FinishedSpan>) -> ExportRequest {
        let mut scopes: BTreeMap<&'static str, Vec<WireSpan>> = BTreeMap::new();
        for span in spans {
            scopes.entry(span.scope).or_default().push(WireSpan::from(span));
        }
        let scopes = scopes.into_iter().map(|(name, spans)| ScopeSpans {
            scope: Some(Scope { name: name.to_owned() }),
            spans,
        });
        let attributes = program.iter().map(|(key, value)| KeyValue {
            key: (*key).to_owned(),
            value: Some(AnyValue { string_value: Some((*value).to_owned()), int_value: None }),
        });
        let resource = Some(Resource { attributes: attributes.collect() });
        let of_program = ResourceSpans { resource, scope_spans: scopes.collect() };
        ExportRequest { resource_spans: vec![of_program] }
    }
}

impl From<FinishedSpan> for WireSpan {
    fn from(span: FinishedSpan) -> WireSpan {
        let parent_is_remote = span.is_parent_remote;
        WireSpan {
            trace_id: span.context.trace_id.0.to_vec(),
            span_id: span.context.span_id.0.to_vec(),
            trace_state: state(&span.context),
            parent_span_id: span.parent.map(|parent| parent.0.to_vec()).unwrap_or_default(),
            name: span.name.into_owned(),
            kind: span.kind as i32,
            start_time_unix_nano: span.started,
            end_time_unix_nano: span.ended,
            attributes: attributes(span.attributes),
            events: span.events.into_iter().map(WireEvent::from).collect(),
            links: span.links.iter().map(WireLink::from).collect(),
            status: Some(Status { code: if span.is_error { ERROR } else { 0 } }),
            flags: flags(span.context.is_sampled, parent_is_remote),
        }
    }
}

impl From<Event> for WireEvent {
    fn from(event: Event) -> WireEvent {
        WireEvent {
            time_unix_nano: event.at,
            name: event.name.to_owned(),
            attributes: attributes(event.attributes),
        }
    }
}

impl From<&SpanContext> for WireLink {
    fn from(to: &SpanContext) -> WireLink {
        WireLink {
            trace_id: to.trace_id.0.to_vec(),
            span_id: to.span_id.0.to_vec(),
            trace_state: state(to),
            flags: flags(to.is_sampled, to.is_remote),
        }
    }
}

fn flags(is_sampled: bool, is_remote: bool) -> u32 {
    HAS_IS_REMOTE | u32::from(is_sampled) | if is_remote { IS_REMOTE } else { 0 }
}

fn state(context: &SpanContext) -> String {
    let state = context.state.as_ref().and_then(|state| state.to_str().ok());
    state.unwrap_or_default().to_owned()
}

fn attributes(list: Vec<(&'static str, Attribute)>) -> Vec<KeyValue> {
    let attribute = |(key, value): (&'static str, Attribute)| {
        let value = match value {
            Attribute::Text(text) => {
                AnyValue { string_value: Some(text.into_owned()), int_value: None }
            }
            Attribute::Number(number) => AnyValue { string_value: None, int_value: Some(number) },
        };
        KeyValue { key: key.to_owned(), value: Some(value) }
    };
    list.into_iter().map(attribute).collect()
}
