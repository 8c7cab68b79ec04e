//! The objects that every server has: system namespaces, roles and bindings, priority classes, the service
//! that leads back to the API itself.

mod rbac;

pub use rbac::default_rules;

use crate::make::{make_all, make_as};
use crate::services::Services;
use crate::{api_services, flow_control};
use futures_util::try_join;
use keelson_meta::{Failure, Value, value};
use keelson_registry::{Registry, Target};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

const FIELD_MANAGER: &str = "kube-apiserver";

/// Makes what is missing, side by side, so that the writes share syncs of the disk; what is in a namespace
/// waits for the namespaces. What is there stays as it is.
pub(crate) async fn ensure(registry: &Arc<Registry>, services: &Services) -> Result<(), Failure> {
    let (cluster_wide, namespaced) = rbac::defaults(registry);
    try_join!(
        ensure_namespaced(registry, services, namespaced),
        rbac::ensure(registry, cluster_wide),
        make_all(registry, api_services::at_start(registry), FIELD_MANAGER),
        ensure_flow_control(registry),
        make_all(registry, priority_classes(registry), FIELD_MANAGER),
    )?;
    Ok(())
}

/// Writes the conditions of FlowSchemas as well: nothing changes by itself once a server is ready.
async fn ensure_flow_control(registry: &Arc<Registry>) -> Result<(), Failure> {
    flow_control::ensure(registry).await?;
    // The loop of flow control tries again.
    if let Err(error) = flow_control::note_all(registry).await {
        tracing::warn!(%error, "conditions of FlowSchemas not written at the start");
    }
    Ok(())
}

async fn ensure_namespaced(
    registry: &Arc<Registry>,
    services: &Services,
    roles: rbac::Objects,
) -> Result<(), Failure> {
    let namespaces = NAMESPACES.map(|name| {
        (registry.target("", "namespaces", "", name), value!({"metadata": {"name": name}}))
    });
    try_join!(make_all(registry, namespaces.into(), FIELD_MANAGER), ensure_service_cidr(registry))?;
    try_join!(rbac::ensure(registry, roles), ensure_token_tracking(registry), async {
        services.repair(registry).await?;
        ensure_service(registry).await
    },)?;
    Ok(())
}

/// The ServiceCIDR of services' addresses.
async fn ensure_service_cidr(registry: &Registry) -> Result<(), Failure> {
    let ranges = &registry.options.service_ranges;
    let cidrs: Vec<Value> = ranges.iter().map(|range| Value::from(range.as_str())).collect();
    let target = registry.target("networking.k8s.io", "servicecidrs", "", "kubernetes");
    let cidr = value!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": cidrs}});
    make(registry, &target, cidr).await
}

fn priority_classes(registry: &Registry) -> Vec<(Target, Value)> {
    let made = |(name, priority, description)| {
        let target = registry.target("scheduling.k8s.io", "priorityclasses", "", name);
        let class = value!({
            "metadata": {"name": name}, "value": priority, "description": description,
            "preemptionPolicy": "PreemptLowerPriority"
        });
        (target, class)
    };
    PRIORITY_CLASSES.into_iter().map(made).collect()
}

/// Names, numbers and descriptions of the priority classes that every server has.
pub(crate) const PRIORITY_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another \
         node if necessary.",
    ),
];

/// Since when it is known which legacy service account tokens are used: clients that clean them up ask.
async fn ensure_token_tracking(registry: &Registry) -> Result<(), Failure> {
    const NAME: &str = "kube-apiserver-legacy-service-account-token-tracking";
    let target = registry.target("", "configmaps", "kube-system", NAME);
    let today: String = registry.clock.now().text().chars().take(10).collect();
    let tracking = value!({
        "metadata": {"name": NAME, "namespace": "kube-system"}, "data": {"since": (today)}
    });
    make(registry, &target, tracking).await
}

/// The service `kubernetes` and its endpoints.
async fn ensure_service(registry: &Registry) -> Result<(), Failure> {
    let address = registry.options.advertise_address.to_string();
    let port = i64::from(registry.options.advertise_port);
    let ip = registry.options.service_ranges.first().and_then(|range| first_address(range));
    let ip = ip.map(|ip| ip.to_string()).unwrap_or_default();
    let family = if ip.contains(':') { "IPv6" } else { "IPv4" };
    let service = value!({
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": (ip.as_str()), "clusterIPs": [(ip.as_str())], "type": "ClusterIP",
            "internalTrafficPolicy": "Cluster", "ipFamilies": [family],
            "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]
        },
        "status": {"loadBalancer": {}}
    });
    make(registry, &registry.target("", "services", "default", "kubernetes"), service).await?;
    // Endpoints may not name an address that leads back to whoever uses it.
    if registry.options.advertise_address.is_loopback() {
        return Ok(());
    }
    let endpoints = value!({
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": (address.as_str())}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}]
    });
    make(registry, &registry.target("", "endpoints", "default", "kubernetes"), endpoints).await?;
    let family = if address.contains(':') { "IPv6" } else { "IPv4" };
    let slice = value!({
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": family,
        "endpoints": [{"addresses": [(address.as_str())], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}]
    });
    let target = registry.target("discovery.k8s.io", "endpointslices", "default", "kubernetes");
    make(registry, &target, slice).await
}

/// The first address of a range after the one that names the range itself: that of the service
/// `kubernetes`.
pub fn first_address(range: &str) -> Option<IpAddr> {
    let (base, _) = range.split_once('/')?;
    match base.parse().ok()? {
        IpAddr::V4(base) => Some(IpAddr::V4(Ipv4Addr::from(u32::from(base).checked_add(1)?))),
        IpAddr::V6(base) => Some(IpAddr::V6((u128::from(base).checked_add(1)?).into())),
    }
}

async fn make(registry: &Registry, target: &Target, value: Value) -> Result<(), Failure> {
    make_as(registry, target, value, FIELD_MANAGER).await
}
