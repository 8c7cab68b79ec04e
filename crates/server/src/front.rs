//! What is done for every request whatever answers it: the headers for browsers, and the files of
//! the explorer.

use crate::app::App;
use crate::body::Body;
use crate::peer::Peer;
use crate::response_body::ResponseBody;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use std::sync::Arc;

/// Answers a request. What a browser asks before a request of another origin is answered here,
/// without authentication; so are the files of the explorer, which hold nothing of the cluster.
pub(crate) async fn answer(
    app: Arc<App>,
    request: Request<Incoming>,
    peer: Arc<Peer>,
) -> Response<ResponseBody> {
    let origin = app.browsers.allowed_origin(request.headers());
    let mut response = if origin.is_some() && request.method() == Method::OPTIONS {
        let mut response = without_context(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        response
    } else if let Some(file) = explorer_file(&app, &request) {
        file
    } else {
        app.clone().handle(request, peer).await
    };
    app.browsers.add_headers(response.headers_mut(), origin);
    response
}

/// Returns the response with a file of the explorer, if it is served and the path is one of its.
fn explorer_file(app: &App, request: &Request<Incoming>) -> Option<Response<ResponseBody>> {
    if !app.explorer {
        return None;
    }
    let path = request.uri().path();
    let file = keelson_explorer::answer(request.method(), path, request.headers())?;
    let (head, text) = file.into_parts();
    let body = without_context(Body::Whole((!text.is_empty()).then_some(text))).into_body();
    Some(Response::from_parts(head, body))
}

/// Returns a response that belongs to no request of the pipeline.
fn without_context(body: Body) -> Response<ResponseBody> {
    Response::new(ResponseBody::plain(body))
}
