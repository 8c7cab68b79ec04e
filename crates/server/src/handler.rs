//! What happens with a request, in order.

use crate::body::Body;
use crate::listen::PeerCertificate;
use crate::paths;
use crate::query::Query;
use crate::resource;
use crate::respond::{self, Reply};
use crate::route::{ResourceRoute, Route};
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use keelson_auth::{Attributes, Authenticator, Authorizer, Credentials, Permit, User};
use keelson_meta::{Failure, Status, Str};
use keelson_registry::{Registry, stamp};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

/// Bytes of a request's body.
pub const BODY_BYTES_MAX: usize = 3 << 20;
/// How long a request other than a watch may take.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

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
}

impl Ask {
    /// A header as text.
    pub fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
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
    pub async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Option<PeerCertificate>,
    ) -> Response<Body> {
        let audit_id = stamp::uid(self.registry.clock.as_ref());
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
        request: Request<Incoming>,
        peer: Option<PeerCertificate>,
    ) -> Response<Body> {
        let (parts, incoming) = request.into_parts();
        let route = Route::parse(parts.uri.path());
        let ask = Ask {
            query: Query::parse(parts.uri.query().unwrap_or_default()),
            method: parts.method,
            headers: parts.headers,
        };
        let reply = match self.permit(&ask, &route, peer.as_ref()) {
            Ok(permit) => self.dispatch(&ask, &route, permit, incoming).await,
            Err(failure) => Err(failure),
        };
        let mut response = reply.unwrap_or_else(|failure| respond::failure(&ask, &failure));
        if ask.method == Method::HEAD {
            *response.body_mut() = Body::empty();
        }
        response
    }

    /// Who asks, and may they. Nothing of the body is read before this says yes.
    fn permit(
        &self,
        ask: &Ask,
        route: &Route,
        peer: Option<&PeerCertificate>,
    ) -> Result<Permit, Failure> {
        let credentials = Credentials {
            authorization: ask.header(header::AUTHORIZATION),
            certificate: peer.map(|peer| peer.0.as_ref()),
        };
        let user = self.authenticator.authenticate(&credentials)?;
        let user = self.impersonated(ask, user)?;
        self.authorizer.authorize(user, attributes(ask, route))
    }

    /// The user that a master asks to be taken for.
    fn impersonated(&self, ask: &Ask, user: User) -> Result<User, Failure> {
        crate::reviews::impersonate(&self.authorizer, &ask.headers, user)
    }

    async fn dispatch(
        self: &Arc<Self>,
        ask: &Ask,
        route: &Route,
        permit: Permit,
        incoming: Incoming,
    ) -> Result<Reply, Failure> {
        match route {
            Route::Refused => Err(Status::no_such_path()),
            Route::Path(path) => paths::answer(self, ask, path).await,
            Route::Resource(route) => {
                let Some(found) = resource::find(self, route)? else {
                    return Ok(respond::no_such_page());
                };
                let verb = resource::verb(ask, route, &found)?;
                if verb == "watch" {
                    return resource::watch(self, ask, &permit, &found).await;
                }
                let at_most = ask.query.request_timeout(REQUEST_TIMEOUT)?;
                let body = match ask.method {
                    Method::POST | Method::PUT | Method::PATCH | Method::DELETE => {
                        read_body(incoming).await?
                    }
                    _ => bytes::Bytes::new(),
                };
                let work = resource::answer(self, ask, &permit, &found, verb, body);
                match tokio::time::timeout(at_most, work).await {
                    Ok(reply) => reply,
                    Err(_) => Err(Status::timed_out()),
                }
            }
        }
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
            verb: asked_verb(ask, route),
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
            name: route.name.clone(),
            path: String::new(),
        },
        Route::Path(path) => Attributes {
            verb: method_word(&ask.method),
            path: path.clone(),
            ..Attributes::default()
        },
        Route::Refused => Attributes::default(),
    }
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

async fn read_body(incoming: Incoming) -> Result<bytes::Bytes, Failure> {
    let collected = Limited::new(incoming, BODY_BYTES_MAX).collect();
    let collected = tokio::time::timeout(REQUEST_TIMEOUT, collected).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(Status::too_large(format!("Request entity too large: limit is {BODY_BYTES_MAX}")))
        }
        Ok(Err(_)) => Err(Status::bad_request("the body of the request could not be read")),
        Err(_) => Err(Status::timed_out()),
    }
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
