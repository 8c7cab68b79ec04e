//! The steps of a request, in order: authentication, limits, impersonation, authorization, dispatch.

use crate::app::App;
use crate::body::Body;
use crate::context::RequestContext;
use crate::discovery;
use crate::impersonate;
use crate::in_flight::TooMany;
use crate::paths;
use crate::peer::Peer;
use crate::peer_certificate::PeerCertificate;
use crate::query::{self, Query};
use crate::request_body::RequestBody;
use crate::request_head::RequestHead;
use crate::resolve;
use crate::resource;
use crate::respond::{self, Reply};
use crate::response_body::ResponseBody;
use crate::route::{ResourceRoute, Route};
use crate::websocket;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Version, header};
use hyper::body::Incoming;
use keelson_auth::{
    ANONYMOUS, Attributes, Certificate, Credentials, FrontProxy, Permit, Selectors, User,
};
use keelson_meta::{Failure, Status, Str};
use keelson_registry::clock;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use tokio::time::Instant;

/// Identifies a request in responses, logs and audit events.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Why a request is rejected before it is dispatched.
enum Rejection {
    Failure(Failure),
    /// Too many requests are in flight.
    Busy,
}

impl From<Failure> for Rejection {
    fn from(failure: Failure) -> Rejection {
        Rejection::Failure(failure)
    }
}

