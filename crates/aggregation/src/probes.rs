//! [`Probes`]: asks the servers behind this one what they serve, again and again. The answer also shows
//! that a server is available.

use crate::discovery::aggregated;
use crate::documents;
use crate::peer::{peer, user_headers};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use keelson_auth::{MASTERS, User};
use keelson_egress::{Egress, Identity, Request};
use keelson_meta::{Str, Value};
use keelson_resources::{RemoteDocuments, RemoteServer};
use keelson_schema::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long an answer is valid, and at most how long a failure is. Upstream asks every 30 s; a dead
/// server is noticed sooner here.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// How soon a server is asked again that did not answer; doubled with each failure.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// How long its OpenAPI documents are valid, as upstream.
const DOCUMENTS_INTERVAL: Duration = Duration::from_secs(60);
/// How long a server may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// Most bytes of the list of a server's resources.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Most bytes of a server's v2 document.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;
/// The user as whom servers are asked.
const PROBER: &str = "system:kube-aggregator";

/// Returns the client certificate that servers are shown (`--proxy-client-cert-file`).
pub type Identities = Arc<dyn Fn() -> Option<Identity> + Send + Sync>;

/// What is known of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Why the last probe failed; `None` if it did not, or before the first one has ended.
    pub failure: Option<String>,
    /// What the server serves, in the form of aggregated discovery. It is kept when a probe fails.
    pub resources: Option<Arc<Value>>,
    /// Its OpenAPI documents. They are kept, too.
    pub documents: Arc<RemoteDocuments>,
}

/// Asks servers in the background.
pub struct Probes {
    egress: Arc<Egress>,
    identities: Identities,
    known: Mutex<HashMap<Str, Probe>>,
    changed: Notify,
}

struct Probe {
    server: RemoteServer,
    outcome: Outcome,
    /// Whether the first probe has ended.
    is_known: bool,
    failures: u32,
    is_running: bool,
    next: Instant,
    /// When its documents are to be asked for.
    next_documents: Instant,
}

impl Probes {
    /// Nothing is asked yet.
    pub fn new(egress: Arc<Egress>, identities: Identities) -> Arc<Probes> {
        Arc::new(Probes { egress, identities, known: Mutex::default(), changed: Notify::new() })
    }

    /// Returns what is known of the server of a group version, and asks it again if that is old.
    /// `None`: the first answer has not come yet.
    pub fn outcome(
        self: &Arc<Self>,
        group: &Str,
        version: &Str,
        server: &RemoteServer,
    ) -> Option<Outcome> {
        let name = Str::from(format!("{version}.{group}"));
        let mut known = self.known();
        let now = Instant::now();
        let probe = known.entry(name.clone()).or_insert_with(|| Probe {
            server: server.clone(),
            outcome: Outcome::default(),
            is_known: false,
            failures: 0,
            is_running: false,
            next: now,
            next_documents: now,
        });
        if probe.server != *server {
            probe.server = server.clone();
            probe.next = now;
            probe.next_documents = now;
        }
        if !probe.is_running && probe.next <= now {
            probe.is_running = true;
            let probes = self.clone();
            let server = server.clone();
            let group = group.clone();
            let version = version.clone();
            tokio::spawn(async move {
                let answer = probes.ask(&group, &version, &server).await;
                if probes.record(&name, answer) {
                    let documents = probes.ask_for_documents(&group, &version, &server).await;
                    probes.record_documents(&name, documents);
                }
            });
        }
        probe.is_known.then(|| probe.outcome.clone())
    }

