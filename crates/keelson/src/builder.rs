//! [`Builder`]: the configuration of a server.

use crate::authorization::Authorization;
use crate::etcd::Etcd;
use crate::options::{
    AdmissionOptions, ApiOptions, AuthenticationOptions, ControllerOptions, FarSideOptions,
    NetworkOptions, RecordingOptions, ServingOptions, StorageOptions,
};
use keelson_auth::User;
use keelson_loops::StandsFor;
use keelson_registry::{Clock, SystemClock};
use keelson_store::Store;
use keelson_workloads::Simulation;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Time that a stop takes at most without delays: 10 s for requests in flight, the grace periods of
/// writes and control loops, and a margin for the store. The program exits after it whatever still
/// runs.
const STOP_TIME_MAX: Duration = Duration::from_secs(45);

/// The configuration of a server: one struct for each group of flags.
pub struct Builder {
    /// Where the data is, and for how long.
    pub storage: StorageOptions,
    /// Addresses, TLS and the handling of connections.
    pub serving: ServingOptions,
    /// How users are known.
    pub authentication: AuthenticationOptions,
    /// The authorizers.
    pub authorization: Authorization,
    /// The addresses of services and of this server.
    pub network: NetworkOptions,
    /// What is served.
    pub apis: ApiOptions,
    /// Admission plug-ins and functions.
    pub admission: AdmissionOptions,
    /// Kubelets, and servers behind this one.
    pub far_side: FarSideOptions,
    /// Control loops and what they simulate.
    pub controllers: ControllerOptions,
    /// What is recorded of requests.
    pub recording: RecordingOptions,
    /// Whether the explorer is served at `/ui/`.
    pub explorer: bool,
    /// Flags and their values for `/flagz`; they configure nothing.
    pub flags: Vec<(String, String)>,
    /// The source of time and randomness.
    pub clock: Box<dyn Clock>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            storage: StorageOptions::default(),
            serving: ServingOptions::default(),
            authentication: AuthenticationOptions::default(),
            authorization: Authorization::default(),
            network: NetworkOptions::default(),
            apis: ApiOptions::default(),
            admission: AdmissionOptions::default(),
            far_side: FarSideOptions::default(),
            controllers: ControllerOptions::default(),
            recording: RecordingOptions::default(),
            explorer: false,
            flags: vec![],
            clock: Box::new(SystemClock),
        }
    }
}

impl Builder {
    /// Changes the configuration: `.with(|builder| builder.serving.bind = address)`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Builder)) -> Self {
        change(&mut self);
        self
    }

    /// Stores everything in memory.
    #[must_use]
    pub fn in_memory(mut self) -> Self {
        self.storage.data_dir = None;
        self
    }

    /// Stores data in a folder.
    #[must_use]
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.storage.data_dir = Some(dir.into());
        self
    }

    /// Stores data in an etcd cluster. Certificates stay in the data folder, if there is one.
    #[must_use]
    pub fn etcd(mut self, etcd: Etcd) -> Self {
        self.storage.etcd = Some(etcd);
        self
    }

    /// Stores data in this store. Certificates stay in the data folder, if there is one.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.storage.store = Some(store);
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
        self.serving.tls = false;
        self
    }

    /// Adds a static token of the user `name` in the group `system:masters`.
    #[must_use]
    pub fn token(mut self, token: &str, name: &str) -> Self {
        let user = User { name: name.into(), ..User::default() }.with_group(keelson_auth::MASTERS);
        self.authentication.tokens.insert(token, user);
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
        self.controllers.selected =
            of_manager.map(|controller| format!("-{}", controller.name)).collect();
        self
    }

    /// Runs the workloads of a cluster, too: their control loops, a scheduler and simulated nodes.
    /// The server has the clock of the simulation.
    #[must_use]
    pub fn simulate(mut self, simulation: Simulation) -> Self {
        self.controllers.simulation = Some(simulation);
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
        STOP_TIME_MAX + self.serving.shutdown_delay + self.serving.limits.watch_end_spread
    }

    /// Runs no control loops. Without them no namespace gets its `default` service account, which
    /// the ServiceAccount admission plug-in requires for pods: create the account, or disable the
    /// plug-in.
    #[must_use]
    pub fn no_controllers(mut self) -> Self {
        self.controllers.selected = vec!["-*".to_owned()];
        self
    }
}
