//! Resource requests: verb, options and body, the call of the registry, and the response.

use crate::app::App;
use crate::delete_options;
use crate::heavy;
use crate::metrics::RequestLabels;
use crate::negotiate;
use crate::request_head::RequestHead;
use crate::resolve::{ResolvedRoute, decoded, write_options};
use crate::respond::{self, Reply};
use crate::reviews;
use crate::route::ResourceRoute;
use crate::view::View;
use crate::watch::{self, Stream};
use bytes::Bytes;
use http::{Method, header};
use keelson_auth::Permit;
use keelson_meta::status::{Details, quote};
use keelson_meta::{Failure, Map, Reason, Status, value};
use keelson_registry::api_table::Source;
use keelson_registry::options::{Patch, PatchForm, WriteOptions};
use keelson_registry::{
    Answer, Deleted, ScaleChange, Subresource, Target, WatchRefusal, WriteResponse, has_table,
    scale_kind,
};
use keelson_schema::Schema;
use keelson_schema::decode::{Decoded, Format};
use std::pin::pin;
use std::sync::Arc;

/// Subresources with the metric verb CONNECT.
const CONNECTED: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// Returns the metric labels of a request.
pub(crate) fn request_labels<'a>(
    head: &RequestHead,
    resolved: &'a ResolvedRoute<'_>,
    verb: &str,
) -> RequestLabels<'a> {
    let route = resolved.route;
    let scope = match (&route.namespace, verb) {
        _ if !route.name.is_empty() => "resource",
        (_, "create") => "resource",
        (Some(_), _) => "namespace",
        (None, _) => "cluster",
    };
    let is_apply = || {
        let media_type = head.header(header::CONTENT_TYPE).unwrap_or_default();
        media_type.starts_with("application/apply-patch+")
    };
    let verb = match verb {
        _ if CONNECTED.contains(&resolved.sub_name()) => "CONNECT",
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" => "POST",
        "update" => "PUT",
        "patch" if is_apply() => "APPLY",
        "patch" => "PATCH",
        _ => "DELETE",
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

/// Returns the verb of a request, or 405.
pub(crate) fn verb(
    head: &RequestHead,
    route: &ResourceRoute,
    resolved: &ResolvedRoute<'_>,
) -> Result<&'static str, Failure> {
    let verb = head.verb(route);
    if route.is_watch && head.method != Method::GET {
        return Err(Status::method_not_allowed());
    }
    let on_object = !route.name.is_empty();
    let is_custom = resolved.endpoint.source == Source::Custom;
    if is_custom && !on_object && matches!(verb, "update" | "patch") && resolved.sub.is_none() {
        return Err(Status::bad_request("name must be provided"));
    }
    let allowed = match resolved.sub() {
        Some(sub) => on_object && sub.has_verb(verb),
        None => {
            let fits = match verb {
                // Upstream allows a name in the URL of custom resources, and uses that of the body.
                "create" if is_custom => true,
                "create" => {
                    !on_object && (route.namespace.is_some() == resolved.facts().namespaced)
                }
                "update" | "patch" => on_object,
                "deletecollection" => route.namespace.is_some() == resolved.facts().namespaced,
                _ => true,
            };
            fits && resolved.facts().has_verb(verb)
        }
    };
    if allowed { Ok(verb) } else { Err(Status::method_not_allowed()) }
}

/// Returns whether a request for a custom resource lacks the namespace that its verb requires. Upstream responds
/// with the plain 404 page.
pub(crate) fn is_across_namespaces(
    head: &RequestHead,
    route: &ResourceRoute,
    resolved: &ResolvedRoute<'_>,
) -> bool {
    resolved.endpoint.source == Source::Custom
        && resolved.facts().namespaced
        && route.namespace.is_none()
        && !matches!(head.verb(route), "list" | "watch")
}

/// Starts a watch.
pub(crate) async fn watch(
    app: &Arc<App>,
    head: &RequestHead,
    permit: &Permit,
    resolved: &ResolvedRoute<'_>,
) -> Result<Reply, Failure> {
    let target = resolved.target()?;
    let accepted = head.accepted_of(resolved.endpoint.source)?;
    let media_type =
        negotiate::accept_stream(accepted.encoding, negotiate::supported_encodings(head.cbor))?;
    // Table options are checked before the stream begins.
    let view = View::new(app, head, accepted, target, None)?;
    let options = head.query.watch_options()?;
    let timeout = head.query.timeout()?;
    let session = match app.registry.watch(permit, target, &options).await {
        Ok(session) => session,
        Err(WatchRefusal::Answer(failure)) => return Err(failure),
        Err(WatchRefusal::Event(failure)) => {
            return Ok(watch::refusal(app, accepted.encoding, media_type, &failure));
        }
    };
    let ResourceRoute { group, version, resource, .. } = resolved.route;
    let stream = Stream {
        metrics: app.state.metrics.watches(group, resource, version),
        view,
        peer: head.peer.clone(),
        target: target.clone(),
        session,
        bookmarks: options.bookmarks,
        timeout,
    };
    Ok(stream.reply(media_type))
}

