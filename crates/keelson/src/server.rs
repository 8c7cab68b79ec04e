//! [`Keelson`]: a running server, and how [`Builder`] starts it.

use crate::backend::{Backend, Engine, OtherBackend};
use crate::backup_socket::{BackupSocket, backup_socket};
use crate::builder::Builder;
use crate::controllers::{self, ControllerRunner};
use crate::encryption_admin::EncryptionAdmin;
use crate::etcd;
use crate::front_proxy::FrontProxyOptions;
use crate::kubeconfig::Kubeconfig;
use crate::kubelets::start_aggregator;
use crate::pki::{CurrentFiles, Pki, TlsFiles, host_names, pair_of_folder};
use crate::start_error::{StartError, with_causes};
use crate::supervisor::{Loops, keep_running};
use crate::trace_export::TraceExport;
use crate::{election, encryption, event_ttl, files, playground, simulation_admin};
use arc_swap::ArcSwap;
use keelson_admission::dynamic_plug_ins;
use keelson_admission::webhooks::ConversionWebhooks;
use keelson_aggregation::{Identities, Probes, ServiceResolver};
use keelson_audit::Audit;
use keelson_auth::service_account::ServiceAccountTokens;
use keelson_auth::{Authenticator, BootstrapTokens, RemoteTokens};
use keelson_builtin::{
    Opened, Services, TokenRequests, api_services, compaction, definitions, flow_control,
    kubernetes_endpoints,
};
use keelson_controllers::{ClientTrust, Context};
use keelson_egress::{Egress, Identity};
use keelson_encryption::Metrics as EncryptionMetrics;
use keelson_loops::{Selection, unknown_words};
use keelson_meta::Feature;
use keelson_registry::{Clock, Registry, RegistryOptions, SystemClock};
use keelson_schema::catalogue::Catalogue;
use keelson_server::{
    App, ExtraPath, FairnessSource, Health, KubeletAccess, Limits, Listening, Tls, VersionInfo,
};
use keelson_store::Lease;
use keelson_store_etcd::Calls;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Where FlowSchemas and priority levels are stored.
static FAIRNESS_SOURCE: FairnessSource =
    FairnessSource { resources: flow_control::FOLLOWED, read: flow_control::stored };
/// Connections that wait to be accepted; the kernel's own limit is usually lower.
const BACKLOG_CONNECTIONS_MAX: u32 = 4096;
/// Grace period at shutdown for writes that outlive their requests.
const WRITES_END_TIME_MAX: Duration = Duration::from_secs(10);
/// Grace period at shutdown for control loops and the release of the lease.
const CONTROL_LOOPS_END_TIME_MAX: Duration = Duration::from_secs(5);

/// The verifiers of bearer tokens.
struct Tokens {
    accounts: Arc<ServiceAccountTokens>,
    remote: Option<RemoteTokens>,
}

/// What is recorded of requests, until the server stops.
#[derive(Clone, Default)]
struct Recorders {
    audit: Option<Arc<Audit>>,
    traces: Option<Arc<TraceExport>>,
}

/// What the program adds to the paths and metrics of kube-apiserver.
struct Extras {
    paths: Vec<ExtraPath>,
    encryption: Arc<EncryptionMetrics>,
    /// The calls to each etcd cluster.
    etcd_calls: Vec<Arc<Calls>>,
}

/// What runs beside the requests.
struct Background {
    extras: Extras,
    recorders: Recorders,
    health: Arc<Health>,
    shutdown: watch::Receiver<bool>,
}

/// Gives objects to what the registry needs to open, and which reads them itself: ends this cycle
/// before anything can ask for a token or a service.
fn attach(
    registry: &Registry,
    account_tokens: &Arc<ServiceAccountTokens>,
    token_requests: &TokenRequests,
    resolver: &ServiceResolver,
) {
    let objects = registry.objects_reader();
    token_requests.attach(account_tokens.clone());
    account_tokens.attach(objects.clone());
    resolver.attach(objects);
}

/// The connections to nodes, pods and services.
struct FarSide {
    egress: Arc<Egress>,
    kubelets: Arc<ArcSwap<KubeletAccess>>,
    aggregator: Arc<ArcSwap<Option<Identity>>>,
}

