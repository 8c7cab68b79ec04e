//! The control loops that a bare API server needs to keep its promises. They act like any client does, within the
//! process: each as a service account of its own, through authorization and admission.
//!
//! A loop has the name of the one of kube-controller-manager whose work it does, and `--controllers` chooses among
//! them by it. [`Controllers`] says which run; whoever runs them starts each with [`Controller::run`] and ends it
//! by dropping that.

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

/// What loops need beside the registry.
#[derive(Clone)]
pub struct Context {
    /// The objects.
    pub registry: Arc<Registry>,
    /// The authority of the server's certificate, in PEM.
    pub root_ca: Arc<str>,
    /// Whose client certificates count.
    pub client_trust: watch::Receiver<ClientTrust>,
    /// The name of the host that the server runs on.
    pub host_name: Arc<str>,
    /// Who signs certificates.
    pub signing: Arc<Signing>,
    /// Who signs tokens of service accounts.
    pub tokens: Arc<ServiceAccountTokens>,
}

/// A loop that runs until it is dropped.
pub type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A control loop.
#[derive(Clone, Copy)]
pub struct Controller {
    /// As `--controllers` names it.
    pub name: &'static str,
    /// Whether a kube-controller-manager runs it too, unless told otherwise.
    pub is_kube_controller_managers: bool,
    /// Whether each of several servers that share a store runs it; else one does.
    pub is_each_servers: bool,
    start: fn(Context) -> Running,
}

impl Controller {
    /// Runs it.
    pub fn run(&self, context: Context) -> Running {
        (self.start)(context)
    }

    const fn new(name: &'static str, start: fn(Context) -> Running) -> Controller {
        Controller { name, is_kube_controller_managers: true, is_each_servers: false, start }
    }

    /// One that a kube-controller-manager does not run, or only when it is told to.
    const fn off_by_default_there(self) -> Controller {
        Controller { is_kube_controller_managers: false, ..self }
    }

    /// One of kube-apiserver's that each server runs for itself.
    const fn for_each_server(self) -> Controller {
        Controller { is_each_servers: true, ..self.off_by_default_there() }
    }
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// All control loops, by name.
pub const ALL: &[Controller] = &[
    Controller::new("bootstrap-signer-controller", |context| {
        Box::pin(bootstrap_tokens::sign(context.registry))
    })
    .off_by_default_there(),
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
    .off_by_default_there(),
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
        Box::pin(identity::keep(context.registry, context.host_name))
    })
    .for_each_server(),
    Controller::new("kube-apiserver-identity-lease-garbage-collector", |context| {
        Box::pin(identity::collect(context.registry))
    })
    .off_by_default_there(),
    Controller::new("legacy-service-account-token-tracking-controller", |context| {
        Box::pin(legacy_tokens::tracked_since(context.registry))
    })
    .off_by_default_there(),
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
    .off_by_default_there(),
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
