//! Requests that store nothing: reviews, and the subresources that only act.

use crate::access_review;
use crate::handler::{App, Ask};
use crate::negotiate;
use crate::resource::{Found, decoded, write_options};
use crate::respond::{self, Reply};
use keelson_auth::service_account::KnownToken;
use keelson_auth::{Permit, User};
use keelson_meta::{
    Failure, GroupVersionKind, GroupVersionResource, Map, Object, Status, Str, Value, value,
};
use keelson_registry::Target;
use keelson_registry::options::WriteOptions;
use keelson_schema::Schema;

/// Answers a request about a resource that keeps no objects.
pub(crate) async fn answer(
    app: &App,
    ask: &Ask,
    permit: &Permit,
    found: &Found<'_>,
    verb: &str,
    body: &[u8],
) -> Result<Reply, Failure> {
    let schema = app
        .registry
        .catalogue
        .schema(&found.facts().kind)
        .ok_or_else(|| Status::internal("the kind has no schema"))?;
    if found.facts().name == "componentstatuses" {
        return component_status(app, ask, found, &schema, verb);
    }
    let options = write_options(ask, "CreateOptions")?;
    let mut obj = checked(ask, &schema, found, &options, body)?;
    let mut warnings = vec![];
    if found.facts().name != "bindings" {
        wipe_system_fields(&mut obj);
        app.registry.note_manager(&schema, "", &mut obj, &options);
        let (kind, resource) = (&found.facts().kind, found.resource());
        warnings = app.registry.admit_review(permit, &resource, kind, &mut obj, &options).await?;
    }
    match found.facts().name.as_str() {
        "selfsubjectreviews" => obj = self_subject_review(app, permit, &schema),
        "selfsubjectrulesreviews" => {
            let rules = access_review::answer_rules(&app.authorizer, &obj, permit.user()).await?;
            obj = Object::from_value(rules).unwrap_or_default();
        }
        "tokenreviews" => {
            token_review(app, &mut obj).await?;
        }
        name @ ("selfsubjectaccessreviews"
        | "subjectaccessreviews"
        | "localsubjectaccessreviews") => {
            let kind = match name {
                "selfsubjectaccessreviews" => access_review::Kind::SelfSubject,
                "subjectaccessreviews" => access_review::Kind::Subject,
                _ => access_review::Kind::LocalSubject,
            };
            access_review::answer(&app.authorizer, kind, &mut obj, permit.user()).await?;
        }
        "bindings" => {
            let target = app.registry.target(
                "",
                "pods",
                found.route.namespace.as_deref().unwrap_or_default(),
                obj.name(),
            );
            let acted = app.registry.act(permit, &target, "binding", obj, &options).await?;
            return Ok(success(ask, 201, &acted.warnings));
        }
        _ => return Err(Status::method_not_allowed()),
    }
    let mut reply = reply_object(ask, 201, &schema, &obj)?;
    respond::warn(&mut reply, &warnings);
    Ok(reply)
}

/// The body of a review or binding, in the namespace of the URL.
fn checked(
    ask: &Ask,
    schema: &Schema,
    found: &Found<'_>,
    options: &WriteOptions,
    body: &[u8],
) -> Result<Object, Failure> {
    let decoded = decoded(ask, schema, body)?;
    keelson_registry::check_body_fields(schema, &decoded, options.field_validation)?;
    let mut obj = decoded.object;
    match found.route.namespace.as_deref() {
        None => obj.set_meta("namespace", ""),
        Some(namespace) if obj.namespace().is_empty() || obj.namespace() == namespace => {
            obj.set_meta("namespace", namespace);
        }
        Some(_) => {
            let why = "the namespace of the provided object does not match the namespace sent on \
                       the request";
            return Err(Status::bad_request(why));
        }
    }
    Ok(obj)
}

/// Takes out the metadata that only the server sets.
fn wipe_system_fields(obj: &mut Object) {
    const SYSTEM: [&str; 5] =
        ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"];
    if obj.metadata().is_some() {
        let metadata = obj.metadata_mut();
        SYSTEM.iter().for_each(|name| drop(metadata.remove(name)));
    }
}