impl App {
    /// Handles one request. Every failure is a response.
    pub(crate) async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Arc<Peer>,
    ) -> Response<ResponseBody> {
        let mut context = RequestContext::new(&peer.slot);
        let is_http2 = request.version() == Version::HTTP_2;
        if is_http2 && self.should_send_goaway() {
            peer.slot.request_goaway();
        }
        let audit_id = self.audit_id(request.headers());
        context.log(&request, peer.slot.address(), &audit_id);
        let answer = catch_panic(pin!(self.answer(request, peer, &mut context))).await;
        let mut response = answer.unwrap_or_else(|| {
            tracing::error!(?audit_id, "a request panicked");
            let why = "This request caused apiserver to panic. Look in the logs for details.";
            let mut response = respond::text(500, why);
            // The request body may be unread.
            respond::close(&mut response);
            response
        });
        let headers = response.headers_mut();
        headers.insert(AUDIT_ID, audit_id);
        headers
            .entry(header::CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
        context.answered(response.status());
        response.map(|body| ResponseBody::new(body, is_http2, context))
    }

    /// Returns the client's `Audit-ID`, or a new one.
    fn audit_id(&self, headers: &HeaderMap) -> HeaderValue {
        match headers.get(AUDIT_ID) {
            Some(given) if !given.is_empty() => given.clone(),
            _ => {
                let made = clock::uid(self.registry.clock.as_ref());
                HeaderValue::from_str(&made).unwrap_or(HeaderValue::from_static(""))
            }
        }
    }

    /// Decides at random whether the request's connection gets a GOAWAY (`--goaway-chance`).
    fn should_send_goaway(&self) -> bool {
        let chance = self.limits.goaway_chance;
        if chance <= 0.0 {
            return false;
        }
        let random = self.registry.clock.random();
        let share = u32::from_le_bytes([random[0], random[1], random[2], random[3]]);
        f64::from(share) < chance * f64::from(u32::MAX)
    }

    async fn answer(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        peer: Arc<Peer>,
        context: &mut RequestContext,
    ) -> Response<Body> {
        let upgrade = websocket::Upgrade::of(&mut request, &peer);
        let (parts, incoming) = request.into_parts();
        if !query::is_escaped_well(parts.uri.path()) {
            return respond::bad_request("400 Bad Request");
        }
        let is_http2 = parts.version == Version::HTTP_2;
        let mut body = RequestBody::new(incoming, &parts.headers);
        let route = Route::parse(parts.uri.path());
        let mut head = RequestHead {
            query: Query::parse(parts.uri.query().unwrap_or_default()),
            method: parts.method,
            uri: parts.uri,
            headers: parts.headers,
            cbor: self.cbor,
            peer,
        };
        let admitted = self.admit(&head, &route, context).await;
        self.drop_credentials(&mut head.headers);
        let reply = match admitted {
            Ok((permit, end)) => {
                self.dispatch(&head, &route, (permit, end), &mut body, context).await
            }
            Err(Rejection::Failure(failure)) => Err(failure),
            Err(Rejection::Busy) => Ok(respond::too_many_requests()),
        };
        let mut response = reply.unwrap_or_else(|failure| respond::failure(&head, &failure));
        if let Some(warning) = *context.warning() {
            respond::warn_first(&mut response, warning);
        }
        if head.method == Method::HEAD {
            *response.body_mut() = Body::empty();
        }
        // HTTP/2 only resets the stream of an unread body.
        if !is_http2 && body.is_unread() && !body.discard(&self.limits).await {
            respond::close(&mut response);
            head.peer.linger();
        }
        match upgrade {
            Some(upgrade) => upgrade.switch(&head.headers, response, self.shutdown.clone()),
            None => response,
        }
    }

    /// Authorizes the request and computes its deadline.
    async fn admit(
        &self,
        head: &RequestHead,
        route: &Route,
        context: &mut RequestContext,
    ) -> Result<(Permit, Instant), Rejection> {
        let is_long = matches!(route, Route::Resource(route) if head.verb(route) == "watch");
        let most = self.limits.request_timeout;
        let timeout = if is_long { most } else { head.query.request_timeout(most)? };
        Ok((self.permit(head, route, context).await?, Instant::now() + timeout))
    }

    /// Removes the headers that only authentication reads, so that proxied requests do not carry the client's
    /// credentials.
    fn drop_credentials(&self, headers: &mut HeaderMap) {
        headers.remove(header::AUTHORIZATION);
        let proxy = self.authenticator.front_proxy();
        let names_user = |name: &str| {
            FrontProxy::is_standard_header(name) || proxy.is_some_and(|proxy| proxy.reads(name))
        };
        while let Some(name) = headers.keys().find(|name| names_user(name.as_str())) {
            let name = name.clone();
            headers.remove(name);
        }
    }

    /// Returns the user that a front proxy names in the request headers.
    fn proxied_user(&self, head: &RequestHead) -> Result<Option<User>, Failure> {
        let Some(proxy) = self.authenticator.front_proxy() else { return Ok(None) };
        if !head.peer.certificate.as_ref().is_some_and(PeerCertificate::is_front_proxy) {
            return Ok(None);
        }
        let headers = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        proxy.user(&headers.collect::<Vec<_>>())
    }

    /// Authenticates and authorizes a request. The body is not read before this succeeds.
    async fn permit(
        &self,
        head: &RequestHead,
        route: &Route,
        context: &mut RequestContext,
    ) -> Result<Permit, Rejection> {
        let by_protocol = websocket::authorization(&head.headers)?;
        let by_header = head.headers.get(header::AUTHORIZATION).map(|value| {
            // An unreadable header must not turn its sender into the anonymous user.
            std::str::from_utf8(value.as_bytes()).map_err(|_| Status::unauthorized())
        });
        let credentials = Credentials {
            authorization: by_header.transpose()?.or(by_protocol.as_deref()),
            certificate: match &head.peer.certificate {
                None => Certificate::Absent,
                Some(shown) => shown.verified().map_or(Certificate::Refused, Certificate::Verified),
            },
            front_proxy: self.proxied_user(head)?,
            path: head.uri.path(),
        };
        let now = self.registry.clock.now();
        let access = &self.state.metrics.access;
        let has_any =
            credentials.authorization.is_some() || credentials.certificate != Certificate::Absent;
        let started = Instant::now();
        let user = self.authenticator.authenticate(credentials, now, context.warning()).await;
        access.authenticated(&user, has_any, started.elapsed());
        match &user {
            Ok(user) if user.name != ANONYMOUS => head.peer.slot.mark_authenticated(),
            // Anonymous clients get an HTTP/2 connection for one request only
            // (UnauthenticatedHTTP2DOSMitigation). HTTP/1.1 connections are not affected.
            Ok(_) | Err(_) => head.peer.slot.request_goaway(),
        }
        let attributes = attributes(head, route);
        let user = impersonate::impersonate(
            &self.authorizer,
            &self.state.last_modes,
            &head.headers,
            user?,
            &attributes,
        )
        .await?;
        context.authenticated(&user, &attributes);
        let in_flight = self.state.in_flight.enter(&user, &attributes);
        context.count(in_flight.map_err(|TooMany| Rejection::Busy)?);
        let annotations = context.annotations();
        let started = Instant::now();
        let permit = self.authorizer.authorize_annotated(user, attributes, annotations).await;
        access.authorized(&permit, started.elapsed());
        Ok(permit?)
    }

    async fn dispatch(
        self: &Arc<Self>,
        head: &RequestHead,
        route: &Route,
        (permit, end): (Permit, Instant),
        body: &mut RequestBody,
        context: &mut RequestContext,
    ) -> Result<Reply, Failure> {
        let metrics = &self.state.metrics;
        match route {
            Route::Invalid => Err(Status::no_such_path()),
            Route::Path(path) => {
                if let Some(labels) = paths::request_labels(head, path) {
                    context.measure(metrics, &labels, head);
                }
                paths::answer(self, head, path).await
            }
            Route::Resource(route) => {
                let Some(resolved) = resolve::resolve(self, route)? else {
                    let is_remote =
                        discovery::is_remote(&self.registry, &route.group, &route.version);
                    return Ok(match is_remote {
                        true => respond::service_unavailable(),
                        false => respond::no_such_page(),
                    });
                };
                if resource::is_across_namespaces(head, route, &resolved) {
                    return Ok(respond::no_such_page());
                }
                let verb = resource::verb(head, route, &resolved)?;
                context.measure(metrics, &resource::request_labels(head, &resolved, verb), head);
                let mut work = pin!(self.resource(head, &permit, &resolved, verb, body));
                let reply = match verb {
                    "watch" => work.await,
                    _ => tokio::time::timeout_at(end, work.as_mut())
                        .await
                        .unwrap_or_else(|_| Err(Status::timed_out())),
                };
                context.waited_for_webhooks(permit.webhooks_took());
                let Some(warning) = &resolved.endpoint.deprecation else { return reply };
                let mut reply = reply.unwrap_or_else(|failure| respond::failure(head, &failure));
                respond::warn_first(&mut reply, warning);
                Ok(reply)
            }
        }
    }

    async fn resource(
        self: &Arc<Self>,
        head: &RequestHead,
        permit: &Permit,
        resolved: &resolve::ResolvedRoute<'_>,
        verb: &'static str,
        body: &mut RequestBody,
    ) -> Result<Reply, Failure> {
        if verb == "watch" {
            return resource::watch(self, head, permit, resolved).await;
        }
        // The memory of the body stays reserved until the response is complete.
        let (body, _held) = match head.method {
            Method::POST | Method::PUT | Method::PATCH | Method::DELETE => {
                body.read(self.limits.body_bytes_max, &self.state.bodies).await?
            }
            _ => (bytes::Bytes::new(), None),
        };
        let reply = resource::answer(self, head, permit, resolved, verb, body).await?;
        Ok(respond::compress(head, reply))
    }
}