impl Builder {
    /// Starts the server.
    pub async fn start(mut self) -> Result<Keelson, StartError> {
        self.serving.limits = limits_within_open_files(&self.serving.limits)?;
        // Loading the built-in types and opening the store take milliseconds: do both at once.
        tokio::spawn(async { _ = Catalogue::shared() });
        let backend = self.open_store().await?;
        let listener = self.listen().await?;
        let address = listener.local_addr().map_err(|e| StartError(e.to_string()))?;
        let advertise = self.advertise_address(address.ip());
        let tls_files = self.tls_files(advertise)?;
        // The first objects and the certificates both wait for the disk: write them concurrently.
        let clock = self.take_clock();
        let resolver = Arc::new(ServiceResolver::new(self.far_side.aggregator_routing));
        let egress = self.egress(&resolver);
        let mut options = self.registry_options(advertise, address.port(), &egress)?;
        options.other_stores = backend.others.iter().map(OtherBackend::source).collect();
        let opening = tokio::spawn(keelson_builtin::open(backend.store.clone(), clock, options));
        let pki = tls_files.pki();
        let token_options = &self.authentication.service_account_tokens;
        let account_tokens = token_options.tokens(tls_files.dir.as_deref()).await;
        let Opened { registry, services, token_requests, token_reviews } =
            opening.await.map_err(|error| StartError(format!("registry: {error}")))??;
        let current = self.current_files(&tls_files, pki?)?;
        let pki = current.pki.subscribe();
        let trust = current.trust.subscribe();
        let account_tokens = Arc::new(account_tokens?);
        attach(&registry, &account_tokens, &token_requests, &resolver);
        let tls = if self.serving.tls { Some(tls_files.tls(&pki.borrow())?) } else { None };
        let root_ca = tls_files.root_ca(&pki.borrow())?;
        let (shutdown, shutdown_signal) = watch::channel(false);
        let health: Arc<Health> = Arc::default();
        let (mut loops, fatal_error) = Loops::monitored(&health, &registry);
        let far_side = self.far_side(&registry, &egress, &mut loops)?;
        let extras = self.start_encryption(&backend, &registry, &health, &mut loops);
        self.start_maintenance(&backend, &registry, services, &mut loops).await?;
        self.start_certificate_loop(tls_files, tls.clone(), current, &mut loops);
        let identity = format!("{advertise}:{}_{}", address.port(), registry.new_uid());
        let context =
            self.controller_context(&registry, &pki.borrow(), root_ca, trust, &account_tokens)?;
        let runner = self.controller_runner(&context, &health);
        let defers_controllers = runner.defers_controllers.clone();
        runner.start_on_each_server(&mut loops);
        let control_loops = self.start_control_loops(&backend, runner, identity, &shutdown_signal);
        let endpoints = self.start_endpoints_loop(&registry, &backend, &health, &shutdown_signal);
        let backups = self.backup_socket(&backend);
        let url = self.url(address);
        let tokens = self.tokens(&registry, &egress, account_tokens, &mut loops)?;
        let recorders = self.start_recorders(&registry, &egress, &mut loops)?;
        let shutdown_delay = self.serving.shutdown_delay;
        let background =
            Background { extras, recorders: recorders.clone(), health, shutdown: shutdown_signal };
        let app = self.app(registry.clone(), tokens, far_side, background, &mut loops);
        token_reviews.attach(app.authenticator.clone());
        let listening = keelson_server::serve(app, listener, tls);
        Ok(Keelson {
            listening: listening.map_err(|error| StartError(format!("listen: {error}")))?,
            shutdown,
            shutdown_delay,
            loops,
            fatal_error,
            control_loops,
            endpoints,
            defers_controllers,
            backups,
            recorders,
            registry,
            backend,
            pki,
            url,
        })
    }

    fn egress(&self, resolver: &Arc<ServiceResolver>) -> Arc<Egress> {
        let selector = self.far_side.egress_selector.clone();
        Arc::new(Egress::new(resolver.clone()).with_selector(selector))
    }

    /// Returns the verifiers of bearer tokens, and starts the loops that reload their files.
    fn tokens(
        &self,
        registry: &Arc<Registry>,
        egress: &Arc<Egress>,
        accounts: Arc<ServiceAccountTokens>,
        loops: &mut Loops,
    ) -> Result<Tokens, StartError> {
        self.start_reload_loops(registry, egress, &accounts, loops);
        Ok(Tokens { remote: self.remote_tokens(egress, loops)?, accounts })
    }

