//! Resource requests: verb, options and body, the call of the registry, and the response.

use crate::app::App;
use crate::connect;
use crate::delete_options;
use crate::heavy;
use crate::metrics::RequestLabels;
use crate::negotiate;
use crate::outcome::Outcome;
use crate::request_body::RequestBody;
use crate::request_head::RequestHead;
use crate::request_info::Verb;
use crate::request_object;
use crate::resolve::{ResolvedRoute, decoded, write_options};
use crate::respond::{self, Reply};
use crate::reviews;
use crate::route::ResourceRoute;
use crate::traced;
use crate::view::View;
use crate::watch::{self, InitialSpans, Stream};
use bytes::Bytes;
use http::{Method, header};
use keelson_auth::Permit;
use keelson_auth::off_worker::SHORT_BYTES_MAX;
use keelson_meta::status::{Details, quote};
use keelson_meta::{Failure, Map, Reason, Status, Str, value};
use keelson_registry::options::{Patch, PatchForm, WriteOptions};
use keelson_registry::{
    Answer, Deleted, ScaleChange, Subresource, Target, WatchRefusal, WriteResponse,
    default_propagation_warnings, has_table, scale_kind,
};
use keelson_resources::api_table::Source;
use keelson_schema::Schema;
use keelson_schema::catalogue::SubresourceClass;
use keelson_schema::decode::{Decoded, Format};
use std::pin::pin;
use std::sync::Arc;
use tokio::time::Instant;

/// The audit annotation of a deletion that ignores that the object cannot be read.
const UNSAFE_DELETE: &str = "apiserver.k8s.io/unsafe-delete-ignore-read-error";

/// Returns the metric labels of a request.
pub(crate) fn request_labels<'a>(
    head: &RequestHead,
    resolved: &'a ResolvedRoute<'_>,
    verb: Verb,
) -> RequestLabels<'a> {
    let route = resolved.route;
    let scope = match (&route.namespace, verb) {
        _ if !route.name.is_empty() => "resource",
        (_, Verb::Create) => "resource",
        (Some(_), _) => "namespace",
        (None, _) => "cluster",
    };
    let is_apply = || {
        let media_type = head.header(header::CONTENT_TYPE).unwrap_or_default();
        media_type.starts_with("application/apply-patch+")
    };
    let verb = match verb {
        _ if resolved.class().is_some_and(SubresourceClass::is_connection) => "CONNECT",
        Verb::Get => "GET",
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::Create => "POST",
        Verb::Update => "PUT",
        Verb::Patch if is_apply() => "APPLY",
        Verb::Patch => "PATCH",
        Verb::Delete | Verb::DeleteCollection | Verb::Method(_) => "DELETE",
    };
    RequestLabels {
        component: "apiserver",
        group: &route.group,
        resource: &route.resource,
        scope,
        subresource: resolved.sub_name(),
        verb,
        version: &route.version,
    }
}

