//! The order of a request. Each step makes the state that the next one needs, so none can be left
//! out or exchanged:
//!
//! ```text
//! Arrived    deadline, audit id, log line
//!   Known      authenticate (and audit), impersonate, take a seat among the requests in flight
//!     Permitted  authorize: a Permit
//!       Resolved   the endpoint, or the row of a non-resource path; the body is still unread
//!         Outcome    the verb: a reply, a stream of events, or an upgraded connection
//! ```
//!
//! Whatever ends a request early is a [`Refusal`]. The response owns the [`RequestContext`] until
//! its last byte is sent.

use crate::app::App;
use crate::audited::{Arrival, AuditedRequest};
use crate::behind;
use crate::context::RequestContext;
use crate::fairness::{self, Asked, Fairness, Rejected, WatchSeat};
use crate::header_lists;
use crate::impersonate::{self, Impersonated};
use crate::in_flight::TooMany;
use crate::metrics::{Filter, release_of_removal};
use crate::outcome::{Outcome, Refusal};
use crate::paths;
use crate::peer::Peer;
use crate::peer_certificate::PeerCertificate;
use crate::query::{self, Query};
use crate::request_body::RequestBody;
use crate::request_head::{AUDIT_ID, RequestHead};
use crate::request_info::{RequestInfo, Verb};
use crate::resolve::{self, ResolvedRoute};
use crate::resource;
use crate::respond::{self, OwnHeaders, Reply};
use crate::response_body::ResponseBody;
use crate::response_object;
use crate::route::{ResourceRoute, Route, is_dotted};
use crate::traced::{self, Seen};
use crate::upgrade::{Upgrade, UpgradedConnection};
use crate::websocket;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http::{StatusCode, Version, header};
use hyper::body::Incoming;
use keelson_auth::{
    ANONYMOUS, Attributes, Certificate, Credentials, FrontProxy, Permit, ProtocolToken, User,
};
use keelson_meta::{Failure, Feature, Status, Str};
use keelson_registry::clock;
use keelson_resources::RemoteVersion;
use keelson_resources::api_table::Source;
use std::any::Any;
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

/// They name the FlowSchema and the level of a request.
const FLOW_SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// The order of a request.
async fn order(app: &Arc<App>, request: &mut Arrived) -> Result<Outcome, Refusal> {
    request.check_url()?;
    request.set_deadline(app)?;
    Known::authenticate(app, request)
        .await?
        .impersonate(app)
        .await?
        .take_seat(app)
        .await?
        .authorize(app)
        .await?
        .resolve(app)?
        .run(app)
        .await
}

impl App {
    /// Handles one request. Every failure is a response.
    pub(crate) async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Arc<Peer>,
    ) -> Response<ResponseBody> {
        let mut request = Arrived::new(&self, request, peer);
        let reply = catch_panic(pin!(async {
            let outcome = order(&self, &mut request).await;
            request.reply(&self, outcome).await
        }))
        .await;
        if let (Err(why), Some(audited)) = (&reply, &request.head.audited) {
            Box::pin(audited.panicked(why)).await;
        }
        request.finish(&self, reply.ok())
    }
}

/// A request that has arrived. Nobody knows yet who sent it.
struct Arrived {
    head: RequestHead,
    info: RequestInfo,
    body: RequestBody,
    /// The connection, if the client asks to use it for another protocol.
    upgrade: Option<Upgrade>,
    /// What runs on the connection after the response.
    connection: Option<UpgradedConnection>,
    context: RequestContext,
    audit_id: HeaderValue,
    version: Version,
    /// When the request must have been handled; `None` if it may last.
    deadline: Option<Instant>,
    /// When the current step began.
    step_began: Instant,
}

impl Arrived {
    fn new(app: &App, mut request: Request<Incoming>, peer: Arc<Peer>) -> Arrived {
        let mut context = RequestContext::new(&peer.slot);
        let version = request.version();
        if version == Version::HTTP_2 && app.should_send_goaway() {
            peer.slot.request_goaway();
        }
        let audit_id = app.audit_id(request.headers());
        context.log(&request, peer.slot.address(), &audit_id);
        context.start_trace(app.tracer.as_ref());
        let upgrade = Upgrade::of(&mut request, &peer);
        let (parts, incoming) = request.into_parts();
        let features = app.registry.options.features;
        let mut query = Query::parse(parts.uri.query().unwrap_or_default());
        query.refuses_watch_lists = !features.is_on(Feature::WatchList);
        let info = RequestInfo::new(parts.uri.path(), &parts.method, &query);
        let body = RequestBody::new(incoming, &parts.headers);
        let head = RequestHead {
            query,
            method: parts.method,
            uri: parts.uri,
            headers: parts.headers,
            cbor: app.cbor,
            features,
            peer,
            audited: None,
            watch_seat: None,
        };
        Arrived {
            head,
            info,
            body,
            upgrade,
            connection: None,
            context,
            audit_id,
            version,
            deadline: None,
            step_began: Instant::now(),
        }
    }

