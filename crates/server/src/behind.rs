//! Passes requests on to the servers behind this one, which APIServices name (kube-aggregator
//! `apiserver/handler_proxy.go`).

use crate::app::App;
use crate::body::Body;
use crate::far_side::{clean_answer, connect_by, forward_for, forwarded_headers, upgrade_by};
use crate::outcome::{Outcome, Refusal};
use crate::passage;
use crate::request_body::RequestBody;
use crate::request_head::RequestHead;
use crate::respond::{self, Reply};
use http::{Request, StatusCode, header};
use keelson_aggregation::{peer, remove_user_headers, user_headers};
use keelson_auth::User;
use keelson_meta::{Failure, Status};
use keelson_resources::RemoteVersion;

/// The user as whom documents are asked for.
const AGGREGATOR: &str = "system:aggregator";

/// Passes a request on.
pub(crate) async fn run(
    app: &App,
    head: &RequestHead,
    user: &User,
    remote: &RemoteVersion,
    body: &mut RequestBody,
) -> Result<Outcome, Refusal> {
    if !remote.is_available {
        return Err(Refusal::from(respond::service_unavailable()));
    }
    let peer = peer(&remote.server, Option::clone(&app.aggregator.load()));
    let client = app.egress.client(&peer).map_err(|error| unavailable(&error))?;
    let is_upgrade = head.is_upgrade();
    // The headers of the connection are what asks for the upgrade.
    let mut headers = if is_upgrade { head.headers.clone() } else { forwarded_headers(head) };
    headers.remove(header::HOST);
    // After the headers of the connection: a client must not have these removed.
    remove_user_headers(&mut headers);
    user_headers(&mut headers, user).map_err(|why| unavailable(&why))?;
    forward_for(&mut headers, head);
    let mut request = Request::new(());
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = head.uri.clone();
    *request.headers_mut() = headers;
    if is_upgrade {
        let answer = client.request_upgrade(request, upgrade_by()).await;
        // The limit of bytes is for nodes, pods and services only.
        return passage::switch(answer.map_err(|error| unavailable(&error))?, None)
            .map_err(|failure| unavailable(&failure.message));
    }
    let answer = client.stream(request.map(|()| body.take()), connect_by()).await;
    let mut answer =
        answer.map_err(|error| unavailable(&format!("error trying to reach service: {error}")))?;
    // A redirect would send the client, with his credentials, to another place.
    if answer.status().is_redirection() && answer.headers().contains_key(header::LOCATION) {
        return Ok(Outcome::Reply(redirect_refused()));
    }
    clean_answer(answer.headers_mut());
    Ok(Outcome::Reply(respond::passed_on(answer)))
}

/// Responds with a document of a server, which is asked as the aggregator.
pub(crate) async fn document(
    app: &App,
    head: &RequestHead,
    remote: &RemoteVersion,
) -> Result<Reply, Failure> {
    if head.is_upgrade() {
        return Err(Status::bad_request("a document needs no upgrade"));
    }
    let aggregator = User { name: AGGREGATOR.into(), ..User::default() };
    let outcome = run(app, head, &aggregator, remote, &mut RequestBody::empty()).await;
    match outcome {
        Ok(Outcome::Reply(reply)) => Ok(reply),
        Ok(_) => Err(Status::internal("a document that is a stream")),
        Err(Refusal::Reply(reply)) => Ok(*reply),
        Err(Refusal::Failure(failure)) => Err(failure),
    }
}

/// Returns the plain text with which the aggregator answers.
fn unavailable(why: &dyn std::fmt::Display) -> Refusal {
    Refusal::from(respond::text(503, &format!("{why}\n")))
}

fn redirect_refused() -> Reply {
    let why = "the backend attempted to redirect this request, which is not permitted";
    let mut reply = Reply::new(Body::from(why.as_bytes().to_vec()));
    *reply.status_mut() = StatusCode::BAD_GATEWAY;
    reply
}