/// Fails with 405 unless the resource has the verb.
pub(crate) fn check_verb(
    head: &RequestHead,
    verb: Verb,
    resolved: &ResolvedRoute<'_>,
) -> Result<(), Failure> {
    let route = resolved.route;
    if route.is_watch && head.method != Method::GET {
        return Err(Status::method_not_allowed());
    }
    let on_object = !route.name.is_empty();
    let is_proxy = resolved.class() == Some(SubresourceClass::Proxy);
    if is_proxy && !on_object {
        return Err(Status::bad_request("name must be provided"));
    }
    if is_proxy && (head.method == Method::HEAD || head.method == Method::OPTIONS) {
        return Ok(());
    }
    let is_custom = resolved.endpoint.source == Source::Custom;
    if is_custom && matches!(verb, Verb::Method(_)) {
        return Err(Status::method_not_supported(&resolved.resource(), ""));
    }
    // Custom resources have no routes of their own, and HEAD has the verb of GET.
    if head.method == Method::HEAD && !is_custom {
        return Err(Status::method_not_allowed());
    }
    let is_change = matches!(verb, Verb::Update | Verb::Patch);
    if is_custom && !on_object && is_change && resolved.sub.is_none() {
        return Err(Status::bad_request("name must be provided"));
    }
    let allowed = match resolved.sub() {
        Some(sub) if !on_object && sub.has_verb(verb.of_object().name()) => {
            return Err(Status::bad_request("name must be provided"));
        }
        Some(sub) if is_custom && on_object && !sub.has_verb(verb.name()) => {
            return Err(Status::method_not_supported(&resolved.resource(), verb.name()));
        }
        Some(sub) => on_object && sub.has_verb(verb.name()),
        None => {
            let is_in_scope = route.namespace.is_some() == resolved.facts().namespaced;
            let fits = match verb {
                // Upstream allows a name in the URL of custom resources, and uses that of the body.
                Verb::Create if is_custom => true,
                Verb::Create => !on_object && is_in_scope,
                Verb::Update | Verb::Patch => on_object,
                Verb::DeleteCollection => is_in_scope,
                _ => true,
            };
            if verb == Verb::Watch && !resolved.facts().has_verb("watch") {
                return if route.is_watch { Err(Status::no_such_path()) } else { Ok(()) };
            }
            fits && resolved.facts().has_verb(verb.name())
        }
    };
    if allowed { Ok(()) } else { Err(Status::method_not_allowed()) }
}

/// Fails with 415 if the media type of a patch is none, and with 406 if the client accepts no
/// encoding of a built-in resource. The errors for custom resources come later, as upstream.
pub(crate) fn check_accepted(
    head: &RequestHead,
    verb: Verb,
    resolved: &ResolvedRoute<'_>,
) -> Result<(), Failure> {
    let accepted = head.header(header::ACCEPT);
    if resolved.class() == Some(SubresourceClass::Log) {
        return negotiate::check_log_route(accepted, negotiate::supported_encodings(head.cbor));
    }
    let is_connection = resolved.class().is_some_and(SubresourceClass::is_connection);
    if is_connection || resolved.endpoint.source == Source::Custom {
        return Ok(());
    }
    if verb == Verb::Patch {
        patch_form(head)?;
    }
    let supported = negotiate::supported_encodings(head.cbor);
    let streams = matches!(verb, Verb::List | Verb::Watch);
    negotiate::check_route(accepted, supported, streams)
}

/// Returns whether a request for a custom resource lacks the namespace that its verb requires.
/// Upstream responds with the plain 404 page.
pub(crate) fn is_across_namespaces(verb: Verb, resolved: &ResolvedRoute<'_>) -> bool {
    resolved.endpoint.source == Source::Custom
        && resolved.facts().namespaced
        && resolved.route.namespace.is_none()
        && !matches!(verb, Verb::List | Verb::Watch)
}

/// Does what a request for a resource asks for.
pub(crate) async fn run(
    app: &Arc<App>,
    head: &RequestHead,
    permit: &Permit,
    resolved: &ResolvedRoute<'_>,
    verb: Verb,
    body: &mut RequestBody,
) -> Result<Outcome, Failure> {
    if verb == Verb::Watch {
        return watch(app, head, permit, resolved).await;
    }
    if resolved.class().is_some_and(SubresourceClass::is_connection) {
        let work = connect::run(app, head, permit, resolved, verb, body);
        return Box::pin(head.peer.unless_gone(work)).await;
    }
    // The memory of the body stays reserved until the response is complete.
    let (body, _held) = match head.method {
        Method::POST | Method::PUT | Method::PATCH | Method::DELETE => {
            let read = body.read(app.limits.body_bytes_max, &app.state.bodies).await?;
            let len = read.0.len();
            traced::body_read(len);
            let ResourceRoute { group, resource, .. } = resolved.route;
            app.state.metrics.resources.body(group, resource, verb, len);
            read
        }
        _ => (Bytes::new(), None),
    };
    let bytes = work_bytes(app, head, resolved, verb, &body);
    let work = pin!(answer(app, head, permit, resolved, verb, body));
    let reply = heavy::run(bytes, work).await?;
    Ok(Outcome::Reply(respond::compress(head, reply)))
}

