//! The endpoints of the service `kubernetes`: the addresses of all servers that share the store.
//!
//! Each server keeps a key of its own below `/registry/masterleases/`, which ends with its lease unless it is written
//! again. Those of kube-apiserver are the same, so that either kind of server lists the other.

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

/// How long a server counts after it has last said that it is there.
const LEASE_TIME: Duration = Duration::from_secs(15);
const LEASES: &str = "/registry/masterleases/";
const NAME: &str = "kubernetes";
const NAMESPACE: &str = "default";
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Between two looks; a server that says nothing for one and a half of them no longer counts.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long a server that stops tries to remove its endpoint.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(2);

/// Runs until it is told to stop. Servers that share a store are all endpoints, each until it stops.
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
        match timeout(LEAVE_TIME_MAX, leave(&registry)).await {
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

async fn leave(registry: &Registry) -> Result<(), Failure> {
    end_endpoint_lease(registry).await?;
    let others = endpoint_leases(registry).await?;
    write_kubernetes_endpoints(registry, &others).await
}

/// Says for [`LEASE_TIME`] that this server is there, to all that share the store.
async fn renew_endpoint_lease(registry: &Registry) -> Result<(), Failure> {
    let address = registry.options.advertise_address;
    let lease = Lease::new(registry.store_time(), LEASE_TIME);
    let value = announcement(registry, address)?;
    let op = Op::Put { key: lease_key(address), value, lease: Some(lease) };
    write_lease_key(registry, op).await
}

/// Says that this server is going.
async fn end_endpoint_lease(registry: &Registry) -> Result<(), Failure> {
    write_lease_key(registry, Op::Delete { key: lease_key(registry.options.advertise_address) })
        .await
}

async fn write_lease_key(registry: &Registry, op: Op) -> Result<(), Failure> {
    let txn = Txn { compare: vec![], ops: vec![op] };
    registry.store.txn(txn).await.map(drop).map_err(|error| Status::unavailable(error.to_string()))
}

/// The addresses of the servers that say they are there.
async fn endpoint_leases(registry: &Registry) -> Result<Vec<String>, Failure> {
    let page = registry.store.range(Range::prefix(LEASES.as_bytes())).await;
    let page = page.map_err(|error| Status::unavailable(error.to_string()))?;
    let addresses = page.items.iter().filter_map(|item| address_of(&item.key));
    // In the order of the addresses' texts, as in kube-apiserver.
    Ok(addresses.collect::<BTreeSet<String>>().into_iter().collect())
}

/// Makes these addresses the endpoints of the service `kubernetes`. What is right already is not written. No
/// address at all changes nothing: some server serves.
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
    write_parts(registry, &target, (SKIP_MIRROR, "true"), &[("subsets", subsets)]).await?;
    let ready = |ip: &String| value!({"addresses": [(ip.as_str())], "conditions": {"ready": true}});
    let endpoints: Vec<Value> = addresses.iter().map(ready).collect();
    let family = if first.contains(':') { "IPv6" } else { "IPv4" };
    let parts = [
        ("addressType", Value::from(family)),
        ("endpoints", Value::Array(endpoints)),
        ("ports", ports),
    ];
    let target = registry.target("discovery.k8s.io", "endpointslices", NAMESPACE, NAME);
    write_parts(registry, &target, (SERVICE_NAME, NAME), &parts).await
}

/// Makes an object with a label and these members, or gives it them.
async fn write_parts(
    registry: &Registry,
    target: &Target,
    label: (&'static str, &'static str),
    parts: &[(&'static str, Value)],
) -> Result<(), Failure> {
    let permit = Permit::internal("system:apiserver");
    let change = |live: &Object| {
        let mut object = live.clone();
        let metadata = object.object_mut("metadata");
        let labels = metadata.get("labels").and_then(Value::as_object);
        let mut labels = labels.cloned().unwrap_or_default();
        labels.insert(label.0, label.1);
        metadata.insert("labels", labels);
        for (name, part) in parts {
            object.root.insert(*name, part.clone());
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
        return unless_overtaken(registry.add(&permit, target, object, &options).await);
    };
    let live = target.kind.decode(&entry)?;
    if change(&live) == live {
        return Ok(());
    }
    let make = |live: Option<&Object>| {
        live.map(|live| updated(change(live))).ok_or_else(|| target.not_found())
    };
    unless_overtaken(registry.modify(&permit, target, Subresource::None, &make, &options).await)
}

/// Of several servers one writes; the others find it done, or look again later.
fn unless_overtaken<T>(written: Result<T, Failure>) -> Result<(), Failure> {
    match written {
        Err(failure) if matches!(failure.code, 404 | 409) => Ok(()),
        written => written.map(drop),
    }
}

fn lease_key(address: IpAddr) -> Bytes {
    format!("{LEASES}{address}").into()
}

/// The address of the server that has this key.
fn address_of(key: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(key.strip_prefix(LEASES.as_bytes())?).ok()?;
    text.parse::<IpAddr>().ok().map(|address| address.to_string())
}

/// What kube-apiserver reads of a key: Endpoints with the address.
fn announcement(registry: &Registry, address: IpAddr) -> Result<Bytes, Failure> {
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
    fn a_key_is_that_of_an_address() {
        for text in ["10.1.1.1", "fd00::1"] {
            let address: IpAddr = text.parse().expect("an address");
            assert_eq!(address_of(&lease_key(address)).as_deref(), Some(text));
        }
        assert_eq!(address_of(b"/registry/masterleases/x"), None);
        assert_eq!(address_of(b"/registry/pods/10.1.1.1"), None);
    }
}
