//! [`Span`]: one step of the work for a request.

use crate::context::{SpanContext, TraceId};
use crate::finished::{Attribute, Event, FinishedSpan, Kind};
use crate::queue::Queue;
use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Most events and attributes of a span each (OpenTelemetry's `OTEL_SPAN_EVENT_COUNT_LIMIT` and
/// `OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT`).
const PARTS_MAX: usize = 128;

/// A running span. It ends when its last clone is dropped. Without a tracer, and in traces that are
/// not recorded, it does nothing.
#[derive(Clone, Default)]
pub struct Span(State);

#[derive(Clone, Default)]
enum State {
    /// There is no tracer.
    #[default]
    None,
    /// The trace is not recorded. Its steps are one span, which nobody sees: most traces are such,
    /// so it is only a random number, of which its ids are made.
    Unrecorded(u64),
    /// The same, for a request of another process, whose trace it is.
    UnrecordedBelow(Arc<SpanContext>),
    Running(Arc<Running>),
}

/// A span of a trace that is recorded.
struct Running {
    queue: Arc<Queue>,
    context: SpanContext,
    /// `None` if the span itself is not recorded: it has ended, or is another process's.
    recorded: Option<Recorded>,
}

struct Recorded {
    clock: Clock,
    span: Mutex<FinishedSpan>,
}

/// Wall-clock time that does not jump within a span.
#[derive(Clone, Copy)]
struct Clock {
    started: Instant,
    nanoseconds: u64,
}

impl Clock {
    fn start() -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock {
            started: Instant::now(),
            nanoseconds: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    fn now(self) -> u64 {
        let passed = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.saturating_add(passed)
    }
}

impl Span {
    /// Starts the first span of a trace that is not recorded.
    pub(crate) fn unrecorded(number: u64) -> Span {
        Span(State::Unrecorded(number))
    }

    /// Starts a span of a trace that is recorded.
    pub(crate) fn recorded(
        queue: Arc<Queue>,
        context: SpanContext,
        parent: Option<&SpanContext>,
        name: &'static str,
        scope: &'static str,
        kind: Kind,
    ) -> Span {
        let clock = Clock::start();
        let span = Mutex::new(FinishedSpan {
            context: context.clone(),
            parent: parent.map(|parent| parent.span_id),
            is_parent_remote: parent.is_some_and(|parent| parent.is_remote),
            name: Cow::Borrowed(name),
            scope,
            kind,
            started: clock.nanoseconds,
            ended: 0,
            attributes: vec![],
            events: vec![],
            links: vec![],
            is_error: false,
        });
        let recorded = Some(Recorded { clock, span });
        Span(State::Running(Arc::new(Running { queue, context, recorded })))
    }

    /// Starts a span below another one.
    pub(crate) fn below(
        queue: Arc<Queue>,
        parent: &SpanContext,
        name: &'static str,
        scope: &'static str,
        kind: Kind,
    ) -> Span {
        if !parent.is_sampled {
            return Span(State::UnrecordedBelow(Arc::new(parent.below())));
        }
        Span::recorded(queue, parent.below(), Some(parent), name, scope, kind)
    }

    /// Returns a place for children of this span that end after it.
    #[must_use]
    pub fn anchor(&self) -> Span {
        let Some(running) = self.running() else { return self.clone() };
        let Running { queue, context, .. } = running;
        Span(State::Running(Arc::new(Running {
            queue: queue.clone(),
            context: context.clone(),
            recorded: None,
        })))
    }

    /// Starts a step of this span's work.
    #[must_use]
    pub fn child(&self, name: &'static str, scope: &'static str, kind: Kind) -> Span {
        match self.running() {
            None => self.clone(),
            Some(running) => {
                Span::below(running.queue.clone(), &running.context, name, scope, kind)
            }
        }
    }

    /// Returns whether there is a tracer.
    #[must_use]
    pub fn is_some(&self) -> bool {
        !matches!(self.0, State::None)
    }

    /// Returns what identifies the span; `None` without a tracer.
    #[must_use]
    pub fn context(&self) -> Option<SpanContext> {
        match &self.0 {
            State::None => None,
            State::Unrecorded(number) => Some(SpanContext::unrecorded(*number)),
            State::UnrecordedBelow(context) => Some(SpanContext::clone(context)),
            State::Running(running) => Some(running.context.clone()),
        }
    }

    /// Returns the id of the span's trace if it is recorded.
    #[must_use]
    pub fn recorded_trace(&self) -> Option<TraceId> {
        self.running().map(|running| running.context.trace_id)
    }

    /// Returns whether the span is recorded: whether it is worth while to compute attributes.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.record().is_some()
    }

    /// Replaces the name, when more is known.
    pub fn rename(&self, name: impl Into<Cow<'static, str>>) {
        if let Some(mut span) = self.finished() {
            span.name = name.into();
        }
    }

    /// Adds an attribute.
    pub fn set(&self, key: &'static str, value: impl Into<Attribute>) {
        if let Some(mut span) = self.finished()
            && span.attributes.len() < PARTS_MAX
        {
            span.attributes.push((key, value.into()));
        }
    }

    /// Adds an event.
    pub fn event(&self, name: &'static str) {
        self.event_with(name, Vec::new);
    }

    /// Adds an event with details, which are computed only if the span is recorded.
    pub fn event_with(
        &self,
        name: &'static str,
        attributes: impl FnOnce() -> Vec<(&'static str, Attribute)>,
    ) {
        let Some(recorded) = self.record() else { return };
        let event = Event { at: recorded.clock.now(), name, attributes: attributes() };
        let mut span = lock(&recorded.span);
        if span.events.len() < PARTS_MAX {
            span.events.push(event);
        }
    }

    /// Adds a link to another trace.
    pub fn link(&self, to: SpanContext) {
        if let Some(mut span) = self.finished() {
            span.links.push(to);
        }
    }

    /// Marks the span as failed.
    pub fn fail(&self) {
        if let Some(mut span) = self.finished() {
            span.is_error = true;
        }
    }

    fn record(&self) -> Option<&Recorded> {
        self.running()?.recorded.as_ref()
    }

    fn running(&self) -> Option<&Running> {
        match &self.0 {
            State::Running(running) => Some(running),
            State::None | State::Unrecorded(_) | State::UnrecordedBelow(_) => None,
        }
    }

    fn finished(&self) -> Option<MutexGuard<'_, FinishedSpan>> {
        self.record().map(|recorded| lock(&recorded.span))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(Recorded { clock, span }) = self.recorded.take() else { return };
        let mut span = span.into_inner().unwrap_or_else(PoisonError::into_inner);
        span.ended = clock.now();
        self.queue.push(span);
    }
}

fn lock(span: &Mutex<FinishedSpan>) -> MutexGuard<'_, FinishedSpan> {
    span.lock().unwrap_or_else(PoisonError::into_inner)
}