    /// Starts the loops of the encryption. Returns its metrics, and the paths of the server for its
    /// keys and for the simulation.
    fn start_encryption(
        &self,
        backend: &Backend,
        registry: &Arc<Registry>,
        health: &Arc<Health>,
        loops: &mut Loops,
    ) -> Extras {
        if let (Some(file), Some((encryption, store))) =
            (&self.storage.encryption, &backend.encrypted)
        {
            let interval = self.serving.certificate_check_interval;
            file.start_loops(encryption, interval, health, loops);
            let registry = registry.clone();
            let others = backend.others.iter().map(|other| other.store.clone());
            let stores: Vec<_> = [store.clone()].into_iter().chain(others).collect();
            loops.run("encryption-rereads", move || {
                encryption::reread_when_readable(registry.clone(), stores.clone(), interval)
            });
        }
        let encryption = EncryptionAdmin::new(backend, registry.clone(), self.storage.event_ttl);
        let simulated = self.controllers.simulation.iter().flat_map(simulation_admin::paths);
        let playground = self.explorer.then(playground::path);
        let paths = encryption.paths().into_iter().chain(simulated).chain(playground).collect();
        let counted = backend.encrypted.as_ref();
        let encryption =
            counted.map_or_else(Arc::default, |(encryption, _)| encryption.metrics().clone());
        Extras { paths, encryption, etcd_calls: backend.etcd_calls() }
    }

    /// Starts to record requests: as audit events, and as spans.
    fn start_recorders(
        &self,
        registry: &Registry,
        egress: &Egress,
        loops: &mut Loops,
    ) -> Result<Recorders, StartError> {
        let mut recorders = Recorders::default();
        if let Some(options) = &self.recording.audit {
            let audit = options.start(egress, self.serving.certificate_check_interval, loops)?;
            recorders.audit = Some(audit);
        }
        if let Some(options) = &self.recording.tracing {
            let instance = format!("apiserver-{}", registry.new_uid());
            recorders.traces = Some(options.start(instance, loops)?);
        }
        Ok(recorders)
    }

    /// Returns what connections to nodes, pods, services and servers behind this one need, and
    /// starts the loop that watches over the latter.
    fn far_side(
        &self,
        registry: &Arc<Registry>,
        egress: &Arc<Egress>,
        loops: &mut Loops,
    ) -> Result<FarSide, StartError> {
        let interval = self.serving.certificate_check_interval;
        let kubelets = self.far_side.kubelets.start(interval, loops)?;
        let files = self.far_side.proxy_client_certificate.as_ref();
        let aggregator = start_aggregator(files, interval, loops)?;
        let shown = aggregator.clone();
        let identities: Identities = Arc::new(move || Option::clone(&shown.load()));
        registry.set_remote_calls(keelson_aggregation::calls(egress.clone(), identities.clone()));
        let probes = Probes::new(egress.clone(), identities);
        let registry = registry.clone();
        loops.run("api-services", move || api_services::run(registry.clone(), probes.clone()));
        Ok(FarSide { egress: egress.clone(), kubelets, aggregator })
    }

    /// Starts the loop that reloads changed certificates and renews own ones.
    fn start_certificate_loop(
        &self,
        tls_files: TlsFiles,
        tls: Option<Tls>,
        current: CurrentFiles,
        loops: &mut Loops,
    ) {
        let Some(tls) = tls else { return };
        let interval = self.serving.certificate_check_interval;
        loops.run("certificates", move || {
            tls_files.clone().reload_when_changed(tls.clone(), current.clone(), interval)
        });
    }

