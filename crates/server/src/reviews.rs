//! Requests that store no object of their own: reviews, and subresources that act on one (binding,
//! eviction, token).

use crate::app::App;
use crate::negotiate::Accepted;
use crate::request_head::RequestHead;
use crate::request_info::Verb;
use crate::request_object;
use crate::resolve::{ResolvedRoute, decoded_in_any_version, write_options};
use crate::respond::{self, Reply};
use crate::traced;
use crate::view::{self, View};
use keelson_auth::Permit;
use keelson_meta::{Failure, Object, Status, Str, value};
use keelson_registry::options::WriteOptions;
use keelson_schema::Schema;
use std::pin::pin;
use std::sync::Arc;

/// Handles a request for a resource without stored objects.
pub(crate) async fn answer(
    app: &Arc<App>,
    head: &RequestHead,
    permit: &Permit,
    resolved: &ResolvedRoute<'_>,
    verb: Verb,
    body: &[u8],
) -> Result<Reply, Failure> {
    let schema = app
        .registry
        .catalogue
        .schema(&resolved.facts().kind)
        .ok_or_else(|| Status::internal("the kind has no schema"))?;
    let registry = &app.registry;
    let resource = resolved.resource();
    if let Some((of, action)) = registry.alias_of(&resource.group, &resource.resource) {
        let accepted = head.accepted_without_tables()?;
        let options = write_options(head, "CreateOptions")?;
        let Posted { object, warnings } = posted(head, &schema, resolved, &options, body, |_| {})?;
        let namespace = resolved.route.namespace.as_deref().unwrap_or_default();
        let target = registry.target(&resource.group, of, namespace, object.name());
        let act = registry.act(permit, &target, action, object, &options);
        let acted = traced::write(body.len(), pin!(act))
            .await
            .map_err(|failure| warned(failure, &warnings))?;
        return Ok(success(head, accepted, &[warnings, acted.warnings].concat()));
    }
    let computed = registry
        .computed(&resource.group, &resource.resource)
        .ok_or_else(Status::method_not_allowed)?;
    match verb {
        Verb::Get => {
            let view = View::computed(app, head, head.accepted()?, &schema);
            view.reply_computed(&computed.get(registry, &resolved.route.name).await?)
        }
        Verb::List => {
            let view = View::computed(app, head, head.accepted()?, &schema);
            let is_selected = head.query.computed_selection()?;
            let mut objects = computed.list(registry).await?;
            objects.retain(is_selected);
            view.reply_computed_list(objects)
        }
        _ => {
            let accepted = head.accepted_without_tables()?;
            let options = write_options(head, "CreateOptions")?;
            let Posted { object: mut review, mut warnings } =
                posted(head, &schema, resolved, &options, body, |_| {})?;
            wipe_system_fields(&mut review);
            registry.set_field_manager(&schema, "", &mut review, &options);
            let kind = &resolved.facts().kind;
            let answered = async {
                let admitted =
                    registry.admit_review(permit, &resource, kind, &mut review, &options);
                warnings.extend(admitted.await?);
                computed.post(registry, permit, review).await
            };
            let answered = traced::write(body.len(), pin!(answered)).await;
            let mut answer = answered.map_err(|failure| warned(failure, &warnings))?;
            answer.set_gvk(&schema.gvk);
            reply_object(app, head, accepted, &schema, answer, &warnings)
        }
    }
}

/// The body of a review or of an action.
struct Posted {
    object: Object,
    /// Warnings about unknown and duplicate fields.
    warnings: Vec<Str>,
}

/// Puts warnings in front of those of a failure.
fn warned(failure: Failure, warnings: &[Str]) -> Failure {
    let all = warnings.iter().chain(&failure.warnings).cloned().collect();
    failure.with_warnings(all)
}

/// Decodes and checks the body of a review or an action, and sets its defaults that are not in the
/// schema, and the namespace of the URL.
fn posted(
    head: &RequestHead,
    schema: &Schema,
    resolved: &ResolvedRoute<'_>,
    options: &WriteOptions,
    body: &[u8],
    fill_defaults: impl FnOnce(&mut Object),
) -> Result<Posted, Failure> {
    let mut decoded = traced::decode(|| decoded_in_any_version(head, schema, body))?;
    fill_defaults(&mut decoded.object);
    request_object::record_with_defaults(head, schema, &decoded, options.field_validation);
    let warnings = keelson_registry::check_body_fields(schema, &decoded, options.field_validation)?;
    let mut obj = decoded.object;
    match resolved.route.namespace.as_deref() {
        None => obj.set_meta("namespace", ""),
        Some(namespace) if obj.namespace().is_empty() || obj.namespace() == namespace => {
            obj.set_meta("namespace", namespace);
        }
        Some(_) => {
            let why = "the namespace of the provided object does not match the namespace sent on \
                       the request";
            return Err(warned(Status::bad_request(why), &warnings));
        }
    }
    Ok(Posted { object: obj, warnings })
}

/// Removes the metadata that only the server sets.
fn wipe_system_fields(obj: &mut Object) {
    const SYSTEM: [&str; 5] =
        ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"];
    if obj.metadata().is_some() {
        let metadata = obj.metadata_mut();
        SYSTEM.iter().for_each(|name| drop(metadata.remove(name)));
    }
}

/// Handles a POST to a subresource that acts on a stored object.
pub(crate) async fn act(
    app: &App,
    head: &RequestHead,
    permit: &Permit,
    resolved: &ResolvedRoute<'_>,
    body: &[u8],
) -> Result<Reply, Failure> {
    let (Some(target), Some(sub)) = (&resolved.target, resolved.sub()) else {
        return Err(Status::method_not_allowed());
    };
    let schema = app
        .registry
        .catalogue
        .schema(&sub.kind)
        .ok_or_else(|| Status::internal("the kind has no schema"))?;
    let accepted = head.accepted_without_tables()?;
    let options = write_options(head, "CreateOptions")?;
    let defaults = |body: &mut Object| app.registry.fill_action_defaults(target, &sub.name, body);
    let Posted { object, warnings } = posted(head, &schema, resolved, &options, body, defaults)?;
    let act = app.registry.act(permit, target, &sub.name, object, &options);
    let acted =
        traced::write(body.len(), pin!(act)).await.map_err(|failure| warned(failure, &warnings))?;
    let warnings = [warnings, acted.warnings].concat();
    let Some(answer) = acted.object else { return Ok(success(head, accepted, &warnings)) };
    reply_object(app, head, accepted, &schema, answer, &warnings)
}

fn success(head: &RequestHead, accepted: Accepted, warnings: &[Str]) -> Reply {
    let status = value!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201
    });
    let mut reply = respond::status(head, 201, accepted.encoding, status);
    respond::warn(&mut reply, warnings);
    reply
}

fn reply_object(
    app: &App,
    head: &RequestHead,
    accepted: Accepted,
    schema: &Schema,
    obj: Object,
    warnings: &[Str],
) -> Result<Reply, Failure> {
    let text = view::computed_text(app, accepted, schema, obj)
        .map_err(|failure| warned(failure, warnings))?;
    let mut reply = respond::encoded(head.pretty(), 201, accepted.encoding, text);
    respond::warn(&mut reply, warnings);
    Ok(reply)
}
