//! [`App`]: the state of the server that request handlers share.

use crate::aggregated::Aggregated;
use crate::body_memory::BodyMemory;
use crate::browsers::BrowserOptions;
use crate::documents::Documents;
use crate::extra_paths::ExtraPath;
use crate::fairness::{self, Fairness, FairnessSource};
use crate::health::Health;
use crate::health_counts::HealthCounts;
use crate::health_log::HealthLog;
use crate::impersonate::LastModes;
use crate::in_flight::InFlight;
use crate::kubelets::KubeletAccess;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::rewrite::Pages;
use crate::stream_limit::StreamLimit;
use crate::turns::Lists;
use crate::version::VersionInfo;
use arc_swap::ArcSwap;
use keelson_audit::Audit;
use keelson_auth::{Authenticator, Authorizer};
use keelson_egress::{Egress, Identity};
use keelson_meta::Timestamp;
use keelson_metrics::{Exposition, MetricsSelection};
use keelson_registry::Registry;
use keelson_traces::Tracer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Everything that request handlers need.
pub struct App {
    /// The registry, which executes the verbs.
    pub registry: Arc<Registry>,
    /// Authenticates requests.
    pub authenticator: Arc<Authenticator>,
    /// Authorizes requests.
    pub authorizer: Arc<Authorizer>,
    /// The connections to nodes, pods and services.
    pub egress: Arc<Egress>,
    /// How this server meets kubelets.
    pub kubelets: Arc<ArcSwap<KubeletAccess>>,
    /// The client certificate for servers behind this one (`--proxy-client-cert-file`).
    pub aggregator: Arc<ArcSwap<Option<Identity>>>,
    /// The document at `/version`.
    pub version: VersionInfo,
    /// When the server started.
    pub started: Timestamp,
    /// The flags of the process and their values, as `/flagz` shows them.
    pub flags: Vec<(String, String)>,
    /// Limits on clients.
    pub limits: Limits,
    /// Headers for browsers.
    pub browsers: BrowserOptions,
    /// Whether the explorer is served at `/ui/`.
    pub explorer: bool,
    /// Whether CBOR is served (feature `CBORServingAndStorage`).
    pub cbor: bool,
    /// The audit policy and where events are stored; `None`: nothing is audited.
    pub audit: Option<Arc<Audit>>,
    /// Records what is done for requests (`--tracing-config-file`); `None`: nothing is recorded.
    pub tracer: Option<Arc<Tracer>>,
    /// Which metrics are served.
    pub metrics_selection: Arc<MetricsSelection>,
    /// Further non-resource paths.
    pub extra_paths: Vec<ExtraPath>,
    /// Writes further metrics.
    pub extra_metrics: Box<dyn Fn(&mut Exposition<'_>) + Send + Sync>,
    /// The health of background components.
    pub health: Arc<Health>,
    /// Set when the server is shutting down: `/readyz` fails from then on.
    pub draining: AtomicBool,
    /// Counters and caches.
    pub state: State,
    /// Becomes true when the server is shutting down; ends watches.
    pub shutdown: tokio::sync::watch::Receiver<bool>,
}

impl App {
    /// Returns a server of `registry` with default limits and the registry's authorizer. It audits
    /// and traces nothing, and has no certificates for kubelets and servers behind this one.
    pub fn new(
        registry: Arc<Registry>,
        authenticator: Authenticator,
        egress: Arc<Egress>,
        shutdown: tokio::sync::watch::Receiver<bool>,
    ) -> App {
        let limits = Limits::default();
        App {
            authorizer: registry.options.authorizer.clone(),
            started: registry.clock.now(),
            registry,
            authenticator: Arc::new(authenticator),
            egress,
            kubelets: Arc::new(ArcSwap::from_pointee(KubeletAccess::default())),
            aggregator: Arc::default(),
            version: VersionInfo::current(),
            flags: vec![],
            state: State::new(&limits),
            limits,
            browsers: BrowserOptions::default(),
            explorer: false,
            cbor: false,
            audit: None,
            tracer: None,
            metrics_selection: Arc::default(),
            extra_paths: vec![],
            extra_metrics: Box::new(|_| {}),
            health: Arc::default(),
            draining: AtomicBool::new(false),
            shutdown,
        }
    }

    /// Sets the limits on clients.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> App {
        App { state: State::new(&limits), limits, ..self }
    }

    /// Returns why the server is not ready, if it is not.
    pub fn ready(&self) -> Result<(), String> {
        if self.is_draining() {
            return Err("shutting down".to_owned());
        }
        self.live()
    }

    /// Reads the FlowSchemas and PriorityLevelConfigurations.
    pub fn load_fairness(&self, source: &FairnessSource) {
        if let Some(fairness) = &self.state.fairness {
            fairness::load(fairness, &self.registry, source);
        }
    }

    /// Keeps them up to date, and divides the seats between levels, until it is dropped.
    pub async fn follow_fairness(self: Arc<Self>, source: &FairnessSource) {
        match &self.state.fairness {
            Some(fairness) => fairness::follow(fairness, &self.registry, source).await,
            None => std::future::pending().await,
        }
    }

    /// Returns whether the server is shutting down.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Returns why the server does not work, if it does not.
    pub(crate) fn live(&self) -> Result<(), String> {
        self.registry.store.health().map_err(|error| format!("store: {error}"))
    }
}

/// Counters and caches of a running server.
#[derive(Debug)]
pub struct State {
    pub(crate) health: HealthLog,
    pub(crate) health_counts: HealthCounts,
    pub(crate) in_flight: Arc<InFlight>,
    /// Replaces `in_flight`; `None`: it is switched off.
    pub(crate) fairness: Option<Arc<Fairness>>,
    /// The lists that are being sent.
    pub(crate) lists: Lists,
    pub(crate) streams: Arc<StreamLimit>,
    pub(crate) bodies: BodyMemory,
    pub(crate) pages: Pages,
    /// `/api` and `/apis` in aggregated form.
    pub(crate) core_discovery: Aggregated,
    pub(crate) discovery: Aggregated,
    pub(crate) documents: Documents,
    pub(crate) last_modes: LastModes,
    pub(crate) metrics: Arc<Metrics>,
}

impl State {
    /// Creates the state of a new server.
    pub fn new(limits: &Limits) -> State {
        State {
            health: HealthLog::default(),
            health_counts: HealthCounts::default(),
            in_flight: Arc::new(InFlight::new(limits)),
            fairness: Fairness::new(limits),
            lists: Lists::default(),
            streams: Arc::new(StreamLimit::new(limits)),
            bodies: BodyMemory::new(limits),
            pages: Pages::default(),
            core_discovery: Aggregated::default(),
            discovery: Aggregated::default(),
            documents: Documents::default(),
            last_modes: LastModes::default(),
            metrics: Arc::new(Metrics::new()),
        }
    }
}
