//! [`ApiRequest`]: a request to the API server.

use bytes::Bytes;
use http::Method;

/// The media type of JSON.
pub const JSON: &str = "application/json";

/// A request to the API server.
#[derive(Clone, Debug)]
pub struct ApiRequest {
    pub method: Method,
    pub path: String,
    /// The media type of the body.
    pub media: &'static str,
    /// The `Accept` header.
    pub accept: &'static str,
    pub body: Bytes,
}

impl ApiRequest {
    /// Returns a GET.
    pub fn get(path: impl Into<String>) -> ApiRequest {
        ApiRequest::new(Method::GET, path, JSON, Bytes::new())
    }

    /// Returns a POST with a JSON body.
    pub fn post(path: impl Into<String>, body: impl Into<Bytes>) -> ApiRequest {
        ApiRequest::new(Method::POST, path, JSON, body)
    }

    /// Returns a DELETE without a body.
    pub fn delete(path: impl Into<String>) -> ApiRequest {
        ApiRequest::new(Method::DELETE, path, JSON, Bytes::new())
    }

    /// Returns a request that accepts JSON.
    pub fn new(
        method: Method,
        path: impl Into<String>,
        media: &'static str,
        body: impl Into<Bytes>,
    ) -> ApiRequest {
        ApiRequest { method, path: path.into(), media, accept: JSON, body: body.into() }
    }
}
