//! A server for tests over a registry of its own: no files, no flags, and no control loops but
//! those that every kube-apiserver runs.

use keelson_admission::webhooks::ConversionWebhooks;
use keelson_admission::{Chain, dynamic_plug_ins};
use keelson_aggregation::{Probes, ServiceResolver};
use keelson_auth::node::NodeAuthorizer;
use keelson_auth::oidc::AnonymousConfig;
use keelson_auth::service_account::{
    EXTENDED_SECONDS_DEFAULT, ServiceAccountOptions, ServiceAccountTokens, SigningKey, TokenKeys,
};
use keelson_auth::{Authenticator, Authorizer, MASTERS, Mode, TokenFile, User};
use keelson_builtin::{Opened, api_services, compaction, definitions, flow_control, services};
use keelson_egress::Egress;
use keelson_meta::{Feature, Features};
use keelson_registry::{Registry, RegistryOptions, SystemClock};
use keelson_server::{
    App, ClientAuthorities, FairnessSource, Limits, Listening, ServingCertificates, Tls, TlsOptions,
};
use keelson_store::{Embedded, EmbeddedOptions};
use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::PrivateKeyDer;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use keelson_testkit::http::{Client, POLL_TIMEOUT, RawResponse, Response, Watch, revision_of};

const ISSUER: &str = "https://kubernetes.default.svc";
static FAIRNESS_SOURCE: FairnessSource =
    FairnessSource { resources: flow_control::FOLLOWED, read: flow_control::stored };

/// What a server of a test differs in from the default.
pub struct Options {
    pub limits: Limits,
    pub features: Features,
    pub runtime_config: Vec<(String, bool)>,
    /// The admission plug-ins.
    pub chain: Chain,
    /// The authorizers, in the order in which they are asked.
    pub modes: Vec<Mode>,
    pub tokens: TokenFile,
    /// How long old revisions are kept.
    pub history: Duration,
    pub store: Stored,
}

/// Where the data is.
pub enum Stored {
    /// In this store, which the server does not close.
    Given(Arc<Embedded>),
    /// In a store that the server has opened, and closes.
    Own(Arc<Embedded>),
}

impl Default for Options {
    /// Everything in memory, all default plug-ins, and the authorizers Node and RBAC.
    fn default() -> Self {
        let node = NodeAuthorizer::new(keelson_builtin::default_rules("system:node"));
        Options {
            limits: Limits::default(),
            features: Features::default(),
            runtime_config: vec![],
            chain: Chain::default(),
            modes: vec![Mode::Node(Arc::new(node)), Mode::Rbac],
            tokens: TokenFile::default(),
            history: compaction::HISTORY_DEFAULT,
            store: Stored::Own(Embedded::in_memory()),
        }
    }
}

impl Options {
    /// Changes the options: `.with(|options| options.limits = limits)`.
    pub fn with(mut self, change: impl FnOnce(&mut Options)) -> Options {
        change(&mut self);
        self
    }

    /// Adds a token of a user in `system:masters`.
    pub fn token(mut self, token: &str, name: &str) -> Options {
        let user = User { name: name.into(), ..User::default() };
        self.tokens.insert(token, user.with_group(MASTERS));
        self
    }

    /// Keeps the data in a folder.
    pub fn data_dir(mut self, dir: &Path) -> Options {
        let mut options = EmbeddedOptions::new(dir.join("store"));
        options.make_placeholder = Some(keelson_records::unreadable);
        self.store = Stored::Own(Embedded::open(options).expect("a store"));
        self
    }

    /// Keeps the data in a store that outlives the server.
    pub fn store(mut self, store: Arc<Embedded>) -> Options {
        self.store = Stored::Given(store);
        self
    }

    /// Takes the authorizers.
    fn registry(&mut self, egress: &Arc<Egress>, port: u16) -> RegistryOptions {
        let modes = std::mem::take(&mut self.modes);
        let types = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];
        RegistryOptions {
            service_ranges: vec!["10.0.0.0/24".to_owned()],
            node_ports: Default::default(),
            node_address_types: types.map(str::to_owned).to_vec(),
            advertise_address: Ipv4Addr::LOCALHOST.into(),
            advertise_port: port,
            publishes_endpoint: true,
            runtime_config: self.runtime_config.clone(),
            features: self.features,
            allows_privileged: true,
            garbage_collection: true,
            fairness: self.limits.fairness,
            kubernetes_node_port: None,
            other_stores: vec![],
            admission: self.chain.clone(),
            dynamic_admission: dynamic_plug_ins(&self.chain, self.features, &[], egress),
            conversion_webhooks: Some(Arc::new(ConversionWebhooks::new(egress.clone()))),
            authorizer: Arc::new(Authorizer::new(modes)),
            event_ttl: Duration::from_secs(3600),
            simulated_nodes: None,
        }
    }
}

/// Options without the plug-in ServiceAccount: no loop creates the accounts that it requires.
pub fn without_accounts() -> Options {
    let off = ["ServiceAccount".to_owned()];
    let chain = Chain::new(&[], &off).expect("there is such a plug-in");
    Options { chain, ..Options::default() }
}

