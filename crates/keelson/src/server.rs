//! [`Keelson`]: one running server, and the [`Builder`] that starts it.

use crate::backup_socket::{BackupSocket, backup_socket};
use crate::builder::Builder;
use crate::certificates::{Pki, host_names};
use crate::controllers::{self, Duty};
use crate::dynamic_admission;
use crate::etcd;
use crate::front_proxy::FrontProxyOptions;
use crate::kubeconfig::Kubeconfig;
use crate::services::Services;
use crate::start_error::{StartError, with_causes};
use crate::supervisor::{Loops, keep_running};
use crate::tls_files::{CurrentFiles, TlsFiles};
use crate::{election, event_ttl, files, private_files};
use keelson_admission::webhooks::ConversionWebhooks;
use keelson_auth::service_account::ServiceAccountTokens;
use keelson_auth::{Authenticator, BootstrapTokens, RemoteTokens};
use keelson_builtin::{
    Opened, Services as ServiceClaims, api_services, definitions, flow_control,
    kubernetes_endpoints,
};
use keelson_controllers::{ClientTrust, Context, Controllers};
use keelson_egress::Egress;
use keelson_meta::Feature;
use keelson_registry::{Registry, RegistryOptions, SystemClock};
use keelson_schema::catalogue::Catalogue;
use keelson_server::{App, Health, Limits, Listening, State, VersionInfo};
use keelson_store::{CompactionWindow, Embedded, EmbeddedOptions, Lease, OpenError, Store};
use keelson_store_etcd::EtcdStore;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The Kubernetes version whose behaviour is served.
pub const KUBERNETES_VERSION: &str = "v1.36.2";
/// Grace period at shutdown for writes that outlive their requests.
const WRITES_END_TIME_MAX: Duration = Duration::from_secs(10);
/// Interval of compaction.
const COMPACTION_LOOK: Duration = Duration::from_secs(15);

/// Grace period at shutdown for control loops and the release of the lease.
const CONTROL_LOOPS_END_MAX: Duration = Duration::from_secs(5);

/// Says of records that cannot be read what can be done.
fn unopened(error: &OpenError) -> StartError {
    let mut line = format!("--data-dir: {}", with_causes(error));
    if matches!(error, OpenError::Records { .. }) {
        line.push_str("\n`keelson check` names what is damaged; `keelson restore` makes a new folder of a backup");
    }
    StartError(line)
}

