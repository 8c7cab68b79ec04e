//! [`Forwarder`]: passes the requests of the page on to the API server with the user's credentials,
//! and the responses back while they arrive. Only the headers that the page needs are passed on, so
//! that a request can claim to be nobody else (impersonation, authenticating proxies). Credentials
//! that a program gave are renewed when they end or the server refuses them; the refused request
//! fails.

use super::answers::{AnswerBody, harden, plain, unreachable, whole};
use super::gate::other_protocols;
use super::target::Target;
use anyhow::{Context, Result};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use keelson::{Clock, SystemClock};
use keelson_egress::kubeconfig::Server;
use keelson_egress::{Client, Egress, StreamedResponse, UpgradeAnswer, Upgraded};
use keelson_meta::Timestamp;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long a connection to the API server may take.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(15);
const USER_AGENT: &str = concat!("keelson-ui/", env!("CARGO_PKG_VERSION"));
const WEB_SOCKET: &str = "websocket";

/// Headers of requests that are passed on.
const REQUEST_HEADERS: [HeaderName; 5] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::CONTENT_TYPE,
    header::IF_NONE_MATCH,
    header::CONTENT_LENGTH,
];
/// Headers of requests to upgrade that are passed on.
const UPGRADE_HEADERS: [HeaderName; 2] = [header::SEC_WEBSOCKET_KEY, header::SEC_WEBSOCKET_VERSION];
/// Headers of responses that are about the connection to the API server or to its origin.
const DROPPED_HEADERS: [HeaderName; 10] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::SET_COOKIE,
    header::ALT_SVC,
    header::STRICT_TRANSPORT_SECURITY,
    // A browser would ask the user for a password.
    header::WWW_AUTHENTICATE,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
    header::CONTENT_SECURITY_POLICY,
];

/// Shortest time between two renewals of credentials because the server refuses them.
const RENEWAL_INTERVAL_MIN: Duration = Duration::from_secs(10);

/// Forwards requests to one server.
pub struct Forwarder {
    target: Arc<Target>,
    /// Held while credentials are renewed: other requests wait for them.
    access: Mutex<Arc<Access>>,
}

/// The server with credentials.
struct Access {
    client: Arc<Client>,
    authorization: Option<HeaderValue>,
    /// The path in the URL of the server.
    root: String,
    since: Instant,
    expires: Option<Timestamp>,
    is_refused: AtomicBool,
}

impl Access {
    fn new(target: &Target) -> Result<(Access, Server)> {
        let (server, expires) = target.connect()?;
        let authorization = server.peer.authorization.as_deref().map(|text| {
            let mut value = HeaderValue::from_str(text)?;
            value.set_sensitive(true);
            Ok::<_, header::InvalidHeaderValue>(value)
        });
        let access = Access {
            client: Egress::without_services().client(&server.peer)?,
            authorization: authorization.transpose()?,
            root: server.path.clone(),
            since: Instant::now(),
            expires,
            is_refused: AtomicBool::new(false),
        };
        Ok((access, server))
    }

    fn is_over(&self) -> bool {
        let is_refused = self.is_refused.load(Ordering::Relaxed);
        is_refused && self.since.elapsed() >= RENEWAL_INTERVAL_MIN
            || self.expires.is_some_and(|expires| expires <= SystemClock.now())
    }

    /// Returns the path on the server. Requests in absolute form name another server.
    fn uri(&self, uri: &Uri) -> Option<Uri> {
        let path = uri.path_and_query().filter(|_| uri.authority().is_none())?;
        let path: PathAndQuery = format!("{}{path}", self.root).parse().ok()?;
        Some(Uri::from(path))
    }
}

impl Forwarder {
    /// Returns the forwarder to a server, and the server's URL. May ask the user for credentials:
    /// blocks.
    pub fn new(target: Target) -> Result<(Forwarder, String)> {
        let (access, server) = Access::new(&target)?;
        let access = Mutex::new(Arc::new(access));
        Ok((Forwarder { target: Arc::new(target), access }, server.url))
    }

