//! [`FarEnd`]: the far side of a connection, and the credentials that it is shown.

use crate::app::App;
use crate::header_lists;
use crate::request_head::RequestHead;
use crate::respond::OwnHeaders;
use crate::rewrite::Links;
use crate::throttle::Throttled;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use keelson_egress::{Client, Peer, Route, Scheme, Trust, Upgraded};
use keelson_meta::status::quote;
use keelson_meta::{Failure, Reason, Status};
use keelson_registry::hooks::{FarSide, Location};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long the connection to the far side may take (Go's dialer).
const CONNECT_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a kubelet may take to answer a request to upgrade.
const UPGRADE_TIME_MAX: Duration = Duration::from_secs(30);

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The answers to cross-origin requests are this server's business, not that of the far side.
const CORS: [HeaderName; 4] = [
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
];

/// The far side of a connection.
pub(crate) struct FarEnd {
    pub client: Arc<Client>,
    pub location: Location,
    /// Most bytes a second of an upgraded connection, in each direction; `None`: no limit.
    pub bytes_per_second_max: Option<NonZeroU64>,
}

impl FarEnd {
    /// Prepares the connection of a stream or a log; nothing is opened yet.
    pub fn new(app: &App, location: Location) -> Result<FarEnd, Failure> {
        FarEnd::by(app, location, Route::Node)
    }

    /// Prepares the connection of a proxy, which only leads to global unicast addresses, also those
    /// of nodes (apimachinery `util/proxy`, `IsProxyableHostname`).
    pub fn proxied(app: &App, location: Location) -> Result<FarEnd, Failure> {
        FarEnd::by(app, location, Route::Public)
    }

    fn by(app: &App, location: Location, to_kubelet: Route) -> Result<FarEnd, Failure> {
        let port = match location.port.as_str() {
            "" if location.is_secure => 443,
            "" => 80,
            port => port.parse().map_err(|_| unknown_port(&location))?,
        };
        let mut peer = Peer::new(location.host.clone(), port);
        match location.far_side {
            FarSide::Kubelet { is_verified, .. } => {
                let access = app.kubelets.load();
                peer.route = to_kubelet;
                peer.trust = match &access.authority {
                    Some(bundle) if is_verified => Trust::Bundle(bundle.clone()),
                    _ => Trust::Anyone,
                };
                peer.identity = access.identity.clone();
            }
            FarSide::Workload => {
                peer.route = Route::Public;
                peer.trust = Trust::Anyone;
            }
        }
        peer.scheme = if location.is_secure { Scheme::Https } else { Scheme::Http };
        let client = app.egress.client(&peer).map_err(|error| {
            Status::new(Reason::Unknown, format!("the far side cannot be reached: {error}"))
        })?;
        let bytes_per_second_max = app.limits.connection_bytes_per_second_max;
        Ok(FarEnd { client, location, bytes_per_second_max })
    }

    /// Limits the bytes of a connection that has left HTTP.
    pub fn throttled(&self, upgraded: Upgraded) -> Throttled<Upgraded> {
        Throttled::new(upgraded, self.bytes_per_second_max)
    }

    /// Returns a request for the far side, with the headers of the client and the query that the
    /// location or the client gives.
    pub fn request(&self, head: &RequestHead, headers: HeaderMap) -> Result<Request<()>, Failure> {
        let query = match &self.location.query {
            Some(query) => query.as_str(),
            None => head.uri.query().unwrap_or_default(),
        };
        let path = match self.location.path.as_str() {
            "" => "/",
            path => path,
        };
        let target = match query {
            "" => path.to_owned(),
            query => format!("{path}?{query}"),
        };
        let uri = Uri::try_from(target).map_err(|error| {
            Status::new(Reason::Unknown, format!("the far side's URL is invalid: {error}"))
        })?;
        let mut request = Request::new(());
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        forward_for(request.headers_mut(), head);
        Ok(request)
    }

    /// Returns the URL of the location, for errors.
    pub fn url(&self) -> String {
        let Location { is_secure, host, port, path, query, .. } = &self.location;
        let scheme = if *is_secure { "https" } else { "http" };
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let port = if port.is_empty() { String::new() } else { format!(":{port}") };
        let query = query
            .as_deref()
            .filter(|query| !query.is_empty())
            .map_or(String::new(), |query| format!("?{query}"));
        format!("{scheme}://{host}{port}{path}{query}")
    }
}

fn unknown_port(location: &Location) -> Failure {
    let why = match location.port.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("dial tcp: address {}: invalid port", location.port),
        false => format!("dial tcp: lookup tcp/{}: unknown port", location.port),
    };
    Status::unavailable(format!("error trying to reach service: {why}"))
}

