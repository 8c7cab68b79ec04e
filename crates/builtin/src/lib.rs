//! Behavior of single built-in kinds beyond the verbs of the registry and the rules of `kinds`: the
//! objects that every server creates, cluster IPs and node ports of services, quotas, the RBAC
//! escalation check, evictions, bindings, tokens, and the accepted names of
//! CustomResourceDefinitions. Also the control loops that run in every kube-apiserver.
//!
//! The registry names no kind; it calls the [`Hooks`] that are built here.

mod access_review;
pub mod api_services;
mod binding;
mod bootstrap;
mod claim_status;
mod cluster_metrics;
pub mod compaction;
mod component_statuses;
pub mod definitions;
mod ensure;
mod escalation;
mod events;
mod eviction;
pub mod flow_control;
mod keyed_mutex;
pub mod kubernetes_endpoints;
mod lease;
mod quota;
mod reviews;
pub mod services;
mod signers;
mod streams;
mod token_request;

pub use bootstrap::{default_rules, first_address};
pub use lease::{Candidate, campaign, resign};
pub use reviews::TokenReviews;
pub use services::{OTHER_RECORDS, PortLeaks, Services};
pub use token_request::TokenRequests;

use binding::Bindings;
use claim_status::ClaimStatus;
use component_statuses::ComponentStatuses;
use escalation::Escalation;
use eviction::Evictions;
use keelson_auth::rbac;
use keelson_meta::Failure;
use keelson_registry::clock::Clock;
use keelson_registry::hooks::{Action, ActionRow, Hooks, KindHooks, Quotas};
use keelson_registry::{Registry, RegistryOptions};
use keelson_store::Store;
use quota::ResourceQuotas;
use signers::Signers;
use std::fmt;
use std::sync::Arc;
use streams::Streams;

/// A registry with the hooks of the built-in kinds.
pub struct Opened {
    /// The registry.
    pub registry: Arc<Registry>,
    /// Allocates and repairs cluster IPs and node ports.
    pub services: Arc<Services>,
    /// Handles TokenRequests; needs [`TokenRequests::attach`].
    pub token_requests: Arc<TokenRequests>,
    /// Handles TokenReviews; needs [`TokenReviews::attach`].
    pub token_reviews: Arc<TokenReviews>,
}

/// Errors of [`open`].
#[derive(Debug)]
pub enum OpenError {
    /// The registry could not be opened.
    Registry {
        /// The cause.
        source: keelson_registry::OpenError,
    },
    /// The objects that every server has could not be created.
    Bootstrap {
        /// The cause.
        source: Failure,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Registry { source } => source.fmt(f),
            OpenError::Bootstrap { .. } => f.write_str("make the first objects"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Registry { source } => source.source(),
            OpenError::Bootstrap { source } => Some(source),
        }
    }
}

/// Opens the registry, serves the custom resources that are defined, and creates the objects that
/// every server has.
pub async fn open(
    store: Arc<dyn Store>,
    clock: Box<dyn Clock>,
    options: RegistryOptions,
) -> Result<Opened, OpenError> {
    let services = Arc::new(Services::new(store.clone(), options.node_ports));
    let token_requests = Arc::new(TokenRequests::default());
    let token_reviews = Arc::new(TokenReviews::default());
    let streams = Streams::new(options.node_address_types.clone());
    let hooks = hooks(&services, &token_requests, &token_reviews, streams);
    let registry = Registry::open(store, clock, options, hooks)
        .await
        .map_err(|source| OpenError::Registry { source })?;
    definitions::serve_stored(&registry);
    let ensured = bootstrap::ensure(&registry, &services).await;
    ensured.map_err(|source| OpenError::Bootstrap { source })?;
    Ok(Opened { registry, services, token_requests, token_reviews })
}

fn hooks(
    services: &Arc<Services>,
    token_requests: &Arc<TokenRequests>,
    token_reviews: &Arc<TokenReviews>,
    streams: Streams,
) -> Hooks {
    let row = |name, resource, action: Arc<dyn Action>| ActionRow { name, resource, action };
    let streams = Some(Arc::new(streams) as _);
    let pods = KindHooks {
        actions: vec![
            row("binding", Some("bindings"), Arc::new(Bindings)),
            row("eviction", None, Arc::new(Evictions)),
        ],
        connections: streams.clone(),
        ..KindHooks::default()
    };
    let accounts = KindHooks {
        actions: vec![row("token", None, token_requests.clone())],
        ..KindHooks::default()
    };
    let services = KindHooks {
        claims: Some(services.clone()),
        connections: streams.clone(),
        ..KindHooks::default()
    };
    let nodes = KindHooks { connections: streams, ..KindHooks::default() };
    let requests = KindHooks { guard: Some(Arc::new(Signers)), ..KindHooks::default() };
    let claims = KindHooks { guard: Some(Arc::new(ClaimStatus)), ..KindHooks::default() };
    let mut kinds = vec![
        ("resource.k8s.io", "resourceclaims", Arc::new(claims)),
        ("", "pods", Arc::new(pods)),
        ("", "serviceaccounts", Arc::new(accounts)),
        ("", "services", Arc::new(services)),
        ("", "nodes", Arc::new(nodes)),
        ("certificates.k8s.io", "certificatesigningrequests", Arc::new(requests)),
    ];
    let grants = Arc::new(KindHooks { guard: Some(Arc::new(Escalation)), ..KindHooks::default() });
    for resource in ["roles", "clusterroles", "rolebindings", "clusterrolebindings"] {
        kinds.push((rbac::GROUP, resource, grants.clone()));
    }
    let mut computed = reviews::rows(token_reviews);
    computed.push(("", "componentstatuses", Arc::new(ComponentStatuses::new())));
    let quotas: Arc<dyn Quotas> = Arc::new(ResourceQuotas::default());
    Hooks { kinds, computed, quotas: Some(quotas), metrics: Some(cluster_metrics::write) }
}
