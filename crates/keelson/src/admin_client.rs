//! [`AdminClient`]: asks a running server by the paths that Keelson adds to those of
//! kube-apiserver.

use crate::authorization;
use bytes::Bytes;
use http::{HeaderMap, Method};
use keelson_egress::{Client, Egress, Request, Route};
use keelson_meta::Value;
use keelson_schema::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Time limit of a request; counting a million values takes seconds.
const TIME_MAX: Duration = Duration::from_secs(60);
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// A client of a server.
pub struct AdminClient {
    client: Arc<Client>,
    /// The path in the URL of the server.
    path: String,
}

impl AdminClient {
    /// Returns the client of the server and user in a kubeconfig.
    pub fn new(kubeconfig: &Path) -> Result<AdminClient, String> {
        let mut server = authorization::kubeconfig(kubeconfig)?;
        // Whoever has the file may also mean this host.
        server.peer.route = Route::Node;
        let client =
            Egress::without_services().client(&server.peer).map_err(|error| error.to_string())?;
        Ok(AdminClient { client, path: server.path })
    }

    /// Returns what a path answers.
    pub async fn get(&self, path: &str) -> Result<Value, String> {
        self.send(Method::GET, path).await
    }

    /// Has a path do something, and returns its answer.
    pub async fn post(&self, path: &str) -> Result<Value, String> {
        self.send(Method::POST, path).await
    }

    async fn send(&self, method: Method, path: &str) -> Result<Value, String> {
        let path = format!("{}{path}", self.path);
        let request = Request { method, path, headers: HeaderMap::new(), body: Bytes::new() };
        let sent = self.client.send(&request, ANSWER_BYTES_MAX, Instant::now() + TIME_MAX).await;
        let response = sent.map_err(|error| error.to_string())?;
        let parsed = json::parse(&response.body).map(|parsed| parsed.value);
        if response.status.is_success() {
            return parsed.map_err(|error| error.to_string());
        }
        let message = parsed.ok().and_then(|body| Some(body.str_at(&["message"])?.to_owned()));
        Err(message.unwrap_or_else(|| format!("the server answered {}", response.status)))
    }
}
