//! [`Provider`]: fetches and caches the keys of an issuer.
//!
//! A background task retries until the issuer has answered once. Later the keys are fetched again
//! when a token has an unknown signature, at most once in [`REFRESH_MIN`], with one request for all
//! waiting callers.

use super::config::IssuerConfig;
use super::keys::KeySet;
use http::{HeaderMap, Method, StatusCode, Uri};
use keelson_egress::{Egress, Network, NetworkChoice, Peer, Request, Trust};
use keelson_meta::status::quote;
use serde_json::Value;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

/// Delay between attempts to reach an issuer that has not answered yet.
const RETRY_DELAY: Duration = Duration::from_secs(10);
/// The first delay is shorter: an issuer that starts together with this server is found soon.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(250);
/// Minimum interval between two requests for keys.
const REFRESH_MIN: Duration = Duration::from_secs(1);
/// Timeout of a request to an issuer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// Maximum length of a response.
const ANSWER_BYTES_MAX: usize = 1 << 20;
const HTTPS_PORT: u16 = 443;

/// The keys of one issuer.
pub(super) struct Provider {
    shared: Arc<Shared>,
    is_ready: watch::Receiver<bool>,
    discovery: JoinHandle<()>,
}

struct Shared {
    issuer: String,
    discovery_url: String,
    trust: Trust,
    /// The proxy on the way; without a choice of the administrator there is none.
    selection: NetworkChoice,
    egress: Arc<Egress>,
    keys: RwLock<Arc<KeySet>>,
    /// The URL of the keys, and the time of the last fetch.
    source: Mutex<Option<Source>>,
}

struct Source {
    keys_url: String,
    fetched: Instant,
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.discovery.abort();
    }
}

impl Provider {
    /// Starts to fetch the keys of an issuer.
    pub fn start(config: &IssuerConfig, egress: Arc<Egress>) -> Provider {
        let own = format!("{}/.well-known/openid-configuration", config.url.trim_end_matches('/'));
        let discovery_url = match config.discovery_url.as_str() {
            "" => own,
            url => url.to_owned(),
        };
        let trust = match config.certificate_authority.as_str() {
            "" => Trust::System,
            pem => Trust::Bundle(pem.as_bytes().into()),
        };
        let shared = Arc::new(Shared {
            issuer: config.url.clone(),
            discovery_url,
            trust,
            selection: match config.egress_selector_type.as_str() {
                "controlplane" => NetworkChoice::Network(Network::ControlPlane),
                "cluster" => NetworkChoice::Network(Network::Cluster),
                _ => NetworkChoice::Direct,
            },
            egress,
            keys: RwLock::default(),
            source: Mutex::default(),
        });
        let (found, is_ready) = watch::channel(false);
        let discovery = tokio::spawn(discover(shared.clone(), found));
        Provider { shared, is_ready, discovery }
    }

    /// Returns whether the issuer has answered.
    pub fn is_ready(&self) -> bool {
        *self.is_ready.borrow()
    }

    /// Waits until the issuer has answered.
    pub async fn ready(&self) {
        let _ = self.is_ready.clone().wait_for(|is_ready| *is_ready).await;
    }

    /// Returns the keys that were fetched last.
    pub fn keys(&self) -> Arc<KeySet> {
        self.shared.keys()
    }

    /// Returns keys that are newer than `known`.
    pub async fn newer_keys(&self, known: &Arc<KeySet>) -> Result<Arc<KeySet>, String> {
        let mut source = self.shared.source.lock().await;
        let keys = self.shared.keys();
        if !Arc::ptr_eq(&keys, known) {
            return Ok(keys);
        }
        let Some(source) = source.as_mut() else { return Ok(keys) };
        sleep_until(source.fetched + REFRESH_MIN).await;
        source.fetched = Instant::now();
        self.shared.fetch_keys(&source.keys_url).await
    }
}

/// Fetches the discovery document and the keys; retries until both succeed.
async fn discover(shared: Arc<Shared>, found: watch::Sender<bool>) {
    let mut delay = FIRST_RETRY_DELAY;
    loop {
        match shared.discover().await {
            Ok(keys_url) => {
                *shared.source.lock().await = Some(Source { keys_url, fetched: Instant::now() });
                found.send_replace(true);
                return;
            }
            Err(error) => {
                let issuer = &shared.issuer;
                tracing::warn!(issuer, error, retry = ?delay, "OIDC issuer not reached; its tokens are refused");
            }
        }
        sleep(delay).await;
        delay = (delay * 2).min(RETRY_DELAY);
    }
}

impl Shared {
    fn keys(&self) -> Arc<KeySet> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn discover(&self) -> Result<String, String> {
        let document = self.get(&self.discovery_url).await?;
        let text = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default();
        if text("issuer") != self.issuer {
            let wanted = quote(&self.issuer);
            let got = quote(text("issuer"));
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {wanted} \
                 got {got}"
            ));
        }
        let keys_url = text("jwks_uri").to_owned();
        self.fetch_keys(&keys_url).await?;
        Ok(keys_url)
    }

    async fn fetch_keys(&self, url: &str) -> Result<Arc<KeySet>, String> {
        let document = self.get(url).await.map_err(|why| format!("fetching keys {why}"))?;
        let keys = KeySet::read(&document).ok_or("fetching keys oidc: failed to decode keys")?;
        let keys = Arc::new(keys);
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys.clone();
        Ok(keys)
    }

    /// Fetches a document of the issuer.
    async fn get(&self, url: &str) -> Result<Value, String> {
        let failed = |why: String| format!("Get {}: {why}", quote(url));
        let uri: Uri = url.parse().map_err(|_| failed("invalid URL".to_owned()))?;
        if uri.scheme_str() != Some("https") {
            return Err(failed("URL scheme must be https".to_owned()));
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let peer = Peer {
            trust: self.trust.clone(),
            selection: self.selection,
            ..Peer::new(host, uri.port_u16().unwrap_or(HTTPS_PORT))
        };
        let client = self.egress.client(&peer).map_err(|error| failed(error.to_string()))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request {
            method: Method::GET,
            path: path.to_owned(),
            headers: HeaderMap::new(),
            body: bytes::Bytes::new(),
        };
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        let response = client
            .send(&request, ANSWER_BYTES_MAX, deadline)
            .await
            .map_err(|error| failed(error.to_string()))?;
        if response.status != StatusCode::OK {
            return Err(failed(response.status.to_string()));
        }
        serde_json::from_slice(&response.body)
            .map_err(|_| failed("the answer is no JSON".to_owned()))
    }
}
