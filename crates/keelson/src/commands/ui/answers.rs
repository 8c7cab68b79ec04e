//! Responses of `keelson ui` itself, and what makes any response of it harmless.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use keelson_meta::{Status, Value};
use std::io;

/// The body of a response to the page.
pub type AnswerBody = UnsyncBoxBody<Bytes, io::Error>;

/// What a response of the API may do if a browser shows it as a page: nothing.
const SANDBOX: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

/// Returns a body of bytes.
pub fn whole(bytes: Bytes) -> AnswerBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Makes a response harmless if a browser shows it as a page.
pub fn harden(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
}

/// Returns a response with a line of text.
pub fn plain(status: StatusCode, text: &'static str) -> Response<AnswerBody> {
    let mut response = Response::new(whole(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    let media_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    harden(response.headers_mut());
    response
}

/// Returns the `Status` of a server that does not answer.
pub fn unreachable(why: &str) -> Response<AnswerBody> {
    json(StatusCode::SERVICE_UNAVAILABLE, &Status::unavailable(why).to_value())
}

/// Returns a response with JSON.
pub fn json(status: StatusCode, value: &Value) -> Response<AnswerBody> {
    let mut text = vec![];
    keelson_schema::json::write_value(value, &mut text);
    let mut response = Response::new(whole(text.into()));
    *response.status_mut() = status;
    let media_type = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    harden(response.headers_mut());
    response
}
