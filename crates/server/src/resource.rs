//! Requests about resources: which kind, which verb, the body, the registry's answer.

use crate::handler::{App, Ask, asked_verb};
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
use keelson_meta::{Failure, GroupVersionResource, Map, Reason, Status, value};
use keelson_registry::api_table::Source;
use keelson_registry::options::{Patch, PatchForm, WriteOptions};
use keelson_registry::{
    Answer, Deleted, Endpoint, Part, ScaleChange, Target, WatchRefusal, Written, scale_kind,
};
use keelson_schema::Schema;
use keelson_schema::catalogue::{Catalogue, Resource, Subresource};
use keelson_schema::decode::{self, Decoded, Format};
use std::pin::pin;
use std::sync::Arc;

/// Subresources to which clients connect.
const CONNECTED: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// The endpoint and object of a resource URL.
pub(crate) struct Found<'a> {
    /// The resource in the version of the URL.
    pub endpoint: Arc<Endpoint>,
    /// The place of the subresource in the endpoint's facts, when the URL names one.
    sub: Option<usize>,
    /// The kind and object, for resources that keep objects.
    pub target: Option<Target>,
    /// The URL's parts.
    pub route: &'a ResourceRoute,
}

impl Found<'_> {
    /// The facts of the resource.
    pub fn facts(&self) -> &Resource {
        &self.endpoint.facts
    }

    /// Group, version and resource of the URL.
    pub fn resource(&self) -> GroupVersionResource {
        let ResourceRoute { group, version, resource, .. } = self.route;
        GroupVersionResource::new(group.clone(), version.clone(), resource.clone())
    }

    /// The subresource, when the URL names one.
    pub fn sub(&self) -> Option<&Subresource> {
        self.sub.map(|place| &self.facts().subresources[place])
    }

    /// The name of the subresource, or empty.
    pub fn sub_name(&self) -> &str {
        self.sub().map_or("", |sub| &sub.name)
    }

    fn target(&self) -> Result<&Target, Failure> {
        self.target.as_ref().ok_or_else(Status::no_such_path)
    }
}

/// Finds what the URL leads to, or 404. `None`: not even the group is known.
pub(crate) fn find<'a>(
    app: &'a App,
    route: &'a ResourceRoute,
) -> Result<Option<Found<'a>>, Failure> {
    let api = app.registry.api();
    let Some(endpoint) = api.endpoint(&route.group, &route.version, &route.resource) else {
        // Of a group that only has custom resources, nobody answers for what is not there.
        let is_known = app.registry.has_group(&route.group);
        return if is_known { Err(Status::no_such_path()) } else { Ok(None) };
    };
    let facts = &endpoint.facts;
    // The scope is part of the route: what lives in namespaces is not reached without one, by name.
    let has_namespace = route.namespace.is_some();
    if has_namespace != facts.namespaced && (has_namespace || !route.name.is_empty()) {
        let is_custom = endpoint.source == Source::Custom;
        return if is_custom { Ok(None) } else { Err(Status::no_such_path()) };
    }
    // Reviews keep nothing: there is no collection of all namespaces, and there are no names.
    let answers_only = !facts.has_verb("list") && !facts.has_verb("get");
    if answers_only && (has_namespace != facts.namespaced || !route.name.is_empty()) {
        return Err(Status::no_such_path());
    }
    let sub = match route.subresource.as_str() {
        "" => None,
        name => {
            let place = facts.subresources.iter().position(|sub| sub.name == name);
            Some(place.ok_or_else(|| no_subresource(endpoint, route))?)
        }
    };
    if !route.rest.is_empty() && !matches!(route.subresource.as_str(), "proxy") {
        return Err(Status::no_such_path());
    }
    let target = endpoint.kind.as_ref().map(|kind| Target {
        kind: kind.clone(),
        version: route.version.clone(),
        namespace: route.namespace.clone().unwrap_or_default(),
        name: route.name.clone(),
    });
    Ok(Some(Found { endpoint: endpoint.clone(), sub, target, route }))
}

/// 404 for a subresource that a resource has not: of a custom one, the object is said not to be there.
fn no_subresource(endpoint: &Endpoint, route: &ResourceRoute) -> Failure {
    match &endpoint.kind {
        Some(kind) if kind.source == Source::Custom => {
            let warnings = endpoint.deprecation.iter().cloned().collect();
            Status::not_found(&kind.gvr, &route.name).with_warnings(warnings)
        }
        _ => Status::no_such_path(),
    }
}

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
    let verb = asked_verb(ask, route);
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
        && !matches!(asked_verb(ask, route), "list" | "watch")
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
/// Whether a resource or subresource can be shown as a table: some subresources cannot, as upstream.
fn has_table(found: &Found<'_>) -> bool {
    match found.sub_name() {
        "ephemeralcontainers" | "resize" | "approval" => false,
        "status" => {
            found.facts().name != "resourceclaims" || found.route.group != "resource.k8s.io"
        }
        _ => true,
    }
}

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

/// The body of a write, as an object of the kind that `schema` describes.
pub(crate) fn decoded(ask: &Ask, schema: &Schema, body: &[u8]) -> Result<Decoded, Failure> {
    let format = ask.body_format()?;
    let catalogue = Catalogue::shared();
    decode::decode(schema, body, format, &|gvk| catalogue.is_known(gvk))
}

pub(crate) fn write_options(ask: &Ask, kind: &str) -> Result<WriteOptions, Failure> {
    ask.query.write_options(kind, ask.header(header::USER_AGENT).unwrap_or_default())
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
        let accepted = if has_table(found) {
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