    /// Returns `--advertise-address` or its default: the address that the server listens on, or
    /// else the first IPv4 address of this host that is not a loopback address.
    fn advertise_address(&self, bind: IpAddr) -> IpAddr {
        if let Some(given) = self.network.advertise {
            return given;
        }
        if !bind.is_unspecified() {
            return bind;
        }
        let own = if_addrs::get_if_addrs().unwrap_or_default().into_iter().map(|i| i.ip());
        let mut reachable = own.filter(|ip| !ip.is_loopback() && ip.is_ipv4());
        reachable.next().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    fn current_files(&self, files: &TlsFiles, pki: Pki) -> Result<CurrentFiles, StartError> {
        let trust = if self.serving.tls { files.trust(&pki)? } else { ClientTrust::default() };
        Ok(CurrentFiles::new(pki, trust))
    }

    async fn listen(&self) -> Result<TcpListener, StartError> {
        let bind = self.serving.bind;
        self.bind_port().map_err(|error| {
            StartError(format!("--bind-address/--secure-port: cannot listen on {bind}: {error}"))
        })
    }

    fn bind_port(&self) -> std::io::Result<TcpListener> {
        let socket = match self.serving.bind {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        if self.serving.shares_port {
            socket.set_reuseport(true)?;
        }
        socket.bind(self.serving.bind)?;
        socket.listen(BACKLOG_CONNECTIONS_MAX)
    }

    /// Puts `--external-hostname` into the URL of the keys of service account tokens.
    fn name_external_host(&mut self, port: u16) {
        let Some(host) = self.serving.external_host.as_deref().filter(|host| !host.is_empty())
        else {
            return;
        };
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port { host.to_owned() } else { format!("{host}:{port}") };
        let url = format!("https://{address}/openid/v1/jwks");
        self.authentication.service_account_tokens.jwks_uri.get_or_insert(url);
    }

    fn controller_context(
        &self,
        registry: &Arc<Registry>,
        pki: &Pki,
        root_ca: String,
        client_trust: watch::Receiver<ClientTrust>,
        tokens: &Arc<ServiceAccountTokens>,
    ) -> Result<Context, StartError> {
        Ok(Context {
            registry: registry.clone(),
            client_trust,
            root_ca: root_ca.as_str().into(),
            host_name: rustix::system::uname().nodename().to_string_lossy().into(),
            signing: Arc::new(self.controllers.signing.signing(pki)?),
            tokens: tokens.clone(),
        })
    }

    /// Returns the clock of the server: that of the simulation, if there is one.
    pub(crate) fn take_clock(&mut self) -> Box<dyn Clock> {
        match &self.controllers.simulation {
            Some(simulation) => Box::new(simulation.clock.clone()),
            None => std::mem::replace(&mut self.clock, Box::new(SystemClock)),
        }
    }

    fn controller_runner(&self, context: &Context, health: &Arc<Health>) -> ControllerRunner {
        let mut selection = Selection::default();
        selection.add(keelson_controllers::ALL, &self.controllers.selected, context);
        if !self.apis.garbage_collection {
            selection.remove(keelson_controllers::GARBAGE_COLLECTOR);
        }
        let mut known: Vec<&str> = keelson_controllers::ALL.iter().map(|one| one.name).collect();
        if let Some(simulation) = &self.controllers.simulation {
            selection.remove(keelson_controllers::UNATTENDED);
            let registry = context.registry.clone();
            let context = keelson_workloads::Context::new(registry, simulation);
            selection.add(keelson_workloads::ALL, &self.controllers.selected, &context);
            known.extend(keelson_workloads::ALL.iter().map(|one| one.name));
        }
        let unknown = unknown_words(&self.controllers.selected, &known);
        if !unknown.is_empty() {
            tracing::warn!(
                ?unknown,
                "--controllers names control loops that this server does not have"
            );
        }
        ControllerRunner {
            selection,
            registry: context.registry.clone(),
            health: health.clone(),
            defers_controllers: Arc::default(),
        }
    }

    /// Starts the control loops. With a store that several servers share, only the leader runs
    /// them.
    fn start_control_loops(
        &self,
        backend: &Backend,
        runner: ControllerRunner,
        identity: String,
        shutdown_signal: &watch::Receiver<bool>,
    ) -> Option<JoinHandle<()>> {
        if !runner.selection.any() {
            return None;
        }
        let health = runner.health.clone();
        let signal = shutdown_signal.clone();
        let runner = Arc::new(runner);
        Some(if matches!(backend.engine, Engine::Etcd(_)) {
            let start = move || election::run(runner.clone(), identity.clone(), signal.clone());
            tokio::spawn(keep_running("leader-election", start, health, true))
        } else {
            // No other server uses this store.
            let start = move || controllers::run(runner.clone(), signal.clone());
            tokio::spawn(keep_running("controllers", start, health, true))
        })
    }

    /// Creates what handles requests, and starts the loop that follows its FlowSchemas.
    fn app(
        self,
        registry: Arc<Registry>,
        tokens: Tokens,
        far_side: FarSide,
        background: Background,
        loops: &mut Loops,
    ) -> Arc<App> {
        let mut authenticator = Authenticator::new(self.authentication.tokens)
            .with_service_accounts(tokens.accounts)
            .with_front_proxy(self.authentication.front_proxy.map(|proxy| proxy.headers))
            .with_anonymous(self.authentication.anonymous)
            .with_certificate_uids(
                self.apis.features.is_on(Feature::AllowParsingUserUIDFromCertAuth),
            );
        if let Some(remote) = tokens.remote {
            authenticator = authenticator.with_remote_tokens(remote);
        }
        if self.authentication.bootstrap_token_auth {
            let tokens = BootstrapTokens::new(registry.objects_reader());
            authenticator = authenticator.with_bootstrap_tokens(tokens);
        }
        let Extras { paths, encryption, etcd_calls } = background.extras;
        let app = Arc::new(App {
            flags: self.flags,
            version: VersionInfo::reported(&self.serving.reported_version),
            kubelets: far_side.kubelets,
            aggregator: far_side.aggregator,
            explorer: self.explorer,
            cbor: self.apis.features.is_on(Feature::CBORServingAndStorage),
            browsers: self.serving.browsers,
            audit: background.recorders.audit,
            tracer: background.recorders.traces.map(|export| export.tracer().clone()),
            metrics_selection: self.recording.metrics,
            extra_paths: paths,
            extra_metrics: Box::new(move |out| {
                encryption.write(out);
                Calls::write(&etcd_calls, out);
            }),
            health: background.health,
            ..App::new(registry, authenticator, far_side.egress, background.shutdown)
                .with_limits(self.serving.limits)
        });
        app.load_fairness(&FAIRNESS_SOURCE);
        let cloned = app.clone();
        loops.run("fairness", move || cloned.clone().follow_fairness(&FAIRNESS_SOURCE));
        app
    }

    /// Returns the URL for clients on this host.
    fn url(&self, address: SocketAddr) -> String {
        let scheme = if self.serving.tls { "https" } else { "http" };
        let reachable = if address.ip().is_unspecified() {
            SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()))
        } else {
            address
        };
        format!("{scheme}://{reachable}")
    }

