//! A request from before it is authenticated until the last byte of its answer was sent.

use crate::connections::{Asked, Place};
use crate::in_flight::Counted;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use keelson_auth::{Annotations, Attributes, User};
use keelson_meta::Str;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::time::Instant;

/// What a request is known by and counts for. The body of its answer owns it to the end.
#[derive(Default)]
pub(crate) struct RequestContext {
    /// Among the requests of its connection.
    _asked: Option<Asked>,
    /// Among those in flight, from when its user is known.
    counted: Option<Counted>,
    /// What its client is to be told of its credentials.
    warning: Option<&'static str>,
    /// Only when it is wanted.
    log: Option<Box<RequestLog>>,
}

/// What is logged of a request when it ends, at level debug: what upstream logs as `HTTP`, and the annotations
/// of its audit event.
struct RequestLog {
    audit_id: HeaderValue,
    begun: Instant,
    /// Of the API where it is known, else of HTTP.
    verb: Str,
    uri: Uri,
    user_agent: Option<HeaderValue>,
    source: IpAddr,
    user: Str,
    status: StatusCode,
    annotations: Arc<Annotations>,
}

impl RequestContext {
    /// That of a request on a connection.
    pub fn new(place: &Place) -> RequestContext {
        RequestContext { _asked: Some(place.request()), ..RequestContext::default() }
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

    /// What its client is to be told of its credentials.
    pub fn warning(&mut self) -> &mut Option<&'static str> {
        &mut self.warning
    }

    /// It is known who asks for what.
    pub fn authenticated(&mut self, user: &User, attributes: &Attributes) {
        if let Some(log) = &mut self.log {
            log.user = user.name.clone();
            log.verb = attributes.verb.to_ascii_uppercase().into();
        }
    }

    /// It counts among those in flight from now on.
    pub fn count(&mut self, counted: Option<Counted>) {
        self.counted = counted;
    }

    /// Where its audit annotations go; `None`: nobody reads them.
    pub fn annotations(&self) -> Option<Arc<Annotations>> {
        self.log.as_ref().map(|log| log.annotations.clone())
    }

    /// Its answer has begun.
    pub fn answered(&mut self, status: StatusCode) {
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
