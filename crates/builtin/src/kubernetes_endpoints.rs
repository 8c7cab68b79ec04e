//! The endpoints of the service `kubernetes`: the addresses of all servers that share the store.
//!
//! Each server renews a key with a lease below `/registry/masterleases/`, in the form of
//! kube-apiserver's lease reconciler, so that both kinds of servers list each other.

use bytes::Bytes;
use keelson_auth::Permit;
use keelson_meta::{Failure, GroupVersionKind, Object, Status, Value, value};
use keelson_registry::options::WriteOptions;
use keelson_registry::{NewObject, Registry, Subresource, Target};
use keelson_schema::proto;
use keelson_store::{Lease, Op, Range, Txn};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Duration of a server's lease.
const LEASE_TIME: Duration = Duration::from_secs(15);
const LEASES: &str = "/registry/masterleases/";
const NAME: &str = "kubernetes";
const NAMESPACE: &str = "default";
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Interval of reconciliations, which renew the lease.
const INTERVAL: Duration = Duration::from_secs(10);
/// Timeout for removing the endpoint of a server that stops.
const REMOVE_TIME_MAX: Duration = Duration::from_secs(2);

/// Reconciles the endpoints until `stop` is true. If the store is shared, then removes the endpoint
/// of this server.
pub async fn run(registry: Arc<Registry>, is_shared: bool, mut stop: watch::Receiver<bool>) {
    loop {
        if let Err(error) = reconcile(&registry, is_shared).await {
            tracing::warn!(%error, "endpoints of the service kubernetes not written; trying again");
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    if is_shared {
        match timeout(REMOVE_TIME_MAX, remove_endpoint(&registry)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "still an endpoint until its lease ends"),
            Err(_) => {
                tracing::warn!("still an endpoint until its lease ends: etcd does not answer")
            }
        }
    }
}

async fn reconcile(registry: &Registry, is_shared: bool) -> Result<(), Failure> {
    let addresses = if is_shared {
        renew_endpoint_lease(registry).await?;
        endpoint_leases(registry).await?
    } else {
        vec![registry.options.advertise_address.to_string()]
    };
    write_kubernetes_endpoints(registry, &addresses).await
}

async fn remove_endpoint(registry: &Registry) -> Result<(), Failure> {
    delete_endpoint_lease(registry).await?;
    let others = endpoint_leases(registry).await?;
    write_kubernetes_endpoints(registry, &others).await
}

/// Renews the lease of this server for [`LEASE_TIME`].
async fn renew_endpoint_lease(registry: &Registry) -> Result<(), Failure> {
    let address = registry.options.advertise_address;
    let lease = Lease::new(registry.store_time(), LEASE_TIME);
    let value = lease_value(registry, address)?;
    let op = Op::Put { key: lease_key(address), value, lease: Some(lease) };
    write_lease_key(registry, op).await
}

/// Deletes the lease of this server.
async fn delete_endpoint_lease(registry: &Registry) -> Result<(), Failure> {
    write_lease_key(registry, Op::Delete { key: lease_key(registry.options.advertise_address) })
        .await
}

async fn write_lease_key(registry: &Registry, op: Op) -> Result<(), Failure> {
    let txn = Txn { compare: vec![], ops: vec![op] };
    registry.store.txn(txn).await.map(drop).map_err(|error| Status::unavailable(error.to_string()))
}

/// Returns the addresses of the servers with a lease.
async fn endpoint_leases(registry: &Registry) -> Result<Vec<String>, Failure> {
    let page = registry
        .store
        .range(Range::prefix(LEASES.as_bytes()))
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    let addresses = page.items.iter().filter_map(|item| parse_lease_key(&item.key));
    // Sorted as text, as kube-apiserver does.
    Ok(addresses.collect::<BTreeSet<String>>().into_iter().collect())
}

/// Sets the endpoints of the service `kubernetes`, if they differ. An empty list is ignored,
/// because at least one server is running.
async fn write_kubernetes_endpoints(
    registry: &Registry,
    addresses: &[String],
) -> Result<(), Failure> {
    let Some(first) = addresses.first() else { return Ok(()) };
    let port = i64::from(registry.options.advertise_port);
    let ports = value!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let ips: Vec<Value> = addresses.iter().map(|ip| value!({"ip": (ip.as_str())})).collect();
    let subsets = value!([{"addresses": ips, "ports": (ports.clone())}]);
    let target = registry.target("", "endpoints", NAMESPACE, NAME);
    set_fields(registry, &target, (SKIP_MIRROR, "true"), &[("subsets", subsets)]).await?;
    let ready = |ip: &String| value!({"addresses": [(ip.as_str())], "conditions": {"ready": true}});
    let endpoints: Vec<Value> = addresses.iter().map(ready).collect();
    let family = if first.contains(':') { "IPv6" } else { "IPv4" };
    let fields = [
        ("addressType", Value::from(family)),
        ("endpoints", Value::Array(endpoints)),
        ("ports", ports),
    ];
    let target = registry.target("discovery.k8s.io", "endpointslices", NAMESPACE, NAME);
    set_fields(registry, &target, (SERVICE_NAME, NAME), &fields).await
}

/// Sets a label and fields of an object, which is created if it does not exist.
async fn set_fields(
    registry: &Registry,
    target: &Target,
    label: (&'static str, &'static str),
    fields: &[(&'static str, Value)],
) -> Result<(), Failure> {
    let permit = Permit::internal("system:apiserver");
    let change = |live: &Object| {
        let mut object = live.clone();
        let metadata = object.object_mut("metadata");
        let mut labels =
            metadata.get("labels").and_then(Value::as_object).cloned().unwrap_or_default();
        labels.insert(label.0, label.1);
        metadata.insert("labels", labels);
        for (name, value) in fields {
            object.root.insert(*name, value.clone());
        }
        object
    };
    let options = WriteOptions { field_manager: "kube-apiserver".into(), ..Default::default() };
    let updated = |object| NewObject { object, managed: false, warnings: vec![] };
    let Some(entry) = registry.cached(&target.kind, NAMESPACE, NAME) else {
        let mut object = change(&Object::new());
        object.set_gvk(&target.schema().gvk);
        object.set_meta("name", NAME);
        object.set_meta("namespace", NAMESPACE);
        return ignore_conflict(registry.add(&permit, target, object, &options).await);
    };
    let live = target.kind.decode(&entry)?;
    if change(&live) == live {
        return Ok(());
    }
    let make = |live: Option<&Object>| {
        live.map(|live| updated(change(live))).ok_or_else(|| target.not_found())
    };
    ignore_conflict(registry.modify(&permit, target, Subresource::None, &make, &options).await)
}

/// Ignores conflicts with other servers, which write the same; the next reconciliation checks it.
fn ignore_conflict<T>(written: Result<T, Failure>) -> Result<(), Failure> {
    match written {
        Err(failure) if matches!(failure.code, 404 | 409) => Ok(()),
        written => written.map(drop),
    }
}

fn lease_key(address: IpAddr) -> Bytes {
    format!("{LEASES}{address}").into()
}

/// Returns the address in the key of a lease.
fn parse_lease_key(key: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(key.strip_prefix(LEASES.as_bytes())?).ok()?;
    text.parse::<IpAddr>().ok().map(|address| address.to_string())
}

/// Returns the value of a lease: like kube-apiserver's, an Endpoints object with the address.
fn lease_value(registry: &Registry, address: IpAddr) -> Result<Bytes, Failure> {
    let kind = GroupVersionKind::new("", "v1", "Endpoints");
    let schema =
        registry.catalogue.schema(&kind).ok_or_else(|| Status::internal("no Endpoints"))?;
    let address = address.to_string();
    let mut object = Object::new();
    object.set_gvk(&kind);
    object.root.insert("subsets", value!([{"addresses": [{"ip": (address.as_str())}]}]));
    let mut out = vec![];
    proto::encode(&schema, &object, &mut out).map_err(Status::internal)?;
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_key_contains_an_address() {
        for text in ["10.1.1.1", "fd00::1"] {
            let address: IpAddr = text.parse().expect("an address");
            assert_eq!(parse_lease_key(&lease_key(address)).as_deref(), Some(text));
        }
        assert_eq!(parse_lease_key(b"/registry/masterleases/x"), None);
        assert_eq!(parse_lease_key(b"/registry/pods/10.1.1.1"), None);
    }
}
