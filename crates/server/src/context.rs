//! The context of a request, from before its authentication until the last byte of its response is
//! sent.

use crate::audited::AuditedRequest;
use crate::connections::{ConnectionSlot, OpenRequest};
use crate::fairness::{FairSeat, FlowOfLevel};
use crate::in_flight::InFlightGuard;
use crate::metrics::{Filter, Metrics, RequestLabels, RequestObserver};
use crate::request_head::RequestHead;
use crate::request_log::RequestLog;
use crate::stream_limit::StreamSeat;
use crate::traced::RequestTrace;
use http::{HeaderValue, Request, StatusCode};
use keelson_auth::{Annotations, Attributes, CredentialNotes, User};
use keelson_fairness::Work;
use keelson_meta::Str;
use keelson_traces::{Span, Tracer};
use smallvec::SmallVec;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The context of a request, owned by the body of its response until that ends.
#[derive(Default)]
pub(crate) struct RequestContext {
    /// Counts the request on its connection.
    _open_request: Option<OpenRequest>,
    /// The request's seat among those in flight, after authentication.
    seat: Option<InFlightGuard>,
    /// The seat by priority and fairness.
    fair_seat: Option<FairSeat>,
    /// Whose request it is, once that is known; else empty.
    user: Str,
    /// The FlowSchema and level of the request, which the headers of the response name.
    flow: Option<Arc<FlowOfLevel>>,
    /// The seat of a connection to something that runs.
    stream_seat: Option<StreamSeat>,
    /// What authentication says of the client's credentials.
    notes: CredentialNotes,
    /// A Warning header about the version of the resource.
    deprecation: Option<Str>,
    /// When the request started.
    started: Option<Instant>,
    /// Records the request in metrics, once its labels are known.
    observer: Option<RequestObserver>,
    /// The audit event, which is stored when the response ends; `None` if the request is not
    /// audited.
    audited: Option<Arc<AuditedRequest>>,
    /// The spans of the request; `None` without tracing.
    trace: Option<Box<RequestTrace>>,
    /// `None` unless the debug level is logged.
    log: Option<Box<RequestLog>>,
}

impl RequestContext {
    /// Creates the context of a request on a connection.
    pub fn new(slot: &ConnectionSlot) -> RequestContext {
        RequestContext {
            _open_request: Some(slot.request()),
            started: Some(Instant::now()),
            ..RequestContext::default()
        }
    }

    /// Starts the log line of the request, if the debug level is logged.
    pub fn log<B>(&mut self, request: &Request<B>, source: IpAddr, audit_id: &HeaderValue) {
        if RequestLog::is_on() {
            self.log = Some(Box::new(RequestLog::start(request, source, audit_id)));
        }
    }

    /// Records how long a step before the verb took.
    pub fn ended(&mut self, step: Filter, took: Duration) {
        if let Some(log) = &mut self.log {
            log.ended(step, took);
        }
    }

    /// Returns what authentication says of the request, to be set.
    pub fn notes(&mut self) -> &mut CredentialNotes {
        &mut self.notes
    }

    /// Records the Warning that all requests to a deprecated version get.
    pub fn deprecated(&mut self, warning: Str) {
        self.deprecation = Some(warning);
    }

