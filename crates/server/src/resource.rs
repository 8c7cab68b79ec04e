//! Requests about resources: which kind, which verb, the body, the registry's answer.

use crate::app::App;
use crate::ask::Ask;
use crate::found::{Found, decoded, write_options};
use crate::heavy;
use crate::metrics::Asked;
use crate::negotiate;
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
    Answer, Deleted, Part, ScaleChange, Target, WatchRefusal, Written, has_table, scale_kind,
};
use keelson_schema::Schema;
use keelson_schema::decode::{Decoded, Format};
use std::pin::pin;
use std::sync::Arc;

/// Subresources to which clients connect.
const CONNECTED: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// What metrics say of a request.
pub(crate) fn measured<'a>(ask: &Ask, found: &'a Found<'_>, verb: &str) -> Asked<'a> {
    let route = found.route;
    let scope = match (&route.namespace, verb) {
        _ if !route.name.is_empty() => "resource",
        (_, "create") => "resource",
        (Some(_), _) => "namespace",
        (None, _) => "cluster",
    };
    let is_apply = || {
        let media_type = ask.header(header::CONTENT_TYPE).unwrap_or_default();
        media_type.starts_with("application/apply-patch+")
    };
    let verb = match verb {
        _ if CONNECTED.contains(&found.sub_name()) => "CONNECT",
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" => "POST",
        "update" => "PUT",
        "patch" if is_apply() => "APPLY",
        "patch" => "PATCH",
        _ => "DELETE",
    };
    Asked {
        component: "apiserver",
        group: &route.group,
        resource: &route.resource,
        scope,
        subresource: found.sub_name(),
        verb,
        version: &route.version,
    }
}

/// The verb of a request, or 405.
pub(crate) fn verb(
    ask: &Ask,
    route: &ResourceRoute,
    found: &Found<'_>,
) -> Result<&'static str, Failure> {
    let verb = ask.verb(route);
    if route.is_watch && ask.method != Method::GET {
        return Err(Status::method_not_allowed());
    }
    let on_object = !route.name.is_empty();
    let is_custom = found.endpoint.source == Source::Custom;
    if is_custom && !on_object && matches!(verb, "update" | "patch") && found.sub.is_none() {
        return Err(Status::bad_request("name must be provided"));
    }
    let allowed = match found.sub() {
        Some(sub) => on_object && sub.has_verb(verb),
        None => {
            let fits = match verb {
                // Upstream's handler of custom resources takes a name here, and that of the body counts.
                "create" if is_custom => true,
                "create" => !on_object && (route.namespace.is_some() == found.facts().namespaced),
                "update" | "patch" => on_object,
                "deletecollection" => route.namespace.is_some() == found.facts().namespaced,
                _ => true,
            };
            fits && found.facts().has_verb(verb)
        }
    };
    if allowed { Ok(verb) } else { Err(Status::method_not_allowed()) }
}

/// Whether a request asks for something of all namespaces that upstream's handler of custom resources does
/// only in one: its page is not found.
pub(crate) fn is_across_namespaces(ask: &Ask, route: &ResourceRoute, found: &Found<'_>) -> bool {
    found.endpoint.source == Source::Custom
        && found.facts().namespaced
        && route.namespace.is_none()
        && !matches!(ask.verb(route), "list" | "watch")
}

/// Starts a watch.
pub(crate) async fn watch(
    app: &Arc<App>,
    ask: &Ask,
    permit: &Permit,
    found: &Found<'_>,
) -> Result<Reply, Failure> {
    let target = found.target()?;
    let accepted = ask.accepted_of(found.endpoint.source)?;
    let media_type = negotiate::accept_stream(accepted.encoding, negotiate::spoken(ask.cbor))?;
    // Table options are checked before the stream begins.
    let view = View::new(app, ask, accepted, target, None)?;
    let options = ask.query.watch_options()?;
    let timeout = ask.query.timeout()?;
    let session = match app.registry.watch(permit, target, &options).await {
        Ok(session) => session,
        Err(WatchRefusal::Answer(failure)) => return Err(failure),
        Err(WatchRefusal::Event(failure)) => {
            return Ok(watch::refusal(app, accepted.encoding, media_type, &failure));
        }
    };
    let ResourceRoute { group, version, resource, .. } = found.route;
    let stream = Stream {
        metrics: app.state.metrics.watches(group, resource, version),
        view,
        peer: ask.peer.clone(),
        target: target.clone(),
        session,
        bookmarks: options.bookmarks,
        timeout,
    };
    Ok(stream.reply(media_type))
}