impl Builder {
    /// Starts the server.
    pub async fn start(mut self) -> Result<Keelson, StartError> {
        self.limits = within_files(&self.limits)?;
        // Reading the built-in types takes milliseconds, and opening the store waits for the disk: do
        // both at once where there is a thread for each.
        tokio::spawn(async { _ = Catalogue::shared() });
        let backend = self.open_store().await?;
        let listener = self.listen().await?;
        let address = listener.local_addr().map_err(|e| StartError(e.to_string()))?;
        let advertise = self.advertise.unwrap_or_else(|| advertised(address.ip()));
        let tls_files = self.tls_files(advertise);
        // The first objects and the certificates each wait for the disk: where there are threads
        // enough, side by side.
        let clock = std::mem::replace(&mut self.clock, Box::new(SystemClock));
        let services = Arc::new(Services::new(self.aggregator_routing));
        let egress = Arc::new(Egress::new(services.clone()));
        let options = self.registry_options(advertise, address.port(), &egress)?;
        let opening = tokio::spawn(keelson_builtin::open(backend.store(), clock, options));
        let pki = tls_files.pki();
        let account_tokens = self.service_account_tokens.tokens(tls_files.dir.as_deref()).await;
        let Opened { registry, services: claims, token_requests, token_reviews } =
            opening.await.map_err(|error| StartError(format!("registry: {error}")))??;
        let pki = pki?;
        let trust = if self.tls { tls_files.trust(&pki)? } else { ClientTrust::default() };
        let current = CurrentFiles::new(pki, trust);
        let (pki, trust) = (current.pki.subscribe(), current.trust.subscribe());
        let (account_tokens, objects) = (Arc::new(account_tokens?), registry.objects_reader());
        token_requests.attach(account_tokens.clone());
        account_tokens.attach(objects.clone());
        services.attach(objects);
        let tls = if self.tls { Some(tls_files.tls(&pki.borrow())?) } else { None };
        let (shutdown, told) = watch::channel(false);
        let health: Arc<Health> = Arc::default();
        let mut loops = Loops::new(health.clone());
        let (broken, is_broken) = watch::channel(None);
        loops.guard(registry.clone(), broken);
        self.maintenance(&backend, (&registry, claims), &mut loops).await?;
        if let Some(tls) = tls.clone() {
            let look = self.certificate_look;
            loops.run("certificates", move || {
                tls_files.clone().follow(tls.clone(), current.clone(), look)
            });
        }
        let identity = format!("{advertise}:{}_{}", address.port(), registry.new_uid());
        let context = self.context(&registry, &pki.borrow(), trust, &account_tokens)?;
        let duty = self.duty(context, &health);
        let stands_aside = duty.stands_aside.clone();
        duty.start_on_each_server(&mut loops);
        let control_loops = self.control_loops(&backend, duty, identity, &told);
        let endpoints = endpoints_loop(&registry, &backend, &health, &told);
        let (backups, url) = (self.backups(&backend), self.url(address));
        let remote = self.remote_tokens(&egress, &mut loops)?;
        self.follow_files(&registry, &egress, &account_tokens, &mut loops);
        let app = self.app(registry.clone(), account_tokens, remote, health, told);
        token_reviews.attach(app.authenticator.clone());
        let listening = keelson_server::serve(app, listener, tls);
        Ok(Keelson {
            listening: listening.map_err(|error| StartError(format!("listen: {error}")))?,
            shutdown,
            loops,
            is_broken,
            control_loops,
            endpoints,
            stands_aside,
            backups,
            registry,
            backend,
            pki,
            url,
        })
    }

    async fn listen(&self) -> Result<TcpListener, StartError> {
        let bind = self.bind;
        TcpListener::bind(bind).await.map_err(|error| {
            StartError(format!("--bind-address/--secure-port: cannot listen on {bind}: {error}"))
        })
    }

    /// What the control loops need.
    fn context(
        &self,
        registry: &Arc<Registry>,
        pki: &Pki,
        client_trust: watch::Receiver<ClientTrust>,
        tokens: &Arc<ServiceAccountTokens>,
    ) -> Result<Context, StartError> {
        Ok(Context {
            registry: registry.clone(),
            client_trust,
            root_ca: pki.ca.as_str().into(),
            host_name: rustix::system::uname().nodename().to_string_lossy().into(),
            signing: Arc::new(self.signing.signing(pki)?),
            tokens: tokens.clone(),
        })
    }

    fn duty(&self, context: Context, health: &Arc<Health>) -> Duty {
        let controllers = Controllers::select(&self.controllers);
        Duty { controllers, context, health: health.clone(), stands_aside: Arc::default() }
    }

    /// Starts the control loops: at once, or when this server is elected of those that share the store.
    fn control_loops(
        &self,
        backend: &Backend,
        duty: Duty,
        identity: String,
        told: &watch::Receiver<bool>,
    ) -> Option<JoinHandle<()>> {
        let unknown = Controllers::unknown(&self.controllers);
        if !unknown.is_empty() {
            tracing::warn!(
                ?unknown,
                "--controllers names control loops that this server does not have"
            );
        }
        if !duty.controllers.any() {
            return None;
        }
        let (health, told) = (duty.health.clone(), told.clone());
        let duty = Arc::new(duty);
        Some(if matches!(backend, Backend::Etcd(_)) {
            let start = move || election::run(duty.clone(), identity.clone(), told.clone());
            tokio::spawn(keep_running("leader-election", start, health, true))
        } else {
            // Nobody else has this store.
            let start = move || controllers::run(duty.clone(), told.clone());
            tokio::spawn(keep_running("controllers", start, health, true))
        })
    }

