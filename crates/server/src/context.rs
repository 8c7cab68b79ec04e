//! A request from before it is authenticated until the last byte of its answer was sent.

use crate::ask::Ask;
use crate::connections::{Asked as Counting, Place};
use crate::in_flight::Counted;
use crate::metrics::{Asked, Measured, Metrics};
use http::{HeaderValue, Request, StatusCode, Uri, header};
use keelson_auth::{Annotations, Attributes, User};
use keelson_meta::Str;
use smallvec::SmallVec;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The context of a request, owned by the body of its answer until that ends.
#[derive(Default)]
pub(crate) struct RequestContext {
    /// Its place among the requests of its connection.
    _asked: Option<Counting>,
    /// Its place among the requests in flight, once it is authenticated.
    counted: Option<Counted>,
    /// A Warning header about the client's credentials.
    warning: Option<&'static str>,
    /// When it began, on a connection.
    begun: Option<Instant>,
    /// What metrics count of it, once it is known what it asks for.
    measured: Option<Measured>,
    /// `None` unless debug lines are logged.
    log: Option<Box<RequestLog>>,
}

/// The log line of a request when it ends, at level debug: upstream's `HTTP` line, and the annotations
/// of its audit event.
struct RequestLog {
    audit_id: HeaderValue,
    begun: Instant,
    /// The API verb, or the HTTP method before it is known.
    verb: Str,
    uri: Uri,
    user_agent: Option<HeaderValue>,
    source: IpAddr,
    user: Str,
    status: StatusCode,
    annotations: Arc<Annotations>,
}

impl RequestContext {
    /// The context of a request on a connection.
    pub fn new(place: &Place) -> RequestContext {
        RequestContext {
            _asked: Some(place.request()),
            begun: Some(Instant::now()),
            ..RequestContext::default()
        }
    }

    /// Begins what is logged of the request, if debug lines are wanted.
    pub fn log<B>(&mut self, request: &Request<B>, source: IpAddr, audit_id: &HeaderValue) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.log = Some(Box::new(RequestLog {
                audit_id: audit_id.clone(),
                begun: Instant::now(),
                verb: Str::new(request.method().as_str()),
                uri: request.uri().clone(),
                user_agent: request.headers().get(header::USER_AGENT).cloned(),
                source,
                user: Str::default(),
                status: StatusCode::default(),
                annotations: Arc::default(),
            }));
        }
    }

    /// A Warning header about the client's credentials.
    pub fn warning(&mut self) -> &mut Option<&'static str> {
        &mut self.warning
    }

    /// Records user and verb, once the request is authenticated.
    pub fn authenticated(&mut self, user: &User, attributes: &Attributes) {
        if let Some(log) = &mut self.log {
            log.user = user.name.clone();
            log.verb = attributes.verb.to_ascii_uppercase().into();
        }
    }

    /// Counts the request among those in flight until it ends.
    pub fn count(&mut self, counted: Option<Counted>) {
        self.counted = counted;
    }

    /// Counts the request in metrics when it ends.
    pub fn measure(&mut self, metrics: &Arc<Metrics>, asked: &Asked<'_>, ask: &Ask) {
        let begun = self.begun.unwrap_or_else(Instant::now);
        let dry_run: SmallVec<[&str; 1]> = ask.query.all("dryRun").collect();
        let agent = ask.header(header::USER_AGENT).unwrap_or_default();
        self.measured = Measured::begin(metrics, asked, begun, &dry_run, agent);
    }

    /// The request waited this long for webhooks of admission.
    pub fn waited_for_webhooks(&mut self, took: Duration) {
        if let Some(measured) = &mut self.measured {
            measured.waited_for_webhooks(took);
        }
    }

    /// Bytes of the answer were sent.
    pub fn sent(&mut self, bytes: usize) {
        if let Some(measured) = &mut self.measured {
            measured.sent(bytes);
        }
    }

    /// The audit annotations of the request; `None` when nobody reads them.
    pub fn annotations(&self) -> Option<Arc<Annotations>> {
        self.log.as_ref().map(|log| log.annotations.clone())
    }

    /// Records the status of the answer.
    pub fn answered(&mut self, status: StatusCode) {
        if let Some(measured) = &mut self.measured {
            measured.answered(status.as_u16());
        }
        if let Some(log) = &mut self.log {
            log.status = status;
        }
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        tracing::debug!(
            verb = %self.verb,
            uri = %self.uri,
            latency = ?self.begun.elapsed(),
            user_agent = self.user_agent.as_ref().map(text),
            audit_id = text(&self.audit_id),
            source = %self.source,
            user = %self.user,
            status = self.status.as_u16(),
            annotations = ?self.annotations.list(),
            "HTTP"
        );
    }
}
