//! [`ExtraPath`]: non-resource paths that the program adds to those of kube-apiserver. Access is
//! that of any non-resource path: by its name and the verbs `get` and `post`.

use crate::query::Query;
use bytes::Bytes;
use http::Method;
use keelson_meta::{Failure, Str, Value};
use std::future::Future;
use std::pin::Pin;

/// The response to a request for a path.
pub type ExtraAnswer = Pin<Box<dyn Future<Output = Result<Value, Failure>> + Send>>;

/// A request for a path.
pub struct ExtraRequest<'r> {
    /// Its query.
    pub query: &'r Query,
    /// The name of the user.
    pub user: &'r Str,
    /// Its body; empty unless the path takes one.
    pub body: Bytes,
}

/// A path, and what answers it.
pub struct ExtraPath {
    pub(crate) path: &'static str,
    pub(crate) method: Method,
    /// Whether the body is read.
    pub(crate) has_body: bool,
    pub(crate) answer: Box<dyn Fn(&ExtraRequest<'_>) -> ExtraAnswer + Send + Sync>,
}

impl ExtraPath {
    /// A path that is read.
    pub fn get(
        path: &'static str,
        answer: impl Fn(&ExtraRequest<'_>) -> ExtraAnswer + Send + Sync + 'static,
    ) -> ExtraPath {
        ExtraPath { path, method: Method::GET, has_body: false, answer: Box::new(answer) }
    }

    /// A path that does something, which the query says.
    pub fn post(
        path: &'static str,
        answer: impl Fn(&ExtraRequest<'_>) -> ExtraAnswer + Send + Sync + 'static,
    ) -> ExtraPath {
        ExtraPath { method: Method::POST, ..ExtraPath::get(path, answer) }
    }

    /// A path that does something with a body, of at most the length of an object.
    pub fn post_body(
        path: &'static str,
        answer: impl Fn(&ExtraRequest<'_>) -> ExtraAnswer + Send + Sync + 'static,
    ) -> ExtraPath {
        ExtraPath { has_body: true, ..ExtraPath::post(path, answer) }
    }
}
