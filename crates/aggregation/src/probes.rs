//! [`Probes`]: asks the servers behind this one what they serve, again and again. The answer also shows
//! that a server is available.

use crate::discovery::aggregated;
use crate::peer::{peer, user_headers};
use http::{HeaderMap, HeaderValue, Method, header};
use keelson_auth::{MASTERS, User};
use keelson_egress::{Egress, Identity, Request};
use keelson_meta::{Str, Value};
use keelson_resources::RemoteServer;
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
/// How long a server may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// Most bytes of the list of a server's resources.
const ANSWER_BYTES_MAX: usize = 4 << 20;
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
        });
        if probe.server != *server {
            probe.server = server.clone();
            probe.next = now;
        }
        if !probe.is_running && probe.next <= now {
            probe.is_running = true;
            let (probes, server) = (self.clone(), server.clone());
            let (group, version) = (group.clone(), version.clone());
            tokio::spawn(async move {
                let answer = probes.ask(&group, &version, &server).await;
                probes.record(&name, answer);
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

    fn record(&self, name: &str, answer: Result<Value, String>) {
        let mut known = self.known();
        let Some(probe) = known.get_mut(name) else { return };
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
        probe.next = Instant::now() + wait;
        if before != (true, probe.outcome.clone()) {
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
        let path = format!("/apis/{group}/{version}");
        let peer = peer(server, (self.identities)());
        let url = format!("https://{}{path}", peer.authority());
        let failed =
            |why: &dyn std::fmt::Display| format!("failing or missing response from {url}: {why}");
        let client = self.egress.client(&peer).map_err(|error| failed(&error))?;
        let mut headers = HeaderMap::new();
        let user = User { name: PROBER.into(), ..User::default() }.with_group(MASTERS);
        user_headers(&mut headers, &user).map_err(|error| failed(&error))?;
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let request = Request { method: Method::GET, path, headers, body: bytes::Bytes::new() };
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        let answer = client.send(&request, ANSWER_BYTES_MAX, deadline).await;
        let answer = answer.map_err(|error| failed(&format!("Get \"{url}\": {error}")))?;
        let code = answer.status.as_u16();
        if !(200..300).contains(&code) {
            return Err(failed(&format!("bad status from {url}: {code}")));
        }
        let list = json::parse(&answer.body).map(|parsed| parsed.value).unwrap_or_default();
        Ok(aggregated(&list, group, version))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Str, Probe>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
