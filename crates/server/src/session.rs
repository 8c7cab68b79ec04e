//! Streams to containers: exec, attach and port-forward (registry `core/pod/rest/subresources.go`,
//! apiserver `util/proxy`). Most are passed through; WebSockets that a kubelet does not understand
//! are translated.

use crate::app::App;
use crate::far_side::{FarEnd, connect_by, upgrade_by};
use crate::header_lists;
use crate::log_stream;
use crate::outcome::Outcome;
use crate::passage;
use crate::request_head::RequestHead;
use crate::respond;
use crate::throttle::Throttled;
use crate::translation;
use crate::upgrade::Tunnel;
use crate::websocket;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use keelson_egress::{Cause, UpgradeAnswer, Upgraded};
use keelson_meta::status::quote;
use keelson_meta::{Failure, Object, Status, Value};
use keelson_registry::hooks::FarSide;
use keelson_streams::channels::{CommandStreams, V5};
use keelson_streams::handshake;
use std::sync::Arc;

/// The subprotocols that a client asks for.
const X_STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// Connects the client to a command or to the process of a container.
pub(crate) async fn run(
    app: &Arc<App>,
    head: &RequestHead,
    far_end: FarEnd,
    options: &Object,
) -> Result<Outcome, Failure> {
    check_upgrade(head)?;
    let requested = head.header(header::SEC_WEBSOCKET_PROTOCOL).unwrap_or_default();
    let needs_translation = header_lists::is_handshake(&head.headers)
        && handshake::wants_close(requested)
        && !takes_websockets(&far_end);
    if !needs_translation {
        return passage::run(head, far_end).await;
    }
    if head.method != Method::GET {
        return Ok(Outcome::Reply(websocket::bad_method()));
    }
    let reply = match websocket::accept(&head.headers, Some(V5.name)) {
        Ok(reply) => reply,
        Err(refused) => return Ok(Outcome::Reply(*refused)),
    };
    let is_set = |name: &str| options.root.get(name).and_then(Value::as_bool) == Some(true);
    let streams = CommandStreams {
        stdin: is_set("stdin"),
        stdout: is_set("stdout"),
        stderr: is_set("stderr"),
        tty: is_set("tty"),
    };
    let request = spdy_request(&far_end, head, &handshake::COMMAND_PROTOCOLS)?;
    let shutdown = app.shutdown.clone();
    let run = move |near| {
        let far = connect(far_end, request);
        Box::pin(translation::run(near, streams, far, shutdown)) as _
    };
    Ok(Outcome::Tunnel(Tunnel { reply, run: Box::new(run) }))
}

/// Connects the client to ports of a pod.
pub(crate) async fn run_ports(
    app: &Arc<App>,
    head: &RequestHead,
    far_end: FarEnd,
) -> Result<Outcome, Failure> {
    check_upgrade(head)?;
    let requested = head.header(header::SEC_WEBSOCKET_PROTOCOL).unwrap_or_default();
    if !handshake::wants_tunnel(requested) || takes_websockets(&far_end) {
        return passage::run(head, far_end).await;
    }
    if let Some(refused) = websocket::tunnel_refusal(head) {
        return Ok(Outcome::Reply(refused));
    }
    let protocols = handshake::tunnelled_protocols(requested);
    if protocols.is_empty() {
        return Ok(Outcome::Reply(respond::text(400, handshake::NO_TUNNEL_PROTOCOL)));
    }
    let request = spdy_request(&far_end, head, &protocols)?;
    let answer = far_end.client.request_upgrade(request, upgrade_by()).await;
    let (switched, far) = match answer.map_err(|error| passage::unreachable_far_side(&error))? {
        UpgradeAnswer::Switched(switched, far) => (switched, far),
        UpgradeAnswer::Refused(answer) => return passage::refused(answer).map(Outcome::Reply),
    };
    if !is_spdy(&switched) {
        let why = format!("{}\n", handshake::NO_UPGRADE_HEADERS);
        return Ok(Outcome::Reply(respond::text(500, &why)));
    }
    let protocol = handshake::tunnel_protocol(text(&switched, X_STREAM_PROTOCOL));
    let reply = match websocket::accept(&head.headers, protocol.as_deref()) {
        Ok(reply) => reply,
        Err(refused) => return Ok(Outcome::Reply(*refused)),
    };
    let shutdown = app.shutdown.clone();
    let far = far_end.throttled(far);
    let run = move |near| Box::pin(translation::run_tunnel(near, far, shutdown)) as _;
    Ok(Outcome::Tunnel(Tunnel { reply, run: Box::new(run) }))
}

fn check_upgrade(head: &RequestHead) -> Result<(), Failure> {
    match head.is_upgrade() {
        true => Ok(()),
        false => Err(Status::bad_request("Upgrade request required")),
    }
}

fn takes_websockets(far_end: &FarEnd) -> bool {
    matches!(far_end.location.far_side, FarSide::Kubelet { takes_websockets: true, .. })
}

/// Returns a request to a kubelet to switch to SPDY.
fn spdy_request(
    far_end: &FarEnd,
    head: &RequestHead,
    protocols: &[&str],
) -> Result<Request<()>, Failure> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(handshake::SPDY));
    for protocol in protocols {
        let value = HeaderValue::from_str(protocol);
        headers.append(X_STREAM_PROTOCOL, value.map_err(Status::internal)?);
    }
    let mut request = far_end.request(head, headers)?;
    *request.method_mut() = Method::POST;
    Ok(request)
}

/// Dials a kubelet. Returns the connection and the protocol that it chose, or why there is none, as
/// client-go says it.
async fn connect(
    far_end: FarEnd,
    request: Request<()>,
) -> Result<(Throttled<Upgraded>, String), String> {
    let failed = |url: &str, why: &dyn std::fmt::Display| {
        format!("error sending request: Post {}: {why}", quote(url))
    };
    let answer = far_end.client.request_upgrade(request, upgrade_by()).await;
    match answer {
        Ok(UpgradeAnswer::Switched(switched, far)) if is_spdy(&switched) => {
            Ok((far_end.throttled(far), text(&switched, X_STREAM_PROTOCOL).to_owned()))
        }
        Ok(UpgradeAnswer::Switched(..)) => Err(handshake::upgrade_failure(b"")),
        Ok(UpgradeAnswer::Refused(answer)) if answer.status().is_redirection() => {
            Err(failed(text(&answer, header::LOCATION), &"redirect not allowed"))
        }
        Ok(UpgradeAnswer::Refused(answer)) => {
            let text = log_stream::beginning(answer.into_body(), connect_by()).await;
            Err(handshake::upgrade_failure(text.as_bytes()))
        }
        Err(error) => Err(match error.cause {
            Cause::Closed => failed(&far_end.url(), &Cause::Cut),
            _ => failed(&far_end.url(), &error),
        }),
    }
}

/// Whether a kubelet has switched to SPDY.
fn is_spdy(switched: &Response<()>) -> bool {
    let connection = header::CONNECTION;
    let upgrade = header::UPGRADE;
    handshake::is_spdy_upgrade(text(switched, connection), text(switched, upgrade))
}

/// Returns a header of an answer, or an empty text.
fn text<B>(answer: &Response<B>, name: HeaderName) -> &str {
    header_lists::text(answer.headers(), name).unwrap_or_default()
}