/// Answers a request that is no watch.
pub(crate) async fn answer(
    app: &Arc<App>,
    ask: &Ask,
    permit: &Permit,
    found: &Found<'_>,
    verb: &'static str,
    body: Bytes,
) -> Result<Reply, Failure> {
    heavy::run(body.len(), pin!(answer_body(app, ask, permit, found, verb, body))).await
}

async fn answer_body(
    app: &Arc<App>,
    ask: &Ask,
    permit: &Permit,
    found: &Found<'_>,
    verb: &'static str,
    body: Bytes,
) -> Result<Reply, Failure> {
    if found.target.is_none() {
        return Box::pin(reviews::answer(app, ask, permit, found, verb, &body)).await;
    }
    let is_connect = !matches!(
        (found.sub_name(), verb),
        ("" | "scale", _)
            | (_, "update" | "patch")
            | ("status" | "ephemeralcontainers" | "resize" | "approval", "get")
    );
    if is_connect {
        return Box::pin(reviews::connect(app, ask, permit, found, verb, &body)).await;
    }
    let scale = match found.sub_name() {
        "scale" => Some(app.registry.catalogue.schema(&scale_kind()).ok_or_else(no_scale)?),
        _ => None,
    };
    let call = Call::new(app, ask, permit, found, scale.as_ref())?;
    match (found.sub_name(), verb) {
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

/// A request about one kind, whose answer shows its objects.
struct Call<'a> {
    app: &'a App,
    ask: &'a Ask,
    permit: &'a Permit,
    target: &'a Target,
    part: Part,
    view: View,
}

/// The part of the object that a subresource writes.
fn part(found: &Found<'_>) -> Part {
    match found.sub_name() {
        "" => Part::Main,
        "status" => Part::Status,
        "finalize" => Part::Other("finalize"),
        "approval" => Part::Other("approval"),
        "ephemeralcontainers" => Part::Other("ephemeralcontainers"),
        _ => Part::Other("resize"),
    }
}

impl<'a> Call<'a> {
    /// `shown` is the type of the answer, where it is not that of the objects.
    fn new(
        app: &'a Arc<App>,
        ask: &'a Ask,
        permit: &'a Permit,
        found: &'a Found<'_>,
        shown: Option<&Schema>,
    ) -> Result<Call<'a>, Failure> {
        let target = found.target()?;
        let accepted = if has_table(&found.route.group, &found.facts().name, found.sub_name()) {
            ask.accepted_of(found.endpoint.source)?
        } else {
            ask.accepted_without_tables()?
        };
        let view = View::new(app, ask, accepted, target, shown)?;
        Ok(Call { app, ask, permit, target, part: part(found), view })
    }

    async fn get(&self) -> Result<Reply, Failure> {
        let options = self.ask.query.get_options()?;
        let answer = self.app.registry.get(self.permit, self.target, options).await?;
        self.view.reply(200, self.target, &answer)
    }

    async fn list(&self) -> Result<Reply, Failure> {
        let options = self.ask.query.list_options()?;
        let list = self.app.registry.list(self.permit, self.target, &options).await?;
        self.view.reply_list(self.target, list)
    }

    /// The body of a write. A custom resource has no protobuf.
    fn decoded(&self, body: &[u8]) -> Result<Decoded, Failure> {
        let is_custom = self.target.kind.source == Source::Custom;
        if is_custom && self.ask.body_format()? == Format::Protobuf {
            return Err(negotiate::unsupported_body(negotiate::spoken(self.ask.cbor)));
        }
        decoded(self.ask, self.target.schema(), body)
    }

    async fn create(&self, body: Bytes) -> Result<Reply, Failure> {
        let options = write_options(self.ask, "CreateOptions")?;
        let decoded = self.decoded(&body)?;
        let registry = &self.app.registry;
        self.written(registry.create(self.permit, self.target, decoded, &options).await?)
    }

    async fn update(&self, body: Bytes) -> Result<Reply, Failure> {
        let options = write_options(self.ask, "UpdateOptions")?;
        let decoded = self.decoded(&body)?;
        let registry = &self.app.registry;
        let update = registry.update(self.permit, self.target, self.part, decoded, &options);
        self.written(update.await?)
    }

    async fn patch(&self, body: Bytes) -> Result<Reply, Failure> {
        let is_custom = self.target.kind.source == Source::Custom;
        let (patch, options) = match read_patch(self.ask, body) {
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

    fn written(&self, written: Written) -> Result<Reply, Failure> {
        let code = if written.created { 201 } else { 200 };
        let mut reply = self.view.reply(code, self.target, &written.answer)?;
        respond::warn(&mut reply, &written.warnings);
        Ok(reply)
    }

    async fn delete(&self, body: Bytes) -> Result<Reply, Failure> {
        let format = delete_format(self.ask, &body)?;
        let options = self.ask.query.delete_options(&body, format)?;
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
                respond::status(self.ask, 200, self.view.accepted.encoding, status)
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
                respond::status(self.ask, 200, self.view.accepted.encoding, status)
            }
            Deleted::Gone(obj) | Deleted::Waiting(obj) => {
                self.view.reply(200, target, &Answer::Object(obj))?
            }
        };
        respond::warn(&mut reply, &warnings);
        Ok(reply)
    }

    /// Deleting an object that cannot be read needs a verb of its own (`unsafe-delete-ignore-read-errors`).
    async fn may_ignore_read_errors(&self) -> Result<(), Failure> {
        let verb = "unsafe-delete-ignore-read-errors";
        let asked = self.permit.attributes().map(|attributes| attributes.with_verb(verb));
        match asked {
            Some(asked) if !self.app.authorizer.allows(self.permit.user(), &asked).await => {}
            _ => return Ok(()),
        }
        let why = format!("not permitted to do {}, reason: ", quote(verb));
        Err(Status::forbidden(self.target.gvr(), &self.target.name, &why))
    }

    async fn delete_collection(&self, body: Bytes) -> Result<Reply, Failure> {
        let list = self.ask.query.list_options()?;
        let format = delete_format(self.ask, &body)?;
        let options = self.ask.query.delete_options(&body, format)?;
        let registry = &self.app.registry;
        let mut warnings = vec![];
        let gone =
            registry.delete_collection(self.permit, self.target, &list, &options, &mut warnings);
        let gone = gone.await.map_err(|failure| failure.with_warnings(warnings.clone()))?;
        let mut reply = self.view.reply_list(self.target, gone)?;
        respond::warn(&mut reply, &warnings);
        Ok(reply)
    }

    async fn scale(&self, verb: &str, body: Bytes) -> Result<Reply, Failure> {
        let registry = &self.app.registry;
        if verb == "get" {
            let options = self.ask.query.get_options()?;
            let answer = registry.get_scale(self.permit, self.target, options).await?;
            return self.view.reply(200, self.target, &answer);
        }
        let (change, options) = if self.ask.method == Method::PUT {
            let options = write_options(self.ask, "UpdateOptions")?;
            (ScaleChange::Whole(decoded(self.ask, &self.view.schema, &body)?), options)
        } else {
            let (patch, options) = read_patch(self.ask, body)?;
            (ScaleChange::Patch(patch), options)
        };
        self.written(registry.update_scale(self.permit, self.target, &change, &options).await?)
    }
}