    /// Opens the backup socket. The server also starts when that fails.
    fn backup_socket(&self, backend: &Backend) -> Option<BackupSocket> {
        let (Engine::Embedded(store), Some(dir)) = (&backend.engine, &self.storage.data_dir) else {
            return None;
        };
        let path = backup_socket(dir);
        let opened = BackupSocket::open(path.clone(), store.clone());
        opened
            .inspect_err(|error| {
                let path = path.display();
                tracing::warn!(%error, %path, "backup socket not opened; no backups while running");
            })
            .ok()
    }

    pub(crate) fn registry_options(
        &mut self,
        advertise: IpAddr,
        port: u16,
        egress: &Arc<Egress>,
    ) -> Result<RegistryOptions, StartError> {
        self.name_external_host(port);
        Ok(RegistryOptions {
            service_ranges: self.network.service_ranges.clone(),
            node_ports: self.network.node_ports,
            kubernetes_node_port: self.network.kubernetes_node_port,
            node_address_types: self.far_side.kubelets.address_types.clone(),
            advertise_address: advertise,
            advertise_port: port,
            publishes_endpoint: self.network.publishes_endpoint,
            runtime_config: self.apis.runtime_config.clone(),
            features: self.apis.features,
            allows_privileged: self.apis.allows_privileged,
            garbage_collection: self.apis.garbage_collection,
            fairness: self.serving.limits.fairness,
            admission: self.admission.chain.clone(),
            dynamic_admission: dynamic_plug_ins(
                &self.admission.chain,
                self.apis.features,
                &self.admission.in_process,
                egress,
            ),
            conversion_webhooks: Some(Arc::new(ConversionWebhooks::new(egress.clone()))),
            authorizer: Arc::new(self.authorization.authorizer(egress)?),
            event_ttl: self.storage.event_ttl,
            other_stores: vec![],
            simulated_nodes: self
                .controllers
                .simulation
                .as_ref()
                .map(keelson_workloads::simulated_nodes),
        })
    }