/// Starts a watch.
async fn watch(
    app: &Arc<App>,
    head: &RequestHead,
    permit: &Permit,
    resolved: &ResolvedRoute<'_>,
) -> Result<Outcome, Failure> {
    let accepted = head.accepted_of(resolved.endpoint.source)?;
    let Some(target) = &resolved.target else {
        return Err(Status::method_not_supported(&resolved.resource(), "watch"));
    };
    let begun = Instant::now();
    let options = head.query.watch_options()?;
    let media_type =
        negotiate::accept_stream(accepted.encoding, negotiate::supported_encodings(head.cbor));
    // Table options are checked before the stream begins.
    let view = View::new(app, head, accepted, target, None);
    view.check_table_options()?;
    let timeout = head.query.timeout()?;
    let session = match app.registry.watch(permit, target, &options).await {
        Ok(session) => session,
        Err(WatchRefusal::Answer(failure)) => return Err(failure),
        Err(WatchRefusal::Event(failure)) => {
            return Ok(watch::refusal(app, accepted.encoding, media_type?, &failure));
        }
    };
    let media_type = media_type?;
    let ResourceRoute { group, version, resource, .. } = resolved.route;
    let scope = request_labels(head, resolved, Verb::Watch).scope;
    let lists = app.state.metrics.resources.watch_lists([group, resource, scope, version]);
    let stream = Stream {
        metrics: app.state.metrics.watches(group, resource, version),
        view,
        peer: head.peer.clone(),
        seat: head.watch_seat.clone(),
        target: target.clone(),
        session,
        bookmarks: options.bookmarks,
        timeout,
        initial_spans: InitialSpans::start(head, media_type, lists, begun),
    };
    Ok(stream.start(media_type))
}

/// Estimates the work of a request in bytes. A small patch of a large object decodes and encodes
/// the object, and a JSON Patch or a conversion webhook can make a small object large.
fn work_bytes(
    app: &App,
    head: &RequestHead,
    resolved: &ResolvedRoute<'_>,
    verb: Verb,
    body: &[u8],
) -> usize {
    let may_grow = |target: &Target| {
        target.kind.has_conversion_webhook && !matches!(verb, Verb::Get | Verb::List)
    };
    let least =
        if resolved.target.as_ref().is_some_and(may_grow) { SHORT_BYTES_MAX + 1 } else { 0 };
    let is_change = matches!(verb, Verb::Update | Verb::Patch);
    let Some(target) = resolved.target.as_ref().filter(|_| is_change) else {
        return body.len().max(least);
    };
    let entry = app.registry.entry(target).ok().flatten();
    let stored = entry.map_or(0, |entry| entry.size().min(heavy::LIGHT_BYTES_MAX));
    let may_copy = verb == Verb::Patch
        && head
            .header(header::CONTENT_TYPE)
            .is_some_and(|media| media.starts_with("application/json-patch+json"))
        && body.windows(4).any(|word| word == b"copy" || word.starts_with(b"\\u"));
    let copied = if may_copy { heavy::LIGHT_BYTES_MAX } else { 0 };
    body.len().max(stored).max(copied).max(least)
}

