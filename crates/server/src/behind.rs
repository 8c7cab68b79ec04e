//! Passes requests on to the servers behind this one, which APIServices name (kube-aggregator
//! `apiserver/handler_proxy.go`).

use crate::app::App;
use crate::body::Body;
use crate::far_side::{clean_answer, connect_by, forward_for, forwarded_headers};
use crate::far_side::{unasked_switch, upgrade_by};
use crate::go_url;
use crate::outcome::{Outcome, Refusal};
use crate::passage;
use crate::request_body::RequestBody;
use crate::request_head::{AUDIT_ID, RequestHead};
use crate::respond::{self, Reply};
use crate::rewrite::{self, Links};
use http::{HeaderValue, Request, Uri, header};
use keelson_aggregation::{peer, remove_user_headers, user_headers};
use keelson_auth::User;
use keelson_meta::{Failure, Status};
use keelson_resources::{RemoteServer, RemoteVersion};

/// The user as whom documents are asked for.
const AGGREGATOR: &str = "system:aggregator";

/// A request for a server behind this one.
pub(crate) struct Asked<'a> {
    pub head: &'a RequestHead,
    /// Its identifier in this server's audit log; `None`: that which the client gives.
    pub audit_id: Option<&'a HeaderValue>,
    /// As whom the server is asked.
    pub user: &'a User,
}

/// Passes a request on.
pub(crate) async fn run(
    app: &App,
    asked: Asked<'_>,
    remote: &RemoteVersion,
    body: &mut RequestBody,
) -> Result<Outcome, Refusal> {
    if !remote.is_available {
        return Err(Refusal::from(respond::service_unavailable()));
    }
    let peer = peer(&remote.server, Option::clone(&app.aggregator.load()));
    let peer = app.egress.located(peer).await.map_err(|why| {
        let RemoteServer { namespace, service, .. } = &*remote.server;
        tracing::warn!(%why, %namespace, %service, "server behind this one not resolved");
        Refusal::from(respond::service_unavailable())
    })?;
    let client = app.egress.client(&peer).map_err(|error| unavailable(&error))?;
    let links = Links::of_server(&peer.authority());
    let Asked { head, audit_id, user } = asked;
    let is_upgrade = head.is_upgrade();
    let path = head.uri.path();
    // The headers of the connection are what asks for the upgrade.
    let mut headers = match is_upgrade {
        true => head.headers.clone(),
        false => forwarded_headers(head, &links, &go_url::decode_path(path)),
    };
    headers.remove(header::HOST);
    if let Some(audit_id) = audit_id {
        headers.insert(AUDIT_ID, audit_id.clone());
    }
    // After the headers of the connection: a client must not have these removed.
    remove_user_headers(&mut headers);
    user_headers(&mut headers, user).map_err(|why| unavailable(&why))?;
    forward_for(&mut headers, head);
    let mut request = Request::new(());
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = far_uri(&head.uri).map_err(|error| unavailable(&error))?;
    *request.headers_mut() = headers;
    if is_upgrade {
        let answer = client.request_upgrade(request, upgrade_by()).await;
        // The limit of bytes is for nodes, pods and services only.
        return answer
            .map_err(|error| passage::unreachable_far_side(&error))
            .and_then(|answer| passage::switch(answer, None))
            .map_err(|failure| unavailable(&failure.message));
    }
    let answer = client.stream(request.map(|()| body.take()), connect_by()).await;
    let mut answer =
        answer.map_err(|error| unavailable(&format!("error trying to reach service: {error}")))?;
    if let Some(why) = unasked_switch(&answer) {
        return Err(unavailable(&why));
    }
    // A redirect would send the client, with his credentials, to another place.
    if answer.status().is_redirection() && answer.headers().contains_key(header::LOCATION) {
        return Ok(Outcome::Reply(redirect_refused()));
    }
    clean_answer(&mut answer);
    Ok(Outcome::Reply(rewrite::answer(&app.state.pages, links, answer).await))
}

/// Returns the path and the query that the server is asked for. The query is written anew, as
/// upstream: both servers must read the same parameters.
fn far_uri(uri: &Uri) -> Result<Uri, http::uri::InvalidUri> {
    let path = uri.path();
    match go_url::encoded_query(uri.query().unwrap_or_default()).as_str() {
        "" => Uri::try_from(path),
        query => Uri::try_from(format!("{path}?{query}")),
    }
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
    let user = User { name: AGGREGATOR.into(), ..User::default() };
    let asked = Asked { head, audit_id: None, user: &user };
    let outcome = run(app, asked, remote, &mut RequestBody::empty()).await;
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
    respond::with_body(502, "text/plain; charset=utf-8", Body::from(why.as_bytes().to_vec()))
}