    /// Counts the time of a step before the verb. The next one begins.
    fn end_step(&mut self, app: &App, filter: Filter) -> Duration {
        let now = Instant::now();
        let took = now.saturating_duration_since(self.step_began);
        self.step_began = now;
        app.state.metrics.filters.ended(filter, took);
        self.context.ended(filter, took);
        took
    }

    /// Counts the end of a request by which the server protects itself.
    fn count_termination(&self, app: &App, code: u16) {
        let resources = &app.state.metrics.resources;
        match &self.info.route {
            Route::Resource(route) => {
                if let Ok(Some(resolved)) = resolve::resolve(app, route) {
                    let labels = resource::request_labels(&self.head, &resolved, self.info.verb);
                    resources.terminated(&labels, code);
                }
            }
            Route::Path(path) => {
                if let Some(labels) = paths::request_labels(&self.head, path) {
                    resources.terminated(&labels, code);
                }
            }
            Route::Invalid => {}
        }
    }

    /// Refuses a URL that Go's server does not parse.
    fn check_url(&self) -> Result<(), Refusal> {
        if query::is_escaped_well(self.head.uri.path()) {
            return Ok(());
        }
        Err(Refusal::from(respond::bad_request("400 Bad Request")))
    }

    fn set_deadline(&mut self, app: &App) -> Result<(), Failure> {
        let timeout = self
            .info
            .timeout(&self.head.query, app.limits.request_timeout)
            .inspect_err(|_| self.start_audit(app, None))?;
        self.deadline = timeout.map(|timeout| Instant::now() + timeout);
        Ok(())
    }

    /// Starts the audit event, if the policy wants one. Without a user, the request is refused.
    fn start_audit(&mut self, app: &App, user: Option<(&User, &Attributes)>) {
        let Some(audit) = &app.audit else { return };
        let attributes = match user {
            Some((_, attributes)) => Cow::Borrowed(attributes),
            None => Cow::Owned(self.info.attributes(&self.head.query)),
        };
        let arrival = Arrival {
            attributes: &attributes,
            user: user.map(|(user, _)| user),
            audit_id: &self.audit_id,
            uri: &self.head.uri,
            headers: &self.head.headers,
            client: self.head.peer.slot.address(),
            started: self.context.started(),
            is_long_running: self.info.is_long_running,
            is_refused: user.is_none(),
        };
        let annotations = self.context.annotations().unwrap_or_default();
        let noted = std::mem::take(&mut self.context.notes().annotations);
        noted.into_iter().for_each(|(key, value)| annotations.add(key, value));
        let audited = AuditedRequest::new(audit, &app.registry, annotations, &arrival);
        if let Some(audited) = audited.map(Arc::new) {
            self.head.audited = Some(audited.clone());
            self.context.set_audited(audited);
        }
    }

    /// Starts the span of the request, once its user is known.
    fn trace_user(&mut self, user: &User, attributes: &Attributes) {
        let Arrived { head, context, audit_id, version, .. } = self;
        if let Some(trace) = context.trace() {
            let seen = Seen { head, audit_id, version: *version };
            trace.authenticated(&seen, user, attributes);
        }
    }

    /// Starts the span of the response.
    fn trace_reply(&mut self, reply: &Reply) {
        let Arrived { head, info, context, audit_id, version, .. } = self;
        let Some(trace) = context.trace() else { return };
        let is_object = match &info.route {
            Route::Path(path) => path.starts_with("/api") || reply.status().as_u16() >= 400,
            Route::Resource(_) | Route::Invalid => info.verb != Verb::Watch,
        };
        trace.answering(&Seen { head, audit_id, version: *version }, reply, is_object);
    }

