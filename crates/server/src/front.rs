//! What is done for every request whatever answers it: the headers for browsers.

use crate::app::App;
use crate::body::Body;
use crate::context::RequestContext;
use crate::peer::Peer;
use crate::response_body::ResponseBody;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use std::sync::Arc;

/// Answers a request. What a browser asks before a request of another origin is answered here, without
/// authentication.
pub(crate) async fn answer(
    app: Arc<App>,
    request: Request<Incoming>,
    peer: Arc<Peer>,
) -> Response<ResponseBody> {
    let origin = app.browsers.allowed_origin(request.headers());
    let mut response = if origin.is_some() && request.method() == Method::OPTIONS {
        let body = ResponseBody::new(Body::empty(), false, RequestContext::default());
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::NO_CONTENT;
        response
    } else {
        app.clone().handle(request, peer).await
    };
    app.browsers.add_headers(response.headers_mut(), origin);
    response
}