/// Handles a request with a complete body and a complete answer.
async fn answer(
    app: &Arc<App>,
    head: &RequestHead,
    permit: &Permit,
    resolved: &ResolvedRoute<'_>,
    verb: Verb,
    body: Bytes,
) -> Result<Reply, Failure> {
    if resolved.target.is_none() {
        return Box::pin(reviews::answer(app, head, permit, resolved, verb, &body)).await;
    }
    let part = match resolved.class() {
        None => Subresource::None,
        Some(SubresourceClass::Status) => Subresource::Status,
        Some(SubresourceClass::Part(name)) => Subresource::Other(name),
        Some(SubresourceClass::Scale) => {
            let scale = app.registry.catalogue.schema(&scale_kind()).ok_or_else(no_scale)?;
            let call = Call::new(app, head, permit, resolved, Subresource::None, Some(&scale))?;
            return call.scale(verb, body).await;
        }
        Some(SubresourceClass::Action(_)) => {
            return Box::pin(reviews::act(app, head, permit, resolved, &body)).await;
        }
        // These have no complete answer: see `run`.
        Some(SubresourceClass::Log | SubresourceClass::Connect(_) | SubresourceClass::Proxy) => {
            return Err(Status::method_not_allowed());
        }
    };
    let call = Call::new(app, head, permit, resolved, part, None)?;
    match verb {
        Verb::Get => call.get().await,
        Verb::List => call.list().await,
        Verb::Create => call.create(body).await,
        Verb::Delete => call.delete(body).await,
        Verb::DeleteCollection => call.delete_collection(body).await,
        Verb::Update => call.update(body).await,
        Verb::Patch | Verb::Watch | Verb::Method(_) => call.patch(body).await,
    }
}

fn no_scale() -> Failure {
    Status::internal("Scale has no schema")
}

/// A request for stored objects of one kind.
struct Call<'a> {
    app: &'a App,
    head: &'a RequestHead,
    permit: &'a Permit,
    target: &'a Target,
    part: Subresource,
    view: View,
}

