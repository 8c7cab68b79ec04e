//! [`Tracer`]: decides which traces are recorded, and starts spans.

use crate::context::{SpanContext, TraceId};
use crate::finished::{FinishedSpan, Kind};
use crate::queue::Queue;
use crate::span::Span;
use std::sync::Arc;

/// Starts spans.
pub struct Tracer {
    /// A trace is recorded if the upper 63 bits of the second half of its id are below it: all
    /// processes with the same rate decide alike (`TraceIDRatioBased` of OpenTelemetry's Go SDK).
    threshold: u64,
    queue: Arc<Queue>,
}

impl Tracer {
    /// Returns a tracer that records so many of a million traces, beside those that a caller
    /// records.
    #[must_use]
    pub fn new(samples_per_million: u32) -> Arc<Tracer> {
        // At a rate of one million it is above all 63 bits.
        let threshold = u128::from(samples_per_million.min(1_000_000)) << 63;
        Arc::new(Tracer {
            threshold: u64::try_from(threshold / 1_000_000).unwrap_or(u64::MAX),
            queue: Arc::default(),
        })
    }

    /// Starts the first span of a trace.
    #[must_use]
    pub fn root(&self, name: &'static str, scope: &'static str, kind: Kind) -> Span {
        let trace_id = TraceId::random();
        if !self.is_sampled(trace_id) {
            return Span::unrecorded(trace_id.second_half());
        }
        let context = SpanContext::root(trace_id);
        Span::recorded(self.queue.clone(), context, None, name, scope, kind)
    }

    /// Starts a span below one of another process.
    #[must_use]
    pub fn child(
        &self,
        parent: &SpanContext,
        name: &'static str,
        scope: &'static str,
        kind: Kind,
    ) -> Span {
        Span::below(self.queue.clone(), parent, name, scope, kind)
    }

    fn is_sampled(&self, id: TraceId) -> bool {
        id.second_half() >> 1 < self.threshold
    }

    /// Takes at most `most` ended spans out of the queue.
    #[must_use]
    pub fn take(&self, most: usize) -> Vec<FinishedSpan> {
        self.queue.take(most)
    }

    /// Returns how many spans were dropped because the queue was full, since the last call.
    pub fn take_dropped(&self) -> u64 {
        self.queue.take_dropped()
    }

    /// Waits until a quarter of the queue is full.
    pub async fn until_many_wait(&self) {
        self.queue.until_many_wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finished::Attribute;
    use crate::queue::QUEUE_SPANS_MAX;

    #[test]
    fn the_rate_decides_how_many_traces_are_recorded() {
        let recorded = |rate: u32| {
            let tracer = Tracer::new(rate);
            (0_u64..1000)
                .filter(|n| {
                    let mut id = [1; 16];
                    id[8..].copy_from_slice(&(n << 54).to_be_bytes());
                    tracer.is_sampled(TraceId(id))
                })
                .count()
        };
        assert_eq!(recorded(0), 0);
        assert_eq!(recorded(1_000_000), 1000);
        // The ids are spread evenly over 1000 of 1024 parts.
        assert_eq!(recorded(500_000), 512);
    }

    #[test]
    fn the_largest_id_is_recorded_at_the_full_rate() {
        assert!(Tracer::new(1_000_000).is_sampled(TraceId([0xff; 16])));
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let tracer = Tracer::new(1_000_000);
        for _ in 0..QUEUE_SPANS_MAX + 3 {
            drop(tracer.root("a", "b", Kind::Internal));
        }
        assert_eq!(tracer.take_dropped(), 3);
        assert_eq!(tracer.take(usize::MAX).len(), QUEUE_SPANS_MAX);
        assert_eq!(tracer.take_dropped(), 0);
    }

    #[test]
    fn an_ended_span_has_what_was_added() {
        let tracer = Tracer::new(1_000_000);
        let root = tracer.root("root", "test", Kind::Server);
        let child = root.child("Get", "test", Kind::Internal);
        child.set("name", "x");
        child.set("count", 3_usize);
        child.event_with("read", || vec![("len", 7_usize.into())]);
        child.fail();
        drop(child);
        root.rename("GET");
        let root_id = root.context().map(|context| context.span_id);
        drop(root);
        let spans = tracer.take(10);
        let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
        assert_eq!(names, ["Get", "GET"]);
        assert_eq!(spans[0].parent, root_id);
        assert_eq!(spans[1].parent, None);
        assert_eq!(spans[0].context.trace_id, spans[1].context.trace_id);
        let name = ("name", Attribute::Text("x".into()));
        assert_eq!(spans[0].attributes, [name, ("count", Attribute::Number(3))]);
        assert_eq!(spans[0].events[0].attributes, [("len", Attribute::Number(7))]);
        assert!(spans[0].is_error && !spans[1].is_error);
        assert!(spans[0].started >= spans[1].started && spans[0].ended <= spans[1].ended);
    }

    #[test]
    fn a_trace_that_is_not_recorded_has_a_context() {
        let tracer = Tracer::new(0);
        let root = tracer.root("root", "test", Kind::Server);
        let child = root.child("Get", "test", Kind::Internal);
        let context = child.context().expect("there is a tracer");
        assert!(!context.is_sampled && !child.is_recorded());
        assert_ne!((context.trace_id, context.span_id), Default::default());
        // Whoever is called twice sees one trace.
        assert_eq!(root.context(), Some(context));
        drop((child, root));
        assert_eq!(tracer.take(1).len(), 0);
        assert!(Span::default().child("a", "b", Kind::Internal).context().is_none());
    }
}