/// Returns when a connection that is opened now must be open.
pub(crate) fn connect_by() -> Instant {
    Instant::now() + CONNECT_TIME_MAX
}

/// Returns when a request to upgrade that is sent now must be answered.
pub(crate) fn upgrade_by() -> Instant {
    Instant::now() + UPGRADE_TIME_MAX
}

/// Returns the client's headers for a request that is passed on to a path of the far side, without
/// those of the connection.
pub(crate) fn forwarded_headers(head: &RequestHead, links: &Links, path: &str) -> HeaderMap {
    let mut headers = head.headers.clone();
    remove_hop_by_hop(&mut headers);
    headers.remove(header::EXPECT);
    links.forwarded(&mut headers, path);
    headers
}

/// Removes what speaks of the connection, or is this server's business, from an answer that is
/// passed on.
pub(crate) fn clean_answer<B>(answer: &mut Response<B>) {
    answer.extensions_mut().insert(OwnHeaders::First);
    let is_unmodified = answer.status() == StatusCode::NOT_MODIFIED;
    let headers = answer.headers_mut();
    remove_hop_by_hop(headers);
    CORS.iter().for_each(|name| drop(headers.remove(name)));
    if is_unmodified {
        // Go's server sends them with no 304.
        headers.remove(header::CONTENT_TYPE);
        headers.remove(header::CONTENT_LENGTH);
    }
}

/// Returns why the answer to a request that asks for no other protocol cannot be passed on: it
/// switches to one (Go's `httputil.ReverseProxy`).
pub(crate) fn unasked_switch<B>(answer: &Response<B>) -> Option<String> {
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return None;
    }
    let headers = answer.headers();
    let names_one = header_lists::has_token(headers, header::CONNECTION, "upgrade");
    let value = headers.get(header::UPGRADE).filter(|_| names_one);
    let protocol = String::from_utf8_lossy(value.map_or(b"", HeaderValue::as_bytes));
    if protocol.is_empty() {
        let why = "internal error: 101 switching protocols response with non-writable body";
        return Some(why.to_owned());
    }
    let is_printable = protocol.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let quoted = quote(&protocol);
    Some(match is_printable {
        true => format!("backend tried to switch protocol {quoted} when \"\" was requested"),
        false => format!("backend tried to switch to invalid protocol {quoted}"),
    })
}

/// Adds the client's address to `X-Forwarded-For`.
pub(crate) fn forward_for(headers: &mut HeaderMap, head: &RequestHead) {
    let mut all: Vec<String> = headers
        .get_all(X_FORWARDED_FOR)
        .iter()
        .filter_map(|value| value.to_str().ok().map(str::to_owned))
        .collect();
    all.push(head.peer.slot.address().to_string());
    if let Ok(value) = HeaderValue::from_str(&all.join(", ")) {
        headers.insert(X_FORWARDED_FOR, value);
    }
}

/// The headers that speak of one connection only (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Removes the headers that speak of one connection only.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let listed: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let trailers = headers
        .get_all(header::TE)
        .iter()
        .any(|value| value.to_str().is_ok_and(|text| text.contains("trailers")));
    for name in listed.iter().chain(&HOP_BY_HOP).chain([&header::TE]) {
        headers.remove(name);
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}
