//! Requests that connect the client to something that runs: logs, streams to containers, proxies
//! (apiserver `endpoints/handlers/rest.go`, `ConnectResource`).

use crate::app::App;
use crate::far_side::FarEnd;
use crate::log_stream;
use crate::outcome::Outcome;
use crate::proxy;
use crate::request_body::RequestBody;
use crate::request_head::RequestHead;
use crate::request_info::Verb;
use crate::resolve::ResolvedRoute;
use crate::session;
use crate::simulated_ports;
use crate::traced;
use keelson_auth::Permit;
use keelson_meta::go_numbers::parse_uint;
use keelson_meta::{Failure, Feature, GroupVersionKind, Object, Status, Value};
use keelson_registry::Target;
use keelson_registry::hooks::{Connection, Located};
use keelson_schema::catalogue::{Session, SubresourceClass};
use std::sync::Arc;

/// Handles a request for a log, a stream to a container, or a proxy.
pub(crate) async fn run(
    app: &Arc<App>,
    head: &RequestHead,
    permit: &Permit,
    resolved: &ResolvedRoute<'_>,
    verb: Verb,
    body: &mut RequestBody,
) -> Result<Outcome, Failure> {
    let (Some(target), Some(sub)) = (&resolved.target, resolved.sub()) else {
        return Err(Status::method_not_allowed());
    };
    if sub.class == SubresourceClass::Log {
        keelson_traces::current().event("About to process Get options");
        traced::getting();
        return log_stream::run(app, head, permit, target).await;
    }
    if head.query.get("dryRun").is_some() {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    let SubresourceClass::Connect(session) = sub.class else {
        return proxied(app, head, permit, resolved, body).await;
    };
    // A WebSocket starts with a GET, but needs the permission of a POST.
    if verb == Verb::Get {
        check_create(app, permit, target).await?;
    }
    let mut options = session_options(head, &sub.kind)?;
    app.registry.admit_connection(permit, target, &sub.kind, &mut options).await?;
    let asked = Connection::Session(session, &options);
    let location = match app.registry.locate(permit, target, asked).await? {
        Located::There(location) => location,
        Located::SimulatedPorts(pod) => return simulated_ports::run(app, head, pod),
        Located::Nothing | Located::Simulated(_) => {
            return Err(Status::internal("a stream leads nowhere"));
        }
    };
    let far_end = FarEnd::new(app, location)?;
    match session {
        Session::Exec | Session::Attach => session::run(app, head, far_end, &options).await,
        Session::PortForward => session::run_ports(app, head, far_end).await,
    }
}

async fn proxied(
    app: &Arc<App>,
    head: &RequestHead,
    permit: &Permit,
    resolved: &ResolvedRoute<'_>,
    body: &mut RequestBody,
) -> Result<Outcome, Failure> {
    let target = resolved.target()?;
    let kind = resolved.sub().map_or(&resolved.facts().kind, |sub| &sub.kind);
    let mut options = Object::new();
    options.set_gvk(kind);
    if !resolved.route.rest.is_empty() {
        options.root.insert("path", resolved.route.rest.as_str());
    }
    app.registry.admit_connection(permit, target, kind, &mut options).await?;
    let path = resolved.route.proxied_path(head.uri.path());
    let asked = Connection::Proxy { path: &path };
    let location = app.registry.locate(permit, target, asked).await?;
    let Located::There(location) = location else {
        return Err(Status::internal("a proxy leads nowhere"));
    };
    proxy::run(&app.state.pages, head, FarEnd::proxied(app, location)?, body).await
}

/// Converts the query of a stream to an object of the subresource's kind (`PodExecOptions`, ...).
fn session_options(head: &RequestHead, kind: &GroupVersionKind) -> Result<Object, Failure> {
    let mut options = Object::new();
    options.set_gvk(kind);
    for name in ["stdin", "stdout", "stderr", "tty"] {
        if head.query.flag(name) == Some(true) {
            options.root.insert(name, true);
        }
    }
    if let Some(container) = head.query.get("container").filter(|name| !name.is_empty()) {
        options.root.insert("container", container);
    }
    let command: Vec<Value> = head.query.all("command").map(Value::from).collect();
    if !command.is_empty() {
        options.root.insert("command", command);
    }
    let ports: Vec<Value> = head
        .query
        .all("ports")
        .flat_map(|list| list.split(','))
        .map(|port| match parse_uint(port) {
            Ok(number) => Ok(Value::from(i64::try_from(number).unwrap_or(i64::MAX))),
            Err(error) => Err(Status::bad_request(format!("cannot convert to []int32: {error}"))),
        })
        .collect::<Result<_, _>>()?;
    if !ports.is_empty() {
        options.root.insert("ports", ports);
    }
    Ok(options)
}

/// Checks that the user may also create the subresource
/// (AuthorizePodWebsocketUpgradeCreatePermission).
async fn check_create(app: &App, permit: &Permit, target: &Target) -> Result<(), Failure> {
    let is_on =
        app.registry.options.features.is_on(Feature::AuthorizePodWebsocketUpgradeCreatePermission);
    let Some(given) = permit.attributes().filter(|_| is_on) else { return Ok(()) };
    let decision = app.authorizer.decide(permit.user(), &given.with_verb("create")).await;
    if decision.is_allowed() {
        return Ok(());
    }
    Err(Status::forbidden(target.gvr(), &target.name, &decision.reason.to_string()))
}
