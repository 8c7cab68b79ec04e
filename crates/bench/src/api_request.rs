//! [`Ask`]: a request.

use bytes::Bytes;
use http::Method;

/// JSON.
pub const JSON: &str = "application/json";

/// A request.
#[derive(Clone, Debug)]
pub struct Ask {
    pub method: Method,
    pub path: String,
    /// The body's type.
    pub media: &'static str,
    /// What the answer is to be.
    pub accept: &'static str,
    pub body: Bytes,
}

impl Ask {
    /// Reads.
    pub fn get(path: impl Into<String>) -> Ask {
        Ask::new(Method::GET, path, JSON, Bytes::new())
    }

    /// Makes.
    pub fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Ask {
        Ask::new(Method::POST, path, JSON, body)
    }

    /// Deletes.
    pub fn delete(path: impl Into<String>) -> Ask {
        Ask::new(Method::DELETE, path, JSON, Bytes::new())
    }

    /// Writes.
    pub fn new(
        method: Method,
        path: impl Into<String>,
        media: &'static str,
        body: impl Into<Bytes>,
    ) -> Ask {
        Ask { method, path: path.into(), media, accept: JSON, body: body.into() }
    }
}