/// The `userInfo` of the sender.
fn self_subject_review(app: &App, permit: &Permit, schema: &Schema) -> Object {
    let mut obj = Object::new();
    obj.set_gvk(&schema.gvk);
    obj.set_meta("creationTimestamp", &app.registry.clock.now().text());
    let info = user_info(permit.user());
    obj.root.insert("status", value!({"userInfo": (info)}));
    obj
}

/// Acts on a stored object: POST to a subresource, or a stream to a node.
pub(crate) async fn connect(
    app: &App,
    ask: &Ask,
    permit: &Permit,
    found: &Found<'_>,
    verb: &str,
    body: &[u8],
) -> Result<Reply, Failure> {
    let (Some(target), Some(sub)) = (&found.target, found.sub()) else {
        return Err(Status::method_not_allowed());
    };
    let schema = app.registry.catalogue.schema(&sub.kind);
    match (sub.name.as_str(), verb, schema) {
        (name @ ("binding" | "eviction" | "token"), "create", Some(schema)) => {
            let options = write_options(ask, "CreateOptions")?;
            let posted = checked(ask, &schema, found, &options, body)?;
            act(app, ask, (permit, target, name), (&schema, posted), &options).await
        }
        ("log", ..) => {
            let options = ask.query.log_options()?;
            app.registry.read_log(permit, target, &options).await?;
            Ok(respond::no_content())
        }
        _ => {
            // A WebSocket begins with a GET, and is a POST all the same.
            if verb == "get" && matches!(sub.name.as_str(), "exec" | "attach" | "portforward") {
                Box::pin(check_create(app, permit, target)).await?;
            }
            let mut options = connect_options(ask, &sub.kind, &found.route.rest);
            app.registry.admit_connection(permit, target, &sub.kind, &mut options).await?;
            let container = ask.query.get("container").unwrap_or_default();
            Err(app.registry.no_node(permit, target, container).await)
        }
    }
}

/// Answers what is posted to a subresource that acts.
async fn act(
    app: &App,
    ask: &Ask,
    (permit, target, name): (&Permit, &Target, &str),
    (schema, posted): (&Schema, Object),
    options: &WriteOptions,
) -> Result<Reply, Failure> {
    let acted = app.registry.act(permit, target, name, posted, options).await?;
    let Some(answer) = acted.object else { return Ok(success(ask, 201, &acted.warnings)) };
    let mut reply = reply_object(ask, 201, schema, &answer)?;
    respond::warn(&mut reply, &acted.warnings);
    Ok(reply)
}

/// What the URL of a stream or proxy asks of it, as an object of the subresource's kind (`PodExecOptions`,
/// `ServiceProxyOptions`, ...).
fn connect_options(ask: &Ask, kind: &GroupVersionKind, path: &str) -> Object {
    let mut options = Object::new();
    options.set_gvk(kind);
    if kind.kind.ends_with("ProxyOptions") {
        if !path.is_empty() {
            options.root.insert("path", path);
        }
        return options;
    }
    for name in ["stdin", "stdout", "stderr", "tty"] {
        if matches!(ask.query.get(name), Some("1" | "t" | "T" | "true" | "TRUE" | "True")) {
            options.root.insert(name, true);
        }
    }
    if let Some(container) = ask.query.get("container").filter(|name| !name.is_empty()) {
        options.root.insert("container", container);
    }
    let command: Vec<Value> = ask.query.all("command").map(Value::from).collect();
    if !command.is_empty() {
        options.root.insert("command", command);
    }
    let ports = ask.query.all("ports").flat_map(|list| list.split(','));
    let ports: Vec<Value> =
        ports.filter_map(|port| port.parse::<i64>().ok()).map(Value::from).collect();
    if !ports.is_empty() {
        options.root.insert("ports", ports);
    }
    options
}