    /// Makes the response of an outcome, with what every response gets.
    async fn reply(&mut self, app: &App, outcome: Result<Outcome, Refusal>) -> Reply {
        let mut reply = match outcome {
            Ok(outcome) => {
                let upgrade = self.upgrade.take();
                let (reply, connection) = outcome.into_reply(app, &self.head, upgrade);
                self.connection = connection;
                reply
            }
            Err(Refusal::Failure(failure)) => respond::failure(&self.head, &failure),
            Err(Refusal::Reply(reply)) => *reply,
        };
        self.context.warnings().for_each(|warning| respond::warn_first(&mut reply, warning));
        self.trace_reply(&reply);
        if let Some(audited) = self.head.audited.clone() {
            let shows_objects = match &self.info.route {
                Route::Path(path) => path.starts_with("/api") || reply.status().as_u16() >= 400,
                Route::Resource(_) | Route::Invalid => true,
            };
            let is_upgraded = self.connection.is_some();
            if shows_objects
                && audited.shows_response()
                && response_object::encoding(&reply).is_some()
            {
                Box::pin(reply.body_mut().complete()).await;
            }
            let waiting = audited.answered(&reply, shows_objects, is_upgraded);
            if !waiting.is_empty() {
                Box::pin(audited.store(waiting)).await;
            }
        }
        if self.head.method == Method::HEAD {
            respond::drop_body(&mut reply);
        }
        // HTTP/2 only resets the stream of an unread body.
        let is_unread = self.version != Version::HTTP_2 && self.body.is_unread();
        if is_unread && !self.body.discard(&app.limits).await {
            respond::close(&mut reply);
            self.head.peer.linger();
        }
        reply
    }

    /// Completes the response; `None` is that of a panic.
    fn finish(mut self, app: &App, reply: Option<Reply>) -> Response<ResponseBody> {
        let mut response = reply.unwrap_or_else(|| {
            tracing::error!(audit_id = ?self.audit_id, "a request panicked");
            let why = "This request caused apiserver to panic. Look in the logs for details.";
            let mut response = respond::text(500, why);
            // The request body may be unread.
            respond::close(&mut response);
            response
        });
        self.add_headers(&mut response);
        self.context.answered(response.status());
        let peer = self.head.peer.clone();
        response.body_mut().end_with(async move { peer.gone().await });
        let is_http2 = self.version == Version::HTTP_2;
        if let Some(connection) = self.connection {
            connection.start(std::mem::take(&mut self.context), app.shutdown.clone());
        }
        response.map(|body| ResponseBody::new(body, is_http2, self.context, &app.state.lists))
    }

    /// Adds the headers that every response has.
    fn add_headers(&self, response: &mut Reply) {
        let is_upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let how = response.extensions_mut().remove::<OwnHeaders>();
        if is_upgraded || how == Some(OwnHeaders::None) {
            return;
        }
        let is_passed_on = how == Some(OwnHeaders::First);
        let headers = response.headers_mut();
        let mut add = |name: HeaderName, value: HeaderValue| match is_passed_on {
            true => header_lists::add_first(headers, name, value),
            false => drop(headers.insert(name, value)),
        };
        add(AUDIT_ID, self.audit_id.clone());
        if let Some(flow) = self.context.flow() {
            add(FLOW_SCHEMA_UID, flow.schema_uid.clone());
            add(PRIORITY_LEVEL_UID, flow.level_uid.clone());
        }
        if is_passed_on || !headers.contains_key(header::CACHE_CONTROL) {
            let value = HeaderValue::from_static("no-cache, private");
            header_lists::add_first(headers, header::CACHE_CONTROL, value);
        }
    }
}

impl App {
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
}

/// A request whose user is known.
struct Known<'a> {
    request: &'a mut Arrived,
    user: User,
    attributes: Attributes,
}

