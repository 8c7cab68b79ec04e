//! Passes requests on to nodes, pods and services, and their answers back (apimachinery
//! `util/proxy`). Bodies are streamed in both directions; redirects are not followed.

use crate::body::Body;
use crate::far_side::{FarEnd, clean_answer, connect_by, forwarded_headers, unasked_switch};
use crate::outcome::Outcome;
use crate::passage;
use crate::request_body::RequestBody;
use crate::request_head::RequestHead;
use crate::respond::Reply;
use crate::rewrite::{self, Links, Pages};
use http::{HeaderValue, Method, StatusCode, header};
use keelson_egress::Cause;
use keelson_meta::{Failure, Reason, Status};
use keelson_registry::hooks::Location;

/// Passes a request on.
pub(crate) async fn run(
    pages: &Pages,
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
    let links = Links::new(head, &far_end.location);
    let headers = forwarded_headers(head, &links, &far_end.location.path);
    let request = far_end.request(head, headers)?.map(|()| body.take());
    let mut answer =
        far_end.client.stream(request, connect_by()).await.map_err(|error| match error.cause {
            Cause::NotAllowed => Status::bad_request("address not allowed"),
            _ => Status::unavailable(format!("error trying to reach service: {error}")),
        })?;
    if let Some(why) = unasked_switch(&answer) {
        return Err(Status::new(Reason::Unknown, why));
    }
    clean_answer(&mut answer);
    Ok(Outcome::Reply(rewrite::answer(pages, links, answer).await))
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