/// Handles a request that is not a watch.
pub(crate) async fn answer(
    app: &Arc<App>,
    head: &RequestHead,
    permit: &Permit,
    resolved: &ResolvedRoute<'_>,
    verb: &'static str,
    body: Bytes,
) -> Result<Reply, Failure> {
    let bytes = work_bytes(app, head, resolved, verb, &body);
    heavy::run(bytes, pin!(answer_body(app, head, permit, resolved, verb, body))).await
}

/// Estimates the work of a request in bytes. A small patch of a large object decodes and encodes the object, and a JSON
/// Patch can make a small object large.
fn work_bytes(
    app: &App,
    head: &RequestHead,
    resolved: &ResolvedRoute<'_>,
    verb: &str,
    body: &[u8],
) -> usize {
    let Some(target) = resolved.target.as_ref().filter(|_| matches!(verb, "update" | "patch"))
    else {
        return body.len();
    };
    let entry = app.registry.entry(target).ok().flatten();
    let stored = entry.map_or(0, |entry| entry.size().min(heavy::LIGHT_BYTES_MAX));
    let may_copy = verb == "patch"
        && head
            .header(header::CONTENT_TYPE)
            .is_some_and(|media| media.starts_with("application/json-patch+json"))
        && body.windows(4).any(|word| word == b"copy" || word.starts_with(b"\\u"));
    let copied = if may_copy { heavy::LIGHT_BYTES_MAX } else { 0 };
    body.len().max(stored).max(copied)
}

