//! The objects that every server creates when it starts: system namespaces, default roles and
//! bindings, priority classes, flow control, and the service `kubernetes`.

mod rbac;

pub use rbac::default_rules;

use crate::ensure::{ensure_all, ensure_object};
use crate::services::Services;
use crate::{api_services, flow_control};
use futures_util::try_join;
use keelson_meta::{Failure, Reason, Value, value};
use keelson_registry::{Registry, Target};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

const FIELD_MANAGER: &str = "kube-apiserver";

/// How long writes may fail that may succeed later, and the time between two attempts: those of
/// kube-apiserver's default roles.
const FAILING_TIME_MAX: Duration = Duration::from_secs(30);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Creates the objects that do not exist, as [`ensure_once`]. An etcd cluster that elects a leader
/// may fail any write: what is missing is created again, for half a minute.
pub(crate) async fn ensure(registry: &Arc<Registry>, services: &Services) -> Result<(), Failure> {
    let deadline = Instant::now() + FAILING_TIME_MAX;
    loop {
        match ensure_once(registry, services).await {
            Err(failure) if may_pass(&failure) && Instant::now() < deadline => {
                tracing::warn!(why = failure.message, "the first objects are not there; retrying");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            ensured => return ensured,
        }
    }
}

/// Whether the store did not answer, or took no write.
fn may_pass(failure: &Failure) -> bool {
    matches!(failure.reason, Reason::ServerTimeout | Reason::ServiceUnavailable)
}

/// Creates the objects that do not exist. They are created concurrently, so that the writes share
/// syncs of the disk; namespaced objects wait for their namespaces. Existing objects other than
/// roles and bindings are not changed.
async fn ensure_once(registry: &Arc<Registry>, services: &Services) -> Result<(), Failure> {
    let (cluster_wide, namespaced) = rbac::defaults(registry);
    try_join!(
        ensure_namespaced(registry, services, namespaced),
        rbac::ensure(registry, cluster_wide),
        ensure_all(registry, api_services::built_in(registry), FIELD_MANAGER),
        flow_control::ensure(registry),
        ensure_all(registry, priority_classes(registry), FIELD_MANAGER),
    )?;
    Ok(())
}

async fn ensure_namespaced(
    registry: &Arc<Registry>,
    services: &Services,
    roles: Vec<rbac::TableEntry>,
) -> Result<(), Failure> {
    let namespaces = NAMESPACES.map(|name| {
        (registry.target("", "namespaces", "", name), value!({"metadata": {"name": name}}))
    });
    try_join!(
        ensure_all(registry, namespaces.into(), FIELD_MANAGER),
        ensure_service_cidr(registry)
    )?;
    try_join!(rbac::ensure(registry, roles), ensure_token_tracking(registry), async {
        services.repair(registry).await?;
        ensure_kubernetes_service(registry).await
    },)?;
    Ok(())
}

/// Creates the ServiceCIDR with the service ranges of the server.
async fn ensure_service_cidr(registry: &Registry) -> Result<(), Failure> {
    let ranges = &registry.options.service_ranges;
    let cidrs: Vec<Value> = ranges.iter().map(|range| Value::from(range.as_str())).collect();
    let target = registry.target("networking.k8s.io", "servicecidrs", "", "kubernetes");
    let cidr = value!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": cidrs}});
    ensure_one(registry, &target, cidr).await
}

fn priority_classes(registry: &Registry) -> Vec<(Target, Value)> {
    let class = |(name, priority, description)| {
        let target = registry.target("scheduling.k8s.io", "priorityclasses", "", name);
        let class = value!({
            "metadata": {"name": name}, "value": priority, "description": description,
            "preemptionPolicy": "PreemptLowerPriority"
        });
        (target, class)
    };
    PRIORITY_CLASSES.into_iter().map(class).collect()
}

/// Name, value and description of the default priority classes.
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

/// Creates the ConfigMap with the date since when the use of legacy service account tokens is
/// tracked. The controller that deletes unused tokens reads it.
async fn ensure_token_tracking(registry: &Registry) -> Result<(), Failure> {
    const NAME: &str = "kube-apiserver-legacy-service-account-token-tracking";
    let target = registry.target("", "configmaps", "kube-system", NAME);
    let today: String = registry.clock.now().text().chars().take(10).collect();
    let tracking = value!({
        "metadata": {"name": NAME, "namespace": "kube-system"}, "data": {"since": (today)}
    });
    ensure_one(registry, &target, tracking).await
}

/// Creates the service `kubernetes`, and its endpoints unless it has none.
async fn ensure_kubernetes_service(registry: &Registry) -> Result<(), Failure> {
    let address = registry.options.advertise_address.to_string();
    let port = i64::from(registry.options.advertise_port);
    let ip = registry
        .options
        .service_ranges
        .first()
        .and_then(|range| first_address(range))
        .map(|ip| ip.to_string())
        .unwrap_or_default();
    let family = if ip.contains(':') { "IPv6" } else { "IPv4" };
    let mut service_port =
        value!({"name": "https", "port": 443, "protocol": "TCP", "targetPort": port});
    let mut service_type = "ClusterIP";
    if let (Some(node_port), Value::Object(fields)) =
        (registry.options.kubernetes_node_port, &mut service_port)
    {
        fields.insert("nodePort", i64::from(node_port));
        service_type = "NodePort";
    }
    let service = value!({
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": (ip.as_str()), "clusterIPs": [(ip.as_str())], "type": service_type,
            "internalTrafficPolicy": "Cluster", "ipFamilies": [family],
            "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
            "ports": [service_port]
        },
        "status": {"loadBalancer": {}}
    });
    ensure_one(registry, &registry.target("", "services", "default", "kubernetes"), service)
        .await?;
    // Endpoints must not contain a loopback address.
    let is_published = registry.options.publishes_endpoint;
    if !is_published || registry.options.advertise_address.is_loopback() {
        return Ok(());
    }
    let endpoints = value!({
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": (address.as_str())}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}]
    });
    ensure_one(registry, &registry.target("", "endpoints", "default", "kubernetes"), endpoints)
        .await?;
    let family = if address.contains(':') { "IPv6" } else { "IPv4" };
    let slice = value!({
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": family,
        "endpoints": [{"addresses": [(address.as_str())], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}]
    });
    let target = registry.target("discovery.k8s.io", "endpointslices", "default", "kubernetes");
    ensure_one(registry, &target, slice).await
}

/// Returns the first host address of a CIDR, which is the cluster IP of the service `kubernetes`.
pub fn first_address(range: &str) -> Option<IpAddr> {
    let (base, _) = range.split_once('/')?;
    match base.parse().ok()? {
        IpAddr::V4(base) => Some(IpAddr::V4(Ipv4Addr::from(u32::from(base).checked_add(1)?))),
        IpAddr::V6(base) => Some(IpAddr::V6((u128::from(base).checked_add(1)?).into())),
    }
}

async fn ensure_one(registry: &Registry, target: &Target, value: Value) -> Result<(), Failure> {
    ensure_object(registry, target, value, FIELD_MANAGER).await
}