impl<'a> Known<'a> {
    /// Authenticates the request, removes the headers that only this reads, and stores the audit
    /// event `RequestReceived`, if the policy wants the request.
    async fn authenticate(app: &App, request: &'a mut Arrived) -> Result<Known<'a>, Refusal> {
        let (user, has_credentials) = authenticated(app, request).await?;
        let took = request.end_step(app, Filter::Authentication);
        app.state.metrics.access.authenticated(&user, has_credentials, took);
        drop_credentials(app, &mut request.head.headers);
        let user = user.inspect_err(|_| request.start_audit(app, None))?;
        let attributes = request.info.attributes(&request.head.query);
        request.trace_user(&user, &attributes);
        let _step = request.context.start_step("audit");
        request.start_audit(app, Some((&user, &attributes)));
        if let Some(audited) = request.head.audited.clone() {
            // A request whose event must be stored and is not does not go on.
            if let Some(first) = audited.receive() {
                let stored = Box::pin(audited.received(first)).await;
                stored.map_err(|why| respond::internal_error(&request.head, &why))?;
            }
        }
        request.end_step(app, Filter::Audit);
        Ok(Known { user, attributes, request })
    }

    /// Replaces the user by the one that he asks to act as, if he may.
    async fn impersonate(mut self, app: &App) -> Result<Known<'a>, Refusal> {
        let is_constrained = self.request.head.features.is_on(Feature::ConstrainedImpersonation);
        let _step = self.request.context.start_step(match is_constrained {
            true => "constrainedimpersonation",
            false => "impersonation",
        });
        let impersonated = impersonate::impersonate(
            &app.authorizer,
            &app.state.last_modes,
            &self.request.head.headers,
            &self.user,
            &self.attributes,
            is_constrained,
        )
        .await
        .map_err(|failure| respond::not_permitted(&self.request.head, &failure))?;
        impersonate::remove_headers(&mut self.request.head.headers);
        if let Some(Impersonated { user, constraint }) = impersonated {
            if let Some(audited) = &self.request.head.audited {
                audited.impersonated(&user, constraint);
            }
            self.user = user;
        }
        self.request.context.authenticated(&self.user, &self.attributes);
        self.request.end_step(app, Filter::Impersonation);
        Ok(self)
    }

    /// Takes a seat among the requests in flight, until the response is sent or, for a watch, until
    /// its initial events are. Waits for it where the request's level has queues.
    async fn take_seat(mut self, app: &App) -> Result<Known<'a>, Refusal> {
        let _step = self.request.context.start_step("priorityandfairness");
        let too_many = |seconds| Refusal::from(respond::too_many_requests(seconds));
        match &app.state.fairness {
            Some(fairness) if !self.request.info.is_connection => {
                let taken = self.take_fair_seat(app, fairness).await;
                taken.map_err(|rejected| {
                    self.request.count_termination(app, 429);
                    too_many(rejected.retry_after)
                })?;
            }
            Some(_) => {}
            None => {
                let seat =
                    app.state.in_flight.enter(&self.user, &self.request.info).map_err(|TooMany| {
                        self.request.count_termination(app, 429);
                        too_many(1)
                    });
                self.request.context.set_seat(seat?);
            }
        }
        if self.request.info.is_connection {
            let seat = app.state.streams.enter(&self.user).ok_or_else(|| too_many(1))?;
            self.request.context.set_stream_seat(seat);
        }
        self.request.end_step(app, Filter::Fairness);
        Ok(self)
    }

    /// Takes the seat that the FlowSchemas give to the request.
    async fn take_fair_seat(&mut self, app: &App, fairness: &Fairness) -> Result<(), Rejected> {
        let Arrived { head, info, context, deadline, .. } = &mut *self.request;
        let asked = Asked::new(&self.user, &self.attributes, head.uri.path());
        let Some(flow) = fairness.classify(&asked.request) else { return Ok(()) };
        let work = fairness::estimate(&app.registry, &flow, info, &self.attributes, &head.query);
        context.classified(flow.clone(), work);
        let seat = fairness.enter(flow, &asked, work, *deadline, &head.peer).await?;
        match info.verb {
            Verb::Watch => head.watch_seat = Some(WatchSeat::new(seat)),
            _ => context.set_fair_seat(seat),
        }
        Ok(())
    }

    /// Asks the authorizers.
    async fn authorize(self, app: &App) -> Result<Permitted<'a>, Refusal> {
        let Known { request, user, attributes } = self;
        let annotations = request.context.annotations();
        let _step = request.context.start_step("authorization");
        let permit = app.authorizer.authorize_annotated(user, attributes, annotations).await;
        let took = request.end_step(app, Filter::Authorization);
        app.state.metrics.access.authorized(&permit, took);
        let permit = permit.map_err(|failure| respond::not_permitted(&request.head, &failure))?;
        Ok(Permitted { request, permit })
    }
}