async fn answer_body(
    app: &Arc<App>,
    head: &RequestHead,
    permit: &Permit,
    resolved: &ResolvedRoute<'_>,
    verb: &'static str,
    body: Bytes,
) -> Result<Reply, Failure> {
    if resolved.target.is_none() {
        return Box::pin(reviews::answer(app, head, permit, resolved, verb, &body)).await;
    }
    let is_connect = !matches!(
        (resolved.sub_name(), verb),
        ("" | "scale", _)
            | (_, "update" | "patch")
            | ("status" | "ephemeralcontainers" | "resize" | "approval", "get")
    );
    if is_connect {
        return Box::pin(reviews::connect(app, head, permit, resolved, verb, &body)).await;
    }
    let scale = match resolved.sub_name() {
        "scale" => Some(app.registry.catalogue.schema(&scale_kind()).ok_or_else(no_scale)?),
        _ => None,
    };
    let call = Call::new(app, head, permit, resolved, scale.as_ref())?;
    match (resolved.sub_name(), verb) {
        ("scale", _) => call.scale(verb, body).await,
        (_, "get") => call.get().await,
        ("", "list") => call.list().await,
        ("", "create") => call.create(body).await,
        ("", "delete") => call.delete(body).await,
        ("", "deletecollection") => call.delete_collection(body).await,
        (_, "update") => call.update(body).await,
        _ => call.patch(body).await,
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

/// Returns the part of the object that a subresource writes.
fn part(resolved: &ResolvedRoute<'_>) -> Subresource {
    match resolved.sub_name() {
        "" => Subresource::None,
        "status" => Subresource::Status,
        "finalize" => Subresource::Other("finalize"),
        "approval" => Subresource::Other("approval"),
        "ephemeralcontainers" => Subresource::Other("ephemeralcontainers"),
        _ => Subresource::Other("resize"),
    }
}

impl<'a> Call<'a> {
    /// `schema_override` is the schema of the response, if it differs from that of the objects.
    fn new(
        app: &'a Arc<App>,
        head: &'a RequestHead,
        permit: &'a Permit,
        resolved: &'a ResolvedRoute<'_>,
        schema_override: Option<&Schema>,
    ) -> Result<Call<'a>, Failure> {
        let target = resolved.target()?;
        let accepted =
            if has_table(&resolved.route.group, &resolved.facts().name, resolved.sub_name()) {
                head.accepted_of(resolved.endpoint.source)?
            } else {
                head.accepted_without_tables()?
            };
        let view = View::new(app, head, accepted, target, schema_override)?;
        Ok(Call { app, head, permit, target, part: part(resolved), view })
    }

    async fn get(&self) -> Result<Reply, Failure> {
        let options = self.head.query.get_options()?;
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
        decoded(self.head, self.target.schema(), body)
    }

    async fn create(&self, body: Bytes) -> Result<Reply, Failure> {
        let options = write_options(self.head, "CreateOptions")?;
        let decoded = self.decoded(&body)?;
        let registry = &self.app.registry;
        self.written(registry.create(self.permit, self.target, decoded, &options).await?)
    }

    async fn update(&self, body: Bytes) -> Result<Reply, Failure> {
        let options = write_options(self.head, "UpdateOptions")?;
        let decoded = self.decoded(&body)?;
        let registry = &self.app.registry;
        let update = registry.update(self.permit, self.target, self.part, decoded, &options);
        self.written(update.await?)
    }

    async fn patch(&self, body: Bytes) -> Result<Reply, Failure> {
        let is_custom = self.target.kind.source == Source::Custom;
        let (patch, options) = match read_patch(self.head, body) {
            Ok((patch, _)) if is_custom && patch.form == PatchForm::Strategic => {
                return Err(no_strategic_patch());
            }
            Err(failure) if is_custom && failure.code == 415 => return Err(no_strategic_patch()),
            read => read?,
        };
        let registry = &self.app.registry;
        let patched = registry.patch(self.permit, self.target, self.part, &patch, &options);
        self.written(patched.await?)
    }

    fn written(&self, written: WriteResponse) -> Result<Reply, Failure> {
        let code = if written.created { 201 } else { 200 };
        let mut reply = self.view.reply(code, self.target, &written.answer)?;
        respond::warn(&mut reply, &written.warnings);
        Ok(reply)
    }

    async fn delete(&self, body: Bytes) -> Result<Reply, Failure> {
        let format = delete_format(self.head, &body)?;
        let options = delete_options::read(&self.head.query, &body, format)?;
        let target = self.target;
        if options.ignore_read_error {
            self.may_ignore_read_errors().await?;
        }
        let mut warnings = vec![];
        let deleted = self.app.registry.delete(self.permit, target, &options, &mut warnings).await;
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
            Deleted::Gone(obj) | Deleted::Waiting(obj) => {
                self.view.reply(200, target, &Answer::Object(obj))?
            }
        };
        respond::warn(&mut reply, &warnings);
        Ok(reply)
    }

    /// Checks the verb `unsafe-delete-ignore-read-errors`, which deleting an unreadable object requires.
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
        let list = self.head.query.list_options()?;
        let format = delete_format(self.head, &body)?;
        let options = delete_options::read(&self.head.query, &body, format)?;
        let registry = &self.app.registry;
        let mut warnings = vec![];
        let deleted =
            registry.delete_collection(self.permit, self.target, &list, &options, &mut warnings);
        let deleted = deleted.await.map_err(|failure| failure.with_warnings(warnings.clone()))?;
        let mut reply = self.view.reply_list(self.target, deleted)?;
        respond::warn(&mut reply, &warnings);
        Ok(reply)
    }

    async fn scale(&self, verb: &str, body: Bytes) -> Result<Reply, Failure> {
        let registry = &self.app.registry;
        if verb == "get" {
            let options = self.head.query.get_options()?;
            let answer = registry.get_scale(self.permit, self.target, options).await?;
            return self.view.reply(200, self.target, &answer);
        }
        let (change, options) = if self.head.method == Method::PUT {
            let options = write_options(self.head, "UpdateOptions")?;
            (ScaleChange::Whole(decoded(self.head, &self.view.schema, &body)?), options)
        } else {
            let (patch, options) = read_patch(self.head, body)?;
            (ScaleChange::Patch(patch), options)
        };
        self.written(registry.update_scale(self.permit, self.target, &change, &options).await?)
    }
}

/// Parses the patch in a body, by its media type, and its options.
fn read_patch(head: &RequestHead, body: Bytes) -> Result<(Patch, WriteOptions), Failure> {
    let media = head.header(header::CONTENT_TYPE).unwrap_or_default();
    let form = match media.split(';').next().unwrap_or_default().trim() {
        "application/json-patch+json" => PatchForm::Json,
        "application/merge-patch+json" => PatchForm::Merge,
        "application/strategic-merge-patch+json" => PatchForm::Strategic,
        "application/apply-patch+yaml" => PatchForm::ApplyYaml,
        "application/apply-patch+cbor" if head.cbor => PatchForm::ApplyCbor,
        _ => return Err(unsupported_patch()),
    };
    let user_agent = head.header(header::USER_AGENT).unwrap_or_default();
    let options = head.query.patch_options(form.is_apply(), user_agent)?;
    Ok((Patch { form, body }, options))
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
