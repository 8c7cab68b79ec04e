//! The control loops that a bare API server needs. Each acts as a client within the process: under
//! a service account of its own, through authorization and admission.
//!
//! A loop has the name of the kube-controller-manager loop that it replaces, and `--controllers`
//! selects loops by that name.

mod account_tokens;
mod authentication_trust;
mod bootstrap_tokens;
mod certificates;
mod cluster_roles;
mod disruption;
mod endpoints;
mod garbage;
mod identity;
mod legacy_tokens;
mod namespaces;
mod policy_types;
mod protection;
mod quotas;
mod root_ca;
mod service_accounts;
mod service_cidrs;
mod storage_versions;
mod ttl_after_finished;
mod unattended;

pub use authentication_trust::ClientTrust;
pub use certificates::Signing;
pub use garbage::NAME as GARBAGE_COLLECTOR;
pub use identity::server_name;
pub use legacy_tokens::track_legacy_uses;
pub use unattended::NAME as UNATTENDED;

use keelson_auth::service_account::ServiceAccountTokens;
use keelson_loops::{Controller, StandsFor};
use keelson_registry::Registry;
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

/// All control loops, in alphabetical order.
pub const ALL: &[Controller<Context>] = &[
    Controller::new("bootstrap-signer-controller", |context: Context| {
        Box::pin(bootstrap_tokens::sign(context.registry))
    })
    .stands_for(StandsFor::Nobody),
    Controller::new("certificatesigningrequest-approving-controller", |context: Context| {
        Box::pin(certificates::approve(context.registry))
    }),
    Controller::new("certificatesigningrequest-cleaner-controller", |context: Context| {
        Box::pin(certificates::clean(context.registry))
    }),
    Controller::new("certificatesigningrequest-signing-controller", |context: Context| {
        Box::pin(certificates::sign(context.registry, context.signing))
    }),
    Controller::new("cluster-authentication-trust-controller", |context: Context| {
        Box::pin(authentication_trust::run(context.registry, context.client_trust))
    })
    .stands_for(StandsFor::Nobody),
    Controller::new("clusterrole-aggregation-controller", |context: Context| {
        Box::pin(cluster_roles::run(context.registry))
    }),
    Controller::new("disruption-controller", |context: Context| {
        Box::pin(disruption::run(context.registry))
    }),
    Controller::new("endpoints-controller", |context: Context| {
        Box::pin(endpoints::objects::run(context.registry))
    }),
    Controller::new("endpointslice-controller", |context: Context| {
        Box::pin(endpoints::slices::run(context.registry))
    }),
    Controller::new("endpointslice-mirroring-controller", |context: Context| {
        Box::pin(endpoints::mirroring::run(context.registry))
    }),
    Controller::new(GARBAGE_COLLECTOR, |context: Context| Box::pin(garbage::run(context.registry))),
    Controller::new("kube-apiserver-identity-lease-controller", |context: Context| {
        Box::pin(identity::renew(context.registry, context.host_name))
    })
    .stands_for(StandsFor::EveryServer),
    Controller::new("kube-apiserver-identity-lease-garbage-collector", |context: Context| {
        Box::pin(identity::collect(context.registry))
    })
    .stands_for(StandsFor::Nobody),
    Controller::new("legacy-service-account-token-tracking-controller", |context: Context| {
        Box::pin(legacy_tokens::track_since(context.registry))
    })
    .stands_for(StandsFor::Nobody),
    Controller::new("legacy-serviceaccount-token-cleaner-controller", |context: Context| {
        Box::pin(legacy_tokens::clean(context.registry))
    }),
    Controller::new("namespace-controller", |context: Context| {
        Box::pin(namespaces::run(context.registry))
    }),
    Controller::new("persistentvolume-protection-controller", |context: Context| {
        Box::pin(protection::volumes(context.registry))
    }),
    Controller::new("persistentvolumeclaim-protection-controller", |context: Context| {
        Box::pin(protection::claims(context.registry))
    }),
    Controller::new("resourcequota-controller", |context: Context| {
        Box::pin(quotas::run(context.registry))
    }),
    Controller::new("root-ca-certificate-publisher-controller", |context: Context| {
        Box::pin(root_ca::run(context.registry, context.root_ca))
    }),
    Controller::new("service-cidr-controller", |context: Context| {
        Box::pin(service_cidrs::run(context.registry))
    }),
    Controller::new("serviceaccount-controller", |context: Context| {
        Box::pin(service_accounts::run(context.registry))
    }),
    Controller::new("serviceaccount-token-controller", |context: Context| {
        Box::pin(account_tokens::run(context.registry, context.tokens, context.root_ca))
    }),
    Controller::new("storage-version-migrator-controller", |context: Context| {
        Box::pin(storage_versions::run(context.registry))
    }),
    Controller::new("token-cleaner-controller", |context: Context| {
        Box::pin(bootstrap_tokens::clean(context.registry))
    })
    .stands_for(StandsFor::Nobody),
    Controller::new("ttl-after-finished-controller", |context: Context| {
        Box::pin(ttl_after_finished::run(context.registry))
    }),
    Controller::new(UNATTENDED, |context: Context| Box::pin(unattended::run(context.registry))),
    Controller::new("validatingadmissionpolicy-status-controller", |context: Context| {
        Box::pin(policy_types::run(context.registry))
    }),
    Controller::new("volumeattributesclass-protection-controller", |context: Context| {
        Box::pin(protection::classes(context.registry))
    }),
];
