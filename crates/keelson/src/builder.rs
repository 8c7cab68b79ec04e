//! [`Builder`]: the configuration of a server.

use crate::auditing::AuditOptions;
use crate::authentication::{JwtOptions, TokenWebhookOptions};
use crate::authorization::Authorization;
use crate::encryption::EncryptionFile;
use crate::etcd::Etcd;
use crate::front_proxy::FrontProxyOptions;
use crate::kubelets::KubeletOptions;
use crate::service_account_keys::ServiceAccountTokenOptions;
use crate::signing::SigningOptions;
use crate::tls_files::NamedCertificate;
use crate::tracing_config::TracingOptions;
use keelson_admission::{Chain, DynamicPlugIn};
use keelson_auth::oidc::AnonymousConfig;
use keelson_auth::{TokenFile, User};
use keelson_loops::StandsFor;
use keelson_meta::Features;
use keelson_metrics::MetricsSelection;
use keelson_registry::{Clock, PortRange, SystemClock};
use keelson_server::{BrowserOptions, Limits, TlsOptions};
use keelson_store::Store;
use keelson_workloads::Simulation;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Default interval of the checks for changed certificate files.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Default of kube-apiserver's `--event-ttl`.
const EVENT_TTL_DEFAULT: Duration = Duration::from_secs(3600);

/// Time that a stop takes at most without delays: 10 s for requests in flight, the grace periods of writes and
/// control loops, and a margin for the store. The program exits after it whatever still runs.
const STOP_TIME_MAX: Duration = Duration::from_secs(45);

/// The configuration of a server.
pub struct Builder {
    /// The etcd cluster that stores the data instead of a data folder.
    pub etcd: Option<Etcd>,
    /// An open store to use instead of a data folder. The caller closes it.
    pub store: Option<Arc<dyn Store>>,
    /// `--encryption-provider-config`: how stored values are encrypted; `None`: not at all.
    pub encryption: Option<EncryptionFile>,
    /// The data folder; `None`: data is in etcd, in a given store, or in memory only.
    pub data_dir: Option<PathBuf>,
    /// The folder of the certificates; `None`: `pki` in the data folder.
    pub cert_dir: Option<PathBuf>,
    /// The address to listen on; port 0 selects a free port.
    pub bind: SocketAddr,
    /// `--permit-port-sharing`: whether other processes may listen on the same port.
    pub shares_port: bool,
    /// Whether the server uses TLS.
    pub tls: bool,
    /// Versions, cipher suites and groups of TLS.
    pub tls_options: TlsOptions,
    /// `--tls-sni-cert-key`: serving certificates for single host names.
    pub named_certificates: Vec<NamedCertificate>,
    /// `--cert-dir` of kube-apiserver: without [`Builder::tls_files`], `apiserver.crt` and `apiserver.key`
    /// in it are used, or generated.
    pub serving_pair_dir: Option<PathBuf>,
    /// `--tls-cert-file` and `--tls-private-key-file`: a serving certificate and key to use instead
    /// of a generated one.
    pub tls_files: Option<(PathBuf, PathBuf)>,
    /// `--client-ca-file`: further authorities of client certificates.
    pub client_ca_file: Option<PathBuf>,
    /// The front proxies that name users in headers.
    pub front_proxy: Option<FrontProxyOptions>,
    /// The authorizers.
    pub authorization: Authorization,
    /// Options for issuing and verifying service account tokens.
    pub service_account_tokens: ServiceAccountTokenOptions,
    /// Whether bootstrap tokens are accepted.
    pub bootstrap_token_auth: bool,
    /// The requests without credentials that are served as `system:anonymous`.
    pub anonymous: AnonymousConfig,
    /// The OpenID Connect issuers whose tokens are accepted.
    pub jwt: Option<JwtOptions>,
    /// A webhook that authenticates bearer tokens.
    pub token_webhook: Option<TokenWebhookOptions>,
    /// The audit policy and where events are stored; `None`: nothing is audited.
    pub audit: Option<AuditOptions>,
    /// Where spans of requests are sent (`--tracing-config-file`); `None`: nothing is recorded.
    pub tracing: Option<TracingOptions>,
    /// Which metrics are served, and which values of their labels.
    pub metrics: Arc<MetricsSelection>,
    /// Static tokens (`--token-auth-file`).
    pub tokens: TokenFile,
    /// `--service-cluster-ip-range`.
    pub service_ranges: Vec<String>,
    /// `--service-node-port-range`.
    pub node_ports: PortRange,
    /// `--advertise-address`.
    pub advertise: Option<IpAddr>,
    /// `--external-hostname`: the host in URLs of this server.
    pub external_host: Option<String>,
    /// Whether this server is an endpoint of the service `kubernetes`
    /// (`--endpoint-reconciler-type=none`: it is not).
    pub publishes_endpoint: bool,
    /// Headers for browsers.
    pub browsers: BrowserOptions,
    /// `--shutdown-delay-duration`: how long requests are still served at a stop, while `/readyz` fails.
    pub shutdown_delay: Duration,
    /// `--allow-privileged`: whether pods may have privileged containers.
    pub allows_privileged: bool,
    /// `--enable-aggregator-routing`.
    pub aggregator_routing: bool,
    /// `--runtime-config`.
    pub runtime_config: Vec<(String, bool)>,
    /// `--feature-gates`.
    pub features: Features,
    /// Flags and their values for `/flagz`; they configure nothing.
    pub flags: Vec<(String, String)>,
    /// The enabled admission plug-ins.
    pub admission: Chain,
    /// Admission functions of the embedding program; see [`Builder::admission`].
    pub in_process_admission: Vec<Arc<dyn DynamicPlugIn>>,
    /// The control loops to run: `*`, `name` or `-name`. Empty: all; those that a
    /// kube-controller-manager also runs stop while one holds its lease.
    pub controllers: Vec<String>,
    /// What is simulated besides the control loops of a bare server; `None`: nothing.
    pub simulation: Option<Simulation>,
    /// Whether the explorer is served at `/ui/`.
    pub explorer: bool,
    /// How kubelets are met, for logs, streams and proxies.
    pub kubelets: KubeletOptions,
    /// The client certificate and key for servers behind this one (`--proxy-client-cert-file`,
    /// `--proxy-client-key-file`).
    pub proxy_client_certificate: Option<(PathBuf, PathBuf)>,
    /// Signers of CertificateSigningRequests.
    pub signing: SigningOptions,
    /// Time to live of events after their last write; zero: they never expire.
    pub event_ttl: Duration,
    /// How long old revisions are kept. In etcd the compaction interval decides this.
    pub history: Duration,
    /// Limits of connections and requests.
    pub limits: Limits,
    /// Interval of the checks for changed certificate files.
    pub certificate_check_interval: Duration,
    /// The source of time and randomness.
    pub clock: Box<dyn Clock>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            etcd: None,
            store: None,
            encryption: None,
            data_dir: None,
            cert_dir: None,
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            shares_port: false,
            tls: true,
            tls_options: TlsOptions::default(),
            named_certificates: vec![],
            serving_pair_dir: None,
            tls_files: None,
            client_ca_file: None,
            front_proxy: None,
            authorization: Authorization::default(),
            service_account_tokens: ServiceAccountTokenOptions::default(),
            bootstrap_token_auth: false,
            anonymous: AnonymousConfig { enabled: true, paths: vec![] },
            jwt: None,
            token_webhook: None,
            audit: None,
            tracing: None,
            metrics: Arc::default(),
            tokens: TokenFile::default(),
            service_ranges: vec!["10.0.0.0/24".to_owned()],
            node_ports: PortRange::default(),
            advertise: None,
            external_host: None,
            publishes_endpoint: true,
            browsers: BrowserOptions::default(),
            shutdown_delay: Duration::ZERO,
            allows_privileged: true,
            aggregator_routing: false,
            runtime_config: vec![],
            features: Features::default(),
            flags: vec![],
            admission: Chain::default(),
            in_process_admission: vec![],
            controllers: vec![],
            simulation: None,
            explorer: false,
            kubelets: KubeletOptions::default(),
            proxy_client_certificate: None,
            signing: SigningOptions::default(),
            event_ttl: EVENT_TTL_DEFAULT,
            history: Duration::from_secs(300),
            limits: Limits::default(),
            certificate_check_interval: CERTIFICATE_CHECK_INTERVAL,
            clock: Box::new(SystemClock),
        }
    }
}

