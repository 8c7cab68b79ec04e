//! The parts of [`Builder`](crate::Builder): one struct for each group of flags.

use crate::auditing::AuditOptions;
use crate::authentication::{JwtOptions, TokenWebhookOptions};
use crate::encryption::EncryptionFile;
use crate::etcd::Etcd;
use crate::front_proxy::FrontProxyOptions;
use crate::kubelets::KubeletOptions;
use crate::pki::{NamedCertificate, ServiceAccountTokenOptions, SigningOptions};
use crate::tracing_config::TracingOptions;
use keelson_admission::{Chain, DynamicPlugIn};
use keelson_auth::TokenFile;
use keelson_auth::oidc::AnonymousConfig;
use keelson_builtin::compaction;
use keelson_egress::EgressSelector;
use keelson_meta::Features;
use keelson_metrics::MetricsSelection;
use keelson_registry::PortRange;
use keelson_resources::StorageMediaType;
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
/// Default of `--service-cluster-ip-range`.
const SERVICE_RANGE_DEFAULT: &str = "10.0.0.0/24";

/// Where the data is, and for how long.
pub struct StorageOptions {
    /// The etcd cluster that stores the data instead of a data folder.
    pub etcd: Option<Etcd>,
    /// An open store to use instead of a data folder. The caller closes it.
    pub store: Option<Arc<dyn Store>>,
    /// `--storage-media-type`: the encoding of objects in etcd. The embedded store has its own.
    pub media_type: StorageMediaType,
    /// `--encryption-provider-config`: how stored values are encrypted; `None`: not at all.
    pub encryption: Option<EncryptionFile>,
    /// The data folder; `None`: data is in etcd, in a given store, or in memory only.
    pub data_dir: Option<PathBuf>,
    /// Time to live of events after their last write; zero: they never expire.
    pub event_ttl: Duration,
    /// How long old revisions are kept. In etcd the compaction interval decides this.
    pub history: Duration,
}

impl Default for StorageOptions {
    fn default() -> Self {
        StorageOptions {
            etcd: None,
            store: None,
            media_type: StorageMediaType::default(),
            encryption: None,
            data_dir: None,
            event_ttl: EVENT_TTL_DEFAULT,
            history: compaction::HISTORY_DEFAULT,
        }
    }
}

/// Addresses, TLS and the handling of connections.
pub struct ServingOptions {
    /// The address to listen on; port 0 selects a free port.
    pub bind: SocketAddr,
    /// `--permit-port-sharing`: whether other processes may listen on the same port.
    pub shares_port: bool,
    /// Whether the server uses TLS.
    pub tls: bool,
    /// Versions, cipher suites and groups of TLS.
    pub tls_options: TlsOptions,
    /// The folder of the certificates; `None`: `pki` in the data folder.
    pub cert_dir: Option<PathBuf>,
    /// `--tls-sni-cert-key`: serving certificates for single host names.
    pub named_certificates: Vec<NamedCertificate>,
    /// `--cert-dir` of kube-apiserver: without [`ServingOptions::tls_files`], `apiserver.crt` and
    /// `apiserver.key` in it are used, or generated.
    pub serving_pair_dir: Option<PathBuf>,
    /// `--tls-cert-file` and `--tls-private-key-file`: a serving certificate and key to use instead
    /// of a generated one.
    pub tls_files: Option<(PathBuf, PathBuf)>,
    /// Interval of the checks for changed certificate files.
    pub certificate_check_interval: Duration,
    /// `--external-hostname`: the host in URLs of this server.
    pub external_host: Option<String>,
    /// Headers for browsers.
    pub browsers: BrowserOptions,
    /// `--shutdown-delay-duration`: how long requests are still served at a stop, while `/readyz`
    /// fails.
    pub shutdown_delay: Duration,
    /// Limits of connections and requests.
    pub limits: Limits,
    /// The Kubernetes version at `/version` and in metrics. Its numbers should be those of
    /// [`KUBERNETES_VERSION`](crate::KUBERNETES_VERSION).
    pub reported_version: String,
}

impl Default for ServingOptions {
    fn default() -> Self {
        ServingOptions {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            shares_port: false,
            tls: true,
            tls_options: TlsOptions::default(),
            cert_dir: None,
            named_certificates: vec![],
            serving_pair_dir: None,
            tls_files: None,
            certificate_check_interval: CERTIFICATE_CHECK_INTERVAL,
            external_host: None,
            browsers: BrowserOptions::default(),
            shutdown_delay: Duration::ZERO,
            limits: Limits::default(),
            reported_version: crate::KUBERNETES_VERSION.to_owned(),
        }
    }
}

