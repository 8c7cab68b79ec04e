//! What happens with a request, in order.

use crate::body::Body;
use crate::health::Health;
use crate::impersonate;
use crate::limits::Limits;
use crate::listen::Peer;
use crate::negotiate::{self, Accepted};
use crate::paths;
use crate::query::{self, Query};
use crate::resource;
use crate::respond::{self, Reply};
use crate::route::{ResourceRoute, Route};
use crate::tls::PeerCertificate;
use crate::websocket;
use bytes::{Buf, BufMut};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use keelson_auth::{Attributes, Authenticator, Authorizer, Certificate, Credentials, Permit};
use keelson_meta::{Failure, Status, Str};
use keelson_registry::{Registry, stamp};
use keelson_schema::decode::Format;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use tokio::time::Instant;

/// What `/version` says.
#[derive(Clone, Debug)]
pub struct VersionInfo {
    /// Of Kubernetes: `v1.36.2`.
    pub git_version: String,
    /// Of this build.
    pub build: String,
}

/// Everything that answers need.
pub struct App {
    /// The kinds.
    pub registry: Arc<Registry>,
    /// Who asks.
    pub authenticator: Authenticator,
    /// May they.
    pub authorizer: Authorizer,
    /// What `/version` says.
    pub version: VersionInfo,
    /// What clients may do.
    pub limits: Limits,
    /// Whether objects are read and written in CBOR too (`CBORServingAndStorage`).
    pub cbor: bool,
    /// The health of what runs beside requests.
    pub health: Arc<Health>,
    /// Set when the server is going down: `/readyz` fails from then on.
    pub draining: AtomicBool,
    /// Ends watches when the server is going down.
    pub shutdown: tokio::sync::watch::Receiver<bool>,
}

/// A request without its body.
pub struct Ask {
    /// HTTP method.
    pub method: Method,
    /// Headers.
    pub headers: HeaderMap,
    /// Query parameters.
    pub query: Query,
    /// Whether objects are read and written in CBOR too.
    pub cbor: bool,
    /// Where it comes from.
    pub(crate) peer: Arc<Peer>,
}

impl Ask {
    /// A header as text.
    pub fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The form in which objects are answered.
    pub fn accepted(&self) -> Result<Accepted, Failure> {
        negotiate::accept(self.header(header::ACCEPT), negotiate::spoken(self.cbor))
    }

    /// The form of the body.
    pub fn body_format(&self) -> Result<Format, Failure> {
        negotiate::body_format(self.header(header::CONTENT_TYPE), negotiate::spoken(self.cbor))
    }

    /// Whether the answer is laid out for people.
    pub fn pretty(&self) -> bool {
        self.query.pretty().unwrap_or_else(|| {
            let agent = self.header(header::USER_AGENT).unwrap_or_default();
            agent.starts_with("curl")
                || agent.starts_with("Wget")
                || agent.starts_with("Mozilla/5.0")
        })
    }
}