/// The patch in a body, by its media type, and the options that go with it.
fn read_patch(ask: &Ask, body: Bytes) -> Result<(Patch, WriteOptions), Failure> {
    let media = ask.header(header::CONTENT_TYPE).unwrap_or_default();
    let form = match media.split(';').next().unwrap_or_default().trim() {
        "application/json-patch+json" => PatchForm::Json,
        "application/merge-patch+json" => PatchForm::Merge,
        "application/strategic-merge-patch+json" => PatchForm::Strategic,
        "application/apply-patch+yaml" => PatchForm::ApplyYaml,
        "application/apply-patch+cbor" if ask.cbor => PatchForm::ApplyCbor,
        _ => return Err(unsupported_patch()),
    };
    check_patch_options(ask, form.is_apply())?;
    Ok((Patch { form, body }, write_options(ask, "PatchOptions")?))
}

/// Rules between the options of a patch and its media type.
fn check_patch_options(ask: &Ask, is_apply: bool) -> Result<(), Failure> {
    use keelson_meta::{ErrorList, FieldError, Path};
    let mut errors = ErrorList::new();
    if is_apply && ask.query.get("fieldManager").unwrap_or_default().is_empty() {
        let why = "is required for apply patch";
        errors.push(FieldError::required(&Path::new("fieldManager"), why));
    }
    if !is_apply && ask.query.get("force").is_some() {
        let why = "may not be specified for non-apply patch";
        errors.push(FieldError::forbidden(&Path::new("force"), why));
    }
    errors.into_result("meta.k8s.io", "PatchOptions", "")
}

/// Custom resources have no patch strategies.
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

/// The form of a deletion's body; none needs no media type.
fn delete_format(ask: &Ask, body: &[u8]) -> Result<Format, Failure> {
    if body.is_empty() {
        return Ok(Format::Json);
    }
    ask.body_format()
}
