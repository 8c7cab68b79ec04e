//! [`Asker`]: requests of the aggregator itself to the servers behind this one.

use crate::peer::{peer, user_headers};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use keelson_auth::User;
use keelson_egress::{Egress, Identity, Request, Response};
use keelson_meta::Value;
use keelson_meta::json_text::values_bound;
use keelson_resources::RemoteServer;
use keelson_schema::json;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// How long a server may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// Most values of an answer: containers without content take up many times their bytes. Documents
/// have a value for some forty bytes, lists of objects for some twenty.
const VALUES_MAX: usize = 1_000_000;
/// Most answers that are evaluated at once.
const EVALUATED_MAX: usize = 1;

/// Returns the client certificate that servers are shown (`--proxy-client-cert-file`).
pub type Identities = Arc<dyn Fn() -> Option<Identity> + Send + Sync>;

/// Sends requests to servers.
pub(crate) struct Asker {
    egress: Arc<Egress>,
    identities: Identities,
    evaluations: Semaphore,
}

/// A GET request.
pub(crate) struct Question<'a> {
    pub path: &'a str,
    pub accept: &'static str,
    /// As whom the server is asked.
    pub user: &'a User,
    /// The ETag of what is known already.
    pub known: Option<&'a HeaderValue>,
    /// Most bytes of the answer.
    pub bytes_max: usize,
}

impl Asker {
    pub fn new(egress: Arc<Egress>, identities: Identities) -> Asker {
        Asker { egress, identities, evaluations: Semaphore::new(EVALUATED_MAX) }
    }

    /// Evaluates an answer on a thread of its own, after those that came before.
    pub async fn evaluate<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let _turn = self.evaluations.acquire().await.ok()?;
        tokio::task::spawn_blocking(work).await.ok().flatten()
    }

    /// Returns the answer of a server, whatever its status; the error says why there is none.
    pub async fn get(
        &self,
        server: &RemoteServer,
        question: Question<'_>,
    ) -> Result<Response, String> {
        self.ask(server, question).await.map(|(answer, _)| answer)
    }

    /// Returns the body of a successful answer.
    pub async fn body(
        &self,
        server: &RemoteServer,
        question: Question<'_>,
    ) -> Result<Bytes, String> {
        let (answer, url) = self.ask(server, question).await?;
        if answer.status.is_success() {
            return Ok(answer.body);
        }
        let code = answer.status.as_u16();
        Err(missing(&url, &format!("bad status from {url}: {code}")))
    }

    /// Returns the answer of a server and the URL that was asked, which names the address.
    async fn ask(
        &self,
        server: &RemoteServer,
        question: Question<'_>,
    ) -> Result<(Response, String), String> {
        let peer = self.egress.located(peer(server, (self.identities)())).await?;
        let url = format!("https://{}{}", peer.authority(), question.path);
        let failed = |why: &dyn Display| missing(&url, why);
        let client = self.egress.client(&peer).map_err(|error| failed(&error))?;
        let mut headers = HeaderMap::new();
        user_headers(&mut headers, question.user).map_err(|error| failed(&error))?;
        headers.insert(header::ACCEPT, HeaderValue::from_static(question.accept));
        if let Some(tag) = question.known {
            headers.insert(header::IF_NONE_MATCH, tag.clone());
        }
        let path = question.path.to_owned();
        let request = Request { method: Method::GET, path, headers, body: Bytes::new() };
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        let answer = client.send(&request, question.bytes_max, deadline).await;
        let answer = answer.map_err(|error| failed(&format!("Get \"{url}\": {error}")))?;
        Ok((answer, url))
    }
}

/// Parses an answer; `None`: it is not JSON, or has too many values.
pub(crate) fn parse(text: &[u8]) -> Option<Value> {
    let is_short = text.len() <= VALUES_MAX || values_bound(text) <= VALUES_MAX;
    is_short.then(|| json::parse(text).ok()).flatten().map(|parsed| parsed.value)
}

fn missing(url: &str, why: &dyn Display) -> String {
    format!("failing or missing response from {url}: {why}")
}

/// The ETag and the hash of something that a server has sent: it is asked for anew, and what has
/// not changed is not read again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub tag: Option<HeaderValue>,
    pub hash: String,
}

impl Seen {
    /// Returns the ETag of an answer.
    pub fn tag_of(answer: &Response) -> Option<HeaderValue> {
        answer.headers.get(header::ETAG).cloned()
    }

    /// Whether the server says that it has nothing new.
    pub fn is_confirmed_by(&self, answer: &Response) -> bool {
        self.tag.is_some() && answer.status == StatusCode::NOT_MODIFIED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_too_many_values_is_not_parsed() {
        let list = |values: usize| format!("[{}{{}}]", "{},".repeat(values - 1));
        // The list itself is one; each of its values is counted twice at most.
        assert!(parse(list(VALUES_MAX / 2 - 1).as_bytes()).is_some());
        assert_eq!(parse(list(VALUES_MAX).as_bytes()), None);
        assert_eq!(parse(b"<html>"), None);
        let text = format!("[\"{}\"]", "{,".repeat(VALUES_MAX));
        assert!(parse(text.as_bytes()).is_some(), "a string is one value");
    }
}
