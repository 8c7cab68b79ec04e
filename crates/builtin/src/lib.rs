//! What single built-in kinds do beyond the verbs of the registry and the rules of `kinds`, as kube-apiserver does
//! it itself: the objects that every server has and the loops that keep them, the addresses and ports of services,
//! quotas, who may write roles, evictions, bindings, tokens, and the names that CustomResourceDefinitions get.
//!
//! The registry knows none of these kinds: it asks the [`Hooks`] that it is given here.

mod access_review;
pub mod api_services;
mod binding;
mod bootstrap;
pub mod definitions;
mod escalation;
mod eviction;
pub mod flow_control;
pub mod kubernetes_endpoints;
mod lease;
mod make;
mod quota;
mod recorder;
mod reviews;
pub mod services;
mod signers;
mod stored;
mod stored_kinds;
mod streams;
mod token_request;
mod turns;

pub use bootstrap::{default_rules, first_address};
pub use lease::{Candidate, campaign, resign};
pub use reviews::TokenReviews;
pub use services::{PortLeaks, Services};
pub use stored::{EncodeError, StoredForm};
pub use stored_kinds::StoredKinds;
pub use token_request::TokenRequests;

use binding::Bindings;
use escalation::Escalation;
use eviction::Evictions;
use keelson_auth::rbac;
use keelson_meta::Failure;
use keelson_registry::clock::Clock;
use keelson_registry::hooks::{Action, ActionRow, Hooks, KindHooks};
use keelson_registry::{Registry, RegistryOptions};
use keelson_store::Store;
use quota::ResourceQuotas;
use signers::Signers;
use std::fmt;
use std::sync::Arc;
use streams::Streams;

/// A registry with all that kube-apiserver does for its kinds.
pub struct Opened {
    /// All kinds.
    pub registry: Arc<Registry>,
    /// What is repaired of the addresses and ports of services.
    pub services: Arc<Services>,
    /// What answers TokenRequests, once it is given what makes tokens.
    pub token_requests: Arc<TokenRequests>,
    /// What answers TokenReviews, once it is given what authenticates tokens.
    pub token_reviews: Arc<TokenReviews>,
}

/// Why a server's objects could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The registry could not be.
    Registry {
        /// Why.
        source: keelson_registry::OpenError,
    },
    /// The objects that every server has could not be made.
    Bootstrap {
        /// Why.
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

/// Opens the registry, serves the custom resources that are defined, and makes the objects that every server has.
pub async fn open(
    store: Arc<dyn Store>,
    clock: Box<dyn Clock>,
    options: RegistryOptions,
) -> Result<Opened, OpenError> {
    let services = Arc::new(Services::new(store.clone(), options.node_ports));
    let token_requests = Arc::new(TokenRequests::default());
    let token_reviews = Arc::new(TokenReviews::default());
    let hooks = hooks(&services, &token_requests, &token_reviews);
    let registry = Registry::open(store, clock, options, hooks).await;
    let registry = registry.map_err(|source| OpenError::Registry { source })?;
    definitions::serve_stored(&registry);
    let made = bootstrap::ensure(&registry, &services).await;
    made.map_err(|source| OpenError::Bootstrap { source })?;
    Ok(Opened { registry, services, token_requests, token_reviews })
}

fn hooks(
    services: &Arc<Services>,
    token_requests: &Arc<TokenRequests>,
    token_reviews: &Arc<TokenReviews>,
) -> Hooks {
    let row = |name, resource, action: Arc<dyn Action>| ActionRow { name, resource, action };
    let streams = Some(Arc::new(Streams) as _);
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
    let mut kinds = vec![
        ("", "pods", pods),
        ("", "serviceaccounts", accounts),
        ("", "services", services),
        ("", "nodes", nodes),
        ("certificates.k8s.io", "certificatesigningrequests", requests),
    ];
    let grants = KindHooks { guard: Some(Arc::new(Escalation)), ..KindHooks::default() };
    for resource in ["roles", "clusterroles", "rolebindings", "clusterrolebindings"] {
        kinds.push((rbac::GROUP, resource, grants.clone()));
    }
    let computed = reviews::rows(token_reviews);
    Hooks { kinds, computed, quotas: Some(Arc::new(ResourceQuotas::default())) }
}
