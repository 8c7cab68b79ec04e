//! [`Webhook`]: the server that events are posted to.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};
use keelson_egress::kubeconfig::Server;
use keelson_egress::{Client, Egress, Phase, Request};
use keelson_meta::status::quote;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Maximum batches that are being posted at once. Upstream has no maximum.
pub(super) const BATCHES_AT_ONCE_MAX: usize = 4;
/// Maximum time of one try.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum tries; the waits between them grow by half.
const TRIES_MAX: u32 = 5;
/// Maximum length of a response, whose content does not matter.
const RESPONSE_BYTES_MAX: usize = 1 << 20;
/// What begins and ends a list of events.
const LIST_BEGIN: &[u8] =
    b"{\"kind\":\"EventList\",\"apiVersion\":\"audit.k8s.io/v1\",\"metadata\":{},\"items\":[";
const LIST_END: &[u8] = b"]}\n";

/// The server that events are posted to.
pub struct Webhook {
    client: Arc<Client>,
    url: String,
    path: String,
    initial_backoff: Duration,
}

/// What a [`Webhook`] is made of.
pub struct WebhookOptions {
    /// The server of a kubeconfig.
    pub server: Server,
    /// Time before the second try.
    pub initial_backoff: Duration,
}

impl Webhook {
    /// Prepares the connections.
    pub fn new(options: &WebhookOptions, egress: &Egress) -> Result<Webhook, String> {
        let WebhookOptions { server, initial_backoff } = options;
        let client = egress.client(&server.peer).map_err(|error| error.to_string())?;
        let query = format!("?timeout={}s", TIMEOUT.as_secs());
        let path = if server.path.is_empty() { "/" } else { server.path.as_str() };
        Ok(Webhook {
            client,
            url: format!("{}{query}", server.url),
            path: format!("{path}{query}"),
            initial_backoff: *initial_backoff,
        })
    }

    /// Posts events as one list. It is tried again after every failure, a few times.
    pub(super) async fn send(&self, items: &[Bytes]) -> Result<(), String> {
        let mut headers = HeaderMap::with_capacity(3);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("kube-apiserver-audit"));
        let method = Method::POST;
        let path = self.path.clone();
        let body = list(items);
        let request = Request { method, path, headers, body };
        let mut wait = self.initial_backoff;
        let mut tries = 1;
        loop {
            match self.post(&request).await {
                Err(_) if tries < TRIES_MAX => {}
                result => return result,
            }
            sleep(wait).await;
            wait = wait.saturating_add(wait / 2);
            tries += 1;
        }
    }

    async fn post(&self, request: &Request) -> Result<(), String> {
        let sent = self.client.send(request, RESPONSE_BYTES_MAX, Instant::now() + TIMEOUT).await;
        let response = sent.map_err(|error| match error.phase {
            Phase::Connect | Phase::Head => format!("Post {}: {error}", quote(&self.url)),
            Phase::Body => error.to_string(),
        })?;
        if response.status.is_success() {
            return Ok(());
        }
        Err(format!("Post {}: the webhook answered {}", quote(&self.url), response.status))
    }
}

/// Returns the `EventList` of items.
fn list(items: &[Bytes]) -> Bytes {
    let length: usize = items.iter().map(|item| item.len() + 1).sum();
    let mut out = BytesMut::with_capacity(LIST_BEGIN.len() + length + LIST_END.len());
    out.put_slice(LIST_BEGIN);
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        out.put_slice(item);
    }
    out.put_slice(LIST_END);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_the_items() {
        let items = [Bytes::from_static(b"{\"a\":1}"), Bytes::from_static(b"{}")];
        let want = "{\"kind\":\"EventList\",\"apiVersion\":\"audit.k8s.io/v1\",\"metadata\":{},\
                    \"items\":[{\"a\":1},{}]}\n";
        assert_eq!(list(&items), want);
    }
}
