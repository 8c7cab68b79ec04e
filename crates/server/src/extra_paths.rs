//! [`ExtraPath`]: non-resource paths that the program adds to those of kube-apiserver. Access is that of any
//! non-resource path: by its name and the verbs `get` and `post`.

use crate::query::Query;
use http::Method;
use keelson_meta::{Failure, Value};
use std::future::Future;
use std::pin::Pin;

/// The response to a request for a path.
pub type ExtraAnswer = Pin<Box<dyn Future<Output = Result<Value, Failure>> + Send>>;

/// A path, and what answers it from the query of a request.
pub struct ExtraPath {
    pub(crate) path: &'static str,
    pub(crate) method: Method,
    pub(crate) answer: Box<dyn Fn(&Query) -> ExtraAnswer + Send + Sync>,
}

impl ExtraPath {
    /// A path that is read.
    pub fn get(
        path: &'static str,
        answer: impl Fn(&Query) -> ExtraAnswer + Send + Sync + 'static,
    ) -> ExtraPath {
        ExtraPath { path, method: Method::GET, answer: Box::new(answer) }
    }

    /// A path that does something.
    pub fn post(
        path: &'static str,
        answer: impl Fn(&Query) -> ExtraAnswer + Send + Sync + 'static,
    ) -> ExtraPath {
        ExtraPath { path, method: Method::POST, answer: Box::new(answer) }
    }
}