/// Returns the user who sent a request, and whether it had credentials.
async fn authenticated(
    app: &App,
    request: &mut Arrived,
) -> Result<(Result<User, Failure>, bool), Failure> {
    let Arrived { head, context, .. } = request;
    let by_header = head.headers.get(header::AUTHORIZATION).map(|value| {
        // An unreadable header must not turn its sender into the anonymous user.
        std::str::from_utf8(value.as_bytes()).map_err(|_| Status::unauthorized())
    });
    let credentials = Credentials {
        authorization: by_header.transpose()?,
        protocol: websocket::token(&head.headers),
        certificate: match &head.peer.certificate {
            None => Certificate::Absent,
            Some(shown) => shown.verified().map_or(Certificate::Refused, Certificate::Verified),
        },
        front_proxy: proxied_user(app, head)?,
        path: head.uri.path(),
    };
    let now = app.registry.clock.now();
    let has_any = credentials.authorization.is_some()
        || credentials.protocol != ProtocolToken::Absent
        || !matches!(credentials.certificate, Certificate::Absent);
    let certificate = head.peer.certificate.as_ref();
    let user = app.authenticator.authenticate(credentials, now, context.notes()).await;
    if let (Ok(_), Some(not_after)) = (&user, certificate.and_then(PeerCertificate::not_after)) {
        app.state.metrics.access.certificate(not_after, now.seconds);
    }
    match &user {
        Ok(user) if user.name != ANONYMOUS => head.peer.slot.mark_authenticated(),
        // Anonymous clients get an HTTP/2 connection for one request only
        // (UnauthenticatedHTTP2DOSMitigation). HTTP/1.1 connections are not affected.
        Ok(_) | Err(_) => head.peer.slot.request_goaway(),
    }
    Ok((user, has_any))
}

/// Returns the user that a front proxy names in the request headers.
fn proxied_user(app: &App, head: &RequestHead) -> Result<Option<User>, Failure> {
    let Some(proxy) = app.authenticator.front_proxy() else { return Ok(None) };
    if !head.peer.certificate.as_ref().is_some_and(PeerCertificate::is_front_proxy) {
        return Ok(None);
    }
    let headers = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    proxy.user(&headers.collect::<Vec<_>>())
}

/// Removes the headers that only authentication reads, so that proxied requests do not carry the
/// client's credentials.
fn drop_credentials(app: &App, headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
    // No far side is the proxy that this is for. Unlike others of the connection it would reach one
    // with an upgrade.
    headers.remove(header::PROXY_AUTHORIZATION);
    websocket::drop_tokens(headers);
    let proxy = app.authenticator.front_proxy();
    let names_user = |name: &str| {
        FrontProxy::is_standard_header(name) || proxy.is_some_and(|proxy| proxy.reads(name))
    };
    header_lists::remove(headers, names_user);
}

/// A request that its user may send.
struct Permitted<'a> {
    request: &'a mut Arrived,
    permit: Permit,
}

impl<'a> Permitted<'a> {
    /// Finds what the URL names.
    fn resolve(self, app: &'a App) -> Result<Resolved<'a>, Refusal> {
        let Permitted { request, permit } = self;
        let Arrived { head, info, body, context, deadline, audit_id, version, .. } = request;
        let seen = Seen { head, audit_id, version: *version };
        let place = match &info.route {
            Route::Invalid => return Err(Status::no_such_path().into()),
            Route::Path(path) => match remote_of_path(app, path) {
                Some(remote) => Place::Remote(remote),
                None => Place::Path(path),
            },
            Route::Resource(route) => {
                match app.registry.remote_version(&route.group, &route.version) {
                    // The server behind this one might take the name as a way to another path
                    // than the one that is permitted.
                    Some(_) if is_dotted(&route.name) => {
                        return Err(Status::no_such_path().into());
                    }
                    Some(remote) => Place::Remote(remote),
                    None => local(app, info, route)?,
                }
            }
        };
        Ok(Resolved { seen, body, context, permit, deadline: *deadline, place })
    }
}

/// Returns the endpoint of a resource URL.
fn local<'a>(
    app: &'a App,
    info: &'a RequestInfo,
    route: &'a ResourceRoute,
) -> Result<Place<'a>, Refusal> {
    let Some(resolved) = resolve::resolve(app, route)? else {
        return Err(Refusal::from(respond::no_such_page()));
    };
    if resource::is_across_namespaces(info.verb, &resolved) {
        return Err(Refusal::from(respond::no_such_page()));
    }
    Ok(Place::Local(resolved, info.verb))
}

