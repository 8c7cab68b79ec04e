//! Passes requests on to nodes, pods and services, and their answers back (apimachinery
//! `util/proxy`). Bodies are streamed in both directions; redirects are not followed.

use crate::body::Body;
use crate::far_side::{FarEnd, connect_by, remove_hop_by_hop};
use crate::outcome::Outcome;
use crate::passage;
use crate::request_body::RequestBody;
use crate::request_head::RequestHead;
use crate::respond::Reply;
use crate::rewrite::{self, Links};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use keelson_egress::Cause;
use keelson_meta::{Failure, Status};
use keelson_registry::hooks::Location;

/// The path that the client asked for.
pub(crate) const X_FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// The answers to cross-origin requests are this server's business, not that of the far side.
const CORS: [HeaderName; 4] = [
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
];

/// Passes a request on.
pub(crate) async fn run(
    head: &RequestHead,
    far_end: FarEnd,
    body: &mut RequestBody,
) -> Result<Outcome, Failure> {
    if head.is_upgrade() {
        // As upstream, the query of an upgrade stays behind.
        let location = Location { query: Some(String::new()), ..far_end.location };
        return passage::run(head, FarEnd { location, ..far_end }).await;
    }
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    if far_end.location.path.is_empty() && is_read {
        return Ok(Outcome::Reply(redirect_to_root(head)));
    }
    let mut headers = head.headers.clone();
    remove_hop_by_hop(&mut headers);
    headers.remove(header::EXPECT);
    if let Ok(uri) = HeaderValue::from_str(head.uri.path()) {
        headers.insert(X_FORWARDED_URI, uri);
    }
    let request = far_end.request(head, headers)?.map(|()| body.take());
    let answer = far_end.client.stream(request, connect_by()).await;
    let mut answer = answer.map_err(|error| match error.cause {
        Cause::NotAllowed => Status::bad_request("address not allowed"),
        _ => Status::unavailable(format!("error trying to reach service: {error}")),
    })?;
    remove_hop_by_hop(answer.headers_mut());
    remove_cors(answer.headers_mut());
    let links = Links::new(head, &far_end.location);
    Ok(Outcome::Reply(rewrite::answer(links, answer).await))
}

/// Removes what another server says about cross-origin requests.
pub(crate) fn remove_cors(headers: &mut HeaderMap) {
    CORS.iter().for_each(|name| drop(headers.remove(name)));
}

/// Redirects a browser to the path with a slash, so that relative links work.
fn redirect_to_root(head: &RequestHead) -> Reply {
    let query = head.uri.query().map_or(String::new(), |query| format!("?{query}"));
    let mut reply = Reply::new(Body::empty());
    *reply.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = HeaderValue::from_str(&format!("{}/{query}", head.uri.path())) {
        reply.headers_mut().insert(header::LOCATION, location);
    }
    reply
}