    /// Starts the loops that every server runs whatever `--controllers` says, compaction among
    /// them.
    async fn start_maintenance(
        &self,
        backend: &Backend,
        registry: &Arc<Registry>,
        services: Arc<Services>,
        loops: &mut Loops,
    ) -> Result<(), StartError> {
        self.start_compaction(backend, registry, loops);
        let cloned = registry.clone();
        loops.run("allocation-repair", move || {
            keelson_builtin::services::run(cloned.clone(), services.clone())
        });
        let cloned = registry.clone();
        loops.run("definitions", move || definitions::run(cloned.clone()));
        let cloned = registry.clone();
        loops.run("flow-control", move || flow_control::run(cloned.clone()));
        if matches!(backend.engine, Engine::Etcd(_)) || self.storage.event_ttl.is_zero() {
            return Ok(());
        }
        if let (Engine::Embedded(store), Some(events)) =
            (&backend.engine, registry.kind("", "events"))
        {
            // Events from a backup or an older version of Keelson have no lease.
            let lease = Lease::new(registry.store_time(), self.storage.event_ttl);
            let leased = store.lease_others(events.prefix.clone(), lease.expires).await;
            leased.map_err(|error| StartError(with_causes(&error)))?;
        }
        let cloned = registry.clone();
        loops.run("event-ttl", move || event_ttl::run(cloned.clone()));
        Ok(())
    }

    /// Starts the loop that compacts the store.
    fn start_compaction(&self, backend: &Backend, registry: &Arc<Registry>, loops: &mut Loops) {
        let registry = registry.clone();
        let interval =
            self.storage.etcd.as_ref().map_or(Duration::ZERO, |etcd| etcd.compaction_interval);
        if !interval.is_zero() {
            let others = backend.others.iter().map(|other| other.stored.clone()).collect();
            etcd::start_compaction_of_others(others, &registry, interval, loops);
        }
        match &backend.engine {
            Engine::Etcd(_) if interval.is_zero() => {}
            Engine::Etcd(store) => {
                let store = store.clone();
                loops.run("compaction", move || {
                    let registry = registry.clone();
                    let on_compacted = move |through| registry.cache.compact(0, through);
                    etcd::compact(store.clone(), interval, on_compacted)
                });
            }
            Engine::Embedded(_) | Engine::Given => {
                let history = self.storage.history;
                loops.run("compaction", move || compaction::run(registry.clone(), history));
            }
        }
    }

    /// Starts the loop that maintains the endpoints of the service `kubernetes`, unless it is
    /// switched off, or the advertised address is a loopback address: that is not a valid endpoint.
    fn start_endpoints_loop(
        &self,
        registry: &Arc<Registry>,
        backend: &Backend,
        health: &Arc<Health>,
        shutdown_signal: &watch::Receiver<bool>,
    ) -> Option<JoinHandle<()>> {
        if !self.network.publishes_endpoint || registry.options.advertise_address.is_loopback() {
            return None;
        }
        let is_shared = matches!(backend.engine, Engine::Etcd(_));
        let registry = registry.clone();
        let signal = shutdown_signal.clone();
        let health = health.clone();
        let start = move || kubernetes_endpoints::run(registry.clone(), is_shared, signal.clone());
        Some(tokio::spawn(keep_running("kubernetes-endpoints", start, health, true)))
    }

    fn tls_files(&self, advertise: IpAddr) -> Result<TlsFiles, StartError> {
        let service = self
            .network
            .service_ranges
            .first()
            .and_then(|range| keelson_builtin::first_address(range));
        let default_dir = self.storage.data_dir.as_ref().map(|dir| dir.join("pki"));
        let dir = self.serving.cert_dir.clone().or_else(|| default_dir.clone());
        let names = host_names(service, &[self.serving.bind.ip(), advertise]);
        let serving = match (&self.serving.tls_files, &self.serving.serving_pair_dir) {
            (None, Some(dir)) => Some(pair_of_folder(dir, &names)?),
            (files, _) => files.clone(),
        };
        Ok(TlsFiles {
            is_own_dir: dir == default_dir,
            dir,
            names,
            serving,
            named: self.serving.named_certificates.clone(),
            options: self.serving.tls_options.clone(),
            client_ca: self.authentication.client_ca_file.clone(),
            front_proxy: self
                .authentication
                .front_proxy
                .as_ref()
                .map(FrontProxyOptions::ca_file_and_headers),
        })
    }
}

