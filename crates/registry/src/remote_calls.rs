//! [`RemoteCalls`]: how control loops reach the servers behind this one.

use futures_util::future::BoxFuture;
use keelson_auth::User;
use keelson_meta::Value;
use keelson_resources::RemoteServer;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A request of a control loop to a server behind this one.
#[derive(Clone, Debug)]
pub struct RemoteCall {
    /// The server.
    pub server: Arc<RemoteServer>,
    /// As whom the server is asked.
    pub user: User,
    /// `GET` or `DELETE`.
    pub method: &'static str,
    /// Path and query.
    pub path: String,
    /// JSON; null: no body.
    pub body: Value,
}

/// Status and body of the answer, or why there is none.
pub type RemoteAnswer = Result<(u16, Value), String>;

/// Sends requests to servers behind this one.
pub type RemoteCalls = Arc<dyn Fn(RemoteCall) -> BoxFuture<'static, RemoteAnswer> + Send + Sync>;

/// What sends requests, once it is known.
#[derive(Default)]
pub(crate) struct RemoteCaller(OnceLock<RemoteCalls>);

impl fmt::Debug for RemoteCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemoteCaller")
    }
}

impl RemoteCaller {
    /// Sets what sends requests; the first one stays.
    pub fn set(&self, calls: RemoteCalls) {
        let _ = self.0.set(calls);
    }

    /// Sends a request.
    pub async fn call(&self, call: RemoteCall) -> RemoteAnswer {
        match self.0.get() {
            Some(calls) => calls(call).await,
            None => Err("servers behind this one cannot be reached".to_owned()),
        }
    }
}