    /// Returns the server with credentials that have not ended, as far as is known.
    async fn access(&self) -> Result<Arc<Access>> {
        let mut current = self.access.lock().await;
        if self.target.can_renew() && current.is_over() {
            let target = self.target.clone();
            let renewed = tokio::task::spawn_blocking(move || Access::new(&target)).await;
            *current = Arc::new(renewed.context("getting credentials")??.0);
        }
        Ok(current.clone())
    }

    /// Answers a request that has passed the gate.
    pub async fn forward(&self, request: Request<Incoming>) -> Response<AnswerBody> {
        let access = match self.access().await {
            Ok(access) => access,
            Err(error) => return unreachable(&format!("{error:#}")),
        };
        let Some(uri) = access.uri(request.uri()) else {
            return plain(StatusCode::BAD_REQUEST, "the request names a host, not a path");
        };
        let upgrade = request.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
        let response = match upgrade.map(|name| name.eq_ignore_ascii_case(WEB_SOCKET)) {
            Some(true) => self.forward_upgrade(&access, request, uri).await,
            Some(false) => plain(StatusCode::BAD_REQUEST, "only WebSockets are forwarded"),
            None => self.forward_request(&access, request, uri).await,
        };
        if response.status() == StatusCode::UNAUTHORIZED {
            access.is_refused.store(true, Ordering::Relaxed);
        }
        response
    }

    fn headers(&self, access: &Access, given: &HeaderMap, passed: &[HeaderName]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for name in passed {
            for value in given.get_all(name) {
                headers.append(name, value.clone());
            }
        }
        headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        for (name, value) in &self.target.impersonated {
            headers.append(name, value.clone());
        }
        if let Some(authorization) = &access.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        headers
    }

    async fn forward_request(
        &self,
        access: &Access,
        request: Request<Incoming>,
        uri: Uri,
    ) -> Response<AnswerBody> {
        let (parts, body) = request.into_parts();
        let mut forwarded = Request::new(body.map_err(io::Error::other).boxed_unsync());
        *forwarded.method_mut() = parts.method;
        *forwarded.uri_mut() = uri;
        *forwarded.headers_mut() = self.headers(access, &parts.headers, &REQUEST_HEADERS);
        match access.client.stream(forwarded, Instant::now() + CONNECT_TIME_MAX).await {
            Ok(response) => passed_back(response),
            Err(error) => unreachable(&error.to_string()),
        }
    }

    async fn forward_upgrade(
        &self,
        access: &Access,
        mut request: Request<Incoming>,
        uri: Uri,
    ) -> Response<AnswerBody> {
        let mut forwarded = Request::new(());
        *forwarded.method_mut() = request.method().clone();
        *forwarded.uri_mut() = uri;
        let mut headers = self.headers(access, request.headers(), &UPGRADE_HEADERS);
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static(WEB_SOCKET));
        if let Ok(protocols) = HeaderValue::from_str(&other_protocols(request.headers()).join(", "))
            && !protocols.is_empty()
        {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocols);
        }
        *forwarded.headers_mut() = headers;
        let deadline = Instant::now() + CONNECT_TIME_MAX;
        match access.client.request_upgrade(forwarded, deadline).await {
            Ok(UpgradeAnswer::Switched(response, far)) => {
                tokio::spawn(copy(hyper::upgrade::on(&mut request), far));
                response.map(|()| whole(Bytes::new()))
            }
            Ok(UpgradeAnswer::Refused(response)) => passed_back(response),
            Err(error) => unreachable(&error.to_string()),
        }
    }
}

/// Copies between the page and the server until one side ends.
async fn copy(near: hyper::upgrade::OnUpgrade, mut far: Upgraded) {
    let Ok(near) = near.await else { return };
    let mut near = TokioIo::new(near);
    if let Err(error) = tokio::io::copy_bidirectional(&mut near, &mut far).await {
        tracing::debug!(%error, "a stream has ended");
    }
}

fn passed_back(response: Response<StreamedResponse>) -> Response<AnswerBody> {
    let mut response = response.map(BodyExt::boxed_unsync);
    let headers = response.headers_mut();
    for name in DROPPED_HEADERS {
        headers.remove(name);
    }
    harden(headers);
    response
}
