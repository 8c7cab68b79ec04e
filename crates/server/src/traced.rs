//! [`RequestTrace`]: the spans of one request, with upstream's names and attributes (apiserver
//! `filterlatency`, `endpoints/handlers`; otelhttp's semantic conventions for the span of the
//! request).
//!
//! Each filter's span is the parent of the next filter's, and the last one's is that of the verb.
//! What the verb calls finds its span by `keelson_traces::start`.

use crate::metrics::RequestLabels;
use crate::query::Query;
use crate::request_head::RequestHead;
use crate::request_info::Verb;
use crate::respond::Reply;
use http::{HeaderValue, StatusCode, Version, header};
use keelson_auth::{Attributes, User};
use keelson_meta::{Failure, GroupVersionResource};
use keelson_schema::catalogue::SubresourceClass;
use keelson_traces::{Attribute, HTTP, Kind, STEPS, Span, SpanContext, Tracer};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

/// The scope of filters. It is spelled so upstream.
const FILTERS: &str = "k8s.op/apiserver/pkg/endpoints/filterlatency";
/// Groups whose members decide whether their requests are recorded. The callers of others are
/// linked only, so that nobody can make the server record everything.
const PRIVILEGED: [&str; 2] = ["system:masters", "system:monitoring"];

/// The name of a verb's span that says less than the others.
const LIST: &str = "List";

/// The spans of one request.
pub(crate) struct RequestTrace {
    tracer: Arc<Tracer>,
    /// The first filter's, until the user is known.
    authentication: Span,
    /// The step below which the next one is.
    latest: Span,
    server: Span,
    verb: Span,
    answer: Span,
    /// Whether the verb says that it writes a response.
    says_response: bool,
    /// Bytes of the response.
    sent: usize,
}

/// What the spans of a request show about it.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub head: &'a RequestHead,
    pub audit_id: &'a HeaderValue,
    pub version: Version,
}

impl RequestTrace {
    pub fn start(tracer: &Arc<Tracer>) -> RequestTrace {
        let authentication = tracer.root("authentication", FILTERS, Kind::Internal);
        RequestTrace {
            tracer: tracer.clone(),
            latest: authentication.anchor(),
            authentication,
            server: Span::default(),
            verb: Span::default(),
            answer: Span::default(),
            says_response: false,
            sent: 0,
        }
    }

    /// Ends the step of authentication and starts the span of the request.
    pub fn authenticated(&mut self, seen: &Seen<'_>, user: &User, attributes: &Attributes) {
        let is_privileged = user.groups.iter().any(|g| PRIVILEGED.contains(&g.as_str()));
        let caller = SpanContext::of_headers(&seen.head.headers);
        let server = match caller {
            Some(caller) if is_privileged => self.tracer.child(&caller, "", HTTP, Kind::Server),
            None if is_privileged => self.latest.child("", HTTP, Kind::Server),
            caller => {
                let root = self.tracer.root("", HTTP, Kind::Server);
                caller.into_iter().for_each(|caller| root.link(caller));
                root
            }
        };
        self.authentication = Span::default();
        if server.is_recorded() {
            describe(&server, seen, attributes);
        }
        self.latest = server.anchor();
        self.server = server;
    }

    /// Starts the next filter.
    pub fn step(&mut self, name: &'static str) -> Span {
        let step = self.latest.child(name, FILTERS, Kind::Internal);
        self.latest = step.anchor();
        step
    }

    /// Starts the span of a verb.
    pub fn verb(
        &mut self,
        name: &'static str,
        seen: &Seen<'_>,
        attributes: Option<&Attributes>,
        labels: &RequestLabels<'_>,
    ) {
        self.verb = self.latest.child(name, STEPS, Kind::Internal);
        self.says_response = name != LIST;
        if !self.verb.is_recorded() {
            return;
        }
        let Seen { head, audit_id, version } = seen;
        let header = |name| head.header(name).unwrap_or_default();
        for (key, value) in [
            ("accept", header(header::ACCEPT)),
            ("audit-id", text(audit_id)),
            ("api-group", labels.group),
            ("api-version", labels.version),
            ("name", attributes.map_or("", |attributes| attributes.name.as_str())),
            ("subresource", labels.subresource),
            ("namespace", attributes.map_or("", |attributes| attributes.namespace.as_str())),
            ("protocol", protocol(*version)),
            ("resource", labels.resource),
            ("scope", labels.scope),
            ("url", head.uri.path()),
            ("user-agent", header(header::USER_AGENT)),
            ("verb", labels.verb),
        ] {
            self.verb.set(key, value);
        }
        self.verb.set("client", client(head).to_string());
    }

    /// Ends the span of the verb, unless others have it too.
    pub fn end_verb(&mut self) {
        self.verb = Span::default();
    }

    /// Returns the span below which further ones are: the verb's, or that of the last step.
    pub fn current(&self) -> Span {
        if self.verb.is_some() { self.verb.clone() } else { self.latest.clone() }
    }

    /// Returns the id of the trace, if it is recorded.
    pub fn id(&self) -> Option<String> {
        self.server.recorded_trace().map(|id| id.to_string())
    }

    /// Records that the response is known. `is_object` says that it is an object of the API.
    pub fn answering(&mut self, seen: &Seen<'_>, answer: &Reply, is_object: bool) {
        let Seen { head, audit_id, version } = seen;
        self.says_response &= answer.status().is_success();
        if self.says_response {
            self.verb.event("About to write a response");
        }
        let media_type = answer
            .headers()
            .get(header::CONTENT_TYPE)
            .map(text)
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default();
        if !is_object || media_type == "text/plain" {
            return;
        }
        self.answer = self.current().child("SerializeObject", STEPS, Kind::Internal);
        if !self.answer.is_recorded() {
            return;
        }
        for (key, value) in [
            ("audit-id", text(audit_id)),
            ("method", head.method.as_str()),
            ("url", head.uri.path()),
            ("protocol", protocol(*version)),
            ("mediaType", media_type),
        ] {
            self.answer.set(key, value);
        }
        self.answer.event("About to start writing response");
    }