/// Returns the limits, with no more connections than the limit of open files allows.
fn limits_within_open_files(limits: &Limits) -> Result<Limits, StartError> {
    let files = files::open_files_max();
    limits.clone().within_files(files).ok_or_else(|| {
        StartError(format!("RLIMIT_NOFILE is {files}: too few files to serve (ulimit -n)"))
    })
}

/// A running server.
pub struct Keelson {
    listening: Listening,
    shutdown: watch::Sender<bool>,
    shutdown_delay: Duration,
    loops: Loops,
    fatal_error: watch::Receiver<Option<String>>,
    control_loops: Option<JoinHandle<()>>,
    endpoints: Option<JoinHandle<()>>,
    defers_controllers: Arc<AtomicBool>,
    backups: Option<BackupSocket>,
    recorders: Recorders,
    registry: Arc<Registry>,
    backend: Backend,
    pki: watch::Receiver<Pki>,
    url: String,
}

impl Keelson {
    /// Returns a builder. By default the server stores data in memory and listens on a free port of
    /// 127.0.0.1.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.listening.address
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.listening.connections()
    }

    /// Whether the server leaves control loops to a kube-controller-manager that holds its lease.
    pub fn defers_controllers(&self) -> bool {
        self.defers_controllers.load(Ordering::Relaxed)
    }

    /// Returns the URL for clients on this host.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the registry, for programs that serve resources of their own.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Returns the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> Kubeconfig {
        Kubeconfig::new(&self.url, &self.pki.borrow())
    }

    /// Returns the certificate of the authority that signed the serving certificate, in PEM.
    pub fn certificate_authority(&self) -> String {
        self.pki.borrow().ca.clone()
    }

    /// Returns a receiver of later kubeconfigs of the administrator: its certificate is renewed
    /// before it expires.
    pub fn kubeconfig_renewals(&self) -> KubeconfigRenewals {
        KubeconfigRenewals { url: self.url.clone(), pki: self.pki.clone() }
    }

    /// Waits until a component fails that cannot be restarted (the commit thread of the store, or
    /// the feed of the cache). Returns its name and error. The caller should then stop the server.
    pub async fn fatal_error(&self) -> String {
        let mut fatal_error = self.fatal_error.clone();
        match fatal_error.wait_for(Option::is_some).await {
            Ok(error) => error.clone().unwrap_or_default(),
            // The monitor has ended, because the server is being stopped.
            Err(_) => std::future::pending().await,
        }
    }

    /// Keeps serving for the delay of the shutdown while `/readyz` fails; then refuses new
    /// requests, waits for those in flight, and closes the store.
    pub async fn stop(mut self) {
        self.listening.drain();
        if !self.shutdown_delay.is_zero() {
            tokio::time::sleep(self.shutdown_delay).await;
        }
        let _ = self.shutdown.send(true);
        // The endpoint of this server is removed first, so that new clients use another server.
        if let Some(mut endpoints) = self.endpoints
            && timeout(CONTROL_LOOPS_END_TIME_MAX, &mut endpoints).await.is_err()
        {
            endpoints.abort();
        }
        self.listening.stopped().await;
        // The shutdown signal stops them. A leader also releases its lease.
        if let Some(mut control_loops) = self.control_loops
            && timeout(CONTROL_LOOPS_END_TIME_MAX, &mut control_loops).await.is_err()
        {
            control_loops.abort();
        }
        self.loops.shutdown().await;
        if let Some(audit) = self.recorders.audit {
            audit.shutdown().await;
        }
        if let Some(traces) = self.recorders.traces {
            traces.shutdown().await;
        }
        if timeout(WRITES_END_TIME_MAX, self.registry.wait_for_writes()).await.is_err() {
            tracing::warn!("writes are still running; closing the store without them");
        }
        // The cache holds the store: without this the data folder would stay locked for a moment.
        self.registry.cache.close().await;
        if let Some(backups) = self.backups {
            backups.close().await;
        }
        if let Engine::Embedded(store) = self.backend.engine {
            store.close();
        }
    }
}

/// Receives renewed kubeconfigs of the administrator.
pub struct KubeconfigRenewals {
    url: String,
    pki: watch::Receiver<Pki>,
}

impl KubeconfigRenewals {
    /// Waits for the next renewal, and returns the new kubeconfig.
    pub async fn next(&mut self) -> Kubeconfig {
        if self.pki.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        Kubeconfig::new(&self.url, &self.pki.borrow_and_update())
    }
}