impl App {
    /// Answers one request. Never fails: every fault is an answer.
    pub(crate) async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Arc<Peer>,
    ) -> Response<Body> {
        let audit_id = stamp::audit_id(self.registry.clock.as_ref());
        let answer = no_panic(self.answer(request, peer)).await;
        let mut response = answer.unwrap_or_else(|| {
            tracing::error!(audit_id = audit_id.as_str(), "a request panicked");
            let why = "This request caused apiserver to panic. Look in the logs for details.";
            respond::text(500, why)
        });
        let headers = response.headers_mut();
        if let Ok(value) = HeaderValue::from_str(&audit_id) {
            headers.insert("audit-id", value);
        }
        headers
            .entry(header::CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
        response
    }

    async fn answer(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        peer: Arc<Peer>,
    ) -> Response<Body> {
        let upgrade = websocket::Upgrade::of(&mut request, &peer);
        let (parts, incoming) = request.into_parts();
        if !query::is_escaped_well(parts.uri.path()) {
            return respond::bad_request_line();
        }
        let route = Route::parse(parts.uri.path());
        let ask = Ask {
            query: Query::parse(parts.uri.query().unwrap_or_default()),
            method: parts.method,
            headers: parts.headers,
            cbor: self.cbor,
            peer,
        };
        let reply = match self.admit(&ask, &route) {
            Ok((permit, end)) => self.dispatch(&ask, &route, permit, incoming, end).await,
            Err(failure) => Err(failure),
        };
        let mut response = reply.unwrap_or_else(|failure| respond::failure(&ask, &failure));
        if ask.method == Method::HEAD {
            *response.body_mut() = Body::empty();
        }
        match upgrade {
            Some(upgrade) => upgrade.switch(&ask.headers, response, self.shutdown.clone()),
            None => response,
        }
    }

    /// When the request ends at the latest, who asks, and may they.
    fn admit(&self, ask: &Ask, route: &Route) -> Result<(Permit, Instant), Failure> {
        let is_long = matches!(route, Route::Resource(route) if asked_verb(ask, route) == "watch");
        let most = self.limits.request_timeout;
        let timeout = if is_long { most } else { ask.query.request_timeout(most)? };
        Ok((self.permit(ask, route)?, Instant::now() + timeout))
    }

    /// Who asks, and may they. Nothing of the body is read before this says yes.
    fn permit(&self, ask: &Ask, route: &Route) -> Result<Permit, Failure> {
        let by_protocol = websocket::authorization(&ask.headers);
        let credentials = Credentials {
            authorization: ask.header(header::AUTHORIZATION).or(by_protocol.as_deref()),
            certificate: match &ask.peer.certificate {
                None => Certificate::Absent,
                Some(PeerCertificate::Verified(der)) => Certificate::Verified(der),
                Some(PeerCertificate::Refused) => Certificate::Refused,
            },
        };
        let user = self.authenticator.authenticate(&credentials)?;
        let attributes = attributes(ask, route);
        let user = impersonate::impersonated(&self.authorizer, &ask.headers, user, &attributes)?;
        self.authorizer.authorize(user, attributes)
    }

    async fn dispatch(
        self: &Arc<Self>,
        ask: &Ask,
        route: &Route,
        permit: Permit,
        incoming: Incoming,
        end: Instant,
    ) -> Result<Reply, Failure> {
        match route {
            Route::Refused => Err(Status::no_such_path()),
            Route::Path(path) => paths::answer(self, ask, path).await,
            Route::Resource(route) => {
                let Some(found) = resource::find(self, route)? else {
                    return Ok(respond::no_such_page());
                };
                let verb = resource::verb(ask, route, &found)?;
                let work = self.resource(ask, &permit, &found, verb, incoming);
                let reply = match verb {
                    "watch" => work.await,
                    _ => tokio::time::timeout_at(end, work)
                        .await
                        .unwrap_or_else(|_| Err(Status::timed_out())),
                };
                let Some(warning) = resource::deprecation(&found) else { return reply };
                let mut reply = reply.unwrap_or_else(|failure| respond::failure(ask, &failure));
                respond::warn_first(&mut reply, warning);
                Ok(reply)
            }
        }
    }

    async fn resource(
        self: &Arc<Self>,
        ask: &Ask,
        permit: &Permit,
        found: &resource::Found<'_>,
        verb: &'static str,
        incoming: Incoming,
    ) -> Result<Reply, Failure> {
        if verb == "watch" {
            return resource::watch(self, ask, permit, found).await;
        }
        let body = match ask.method {
            Method::POST | Method::PUT | Method::PATCH | Method::DELETE => {
                read_body(incoming, self.limits.body_bytes_max).await?
            }
            _ => bytes::Bytes::new(),
        };
        let reply = resource::answer(self, ask, permit, found, verb, body).await?;
        Ok(respond::compress(ask, reply))
    }

    /// Whether the server is ready to serve, and if not, why.
    pub fn ready(&self) -> Result<(), String> {
        if self.draining.load(Ordering::Relaxed) {
            return Err("shutting down".to_owned());
        }
        self.registry.store.health().map_err(|error| format!("store: {error}"))
    }
}