    /// Records the status of the response.
    pub fn answered(&mut self, status: StatusCode) {
        self.server.set("http.response.status_code", status.as_u16());
        if status.is_server_error() {
            self.server.fail();
        }
    }

    /// Counts bytes of the response that were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
    }
}

impl Drop for RequestTrace {
    fn drop(&mut self) {
        let sent = self.sent;
        self.answer.event_with("Write call succeeded", || vec![("size", sent.into())]);
        if self.says_response {
            self.verb.event("Writing http response done");
        }
        self.server.set("http.response.body.size", sent);
        // Children end before their parents.
        self.answer = Span::default();
        self.verb = Span::default();
    }
}

/// Adds name and attributes to the span of a request.
fn describe(server: &Span, seen: &Seen<'_>, attributes: &Attributes) {
    let Seen { head, audit_id, version } = seen;
    server.rename(name(head.method.as_str(), attributes));
    let authority = head.uri.authority().map(|authority| authority.as_str());
    let host = authority.or_else(|| head.header(header::HOST)).unwrap_or_default();
    let (host, port) = match host.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse::<u16>().ok()),
        _ => (host, None),
    };
    let target = keelson_audit::request_uri(&head.uri);
    let peer = client(head).to_string();
    for (key, value) in [
        ("server.address", host.trim_start_matches('[').trim_end_matches(']')),
        ("http.request.method", head.method.as_str()),
        ("url.scheme", "https"),
        ("network.peer.address", peer.as_str()),
        ("user_agent.original", head.header(header::USER_AGENT).unwrap_or_default()),
        ("client.address", peer.as_str()),
        ("url.path", head.uri.path()),
        ("network.protocol.version", protocol(*version).trim_start_matches("HTTP/")),
        ("http.target", &*target),
        ("audit-id", text(audit_id)),
    ] {
        server.set(key, value);
    }
    if let Some(port) = port {
        server.set("server.port", port);
    }
    let length = head.header(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
    if let Some(length) = length.filter(|length: &usize| *length > 0) {
        server.set("http.request.body.size", length);
    }
}

/// Returns the name of a request's span: `GET /api/v1/namespaces/{:namespace}/pods/{:name}`, and
/// the method alone for other paths.
fn name(method: &str, attributes: &Attributes) -> String {
    if attributes.non_resource {
        return method.to_owned();
    }
    let GroupVersionResource { group, version, resource } = &attributes.gvr;
    let mut name = match group.as_str() {
        "" => format!("{method} /api/{version}"),
        group => format!("{method} /apis/{group}/{version}"),
    };
    if !attributes.namespace.is_empty() {
        name.push_str("/namespaces/{:namespace}");
    }
    name.push('/');
    name.push_str(resource);
    if !attributes.name.is_empty() {
        name.push_str("/{:name}");
    }
    if !attributes.subresource.is_empty() {
        name.push('/');
        name.push_str(&attributes.subresource);
    }
    name
}

/// Returns the name of a verb's span; `None` if upstream has none for it.
pub(crate) fn verb_name(
    verb: Verb,
    class: Option<SubresourceClass>,
    query: &Query,
) -> Option<&'static str> {
    match verb {
        // Logs are an object that is got.
        _ if class.is_some_and(|class| class.is_connection() && class != SubresourceClass::Log) => {
            None
        }
        Verb::Get => Some("Get"),
        Verb::List => Some(LIST),
        Verb::Watch => query.sends_initial_events().then_some("WatchList"),
        Verb::Create => Some("Create"),
        Verb::Update => Some("Update"),
        Verb::Patch => Some("Patch"),
        Verb::Delete | Verb::DeleteCollection => Some("Delete"),
        Verb::Method(_) => None,
    }
}

fn client(head: &RequestHead) -> IpAddr {
    head.peer.slot.address()
}

fn text(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or_default()
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_10 => "HTTP/1.0",
        _ => "HTTP/1.1",
    }
}

/// Records in the span of a verb that a body was read.
pub(crate) fn body_read(bytes: usize) {
    let span = keelson_traces::current();
    span.event_with("limitedReadBody succeeded", || vec![("len", bytes.into())]);
}

/// Records in the span of a verb that an object is read.
pub(crate) fn getting() {
    keelson_traces::current().event("About to Get from storage");
}

/// Decodes a body, and records in the span of a verb when.
pub(crate) fn decode<T>(decode: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let span = keelson_traces::current();
    span.event("About to convert to expected version");
    let decoded = decode()?;
    span.event("Conversion done");
    Ok(decoded)
}

/// Writes an object whose body had so many bytes, and records in the span of a verb what comes of
/// it. The work is borrowed, because a future that is passed by value is stored twice.
pub(crate) async fn write<T>(
    bytes: usize,
    write: Pin<&mut impl Future<Output = Result<T, Failure>>>,
) -> Result<T, Failure> {
    let span = keelson_traces::current();
    span.event("About to store object in database");
    let written = write.await;
    let len = ("len", bytes.into());
    match &written {
        Ok(_) => span.event_with("Write to database call succeeded", || vec![len]),
        Err(failure) => {
            span.event_with("Write to database call failed", || {
                vec![len, ("err", Attribute::from(failure.message.clone()))]
            });
        }
    }
    written
}
