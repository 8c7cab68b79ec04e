//! The control loops that a bare API server needs. Each acts as a client within the process: under
//! a service account of its own, through authorization and admission.
//!
//! A loop has the name of the kube-controller-manager loop that it replaces, and `--controllers`
//! selects loops by that name. [`Controllers`] is the result of that selection. [`Controller::run`]
//! starts a loop; dropping its future ends the loop.

mod account_tokens;
mod authentication_trust;
mod bootstrap_tokens;
mod certificates;
mod client;
mod cluster_roles;
mod control_loop;
mod disruption;
mod endpoints;
mod garbage;
mod identity;
mod legacy_tokens;
mod metadata;
mod namespaces;
mod pods;
mod policy_types;
mod protection;
mod queue;
mod quotas;
mod root_ca;
mod selection;
mod service_accounts;
mod service_cidrs;
mod storage_versions;
mod ttl_after_finished;

pub use authentication_trust::ClientTrust;
pub use certificates::Signing;
pub use legacy_tokens::track_legacy_uses;
pub use selection::Controllers;

use keelson_auth::service_account::ServiceAccountTokens;
use keelson_registry::Registry;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::watch;

/// What control loops need besides their own state.
#[derive(Clone)]
pub struct Context {
    /// The registry.
    pub registry: Arc<Registry>,
    /// The CA of the server's certificate, in PEM.
    pub root_ca: Arc<str>,
    /// The CAs of client certificates and front proxies.
    pub client_trust: watch::Receiver<ClientTrust>,
    /// The name of the server's host.
    pub host_name: Arc<str>,
    /// The CAs that sign CertificateSigningRequests.
    pub signing: Arc<Signing>,
    /// Issues and verifies tokens of service accounts.
    pub tokens: Arc<ServiceAccountTokens>,
}

/// A running control loop. Dropping it ends the loop.
pub type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A control loop.
#[derive(Clone, Copy)]
pub struct Controller {
    /// The name in `--controllers`.
    pub name: &'static str,
    /// Whether a kube-controller-manager runs the loop by default.
    pub in_kube_controller_manager: bool,
    /// Whether every server that shares the store runs the loop; otherwise one of them does.
    pub on_every_server: bool,
    start: fn(Context) -> Running,
}

impl Controller {
    /// Starts the loop.
    pub fn run(&self, context: Context) -> Running {
        (self.start)(context)
    }

    const fn new(name: &'static str, start: fn(Context) -> Running) -> Controller {
        Controller { name, in_kube_controller_manager: true, on_every_server: false, start }
    }

    /// Marks a loop that a kube-controller-manager does not run by default.
    const fn not_in_kube_controller_manager(self) -> Controller {
        Controller { in_kube_controller_manager: false, ..self }
    }

    /// Marks a loop of kube-apiserver that every server runs.
    const fn every_server(self) -> Controller {
        Controller { on_every_server: true, ..self.not_in_kube_controller_manager() }
    }
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// All control loops, in alphabetical order.
pub const ALL: &[Controller] = &[
    Controller::new("bootstrap-signer-controller", |context| {
        Box::pin(bootstrap_tokens::sign(context.registry))
    })
    .not_in_kube_controller_manager(),
    Controller::new("certificatesigningrequest-approving-controller", |context| {
        Box::pin(certificates::approve(context.registry))
    }),
    Controller::new("certificatesigningrequest-cleaner-controller", |context| {
        Box::pin(certificates::clean(context.registry))
    }),
    Controller::new("certificatesigningrequest-signing-controller", |context| {
        Box::pin(certificates::sign(context.registry, context.signing))
    }),
    Controller::new("cluster-authentication-trust-controller", |context| {
        Box::pin(authentication_trust::run(context.registry, context.client_trust))
    })
    .not_in_kube_controller_manager(),
    Controller::new("clusterrole-aggregation-controller", |context| {
        Box::pin(cluster_roles::run(context.registry))
    }),
    Controller::new("disruption-controller", |context| Box::pin(disruption::run(context.registry))),
    Controller::new("endpoints-controller", |context| {
        Box::pin(endpoints::objects::run(context.registry))
    }),
    Controller::new("endpointslice-controller", |context| {
        Box::pin(endpoints::slices::run(context.registry))
    }),
    Controller::new("endpointslice-mirroring-controller", |context| {
        Box::pin(endpoints::mirroring::run(context.registry))
    }),
    Controller::new("garbage-collector-controller", |context| {
        Box::pin(garbage::run(context.registry))
    }),
    Controller::new("kube-apiserver-identity-lease-controller", |context| {
        Box::pin(identity::renew(context.registry, context.host_name))
    })
    .every_server(),
    Controller::new("kube-apiserver-identity-lease-garbage-collector", |context| {
        Box::pin(identity::collect(context.registry))
    })
    .not_in_kube_controller_manager(),
    Controller::new("legacy-service-account-token-tracking-controller", |context| {
        Box::pin(legacy_tokens::track_since(context.registry))
    })
    .not_in_kube_controller_manager(),
    Controller::new("legacy-serviceaccount-token-cleaner-controller", |context| {
        Box::pin(legacy_tokens::clean(context.registry))
    }),
    Controller::new("namespace-controller", |context| Box::pin(namespaces::run(context.registry))),
    Controller::new("persistentvolume-protection-controller", |context| {
        Box::pin(protection::volumes(context.registry))
    }),
    Controller::new("persistentvolumeclaim-protection-controller", |context| {
        Box::pin(protection::claims(context.registry))
    }),
    Controller::new("resourcequota-controller", |context| Box::pin(quotas::run(context.registry))),
    Controller::new("root-ca-certificate-publisher-controller", |context| {
        Box::pin(root_ca::run(context.registry, context.root_ca))
    }),
    Controller::new("service-cidr-controller", |context| {
        Box::pin(service_cidrs::run(context.registry))
    }),
    Controller::new("serviceaccount-controller", |context| {
        Box::pin(service_accounts::run(context.registry))
    }),
    Controller::new("serviceaccount-token-controller", |context| {
        Box::pin(account_tokens::run(context.registry, context.tokens, context.root_ca))
    }),
    Controller::new("storage-version-migrator-controller", |context| {
        Box::pin(storage_versions::run(context.registry))
    }),
    Controller::new("token-cleaner-controller", |context| {
        Box::pin(bootstrap_tokens::clean(context.registry))
    })
    .not_in_kube_controller_manager(),
    Controller::new("ttl-after-finished-controller", |context| {
        Box::pin(ttl_after_finished::run(context.registry))
    }),
    Controller::new("validatingadmissionpolicy-status-controller", |context| {
        Box::pin(policy_types::run(context.registry))
    }),
    Controller::new("volumeattributesclass-protection-controller", |context| {
        Box::pin(protection::classes(context.registry))
    }),
];
