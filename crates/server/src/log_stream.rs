//! Logs of containers (registry `core/pod/rest/log.go`, apiserver `generic/rest`).

use crate::app::App;
use crate::body::{Body, ChunkStream};
use crate::far_side::{FarEnd, connect_by};
use crate::header_lists;
use crate::outcome::{Outcome, Stream};
use crate::request_head::RequestHead;
use crate::respond;
use crate::simulated_log;
use crate::websocket::Framing;
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::{BodyExt, Empty};
use keelson_auth::Permit;
use keelson_egress::StreamedResponse;
use keelson_meta::status::{Details, quote};
use keelson_meta::{Failure, Reason, Status};
use keelson_registry::Target;
use keelson_registry::hooks::{Connection, Located};
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// Most bytes of a kubelet's error that are passed on.
const ERROR_BYTES_MAX: usize = 2048;
/// The media type of a log, whatever the kubelet calls it.
const MEDIA_TYPE: &str = "text/plain";

/// Answers with the log of a container.
pub(crate) async fn run(
    app: &Arc<App>,
    head: &RequestHead,
    permit: &Permit,
    target: &Target,
) -> Result<Outcome, Failure> {
    let options = head.query.log_options()?;
    let location = match app.registry.locate(permit, target, Connection::Log(&options)).await? {
        Located::Nothing => return Ok(Outcome::Reply(respond::no_content())),
        Located::There(location) => location,
        Located::Simulated(container) => {
            return simulated_log::run(app, head, target, container, &options).await;
        }
        Located::SimulatedPorts(_) => return Err(Status::internal("a log has no ports")),
    };
    let far_end = FarEnd::new(app, location)?;
    let (parts, ()) = far_end.request(head, HeaderMap::new())?.into_parts();
    let none = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let mut request = Request::from_parts(parts, none);
    request.headers_mut().clear();
    *request.method_mut() = Method::GET;
    let answer = far_end.client.stream(request, connect_by()).await.map_err(|error| {
        let url = quote(&far_end.url());
        Status::new(Reason::Unknown, format!("Get {url}: {error}"))
    })?;
    let answer = checked(target, answer).await?;
    let body = answer.into_body();
    if !head.is_websocket() {
        let body = Body::remote(body);
        return Ok(Outcome::Reply(respond::with_body(200, MEDIA_TYPE, body)));
    }
    let chunks = ChunkStream::new(|slot| async move {
        let mut body = body;
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(data) = frame.into_data() {
                slot.put(data).await;
            }
        }
    });
    Ok(Outcome::Stream(Stream { media_type: MEDIA_TYPE, chunks, framing: Some(Framing::Bytes) }))
}

/// Fails unless a kubelet's answer is a log.
async fn checked(
    target: &Target,
    answer: Response<StreamedResponse>,
) -> Result<Response<StreamedResponse>, Failure> {
    let code = answer.status().as_u16();
    if (200..=206).contains(&code) {
        return Ok(answer);
    }
    let location = header_lists::text(answer.headers(), header::LOCATION).map(quote);
    let text = beginning(answer.into_body(), connect_by()).await;
    Err(match code {
        300..=399 if location.is_some() => {
            let location = location.unwrap_or_default();
            Status::new(Reason::Unknown, format!("Get {location}: redirects forbidden"))
        }
        400 => Status::bad_request(text),
        500 => Status::internal(text),
        _ => from_kubelet(code, target, text),
    })
}

/// Returns a failure with the code of a kubelet's answer (apimachinery's
/// `NewGenericServerResponse`).
fn from_kubelet(code: u16, target: &Target, text: String) -> Failure {
    let (reason, why) = match code {
        401 => (Reason::Unauthorized, "the server has asked for the client to provide credentials"),
        403 => (Reason::Forbidden, text.as_str()),
        404 => (Reason::NotFound, "the server could not find the requested resource"),
        405 => (
            Reason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        ),
        429 => (
            Reason::TooManyRequests,
            "the server has received too many requests and has asked us to try again later",
        ),
        503 => (Reason::ServiceUnavailable, text.as_str()),
        504 => (
            Reason::Timeout,
            "the server was unable to return a response in the time allotted, but may still be processing the request",
        ),
        500.. => (
            Reason::InternalError,
            "an error on the server has prevented the request from succeeding",
        ),
        _ => (
            Reason::Unknown,
            "the server responded with the status code but did not return more information",
        ),
    };
    let message = match code {
        403 | 503 => why.to_owned(),
        _ => format!("{why} ( pods/log {})", target.name),
    };
    let mut status = Status::new(reason, message);
    status.code = code;
    status.details =
        Some(Details { name: target.name.clone(), kind: "pods/log".into(), ..Details::default() });
    status
}

/// Returns the beginning of a body.
pub(crate) async fn beginning(mut body: StreamedResponse, deadline: Instant) -> String {
    let mut text = vec![];
    while text.len() < ERROR_BYTES_MAX {
        let Ok(Some(Ok(frame))) = timeout_at(deadline, body.frame()).await else { break };
        if let Ok(data) = frame.into_data() {
            text.extend_from_slice(&data);
        }
    }
    text.truncate(ERROR_BYTES_MAX);
    String::from_utf8_lossy(&text).into_owned()
}