impl Builder {
    /// Stores everything in memory.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.data_dir = None;
        self
    }

    /// Stores data in a folder.
    #[must_use]
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(dir.into());
        self
    }

    /// Stores data in an etcd cluster. Certificates stay in the data folder, if there is one.
    #[must_use]
    pub fn etcd(mut self, etcd: Etcd) -> Self {
        self.etcd = Some(etcd);
        self
    }

    /// Stores data in this store. Certificates stay in the data folder, if there is one.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Sets the source of time and randomness.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Serves plain HTTP; only for addresses that no other user or host can reach.
    #[must_use]
    pub fn plain_http(mut self) -> Self {
        self.tls = false;
        self
    }

    /// Adds a static token of the user `name` in the group `system:masters`.
    #[must_use]
    pub fn token(mut self, token: &str, name: &str) -> Self {
        let user = User { name: name.into(), ..User::default() }.with_group(keelson_auth::MASTERS);
        self.tokens.insert(token, user);
        self
    }

    /// Sets the authorizers.
    #[must_use]
    pub fn authorization(mut self, authorization: Authorization) -> Self {
        self.authorization = authorization;
        self
    }

    /// Runs no control loop that belongs to kube-controller-manager, as kube-apiserver runs none.
    #[must_use]
    pub fn without_manager(mut self) -> Self {
        let of_manager = keelson_controllers::ALL
            .iter()
            .filter(|controller| controller.stands_for == StandsFor::ControllerManager);
        self.controllers = of_manager.map(|controller| format!("-{}", controller.name)).collect();
        self
    }

    /// Runs the workloads of a cluster, too: their control loops, a scheduler and simulated nodes. The
    /// server has the clock of the simulation.
    #[must_use]
    pub fn simulate(mut self, simulation: Simulation) -> Self {
        self.simulation = Some(simulation);
        self
    }

    /// Serves the explorer, a web page, at `/ui/`. Its files need no credentials; its requests do.
    #[must_use]
    pub fn explorer(mut self) -> Self {
        self.explorer = true;
        self
    }

    /// Returns the time that [`Keelson::stop`](crate::Keelson::stop) takes at most.
    pub fn stop_time_max(&self) -> Duration {
        STOP_TIME_MAX + self.shutdown_delay + self.limits.watch_end_spread
    }

    /// Runs no control loops. Without them no namespace gets its `default` service account, which
    /// the ServiceAccount admission plug-in requires for pods: create the account, or disable the
    /// plug-in.
    #[must_use]
    pub fn no_controllers(mut self) -> Self {
        self.controllers = vec!["-*".to_owned()];
        self
    }
}