impl<'a> Call<'a> {
    /// `schema_override` is the schema of the response, if it differs from that of the objects.
    fn new(
        app: &'a Arc<App>,
        head: &'a RequestHead,
        permit: &'a Permit,
        resolved: &'a ResolvedRoute<'_>,
        part: Subresource,
        schema_override: Option<&Schema>,
    ) -> Result<Call<'a>, Failure> {
        let target = resolved.target()?;
        let accepted =
            if has_table(&resolved.route.group, &resolved.facts().name, resolved.sub_name()) {
                head.accepted_of(resolved.endpoint.source)?
            } else {
                head.accepted_without_tables()?
            };
        let view = View::new(app, head, accepted, target, schema_override);
        Ok(Call { app, head, permit, target, part, view })
    }

    async fn get(&self) -> Result<Reply, Failure> {
        let options = self.head.query.get_options()?;
        traced::getting();
        let answer = self.app.registry.get(self.permit, self.target, options).await?;
        self.view.reply(200, self.target, &answer)
    }

    async fn list(&self) -> Result<Reply, Failure> {
        let options = self.head.query.list_options()?;
        let list = self.app.registry.list(self.permit, self.target, &options).await?;
        let bytes = self.view.whole_bytes(self.target, &list);
        heavy::run(bytes, pin!(async { self.view.reply_list(self.target, list) })).await
    }

    /// Decodes the body of a write. Custom resources do not support protobuf.
    fn decoded(&self, body: &[u8]) -> Result<Decoded, Failure> {
        let is_custom = self.target.kind.source == Source::Custom;
        if is_custom && self.head.body_format()? == Format::Protobuf {
            return Err(negotiate::unsupported_body(negotiate::supported_encodings(
                self.head.cbor,
            )));
        }
        traced::decode(|| decoded(self.head, self.target.schema(), body))
    }

    /// Records the object of a write in the audit event.
    fn record(&self, decoded: &Decoded, options: &WriteOptions) {
        let schema = self.target.schema();
        let kind = &self.target.kind;
        request_object::record(self.head, schema, decoded, options.field_validation, |object| {
            kind.fill_defaults(schema, object, self.app.registry.clock.now())
        });
    }

    async fn create(&self, body: Bytes) -> Result<Reply, Failure> {
        let options = write_options(self.head, "CreateOptions")?;
        let decoded = self.decoded(&body)?;
        self.record(&decoded, &options);
        let registry = &self.app.registry;
        let create = registry.create(self.permit, self.target, decoded, &options);
        self.written(traced::write(body.len(), pin!(create)).await?)
    }

    async fn update(&self, body: Bytes) -> Result<Reply, Failure> {
        let options = write_options(self.head, "UpdateOptions")?;
        let decoded = self.decoded(&body)?;
        self.record(&decoded, &options);
        let registry = &self.app.registry;
        let update = registry.update(self.permit, self.target, self.part, decoded, &options);
        self.written(traced::write(body.len(), pin!(update)).await?)
    }

    async fn patch(&self, body: Bytes) -> Result<Reply, Failure> {
        let is_custom = self.target.kind.source == Source::Custom;
        if is_custom && matches!(patch_form(self.head), Err(_) | Ok(PatchForm::Strategic)) {
            return Err(no_strategic_patch());
        }
        let (patch, options) = read_patch(self.head, body)?;
        request_object::record_patch(self.head, &patch);
        let span = keelson_traces::current();
        span.event("Recorded the audit event");
        span.event("About to apply patch");
        let registry = &self.app.registry;
        let patched = registry.patch(self.permit, self.target, self.part, &patch, &options).await?;
        span.event("Object stored in database");
        self.written(patched)
    }

    fn written(&self, written: WriteResponse) -> Result<Reply, Failure> {
        let code = if written.created { 201 } else { 200 };
        let mut reply = self.view.reply(code, self.target, &written.answer)?;
        respond::warn(&mut reply, &written.warnings);
        Ok(reply)
    }

    async fn delete(&self, body: Bytes) -> Result<Reply, Failure> {
        let format = delete_format(self.head, &body)?;
        let options = delete_options::read(self.head, &body, format)?;
        let target = self.target;
        if options.ignore_read_error {
            self.permit.annotate(Str::new_static(UNSAFE_DELETE), Str::default());
            self.may_ignore_read_errors().await?;
        }
        let mut warnings = vec![];
        let span = keelson_traces::current();
        span.event("About to delete object from database");
        let deleted = self.app.registry.delete(self.permit, target, &options, &mut warnings).await;
        if deleted.is_ok() {
            span.event("Object deleted from database");
        }
        let mut reply = match deleted.map_err(|f| f.with_warnings(warnings.clone()))? {
            Deleted::Unreadable => {
                let status = value!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                    "details": {"name": (target.name.clone()), "kind": (target.kind.name().clone())},
                    "code": 200
                });
                respond::status(self.head, 200, self.view.accepted.encoding, status)
            }
            Deleted::Gone(obj) if !target.kind.strategy.returns_deleted => {
                let mut details = Map::new();
                details.insert("name", obj.name());
                if !target.gvr().group.is_empty() {
                    details.insert("group", target.gvr().group.clone());
                }
                details.insert("kind", target.gvr().resource.clone());
                details.insert("uid", obj.uid());
                let status = value!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                    "details": (details)
                });
                respond::status(self.head, 200, self.view.accepted.encoding, status)
            }
            Deleted::Gone(obj) => self.view.reply(200, target, &Answer::Object(obj))?,
            Deleted::Waiting(obj) => {
                let code = if options.wants_dependents_deleted() { 202 } else { 200 };
                self.view.reply(code, target, &Answer::Object(obj))?
            }
        };
        respond::warn(&mut reply, &warnings);
        Ok(reply)
    }

    /// Checks the verb `unsafe-delete-ignore-read-errors`, which deleting an unreadable object
    /// requires.
    async fn may_ignore_read_errors(&self) -> Result<(), Failure> {
        let verb = "unsafe-delete-ignore-read-errors";
        let attributes = self.permit.attributes().map(|attributes| attributes.with_verb(verb));
        match attributes {
            Some(attributes)
                if !self.app.authorizer.allows(self.permit.user(), &attributes).await => {}
            _ => return Ok(()),
        }
        let why = format!("not permitted to do {}, reason: ", quote(verb));
        Err(Status::forbidden(self.target.gvr(), &self.target.name, &why))
    }

    async fn delete_collection(&self, body: Bytes) -> Result<Reply, Failure> {
        // As upstream: what the list says of itself, the options of the deletion, where the list
        // begins.
        self.head.query.check_list_options()?;
        let format = delete_format(self.head, &body)?;
        let options = delete_options::read(self.head, &body, format)?;
        let list = self.head.query.list_options().map_err(|failure| {
            failure.with_warnings(default_propagation_warnings(self.target, &options))
        })?;
        let registry = &self.app.registry;
        let mut warnings = vec![];
        let deleted =
            registry.delete_collection(self.permit, self.target, &list, &options, &mut warnings);
        let deleted = deleted.await.map_err(|failure| failure.with_warnings(warnings.clone()))?;
        let mut reply = self.view.reply_list(self.target, deleted)?;
        respond::warn(&mut reply, &warnings);
        Ok(reply)
    }

    async fn scale(&self, verb: Verb, body: Bytes) -> Result<Reply, Failure> {
        let registry = &self.app.registry;
        if verb == Verb::Get {
            let options = self.head.query.get_options()?;
            traced::getting();
            let answer = registry.get_scale(self.permit, self.target, options).await?;
            return self.view.reply(200, self.target, &answer);
        }
        let (change, options) = if self.head.method == Method::PUT {
            let options = write_options(self.head, "UpdateOptions")?;
            let decoded = decoded(self.head, &self.view.schema, &body)?;
            let schema = &self.view.schema;
            let validation = options.field_validation;
            request_object::record_with_defaults(self.head, schema, &decoded, validation);
            (ScaleChange::Whole(decoded), options)
        } else {
            let (patch, options) = read_patch(self.head, body)?;
            request_object::record_patch(self.head, &patch);
            (ScaleChange::Patch(patch), options)
        };
        self.written(registry.update_scale(self.permit, self.target, &change, &options).await?)
    }
}