/// What the authorizer is asked.
fn attributes(ask: &Ask, route: &Route) -> Attributes {
    match route {
        Route::Resource(route) => Attributes {
            verb: Str::new_static(asked_verb(ask, route)),
            gvr: keelson_meta::GroupVersionResource::new(
                route.group.clone(),
                route.version.clone(),
                route.resource.clone(),
            ),
            subresource: route.subresource.clone(),
            // A namespace itself is looked at as if it were in itself.
            namespace: match &route.namespace {
                Some(namespace) => namespace.clone(),
                None if route.resource == "namespaces" => route.name.clone(),
                None => Str::default(),
            },
            name: asked_name(ask, route),
            path: String::new(),
        },
        Route::Path(path) => Attributes {
            verb: Str::new_static(method_word(&ask.method)),
            path: path.clone(),
            ..Attributes::default()
        },
        Route::Refused => Attributes::default(),
    }
}

/// The name in the URL, or the one that a field selector on a collection asks for.
fn asked_name(ask: &Ask, route: &ResourceRoute) -> Str {
    if !route.name.is_empty()
        || !matches!(asked_verb(ask, route), "list" | "watch" | "deletecollection")
    {
        return route.name.clone();
    }
    let name = ask.query.selected_name();
    name.filter(|name| keelson_meta::names::name_is_path_segment(name, false).is_empty())
        .unwrap_or_default()
}

/// The verb of a resource request, before anybody checked whether the resource has it.
pub(crate) fn asked_verb(ask: &Ask, route: &ResourceRoute) -> &'static str {
    let collection = route.name.is_empty();
    match ask.method {
        Method::GET | Method::HEAD if route.is_watch => "watch",
        Method::GET if collection && ask.query.is_watch() => "watch",
        Method::GET if collection => "list",
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if collection => "deletecollection",
        Method::DELETE => "delete",
        _ => "",
    }
}

fn method_word(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "get",
        "HEAD" => "head",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        "OPTIONS" => "options",
        _ => "",
    }
}

async fn read_body(incoming: Incoming, bytes_max: usize) -> Result<bytes::Bytes, Failure> {
    match whole(Limited::new(incoming, bytes_max)).await {
        Ok(body) => Ok(body),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Status::too_large(format!("Request entity too large: limit is {bytes_max}")))
        }
        // Upstream passes on what Go's reader says: 500 and no reason.
        Err(error) => {
            let is_cut = error
                .downcast_ref::<hyper::Error>()
                .is_some_and(hyper::Error::is_incomplete_message);
            let why = if is_cut { "unexpected EOF" } else { "http: invalid byte in chunk length" };
            Err(Status::new(keelson_meta::Reason::Unknown, why))
        }
    }
}

/// All of a body. Most come in one piece, which needs no second place to stand in.
async fn whole(
    mut body: Limited<Incoming>,
) -> Result<bytes::Bytes, Box<dyn std::error::Error + Send + Sync>> {
    let first = match body.frame().await.transpose()?.map(Frame::into_data) {
        Some(Ok(first)) => first,
        // What is no data comes behind all data.
        Some(Err(_)) | None => return Ok(bytes::Bytes::new()),
    };
    if body.is_end_stream() {
        return Ok(first);
    }
    let mut rest = body.collect().await?.aggregate();
    let mut whole = bytes::BytesMut::with_capacity(first.len() + rest.remaining());
    whole.put(first);
    whole.put(&mut rest);
    Ok(whole.freeze())
}

/// Runs a future to its end, or `None` when it panics.
async fn no_panic<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|cx| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Ready(value)) => Poll::Ready(Some(value)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(_) => Poll::Ready(None),
        }
    })
    .await
}
