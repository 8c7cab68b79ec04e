//! The steps of a request, in order: authentication, limits, impersonation, authorization, dispatch.

use crate::app::App;
use crate::ask::Ask;
use crate::body::Body;
use crate::context::RequestContext;
use crate::discovery;
use crate::found;
use crate::impersonate;
use crate::in_flight::TooMany;
use crate::opening::Peer;
use crate::paths;
use crate::peer_certificate::PeerCertificate;
use crate::query::{self, Query};
use crate::request_body::RequestBody;
use crate::resource;
use crate::respond::{self, Reply};
use crate::route::{ResourceRoute, Route};
use crate::sending::Sending;
use crate::websocket;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Version, header};
use hyper::body::Incoming;
use keelson_auth::{
    ANONYMOUS, Attributes, Certificate, Credentials, FrontProxy, Permit, Selectors, User,
};
use keelson_meta::{Failure, Status, Str};
use keelson_registry::stamp;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use tokio::time::Instant;

/// By which a client and the server's log and audit events name a request.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Why a request is not admitted.
enum Refused {
    Failure(Failure),
    /// Too many are in flight.
    Busy,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        Refused::Failure(failure)
    }
}

impl App {
    /// Answers one request. Never fails: every fault is an answer.
    pub(crate) async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Arc<Peer>,
    ) -> Response<Sending> {
        let mut context = RequestContext::new(&peer.place);
        let is_http2 = request.version() == Version::HTTP_2;
        if is_http2 && self.is_goaway() {
            peer.place.end();
        }
        let audit_id = self.audit_id(request.headers());
        context.log(&request, peer.place.address(), &audit_id);
        let answer = no_panic(pin!(self.answer(request, peer, &mut context))).await;
        let mut response = answer.unwrap_or_else(|| {
            tracing::error!(?audit_id, "a request panicked");
            let why = "This request caused apiserver to panic. Look in the logs for details.";
            let mut response = respond::text(500, why);
            // Its body may be unread.
            respond::close(&mut response);
            response
        });
        let headers = response.headers_mut();
        headers.insert(AUDIT_ID, audit_id);
        headers
            .entry(header::CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-cache, private"));
        context.answered(response.status());
        response.map(|body| Sending::new(body, is_http2, context))
    }

    /// The client's `Audit-ID`, else a new one.
    fn audit_id(&self, headers: &HeaderMap) -> HeaderValue {
        match headers.get(AUDIT_ID) {
            Some(given) if !given.is_empty() => given.clone(),
            _ => {
                let made = stamp::uid(self.registry.clock.as_ref());
                HeaderValue::from_str(&made).unwrap_or(HeaderValue::from_static(""))
            }
        }
    }

    /// Whether a request is one of those whose connection is told to end (`--goaway-chance`).
    fn is_goaway(&self) -> bool {
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
        let mut ask = Ask {
            query: Query::parse(parts.uri.query().unwrap_or_default()),
            method: parts.method,
            uri: parts.uri,
            headers: parts.headers,
            cbor: self.cbor,
            peer,
        };
        let admitted = self.admit(&ask, &route, context).await;
        self.drop_credentials(&mut ask.headers);
        let reply = match admitted {
            Ok((permit, end)) => {
                self.dispatch(&ask, &route, (permit, end), &mut body, context).await
            }
            Err(Refused::Failure(failure)) => Err(failure),
            Err(Refused::Busy) => Ok(respond::too_many_requests()),
        };
        let mut response = reply.unwrap_or_else(|failure| respond::failure(&ask, &failure));
        if let Some(warning) = *context.warning() {
            respond::warn_first(&mut response, warning);
        }
        if ask.method == Method::HEAD {
            *response.body_mut() = Body::empty();
        }
        // HTTP/2 resets the stream whose body is unread, and goes on.
        if !is_http2 && body.is_unread() && !body.discard(&self.limits).await {
            respond::close(&mut response);
            ask.peer.body_is_left();
        }
        match upgrade {
            Some(upgrade) => upgrade.switch(&ask.headers, response, self.shutdown.clone()),
            None => response,
        }
    }

    /// When the request ends at the latest, and the permit for it.
    async fn admit(
        &self,
        ask: &Ask,
        route: &Route,
        context: &mut RequestContext,
    ) -> Result<(Permit, Instant), Refused> {
        let is_long = matches!(route, Route::Resource(route) if ask.verb(route) == "watch");
        let most = self.limits.request_timeout;
        let timeout = if is_long { most } else { ask.query.request_timeout(most)? };
        Ok((self.permit(ask, route, context).await?, Instant::now() + timeout))
    }

    /// Removes the headers that only authentication reads: whatever passes a request on must not pass on whose
    /// it was.
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

    /// The user that a front proxy names in the headers of a request.
    fn proxied_user(&self, ask: &Ask) -> Result<Option<User>, Failure> {
        let Some(proxy) = self.authenticator.front_proxy() else { return Ok(None) };
        if !ask.peer.certificate.as_ref().is_some_and(PeerCertificate::is_front_proxy) {
            return Ok(None);
        }
        let headers = ask.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        proxy.user(&headers.collect::<Vec<_>>())
    }

    /// Authenticates and authorizes a request. Nothing of the body is read before this says yes.
    async fn permit(
        &self,
        ask: &Ask,
        route: &Route,
        context: &mut RequestContext,
    ) -> Result<Permit, Refused> {
        let by_protocol = websocket::authorization(&ask.headers)?;
        let by_header = ask.headers.get(header::AUTHORIZATION).map(|value| {
            // One that cannot be read must not make its sender anonymous.
            std::str::from_utf8(value.as_bytes()).map_err(|_| Status::unauthorized())
        });
        let credentials = Credentials {
            authorization: by_header.transpose()?.or(by_protocol.as_deref()),
            certificate: match &ask.peer.certificate {
                None => Certificate::Absent,
                Some(shown) => shown.verified().map_or(Certificate::Refused, Certificate::Verified),
            },
            front_proxy: self.proxied_user(ask)?,
            path: ask.uri.path(),
        };
        let now = self.registry.clock.now();
        let access = &self.state.metrics.access;
        let has_any =
            credentials.authorization.is_some() || credentials.certificate != Certificate::Absent;
        let begun = Instant::now();
        let user = self.authenticator.authenticate(credentials, now, context.warning()).await;
        access.authenticated(&user, has_any, begun.elapsed());
        match &user {
            Ok(user) if user.name != ANONYMOUS => ask.peer.place.authenticated(),
            // HTTP/2 costs much: who is not known has a connection for one request
            // (UnauthenticatedHTTP2DOSMitigation). HTTP/1.1 has no such end.
            Ok(_) | Err(_) => ask.peer.place.end(),
        }
        let attributes = attributes(ask, route);
        let user = impersonate::impersonated(
            &self.authorizer,
            &self.state.last_modes,
            &ask.headers,
            user?,
            &attributes,
        )
        .await?;
        context.authenticated(&user, &attributes);
        let counted = self.state.in_flight.enter(&user, &attributes);
        context.count(counted.map_err(|TooMany| Refused::Busy)?);
        let annotations = context.annotations();
        let begun = Instant::now();
        let permit = self.authorizer.authorize_noted(user, attributes, annotations).await;
        access.authorized(&permit, begun.elapsed());
        Ok(permit?)
    }

    async fn dispatch(
        self: &Arc<Self>,
        ask: &Ask,
        route: &Route,
        (permit, end): (Permit, Instant),
        body: &mut RequestBody,
        context: &mut RequestContext,
    ) -> Result<Reply, Failure> {
        let metrics = &self.state.metrics;
        match route {
            Route::Refused => Err(Status::no_such_path()),
            Route::Path(path) => {
                if let Some(asked) = paths::measured(ask, path) {
                    context.measure(metrics, &asked, ask);
                }
                paths::answer(self, ask, path).await
            }
            Route::Resource(route) => {
                let Some(found) = found::find(self, route)? else {
                    let is_remote =
                        discovery::is_remote(&self.registry, &route.group, &route.version);
                    return Ok(match is_remote {
                        true => respond::service_unavailable(),
                        false => respond::no_such_page(),
                    });
                };
                if resource::is_across_namespaces(ask, route, &found) {
                    return Ok(respond::no_such_page());
                }
                let verb = resource::verb(ask, route, &found)?;
                context.measure(metrics, &resource::measured(ask, &found, verb), ask);
                let mut work = pin!(self.resource(ask, &permit, &found, verb, body));
                let reply = match verb {
                    "watch" => work.await,
                    _ => tokio::time::timeout_at(end, work.as_mut())
                        .await
                        .unwrap_or_else(|_| Err(Status::timed_out())),
                };
                context.waited_for_webhooks(permit.webhooks_took());
                let Some(warning) = &found.endpoint.deprecation else { return reply };
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
        found: &found::Found<'_>,
        verb: &'static str,
        body: &mut RequestBody,
    ) -> Result<Reply, Failure> {
        if verb == "watch" {
            return resource::watch(self, ask, permit, found).await;
        }
        // Held until the answer is there, which is made of it.
        let (body, _held) = match ask.method {
            Method::POST | Method::PUT | Method::PATCH | Method::DELETE => {
                body.read(self.limits.body_bytes_max, &self.state.bodies).await?
            }
            _ => (bytes::Bytes::new(), None),
        };
        let reply = resource::answer(self, ask, permit, found, verb, body).await?;
        Ok(respond::compress(ask, reply))
    }
}

/// The attributes for the authorizer.
fn attributes(ask: &Ask, route: &Route) -> Attributes {
    match route {
        Route::Resource(route) => resource_attributes(ask, route),
        Route::Path(path) => Attributes {
            verb: Str::new_static(method_word(&ask.method)),
            non_resource: true,
            path: path.clone(),
            ..Attributes::default()
        },
        Route::Refused => Attributes { non_resource: true, ..Attributes::default() },
    }
}

fn resource_attributes(ask: &Ask, route: &ResourceRoute) -> Attributes {
    let verb = ask.verb(route);
    let selectors = match verb {
        "list" | "watch" | "deletecollection" => ask.query.asked_selectors(),
        _ => None,
    };
    // The name in the URL, or the one that a field selector on a collection asks for.
    let name = match &selectors {
        Some(selectors) if route.name.is_empty() => selected_name(selectors),
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
        // A namespace itself is looked at as if it were in itself.
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

/// The one name that a field selector leaves, or empty.
fn selected_name(selectors: &Selectors) -> Str {
    let fields = selectors.fields.as_ref();
    let name = fields.and_then(|fields| fields.required_value("metadata.name"));
    name.filter(|name| keelson_meta::names::name_is_path_segment(name, false).is_empty())
        .map(Str::new)
        .unwrap_or_default()
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

/// Runs a future to its end, or `None` when it panics.
async fn no_panic<T>(mut work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
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

    /// Bytes of a request's future, which is moved several times before it is first polled.
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