/// How users are known.
pub struct AuthenticationOptions {
    /// `--client-ca-file`: further authorities of client certificates.
    pub client_ca_file: Option<PathBuf>,
    /// The front proxies that name users in headers.
    pub front_proxy: Option<FrontProxyOptions>,
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
    /// Static tokens (`--token-auth-file`).
    pub tokens: TokenFile,
}

impl Default for AuthenticationOptions {
    fn default() -> Self {
        AuthenticationOptions {
            client_ca_file: None,
            front_proxy: None,
            service_account_tokens: ServiceAccountTokenOptions::default(),
            bootstrap_token_auth: false,
            anonymous: AnonymousConfig { enabled: true, paths: vec![] },
            jwt: None,
            token_webhook: None,
            tokens: TokenFile::default(),
        }
    }
}

/// The addresses of services and of this server.
pub struct NetworkOptions {
    /// `--service-cluster-ip-range`.
    pub service_ranges: Vec<String>,
    /// `--service-node-port-range`.
    pub node_ports: PortRange,
    /// `--kubernetes-service-node-port`: the node port of the service `kubernetes`; `None`: it has
    /// none.
    pub kubernetes_node_port: Option<u16>,
    /// `--advertise-address`.
    pub advertise: Option<IpAddr>,
    /// Whether this server is an endpoint of the service `kubernetes`
    /// (`--endpoint-reconciler-type=none`: it is not).
    pub publishes_endpoint: bool,
}

impl Default for NetworkOptions {
    fn default() -> Self {
        NetworkOptions {
            service_ranges: vec![SERVICE_RANGE_DEFAULT.to_owned()],
            node_ports: PortRange::default(),
            kubernetes_node_port: None,
            advertise: None,
            publishes_endpoint: true,
        }
    }
}

/// What is served.
pub struct ApiOptions {
    /// `--runtime-config`.
    pub runtime_config: Vec<(String, bool)>,
    /// `--feature-gates`.
    pub features: Features,
    /// `--allow-privileged`: whether pods may have privileged containers.
    pub allows_privileged: bool,
    /// `--enable-garbage-collector`: whether dependents of deleted objects are deleted or orphaned.
    pub garbage_collection: bool,
}

impl Default for ApiOptions {
    fn default() -> Self {
        ApiOptions {
            runtime_config: vec![],
            features: Features::default(),
            allows_privileged: true,
            garbage_collection: true,
        }
    }
}

/// Admission plug-ins and functions.
#[derive(Default)]
pub struct AdmissionOptions {
    /// The enabled admission plug-ins.
    pub chain: Chain,
    /// Admission functions of the embedding program; see
    /// [`Builder::admission`](crate::Builder::admission).
    pub in_process: Vec<Arc<dyn DynamicPlugIn>>,
}

/// Kubelets, and servers behind this one.
#[derive(Default)]
pub struct FarSideOptions {
    /// How kubelets are met, for logs, streams and proxies.
    pub kubelets: KubeletOptions,
    /// The client certificate and key for servers behind this one (`--proxy-client-cert-file`,
    /// `--proxy-client-key-file`).
    pub proxy_client_certificate: Option<(PathBuf, PathBuf)>,
    /// `--enable-aggregator-routing`.
    pub aggregator_routing: bool,
    /// `--egress-selector-config-file`: the proxies through which the server connects to others.
    pub egress_selector: EgressSelector,
}

/// Control loops and what they simulate.
#[derive(Default)]
pub struct ControllerOptions {
    /// The control loops to run: `*`, `name` or `-name`. Empty: all; those that a
    /// kube-controller-manager also runs stop while one holds its lease.
    pub selected: Vec<String>,
    /// Signers of CertificateSigningRequests.
    pub signing: SigningOptions,
    /// What is simulated besides the control loops of a bare server; `None`: nothing.
    pub simulation: Option<Simulation>,
}

/// What is recorded of requests.
#[derive(Default)]
pub struct RecordingOptions {
    /// The audit policy and where events are stored; `None`: nothing is audited.
    pub audit: Option<AuditOptions>,
    /// Where spans of requests are sent (`--tracing-config-file`); `None`: nothing is recorded.
    pub tracing: Option<TracingOptions>,
    /// Which metrics are served, and which values of their labels.
    pub metrics: Arc<MetricsSelection>,
}