/// Opening a stream needs the right to create it, too (AuthorizePodWebsocketUpgradeCreatePermission).
async fn check_create(app: &App, permit: &Permit, target: &Target) -> Result<(), Failure> {
    let Some(given) = permit.attributes() else { return Ok(()) };
    let decision = app.authorizer.decide(permit.user(), &given.with_verb("create")).await;
    if decision.is_allowed() {
        return Ok(());
    }
    Err(Status::forbidden(target.gvr(), &target.name, &decision.reason.to_string()))
}

fn success(ask: &Ask, code: u16, warnings: &[Str]) -> Reply {
    let status =
        value!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    let status = match status {
        Value::Object(mut map) => {
            map.insert("code", i64::from(code));
            Value::Object(map)
        }
        other => other,
    };
    let mut reply = respond::value(ask, code, negotiate::Encoding::Json, &status);
    respond::warn(&mut reply, warnings);
    reply
}

fn reply_object(ask: &Ask, code: u16, schema: &Schema, obj: &Object) -> Result<Reply, Failure> {
    let accepted = ask.accepted()?;
    let text = accepted.encoding.object(schema, obj)?;
    Ok(respond::encoded(ask.pretty(), code, accepted.encoding, text))
}

/// A user as reviews show it.
fn user_info(user: &User) -> Map {
    let mut info = Map::new();
    info.insert("username", user.name.clone());
    if !user.uid.is_empty() {
        info.insert("uid", user.uid.clone());
    }
    let groups: Vec<Value> = user.groups.iter().cloned().map(Value::String).collect();
    info.insert("groups", groups);
    if !user.extra.is_empty() {
        let extra = user.extra.iter().map(|(name, values)| {
            let values: Vec<Value> = values.iter().cloned().map(Value::String).collect();
            (name.clone(), Value::Array(values))
        });
        info.insert("extra", extra.collect::<Map>());
    }
    info
}

async fn token_review(app: &App, obj: &mut Object) -> Result<(), Failure> {
    let token = obj.str_at(&["spec", "token"]);
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let asked = obj.array_at(&["spec", "audiences"]).iter().filter_map(Value::as_str);
    let asked: Vec<Str> = asked.map(Str::new).collect();
    let now = app.registry.clock.now();
    let mut status = Map::new();
    match app.authenticator.authenticate_token(token, &asked, now).await {
        Ok(KnownToken { user, audiences, .. }) => {
            status.insert("authenticated", true);
            status.insert("user", user_info(&user));
            let audiences: Vec<Value> = audiences.into_iter().map(Value::String).collect();
            status.insert("audiences", audiences);
        }
        Err(errors) => {
            status.insert("user", Map::new());
            let invalid = "invalid bearer token";
            let error = match errors.as_slice() {
                [] => invalid.to_owned(),
                errors => format!("[{invalid}, {}]", errors.join(", ")),
            };
            status.insert("error", error.as_str());
        }
    }
    obj.root.insert("status", status);
    Ok(())
}

/// The store is the only component behind an API server that it can look at.
fn component_status(
    app: &App,
    ask: &Ask,
    found: &Found<'_>,
    schema: &Schema,
    verb: &str,
) -> Result<Reply, Failure> {
    let healthy = app.registry.store.health().is_ok();
    let state = if healthy { "True" } else { "False" };
    let message = if healthy { "ok" } else { "the store refuses writes" };
    let one = value!({
        "metadata": {"name": "etcd-0"},
        "conditions": [{"type": "Healthy", "status": state, "message": message}]
    });
    let reply = if verb == "get" {
        if found.route.name != "etcd-0" {
            let gvr = GroupVersionResource::new("", "v1", "componentstatus");
            return Err(Status::not_found(&gvr, &found.route.name));
        }
        let obj = Object::from_value(one).unwrap_or_default();
        reply_object(ask, 200, schema, &obj)?
    } else {
        let list = value!({
            "kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": [(one)]
        });
        respond::value(ask, 200, negotiate::Encoding::Json, &list)
    };
    Ok(reply)
}
