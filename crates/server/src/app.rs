//! [`App`]: what all answers are made of, for as long as the server runs.

use crate::aggregated::Aggregated;
use crate::bodies::Bodies;
use crate::documents::Documents;
use crate::health::Health;
use crate::health_log::HealthLog;
use crate::impersonate::LastModes;
use crate::in_flight::InFlight;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::version::VersionInfo;
use keelson_auth::{Authenticator, Authorizer};
use keelson_meta::Timestamp;
use keelson_registry::Registry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Everything that answers need.
pub struct App {
    /// The kinds.
    pub registry: Arc<Registry>,
    /// Authenticates requests.
    pub authenticator: Arc<Authenticator>,
    /// Authorizes requests.
    pub authorizer: Arc<Authorizer>,
    /// The document at `/version`.
    pub version: VersionInfo,
    /// When the server started.
    pub started: Timestamp,
    /// The flags of the process and their values, as `/flagz` shows them.
    pub flags: Vec<(String, String)>,
    /// Limits on clients.
    pub limits: Limits,
    /// Whether objects are read and written in CBOR too (`CBORServingAndStorage`).
    pub cbor: bool,
    /// The health of what runs beside requests.
    pub health: Arc<Health>,
    /// Set when the server is going down: `/readyz` fails from then on.
    pub draining: AtomicBool,
    /// Counters and caches.
    pub state: State,
    /// Ends watches when the server is going down.
    pub shutdown: tokio::sync::watch::Receiver<bool>,
}

impl App {
    /// Whether the server is ready to serve, and if not, why.
    pub fn ready(&self) -> Result<(), String> {
        if self.is_draining() {
            return Err("shutting down".to_owned());
        }
        self.live()
    }

    /// Whether the server is going down.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whether the server works, and if not, why.
    pub(crate) fn live(&self) -> Result<(), String> {
        self.registry.store.health().map_err(|error| format!("store: {error}"))
    }
}

/// Counters and caches of a running server.
#[derive(Debug)]
pub struct State {
    pub(crate) health: HealthLog,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) bodies: Bodies,
    /// `/api` and `/apis` in aggregated form.
    pub(crate) core_discovery: Aggregated,
    pub(crate) discovery: Aggregated,
    pub(crate) documents: Documents,
    pub(crate) last_modes: LastModes,
    pub(crate) metrics: Arc<Metrics>,
}

impl State {
    /// Nothing has happened yet.
    pub fn new(limits: &Limits) -> State {
        State {
            health: HealthLog::default(),
            in_flight: Arc::new(InFlight::new(limits)),
            bodies: Bodies::new(limits),
            core_discovery: Aggregated::default(),
            discovery: Aggregated::default(),
            documents: Documents::default(),
            last_modes: LastModes::default(),
            metrics: Arc::new(Metrics::new()),
        }
    }
}