    /// Returns the Warnings to set in front of others, the last one first.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.deprecation.as_deref().into_iter().chain(self.notes.warning)
    }

    /// Records user and verb, once the request is authenticated.
    pub fn authenticated(&mut self, user: &User, attributes: &Attributes) {
        self.user = user.name.clone();
        if let Some(log) = &mut self.log {
            log.authenticated(user, attributes);
        }
    }

    /// Keeps the request's seat until the request ends.
    pub fn set_seat(&mut self, seat: Option<InFlightGuard>) {
        self.seat = seat;
    }

    /// Keeps the seat by priority and fairness until the request ends.
    pub fn set_fair_seat(&mut self, seat: FairSeat) {
        self.fair_seat = Some(seat);
    }

    /// Returns the seats by priority and fairness: all, or all but one.
    pub fn return_fair_seats(&mut self, but_one: bool) {
        match &mut self.fair_seat {
            Some(seat) if but_one => seat.narrow(),
            seat => *seat = None,
        }
    }

    /// Returns whose request it is; empty if that is not known.
    pub fn user(&self) -> &Str {
        &self.user
    }

    /// Records the FlowSchema and level of the request.
    pub fn classified(&mut self, flow: Arc<FlowOfLevel>, work: Work) {
        if let Some(log) = &mut self.log {
            log.classified(&flow, work);
        }
        self.flow = Some(flow);
    }

    /// Returns the FlowSchema and level of the request, if it has one.
    pub fn flow(&self) -> Option<&FlowOfLevel> {
        self.flow.as_deref()
    }

    /// Keeps the seat of a stream until the request ends.
    pub fn set_stream_seat(&mut self, seat: StreamSeat) {
        self.stream_seat = Some(seat);
    }

    /// Counts the request in metrics when it ends.
    pub fn measure(
        &mut self,
        metrics: &Arc<Metrics>,
        labels: &RequestLabels<'_>,
        head: &RequestHead,
    ) {
        let started = self.started();
        let dry_run: SmallVec<[&str; 1]> = head.query.all("dryRun").collect();
        self.observer = RequestObserver::begin(metrics, labels, started, &dry_run);
    }

    /// Records how long the request waited for admission webhooks.
    pub fn waited_for_webhooks(&mut self, took: Duration) {
        if let Some(observer) = &mut self.observer {
            observer.waited_for_webhooks(took);
        }
        if let Some(log) = &mut self.log {
            log.waited_for_webhooks(took);
        }
    }

    /// Starts the spans of the request.
    pub fn start_trace(&mut self, tracer: Option<&Arc<Tracer>>) {
        self.trace = tracer.map(|tracer| Box::new(RequestTrace::start(tracer)));
    }

    /// Returns the spans of the request.
    pub fn trace(&mut self) -> Option<&mut RequestTrace> {
        self.trace.as_deref_mut()
    }

    /// Starts the span of the next filter.
    pub fn start_step(&mut self, name: &'static str) -> Span {
        self.trace.as_mut().map(|trace| trace.step(name)).unwrap_or_default()
    }

    /// Leaves the span of the verb to those who have a part in it: a watch ends it with its initial
    /// events.
    pub fn hand_over_verb_span(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.end_verb();
        }
    }

    /// Returns the span below which further ones are.
    pub fn span(&self) -> Span {
        self.trace.as_ref().map(|trace| trace.current()).unwrap_or_default()
    }

    /// Counts bytes of the response that were sent.
    pub fn sent(&mut self, bytes: usize) {
        if let Some(trace) = &mut self.trace {
            trace.sent(bytes);
        }
        if let Some(observer) = &mut self.observer {
            observer.sent(bytes);
        }
    }

    /// Keeps the audit event until the request ends.
    pub fn set_audited(&mut self, audited: Arc<AuditedRequest>) {
        self.audited = Some(audited);
    }

    /// Returns when the request started.
    pub fn started(&self) -> Instant {
        self.started.unwrap_or_else(Instant::now)
    }

    /// Returns the audit annotations of the request, or `None` if they are neither logged nor
    /// audited.
    pub fn annotations(&self) -> Option<Arc<Annotations>> {
        let logged = || self.log.as_ref().map(|log| log.annotations());
        self.audited.as_ref().map(|audited| audited.annotations.clone()).or_else(logged)
    }

    /// Records the status of the response.
    pub fn answered(&mut self, status: StatusCode) {
        if let Some(observer) = &mut self.observer {
            observer.answered(status.as_u16());
        }
        if let Some(trace) = &mut self.trace {
            trace.answered(status);
        }
        if let Some(log) = &mut self.log {
            log.answered(status, self.trace.as_ref().and_then(|trace| trace.id()));
        }
    }
}
