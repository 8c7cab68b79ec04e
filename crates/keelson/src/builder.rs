//! [`Builder`]: the configuration of a server.

use crate::authentication::{JwtOptions, TokenWebhookOptions};
use crate::authorization::Authorization;
use crate::etcd::Etcd;
use crate::front_proxy::FrontProxyOptions;
use crate::service_account_keys::ServiceAccountTokenOptions;
use crate::signing::SigningOptions;
use keelson_admission::{Chain, DynamicPlugIn};
use keelson_auth::oidc::AnonymousConfig;
use keelson_auth::{TokenFile, User};
use keelson_meta::Features;
use keelson_registry::{Clock, PortRange, SystemClock};
use keelson_server::Limits;
use keelson_store::Store;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Interval of the checks for changed certificate files.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(10);
/// As of kube-apiserver.
const EVENT_TTL_DEFAULT: Duration = Duration::from_secs(3600);

/// The configuration of a server.
pub struct Builder {
    /// The etcd cluster where data lives, in the place of a folder.
    pub etcd: Option<Etcd>,
    /// A store that is there already, in the place of a folder. Whoever made it closes it.
    pub store: Option<Arc<dyn Store>>,
    /// The data folder, unless data is in etcd or a given store; `None`: in memory only.
    pub data_dir: Option<PathBuf>,
    /// The folder of certificates; `None`: below the data folder.
    pub cert_dir: Option<PathBuf>,
    /// The address to listen on; port 0 takes a free one.
    pub bind: SocketAddr,
    /// Whether it speaks TLS.
    pub tls: bool,
    /// A serving certificate and key to use instead of an own one.
    pub tls_files: Option<(PathBuf, PathBuf)>,
    /// Further authorities whose client certificates count.
    pub client_ca_file: Option<PathBuf>,
    /// Which proxies name users in headers, if any do.
    pub front_proxy: Option<FrontProxyOptions>,
    /// Decides who may do what.
    pub authorization: Authorization,
    /// Options for issuing and verifying service account tokens.
    pub service_account_tokens: ServiceAccountTokenOptions,
    /// Whether bootstrap tokens are accepted.
    pub bootstrap_token_auth: bool,
    /// Which requests without credentials are served as `system:anonymous`.
    pub anonymous: AnonymousConfig,
    /// Which other issuers' tokens are accepted.
    pub jwt: Option<JwtOptions>,
    /// A webhook that knows bearer tokens.
    pub token_webhook: Option<TokenWebhookOptions>,
    /// Known tokens.
    pub tokens: TokenFile,
    /// `--service-cluster-ip-range`.
    pub service_ranges: Vec<String>,
    /// `--service-node-port-range`.
    pub node_ports: PortRange,
    /// `--advertise-address`.
    pub advertise: Option<IpAddr>,
    /// `--enable-aggregator-routing`.
    pub aggregator_routing: bool,
    /// `--runtime-config`.
    pub runtime_config: Vec<(String, bool)>,
    /// `--feature-gates`.
    pub features: Features,
    /// Flags and their values, as `/flagz` shows them; they change nothing.
    pub flags: Vec<(String, String)>,
    /// The admission plug-ins that are on.
    pub admission: Chain,
    /// Functions of the embedding program that look at writes; see [`Builder::admission`].
    pub in_process_admission: Vec<Arc<dyn DynamicPlugIn>>,
    /// The control loops that run: `*`, names, `-name`. None: all of them, but those that a
    /// kube-controller-manager runs only while there is none.
    pub controllers: Vec<String>,
    /// Signers of CertificateSigningRequests.
    pub signing: SigningOptions,
    /// Time to live of events after their last write; zero is for ever.
    pub event_ttl: Duration,
    /// How long the history is kept; etcd's is kept for its compaction interval.
    pub history: Duration,
    /// Limits on clients.
    pub limits: Limits,
    /// Interval of the checks for changed certificate files.
    pub certificate_look: Duration,
    /// The clock, also the source of randomness.
    pub clock: Box<dyn Clock>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            etcd: None,
            store: None,
            data_dir: None,
            cert_dir: None,
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            tls: true,
            tls_files: None,
            client_ca_file: None,
            front_proxy: None,
            authorization: Authorization::default(),
            service_account_tokens: ServiceAccountTokenOptions::default(),
            bootstrap_token_auth: false,
            anonymous: AnonymousConfig { enabled: true, paths: vec![] },
            jwt: None,
            token_webhook: None,
            tokens: TokenFile::default(),
            service_ranges: vec!["10.0.0.0/24".to_owned()],
            node_ports: PortRange::default(),
            advertise: None,
            aggregator_routing: false,
            runtime_config: vec![],
            features: Features::default(),
            flags: vec![],
            admission: Chain::default(),
            in_process_admission: vec![],
            controllers: vec![],
            signing: SigningOptions::default(),
            event_ttl: EVENT_TTL_DEFAULT,
            history: Duration::from_secs(300),
            limits: Limits::default(),
            certificate_look: CERTIFICATE_LOOK,
            clock: Box::new(SystemClock),
        }
    }
}

impl Builder {
    /// Keeps everything in memory.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.data_dir = None;
        self
    }

    /// Keeps data in a folder.
    #[must_use]
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(dir.into());
        self
    }

    /// Keeps data in an etcd cluster; what else a server keeps stays in the folder, if it has one.
    #[must_use]
    pub fn etcd(mut self, etcd: Etcd) -> Self {
        self.etcd = Some(etcd);
        self
    }

    /// Keeps data in this store; what else a server keeps stays in the folder, if it has one.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Takes time and randomness from here.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Speaks plain HTTP; only for sockets that nobody else can reach.
    #[must_use]
    pub fn plain_http(mut self) -> Self {
        self.tls = false;
        self
    }

    /// Makes `token` that of an administrator called `name`.
    #[must_use]
    pub fn token(mut self, token: &str, name: &str) -> Self {
        let user = User { name: name.into(), ..User::default() }.with_group(keelson_auth::MASTERS);
        self.tokens.insert(token, user);
        self
    }

    /// Asks these authorizers.
    #[must_use]
    pub fn authorization(mut self, authorization: Authorization) -> Self {
        self.authorization = authorization;
        self
    }

    /// Runs no control loop. Nobody makes the service account `default` then, which pods ask for that
    /// name none: make it, or switch the admission plug-in ServiceAccount off.
    #[must_use]
    pub fn no_controllers(mut self) -> Self {
        self.controllers = vec!["-*".to_owned()];
        self
    }
}