/// A running server and the threads that it runs on.
pub struct Server {
    runtime: Runtime,
    running: Running,
    /// The authority of the serving certificate and of client certificates; `None`: without TLS.
    authority: Option<Authority>,
}

impl Server {
    /// Starts a server with TLS.
    pub fn start(options: Options) -> Server {
        Server::start_with(options, Some(authority()))
    }

    /// Starts a server without TLS and with the token `t`.
    pub fn start_plain(options: Options) -> Server {
        Server::start_with(options.token("t", "admin"), None)
    }

    fn start_with(options: Options, authority: Option<Authority>) -> Server {
        let runtime = Runtime::new().expect("a runtime");
        let running = runtime.block_on(Running::open(options, authority.as_ref().map(tls)));
        Server { runtime, running, authority }
    }

    /// Returns a client of this server.
    pub fn client(&self) -> Client {
        Client { address: self.address() }
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.running.listening.address
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.running.listening.connections()
    }

    /// Returns the registry.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.running.registry
    }

    /// Returns what a client verifies the server with.
    pub fn roots(&self) -> RootCertStore {
        roots(self.authority.as_ref().expect("a server with TLS"))
    }

    /// Stops the server and waits for its end.
    pub fn stop(self) {
        self.runtime.block_on(self.running.stop());
    }
}

/// What runs on the threads.
struct Running {
    listening: Listening,
    shutdown: watch::Sender<bool>,
    loops: JoinSet<()>,
    registry: Arc<Registry>,
    store: Stored,
}

impl Running {
    async fn open(mut options: Options, tls: Option<Tls>) -> Running {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let resolver = Arc::new(ServiceResolver::new(false));
        let egress = Arc::new(Egress::new(resolver.clone()));
        let port = listener.local_addr().expect("an address").port();
        let registry_options = options.registry(&egress, port);
        let store = options.store;
        let (Stored::Given(opened) | Stored::Own(opened)) = &store;
        let opened =
            keelson_builtin::open(opened.clone(), Box::new(SystemClock), registry_options).await;
        let Opened { registry, services, token_requests, token_reviews } =
            opened.expect("a registry");
        let accounts = Arc::new(service_account_tokens());
        token_requests.attach(accounts.clone());
        accounts.attach(registry.objects_reader());
        resolver.attach(registry.objects_reader());
        let authenticator = Authenticator::new(options.tokens)
            .with_service_accounts(accounts)
            .with_anonymous(AnonymousConfig { enabled: true, paths: vec![] });
        let (shutdown, signal) = watch::channel(false);
        let cbor = options.features.is_on(Feature::CBORServingAndStorage);
        let app = App::new(registry.clone(), authenticator, egress.clone(), signal);
        let app = Arc::new(App { cbor, ..app.with_limits(options.limits) });
        token_reviews.attach(app.authenticator.clone());
        app.load_fairness(&FAIRNESS_SOURCE);
        let mut loops = JoinSet::new();
        loops.spawn(app.clone().follow_fairness(&FAIRNESS_SOURCE));
        loops.spawn(definitions::run(registry.clone()));
        loops.spawn(flow_control::run(registry.clone()));
        loops.spawn(services::run(registry.clone(), services));
        let probes = Probes::new(egress, Arc::new(|| None));
        loops.spawn(api_services::run(registry.clone(), probes));
        loops.spawn(compaction::run(registry.clone(), options.history));
        let listening = keelson_server::serve(app, listener, tls).expect("the server listens");
        Running { listening, shutdown, loops, registry, store }
    }

    async fn stop(mut self) {
        self.listening.drain();
        let _ = self.shutdown.send(true);
        self.listening.stopped().await;
        self.loops.shutdown().await;
        self.registry.wait_for_writes().await;
        self.registry.cache.close().await;
        if let Stored::Own(store) = &self.store {
            store.close();
        }
    }
}

fn service_account_tokens() -> ServiceAccountTokens {
    let key = KeyPair::generate().expect("a key").serialize_pem();
    let key = SigningKey::read(&key).expect("a key");
    let keys = TokenKeys { verifying: vec![key.verifying.clone()], signing: Some(Arc::new(key)) };
    let options = ServiceAccountOptions {
        issuers: vec![ISSUER.to_owned()],
        audiences: vec![ISSUER.into()],
        expiration_seconds_max: None,
        extends_expiration: true,
        extended_seconds: EXTENDED_SECONDS_DEFAULT,
        lookup: true,
        jwks_uri: None,
    };
    ServiceAccountTokens::new(options, keys)
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(vec![]).expect("no names");
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("a certificate")
}

fn roots(authority: &Authority) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).expect("an authority");
    roots
}

fn tls(authority: &Authority) -> Tls {
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
    let key = KeyPair::generate().expect("a key");
    let leaf = params.signed_by(&key, authority).expect("a certificate");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let default = (vec![leaf.der().clone()], key);
    let serving = ServingCertificates { default, named: vec![] };
    let clients =
        ClientAuthorities { roots: roots(authority), restricted: None, front_proxy: None };
    Tls::new(serving, &clients, &TlsOptions::default()).expect("certificates")
}
