//! [`RequestLog`]: the log line of a request when it ends, at verbosity 3: that of kube-apiserver
//! (apiserver `server/httplog`) with its names, and with how the latency divides, the user and the
//! annotations of the audit event.

use crate::fairness::FlowOfLevel;
use crate::metrics::Filter;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use keelson_auth::{Annotations, Attributes, User};
use keelson_fairness::Work;
use keelson_meta::Str;
use keelson_meta::time::GoDuration;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What is known of a request so far.
pub(crate) struct RequestLog {
    audit_id: HeaderValue,
    started: Instant,
    /// The API verb, or the HTTP method before it is known.
    verb: Str,
    uri: Uri,
    user_agent: Option<HeaderValue>,
    source: IpAddr,
    user: Str,
    status: StatusCode,
    annotations: Arc<Annotations>,
    /// The id of the trace, if it is recorded.
    trace_id: Option<String>,
    /// Durations of the steps before the verb, in their order.
    steps: [Duration; 5],
    webhooks: Duration,
    /// From the beginning until the answer was known; `None` before.
    until_answer: Option<Duration>,
    /// FlowSchema, level and work, of requests that have a level.
    flow: Option<(Str, Str, Work)>,
}

impl RequestLog {
    /// Whether requests are logged.
    pub fn is_on() -> bool {
        tracing::enabled!(tracing::Level::DEBUG)
    }

    /// Starts the line of a request.
    pub fn start<B>(request: &Request<B>, source: IpAddr, audit_id: &HeaderValue) -> RequestLog {
        RequestLog {
            audit_id: audit_id.clone(),
            started: Instant::now(),
            verb: Str::new(request.method().as_str()),
            uri: request.uri().clone(),
            user_agent: request.headers().get(header::USER_AGENT).cloned(),
            source,
            user: Str::default(),
            status: StatusCode::default(),
            annotations: Arc::default(),
            trace_id: None,
            steps: [Duration::ZERO; 5],
            webhooks: Duration::ZERO,
            until_answer: None,
            flow: None,
        }
    }

    /// Records user and verb.
    pub fn authenticated(&mut self, user: &User, attributes: &Attributes) {
        self.user = user.name.clone();
        self.verb = attributes.verb.to_ascii_uppercase().into();
    }

    /// Records the level of the request and its estimated work.
    pub fn classified(&mut self, flow: &FlowOfLevel, work: Work) {
        let (schema, level) = flow.names();
        self.flow = Some((schema.clone(), level.clone(), work));
    }

    /// Records how long a step took.
    pub fn ended(&mut self, step: Filter, took: Duration) {
        self.steps[step as usize] = took;
    }

    /// Records how long the request waited for webhooks.
    pub fn waited_for_webhooks(&mut self, took: Duration) {
        self.webhooks = took;
    }

    /// Records the status of the response, and the id of the trace.
    pub fn answered(&mut self, status: StatusCode, trace_id: Option<String>) {
        self.status = status;
        self.trace_id = trace_id;
        self.until_answer = Some(self.started.elapsed());
    }

    /// Returns where annotations of the request are collected.
    pub fn annotations(&self) -> Arc<Annotations> {
        self.annotations.clone()
    }

    fn step(&self, step: Filter) -> Duration {
        self.steps[step as usize]
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let latency = self.started.elapsed();
        let until_answer = self.until_answer.unwrap_or(latency);
        let before: Duration = self.steps.iter().sum();
        let in_verb = until_answer.saturating_sub(before + self.webhooks);
        let seated = latency.saturating_sub(before - self.step(Filter::Authorization));
        let shown = |took: Duration| {
            GoDuration(i64::try_from(took.as_nanos()).unwrap_or(i64::MAX)).to_string()
        };
        let flow = self.flow.as_ref();
        tracing::debug!(
            verb = %self.verb,
            URI = %self.uri,
            latency = shown(latency),
            userAgent = self.user_agent.as_ref().map(text),
            "audit-ID" = text(&self.audit_id),
            srcIP = %self.source,
            user = %self.user,
            latency_authentication = shown(self.step(Filter::Authentication)),
            latency_audit = shown(self.step(Filter::Audit)),
            latency_queue = shown(self.step(Filter::Fairness)),
            latency_authorization = shown(self.step(Filter::Authorization)),
            latency_webhooks = shown(self.webhooks),
            latency_verb = shown(in_verb),
            latency_send = shown(latency.saturating_sub(until_answer)),
            apf_pl = flow.map(|(_, level, _)| level.as_str()),
            apf_fs = flow.map(|(schema, ..)| schema.as_str()),
            apf_iseats = flow.map(|(.., work)| work.seats),
            apf_fseats = flow.map(|(.., work)| work.final_seats),
            apf_additionalLatency =
                flow.map(|(.., work)| shown(Duration::from_nanos(work.held))),
            apf_execution_time = flow.map(|_| shown(seated)),
            resp = self.status.as_u16(),
            trace_id = self.trace_id,
            annotations = ?self.annotations.list(),
            "HTTP"
        );
    }
}