/// Returns the attributes for the authorizer.
fn attributes(head: &RequestHead, route: &Route) -> Attributes {
    match route {
        Route::Resource(route) => resource_attributes(head, route),
        Route::Path(path) => Attributes {
            verb: Str::new_static(method_verb(&head.method)),
            non_resource: true,
            path: path.clone(),
            ..Attributes::default()
        },
        Route::Invalid => Attributes { non_resource: true, ..Attributes::default() },
    }
}

fn resource_attributes(head: &RequestHead, route: &ResourceRoute) -> Attributes {
    let verb = head.verb(route);
    let selectors = match verb {
        "list" | "watch" | "deletecollection" => head.query.requested_selectors(),
        _ => None,
    };
    // The name in the URL, or the one that the field selector of a read of a collection requires.
    let name = match &selectors {
        Some(selectors) if route.name.is_empty() && verb != "deletecollection" => {
            selected_name(selectors)
        }
        _ => route.name.clone(),
    };
    Attributes {
        verb: Str::new_static(verb),
        gvr: keelson_meta::GroupVersionResource::new(
            route.group.clone(),
            route.version.clone(),
            route.resource.clone(),
        ),
        subresource: route.subresource.clone(),
        // As upstream, a Namespace object counts as being in itself.
        namespace: match &route.namespace {
            Some(namespace) => namespace.clone(),
            None if route.resource == "namespaces" => route.name.clone(),
            None => Str::default(),
        },
        name,
        selectors: selectors.map(Box::new),
        ..Attributes::default()
    }
}

/// Returns the name that a field selector requires, or an empty string.
fn selected_name(selectors: &Selectors) -> Str {
    let fields = selectors.fields.as_ref();
    let name = fields.and_then(|fields| fields.required_value("metadata.name"));
    name.filter(|name| keelson_meta::names::name_is_path_segment(name, false).is_empty())
        .map(Str::new)
        .unwrap_or_default()
}

fn method_verb(method: &Method) -> &'static str {
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

/// Runs a future to its end. Returns `None` if it panics.
async fn catch_panic<T>(mut work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    std::future::poll_fn(|cx| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Ready(value)) => Poll::Ready(Some(value)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(_) => Poll::Ready(None),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest size of a request's future, which is moved several times before it is first polled.
    const FUTURE_BYTES_MAX: usize = 8 << 10;

    fn future_bytes<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn the_future_of_a_request_is_small() {
        let bytes = future_bytes(App::handle);
        assert!(bytes <= FUTURE_BYTES_MAX, "{bytes}");
    }
}
