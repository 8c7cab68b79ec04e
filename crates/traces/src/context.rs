//! [`SpanContext`]: what identifies a span in other processes, as the headers `traceparent` and
//! `tracestate` carry it (W3C Trace Context, level 1).

use http::{HeaderMap, HeaderName, HeaderValue};
use std::fmt;
use std::sync::Arc;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const BAGGAGE: HeaderName = HeaderName::from_static("baggage");
/// The flag of `traceparent` that says that the caller records the trace.
const SAMPLED: u8 = 1;
/// Most bytes of `tracestate` and `baggage` that are passed on (W3C Baggage, section 3.3.2).
const PASSED_ON_BYTES_MAX: usize = 8192;

/// Identifies a trace: all that is done for one request, in all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId(pub [u8; 16]);

/// Identifies a span within its trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId(pub [u8; 8]);

impl TraceId {
    pub(crate) fn random() -> TraceId {
        TraceId(rand::random::<u128>().to_be_bytes())
    }

    /// Returns the second half, as a number.
    pub(crate) fn second_half(self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

impl SpanId {
    pub(crate) fn random() -> SpanId {
        SpanId(rand::random::<u64>().to_be_bytes())
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Key-value pairs that the caller wants to be passed on, as they are in the header `baggage`.
pub type Baggage = Arc<HeaderValue>;

/// What identifies a span in other processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The span.
    pub span_id: SpanId,
    /// Whether the trace is recorded.
    pub is_sampled: bool,
    /// Whether the span is in another process.
    pub is_remote: bool,
    /// The header `tracestate`, which is passed on unread.
    pub state: Option<Arc<HeaderValue>>,
    /// The header `baggage`, which is passed on unread.
    pub baggage: Option<Baggage>,
}

impl SpanContext {
    /// Returns the context of the first span of a trace that is recorded.
    pub(crate) fn root(trace_id: TraceId) -> SpanContext {
        let span_id = SpanId::random();
        SpanContext { trace_id, span_id, is_sampled: true, ..SpanContext::default() }
    }

    /// Returns the context of the only span of a trace that is not recorded, of a random number.
    pub(crate) fn unrecorded(number: u64) -> SpanContext {
        let span_id = SpanId(number.to_be_bytes());
        let trace_id = TraceId((u128::from(number) << 64 | u128::from(number)).to_be_bytes());
        SpanContext { trace_id, span_id, ..SpanContext::default() }
    }

    /// Returns the context of a span below this one.
    pub(crate) fn below(&self) -> SpanContext {
        SpanContext { span_id: SpanId::random(), is_remote: false, ..self.clone() }
    }

    /// Reads the context of a caller's span; `None` if the headers have none that is valid.
    #[must_use]
    pub fn of_headers(headers: &HeaderMap) -> Option<SpanContext> {
        let parent = headers.get(TRACEPARENT)?.to_str().ok()?;
        let mut context = SpanContext::parse(parent)?;
        let passed_on = |name: HeaderName| {
            let value = headers.get(name)?;
            (value.len() <= PASSED_ON_BYTES_MAX).then(|| Arc::new(value.clone()))
        };
        context.state = passed_on(TRACESTATE);
        context.baggage = passed_on(BAGGAGE);
        Some(context)
    }

    /// Parses the value of `traceparent`: `VERSION-TRACE-SPAN-FLAGS`, in lower-case hexadecimal
    /// digits.
    fn parse(text: &str) -> Option<SpanContext> {
        let mut parts = text.split('-');
        let version = parts.next()?;
        let trace = parts.next()?;
        let span = parts.next()?;
        let flags = parts.next()?;
        let [version] = bytes(version)?;
        // Later versions may have more parts.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let [flags] = bytes(flags)?;
        let trace_id = TraceId(bytes(trace)?);
        let span_id = SpanId(bytes(span)?);
        let is_valid = trace_id != TraceId::default() && span_id != SpanId::default();
        is_valid.then(|| SpanContext {
            trace_id,
            span_id,
            is_sampled: flags & SAMPLED != 0,
            is_remote: true,
            ..SpanContext::default()
        })
    }

    /// Returns the value of `traceparent`.
    #[must_use]
    pub fn traceparent(&self) -> String {
        let flags = if self.is_sampled { SAMPLED } else { 0 };
        format!("00-{}-{}-{flags:02x}", self.trace_id, self.span_id)
    }

    /// Sets the headers of a request that is sent on behalf of this span.
    pub fn write_headers(&self, headers: &mut HeaderMap) {
        if let Ok(parent) = HeaderValue::try_from(self.traceparent()) {
            headers.insert(TRACEPARENT, parent);
        }
        for (name, value) in [(TRACESTATE, &self.state), (BAGGAGE, &self.baggage)] {
            if let Some(value) = value {
                headers.insert(name, HeaderValue::clone(value));
            }
        }
    }
}

/// Reads exactly `N` bytes in lower-case hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    let is_hex = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != 2 * N || !digits.iter().all(is_hex) {
        return None;
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_read_and_written() {
        let context = SpanContext::parse(PARENT).expect("it is valid");
        assert_eq!(context.trace_id.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.span_id.to_string(), "b7ad6b7169203331");
        assert!(context.is_sampled && context.is_remote);
        assert_eq!(context.traceparent(), PARENT);
    }

    #[test]
    fn an_invalid_traceparent_is_ignored() {
        let zeros = "00000000000000000000000000000000";
        for text in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            &format!("00-{zeros}-b7ad6b7169203331-01"),
        ] {
            assert_eq!(SpanContext::parse(text), None, "{text}");
        }
        assert!(SpanContext::parse(&format!("cc{}-later", &PARENT[2..])).is_some());
    }

    #[test]
    fn state_and_baggage_are_passed_on() {
        let mut received = HeaderMap::new();
        for (name, value) in [(TRACEPARENT, PARENT), (TRACESTATE, "a=b"), (BAGGAGE, "k=v")] {
            received.insert(name, HeaderValue::from_static(value));
        }
        let mut sent = HeaderMap::new();
        SpanContext::of_headers(&received).expect("it is valid").write_headers(&mut sent);
        assert_eq!(sent, received);
        let long = HeaderValue::try_from("x".repeat(PASSED_ON_BYTES_MAX + 1)).expect("valid");
        received.insert(BAGGAGE, long);
        let context = SpanContext::of_headers(&received).expect("it is valid");
        assert_eq!(context.baggage, None);
    }
}