    fn app(
        self,
        registry: Arc<Registry>,
        account_tokens: Arc<ServiceAccountTokens>,
        remote: Option<RemoteTokens>,
        health: Arc<Health>,
        shutdown: watch::Receiver<bool>,
    ) -> Arc<App> {
        let mut authenticator = Authenticator::new(self.tokens)
            .with_service_accounts(account_tokens)
            .with_front_proxy(self.front_proxy.map(|proxy| proxy.headers))
            .with_anonymous(self.anonymous);
        if let Some(remote) = remote {
            authenticator = authenticator.with_remote_tokens(remote);
        }
        if self.bootstrap_token_auth {
            let tokens = BootstrapTokens::default();
            tokens.attach(registry.objects_reader());
            authenticator = authenticator.with_bootstrap_tokens(tokens);
        }
        Arc::new(App {
            authorizer: registry.options.authorizer.clone(),
            started: registry.clock.now(),
            flags: self.flags,
            registry,
            authenticator: Arc::new(authenticator),
            version: VersionInfo {
                git_version: KUBERNETES_VERSION.to_owned(),
                build: format!("keelson-{}", env!("CARGO_PKG_VERSION")),
            },
            state: State::new(&self.limits),
            limits: self.limits,
            cbor: self.features.is_on(Feature::CBORServingAndStorage),
            health,
            draining: AtomicBool::new(false),
            shutdown,
        })
    }

    /// The URL for clients on this host of a server that listens on this address.
    fn url(&self, address: SocketAddr) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let reach = if address.ip().is_unspecified() {
            SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()))
        } else {
            address
        };
        format!("{scheme}://{reach}")
    }

    /// The offer of backups; a server without one serves all the same.
    fn backups(&self, backend: &Backend) -> Option<BackupSocket> {
        let (Backend::Embedded(store), Some(dir)) = (backend, &self.data_dir) else { return None };
        let path = backup_socket(dir);
        let opened = BackupSocket::open(path.clone(), store.clone());
        opened
            .inspect_err(|error| {
                let path = path.display();
                tracing::warn!(%error, %path, "no backups while the server runs");
            })
            .ok()
    }

    async fn open_store(&self) -> Result<Backend, StartError> {
        match (&self.store, &self.etcd, &self.data_dir) {
            (Some(store), ..) => Ok(Backend::Given(store.clone())),
            (None, Some(etcd), _) => {
                Ok(Backend::Etcd(etcd.open(&self.runtime_config, self.features).await?))
            }
            (None, None, None) => Ok(Backend::Embedded(Embedded::in_memory())),
            (None, None, Some(dir)) => {
                // A damaged object costs only itself: the cache knows it for one that cannot be read.
                let store = dir.join("store");
                private_files::own_folder(&store).map_err(|error| {
                    StartError(format!("--data-dir: {error}: {}", error.source))
                })?;
                let mut options = EmbeddedOptions::new(store);
                options.make_placeholder = Some(keelson_registry::unreadable_record);
                let opened = Embedded::open(options).map_err(|error| unopened(&error))?;
                Ok(Backend::Embedded(opened))
            }
        }
    }

    fn registry_options(
        &mut self,
        advertise: IpAddr,
        port: u16,
        egress: &Arc<Egress>,
    ) -> Result<RegistryOptions, StartError> {
        Ok(RegistryOptions {
            service_ranges: self.service_ranges.clone(),
            node_ports: self.node_ports,
            advertise_address: advertise,
            advertise_port: port,
            runtime_config: self.runtime_config.clone(),
            features: self.features,
            admission: self.admission.clone(),
            dynamic_admission: dynamic_admission::plug_ins(
                &self.admission,
                self.features,
                &self.in_process_admission,
                egress,
            ),
            conversion_webhooks: Some(Arc::new(ConversionWebhooks::new(egress.clone()))),
            authorizer: Arc::new(self.authorization.authorizer(egress)?),
            event_ttl: self.event_ttl,
        })
    }

    /// Starts the loops that keep the store in order.
    async fn maintenance(
        &self,
        backend: &Backend,
        (registry, services): (&Arc<Registry>, Arc<ServiceClaims>),
        loops: &mut Loops,
    ) -> Result<(), StartError> {
        self.compaction(backend, registry, loops);
        let ours = registry.clone();
        loops.run("allocation-repair", move || {
            keelson_builtin::services::run(ours.clone(), services.clone())
        });
        let ours = registry.clone();
        loops.run("definitions", move || definitions::run(ours.clone()));
        let ours = registry.clone();
        loops.run("api-services", move || api_services::run(ours.clone()));
        let ours = registry.clone();
        loops.run("flow-control", move || flow_control::run(ours.clone()));
        if matches!(backend, Backend::Etcd(_)) || self.event_ttl.is_zero() {
            return Ok(());
        }
        if let (Backend::Embedded(store), Some(events)) = (backend, registry.kind("", "events")) {
            // Those of a backup and of older versions have no lease.
            let lease = Lease::new(registry.store_time(), self.event_ttl);
            let adopted = store.lease_others(events.prefix.clone(), lease.expires).await;
            adopted.map_err(|error| StartError(with_causes(&error)))?;
        }
        let ours = registry.clone();
        loops.run("event-ttl", move || event_ttl::run(ours.clone()));
        Ok(())
    }

    /// Starts the loop that forgets old history.
    fn compaction(&self, backend: &Backend, registry: &Arc<Registry>, loops: &mut Loops) {
        let registry = registry.clone();
        match (backend, &self.etcd) {
            (Backend::Etcd(store), Some(etcd)) if !etcd.compaction_interval.is_zero() => {
                let (store, interval) = (store.clone(), etcd.compaction_interval);
                loops.run("compaction", move || {
                    let registry = registry.clone();
                    let forgotten = move |through| registry.cache.compact(through);
                    etcd::compact(store.clone(), interval, forgotten)
                });
            }
            (Backend::Etcd(_), _) => {}
            (Backend::Embedded(_) | Backend::Given(_), _) => {
                let history = self.history;
                loops.run("compaction", move || compact(registry.clone(), history));
            }
        }
    }

    fn tls_files(&self, advertise: IpAddr) -> TlsFiles {
        let service =
            self.service_ranges.first().and_then(|range| keelson_builtin::first_address(range));
        let below = self.data_dir.as_ref().map(|dir| dir.join("pki"));
        let dir = self.cert_dir.clone().or_else(|| below.clone());
        TlsFiles {
            is_own_dir: dir == below,
            dir,
            names: host_names(service, &[self.bind.ip(), advertise]),
            serving: self.tls_files.clone(),
            client_ca: self.client_ca_file.clone(),
            front_proxy: self.front_proxy.as_ref().map(FrontProxyOptions::of_files),
        }
    }
}