    /// Forgets the servers of all group versions but these, by the names of their APIServices.
    pub fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.known().retain(|name, _| is_there(name));
    }

    /// Waits until an outcome has changed.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns whether the server is to be asked for its documents.
    fn record(&self, name: &str, answer: Result<Value, String>) -> bool {
        let mut known = self.known();
        let Some(probe) = known.get_mut(name) else { return false };
        let now = Instant::now();
        let wants_documents = answer.is_ok() && probe.next_documents <= now;
        if wants_documents {
            probe.next_documents = now + DOCUMENTS_INTERVAL;
        }
        let before = (probe.is_known, probe.outcome.clone());
        probe.is_running = false;
        probe.is_known = true;
        let wait = match answer {
            Ok(resources) => {
                probe.failures = 0;
                probe.outcome.failure = None;
                if probe.outcome.resources.as_deref() != Some(&resources) {
                    probe.outcome.resources = Some(Arc::new(resources));
                }
                CHECK_INTERVAL
            }
            Err(failure) => {
                let wait = RETRY_AFTER * 2u32.saturating_pow(probe.failures.min(6));
                probe.failures = probe.failures.saturating_add(1);
                probe.outcome.failure = Some(failure);
                wait.min(CHECK_INTERVAL)
            }
        };
        probe.next = now + wait;
        if before != (true, probe.outcome.clone()) {
            self.changed.notify_one();
        }
        wants_documents
    }

    fn record_documents(&self, name: &str, documents: Option<RemoteDocuments>) {
        let mut known = self.known();
        let Some(probe) = known.get_mut(name) else { return };
        let Some(documents) = documents else {
            // With the next answer of the server.
            probe.next_documents = Instant::now();
            return;
        };
        if *probe.outcome.documents != documents {
            probe.outcome.documents = Arc::new(documents);
            self.changed.notify_one();
        }
    }

    /// Asks a server for the resources of a group version.
    async fn ask(
        &self,
        group: &str,
        version: &str,
        server: &RemoteServer,
    ) -> Result<Value, String> {
        let body = self.get(server, format!("/apis/{group}/{version}"), ANSWER_BYTES_MAX).await?;
        let list = json::parse(&body).map(|parsed| parsed.value).unwrap_or_default();
        Ok(aggregated(&list, group, version))
    }

    /// Asks a server for its OpenAPI documents; `None` if it has answered none of both requests.
    async fn ask_for_documents(
        &self,
        group: &Str,
        version: &Str,
        server: &RemoteServer,
    ) -> Option<RemoteDocuments> {
        let get = |path: &str, bytes_max| self.get(server, path.to_owned(), bytes_max);
        let index = get(documents::V3_PATH, ANSWER_BYTES_MAX).await.ok();
        let v2 = get(documents::V2_PATH, DOCUMENT_BYTES_MAX).await.ok();
        if index.is_none() && v2.is_none() {
            return None;
        }
        let group = group.clone();
        let version = version.clone();
        let read = move || documents::read(index.as_deref(), v2.as_deref(), &group, &version);
        tokio::task::spawn_blocking(read).await.ok()
    }

    /// Returns the body of a server's answer to a request of the aggregator.
    async fn get(
        &self,
        server: &RemoteServer,
        path: String,
        bytes_max: usize,
    ) -> Result<Bytes, String> {
        let peer = peer(server, (self.identities)());
        let url = format!("https://{}{path}", peer.authority());
        let failed =
            |why: &dyn std::fmt::Display| format!("failing or missing response from {url}: {why}");
        let client = self.egress.client(&peer).map_err(|error| failed(&error))?;
        let mut headers = HeaderMap::new();
        let user = User { name: PROBER.into(), ..User::default() }.with_group(MASTERS);
        user_headers(&mut headers, &user).map_err(|error| failed(&error))?;
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let request = Request { method: Method::GET, path, headers, body: Bytes::new() };
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        let answer = client
            .send(&request, bytes_max, deadline)
            .await
            .map_err(|error| failed(&format!("Get \"{url}\": {error}")))?;
        let code = answer.status.as_u16();
        if !(200..300).contains(&code) {
            return Err(failed(&format!("bad status from {url}: {code}")));
        }
        Ok(answer.body)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Str, Probe>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