/// Parses the patch in a body, by its media type, and its options.
fn read_patch(head: &RequestHead, body: Bytes) -> Result<(Patch, WriteOptions), Failure> {
    let form = patch_form(head)?;
    let user_agent = head.header(header::USER_AGENT).unwrap_or_default();
    let options = head.query.patch_options(form.is_apply(), user_agent)?;
    Ok((Patch { form, body }, options))
}

/// Returns the form of a patch that the media type of the body names, or 415.
fn patch_form(head: &RequestHead) -> Result<PatchForm, Failure> {
    let media = head.header(header::CONTENT_TYPE).unwrap_or_default();
    Ok(match media.split(';').next().unwrap_or_default().trim() {
        "application/json-patch+json" => PatchForm::Json,
        "application/merge-patch+json" => PatchForm::Merge,
        "application/strategic-merge-patch+json" => PatchForm::Strategic,
        "application/apply-patch+yaml" => PatchForm::ApplyYaml,
        "application/apply-patch+cbor" if head.cbor => PatchForm::ApplyCbor,
        _ => return Err(unsupported_patch()),
    })
}

/// Returns the 415 for a strategic merge patch of a custom resource.
fn no_strategic_patch() -> Failure {
    let why = "the body of the request was in an unknown format - accepted media types include: \
               application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    Status::new(Reason::UnsupportedMediaType, why)
}

fn unsupported_patch() -> Failure {
    let mut status = Status::new(Reason::UnsupportedMediaType, "415: Unsupported Media Type");
    status.details = Some(Details::default());
    status
}

/// Returns the format of the body of a delete. An empty body needs no media type.
fn delete_format(head: &RequestHead, body: &[u8]) -> Result<Format, Failure> {
    if body.is_empty() {
        return Ok(Format::Json);
    }
    head.body_format()
}