/// The limits, without more connections than there can be files.
fn within_files(limits: &Limits) -> Result<Limits, StartError> {
    let files = files::open_max();
    limits.clone().within_files(files).ok_or_else(|| {
        StartError(format!("RLIMIT_NOFILE is {files}: too few files to serve (ulimit -n)"))
    })
}

/// Starts the loop that keeps the endpoints of the service `kubernetes`. They may not name an address that leads
/// back to whoever uses it.
fn endpoints_loop(
    registry: &Arc<Registry>,
    backend: &Backend,
    health: &Arc<Health>,
    told: &watch::Receiver<bool>,
) -> Option<JoinHandle<()>> {
    if registry.options.advertise_address.is_loopback() {
        return None;
    }
    let is_shared = matches!(backend, Backend::Etcd(_));
    let (registry, told, health) = (registry.clone(), told.clone(), health.clone());
    let start = move || kubernetes_endpoints::run(registry.clone(), is_shared, told.clone());
    Some(tokio::spawn(keep_running("kubernetes-endpoints", start, health, true)))
}

/// The address under which the API is known inside a cluster: the first one that leads outside.
fn advertised(bind: IpAddr) -> IpAddr {
    if !bind.is_unspecified() {
        return bind;
    }
    let own = if_addrs::get_if_addrs().unwrap_or_default().into_iter().map(|i| i.ip());
    let mut outside = own.filter(|ip| !ip.is_loopback() && ip.is_ipv4());
    outside.next().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// Forgets history that is older than the window, in the store and in the cache.
async fn compact(registry: Arc<Registry>, history: Duration) {
    let mut window = CompactionWindow::new(history);
    let began = Instant::now();
    loop {
        tokio::time::sleep(COMPACTION_LOOK.min(history)).await;
        let Some(through) = window.observe(began.elapsed(), registry.store.revision()) else {
            continue;
        };
        match registry.store.compact(through).await {
            Ok(()) => registry.cache.compact(through),
            Err(error) => tracing::warn!(%error, "compaction failed"),
        }
    }
}

/// The storage backend.
enum Backend {
    Embedded(Arc<Embedded>),
    Etcd(Arc<EtcdStore>),
    Given(Arc<dyn Store>),
}

impl Backend {
    fn store(&self) -> Arc<dyn Store> {
        match self {
            Backend::Embedded(store) => store.clone(),
            Backend::Etcd(store) => store.clone(),
            Backend::Given(store) => store.clone(),
        }
    }
}

/// A running server.
pub struct Keelson {
    listening: Listening,
    shutdown: watch::Sender<bool>,
    loops: Loops,
    is_broken: watch::Receiver<Option<String>>,
    control_loops: Option<JoinHandle<()>>,
    endpoints: Option<JoinHandle<()>>,
    stands_aside: Arc<AtomicBool>,
    backups: Option<BackupSocket>,
    registry: Arc<Registry>,
    backend: Backend,
    pki: watch::Receiver<Pki>,
    url: String,
}

impl Keelson {
    /// A builder; by default in memory, on a free port of this host.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.listening.address
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.listening.connections()
    }

    /// Whether it leaves control loops to a kube-controller-manager that has its lease.
    pub fn stands_aside(&self) -> bool {
        self.stands_aside.load(Ordering::Relaxed)
    }

    /// Its URL for clients on this host.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The registry, for programs that serve resources of their own.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> Kubeconfig {
        Kubeconfig::new(&self.url, &self.pki.borrow())
    }

    /// Tells of further kubeconfigs of the administrator: certificates are renewed before they end.
    pub fn kubeconfig_renewals(&self) -> Renewals {
        Renewals { url: self.url.clone(), pki: self.pki.clone() }
    }

    /// Waits until a part of the server is broken that cannot be started again (the commit thread of the
    /// store, the feed of the cache), and tells which and why. Then the server should be ended.
    pub async fn broken(&self) -> String {
        let mut is_broken = self.is_broken.clone();
        match is_broken.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            // It is being stopped.
            Err(_) => std::future::pending().await,
        }
    }

    /// Stops taking requests, lets those under way end, and closes the store.
    pub async fn stop(mut self) {
        let _ = self.shutdown.send(true);
        // Whoever is about to connect goes to another server.
        if let Some(mut endpoints) = self.endpoints
            && timeout(CONTROL_LOOPS_END_MAX, &mut endpoints).await.is_err()
        {
            endpoints.abort();
        }
        self.listening.stopped().await;
        // They were told to stop; an elected server gives up its lease first.
        if let Some(mut control_loops) = self.control_loops
            && timeout(CONTROL_LOOPS_END_MAX, &mut control_loops).await.is_err()
        {
            control_loops.abort();
        }
        self.loops.shutdown().await;
        if timeout(WRITES_END_TIME_MAX, self.registry.wait_for_writes()).await.is_err() {
            tracing::warn!("writes are still running; closing the store without them");
        }
        // Else the data folder would be in use a moment longer than the server.
        self.registry.cache.close().await;
        if let Some(backups) = self.backups {
            backups.close().await;
        }
        if let Backend::Embedded(store) = self.backend {
            store.close();
        }
    }
}

/// Kubeconfigs that take the place of those before.
pub struct Renewals {
    url: String,
    pki: watch::Receiver<Pki>,
}

impl Renewals {
    /// Waits for the next kubeconfig.
    pub async fn next(&mut self) -> Kubeconfig {
        if self.pki.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        Kubeconfig::new(&self.url, &self.pki.borrow_and_update())
    }
}