/// Returns the server behind this one that serves `/apis/GROUP/VERSION`.
fn remote_of_path(app: &App, path: &str) -> Option<RemoteVersion> {
    let path = path.strip_prefix("/apis/")?.trim_end_matches('/');
    let (group, version) = path.split_once('/')?;
    app.registry.remote_version(group, version)
}

/// What a URL names.
enum Place<'a> {
    /// Something that a server behind this one serves.
    Remote(RemoteVersion),
    /// A resource of this server.
    Local(ResolvedRoute<'a>, Verb),
    /// A non-resource path.
    Path(&'a str),
}

/// A request for something that exists. Its body is unread.
struct Resolved<'a> {
    seen: Seen<'a>,
    body: &'a mut RequestBody,
    context: &'a mut RequestContext,
    permit: Permit,
    deadline: Option<Instant>,
    place: Place<'a>,
}

impl Resolved<'_> {
    /// Does what the request asks for.
    async fn run(self, app: &Arc<App>) -> Result<Outcome, Refusal> {
        let Resolved { seen, body, context, permit, deadline, place } = self;
        let head = seen.head;
        let metrics = &app.state.metrics;
        let (resolved, verb) = match place {
            Place::Local(resolved, verb) => (resolved, verb),
            Place::Remote(remote) => {
                let span = context.span();
                let audit_id = Some(seen.audit_id);
                let asked = behind::Asked { head, audit_id, user: permit.user() };
                let work = behind::run(app, asked, &remote, body);
                let work = Box::pin(span.scope(head.peer.unless_gone(work)));
                return match deadline {
                    None => work.await,
                    Some(end) => tokio::time::timeout_at(end, work)
                        .await
                        .unwrap_or_else(|_| Err(Status::timed_out().into())),
                };
            }
            Place::Path(path) => {
                if let Some(labels) = paths::request_labels(head, path) {
                    context.measure(metrics, &labels, head);
                }
                let user = &permit.user().name;
                let answer = Box::pin(paths::answer(app, head, path, user, body));
                return Ok(Outcome::Reply(answer.await?));
            }
        };
        let deprecation = resolved.endpoint.deprecation.as_ref();
        let is_custom = resolved.endpoint.source == Source::Custom;
        // The handler of all custom resources warns before it looks at the verb.
        if let Some(warning) = deprecation.filter(|_| is_custom) {
            context.deprecated(warning.clone());
        }
        resource::check_verb(head, verb, &resolved)?;
        resource::check_accepted(head, verb, &resolved)?;
        let labels = resource::request_labels(head, &resolved, verb);
        context.measure(metrics, &labels, head);
        if let Some(trace) = context.trace()
            && let Some(name) = traced::verb_name(verb, resolved.class(), &head.query)
        {
            trace.verb(name, &seen, permit.attributes(), &labels);
        }
        let span = context.span();
        let work = pin!(resource::run(app, head, &permit, &resolved, verb, body));
        let mut work = pin!(span.scope(work));
        let outcome = match deadline {
            None => work.await,
            Some(end) => tokio::time::timeout_at(end, work.as_mut()).await.unwrap_or_else(|_| {
                metrics.resources.terminated(&labels, 504);
                Err(Status::timed_out())
            }),
        };
        context.waited_for_webhooks(permit.webhooks_took());
        if verb == Verb::Watch {
            context.hand_over_verb_span();
        }
        if let Some(warning) = deprecation.filter(|_| !is_custom) {
            context.deprecated(warning.clone());
            metrics.resources.deprecated(&labels, warning);
            annotate_deprecation(&permit, warning);
        }
        Ok(outcome?)
    }
}

/// Adds the audit annotations of a request to a deprecated version, which has this warning.
fn annotate_deprecation(permit: &Permit, warning: &str) {
    permit.annotate(Str::new_static("k8s.io/deprecated"), Str::new_static("true"));
    let removal = release_of_removal(warning);
    if !removal.is_empty() {
        permit.annotate(Str::new_static("k8s.io/removed-release"), removal.into());
    }
}

/// Runs a future to its end. Fails with the message of its panic.
async fn catch_panic<T>(mut work: Pin<&mut impl Future<Output = T>>) -> Result<T, String> {
    std::future::poll_fn(|cx| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(panic) => Poll::Ready(Err(panic_message(&*panic))),
        }
    })
    .await
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
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
