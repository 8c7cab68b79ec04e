//! The endpoints of the service `kubernetes`: the addresses of all servers that share the store.
//!
//! Each server keeps a key of its own below `/registry/masterleases/`, which ends with its lease unless it is written
//! again. Those of kube-apiserver are the same, so that either kind of server lists the other.

use crate::kind::Target;
use crate::options::WriteOptions;
use crate::registry::Registry;
use crate::verbs::Part;
use crate::verbs::update::Updated;
use bytes::Bytes;
use keelson_auth::Permit;
use keelson_meta::{Failure, GroupVersionKind, Object, Status, Value, value};
use keelson_schema::proto;
use keelson_store::{Lease, Op, Range, Txn};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// How long a server counts after it has last said that it is there.
const LEASE_TIME: Duration = Duration::from_secs(15);
const LEASES: &str = "/registry/masterleases/";
const NAME: &str = "kubernetes";
const NAMESPACE: &str = "default";
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
const SERVICE_NAME: &str = "kubernetes.io/service-name";

impl Registry {
    /// Says for [`LEASE_TIME`] that this server is there, to all that share the store.
    pub async fn renew_endpoint_lease(&self) -> Result<(), Failure> {
        let address = self.options.advertise_address;
        let lease = Lease::new(self.store_time(), LEASE_TIME);
        let value = announcement(self, address)?;
        let op = Op::Put { key: lease_key(address), value, lease: Some(lease) };
        self.write_lease_key(op).await
    }

    /// Says that this server is going.
    pub async fn end_endpoint_lease(&self) -> Result<(), Failure> {
        self.write_lease_key(Op::Delete { key: lease_key(self.options.advertise_address) }).await
    }

    async fn write_lease_key(&self, op: Op) -> Result<(), Failure> {
        let txn = Txn { compare: vec![], ops: vec![op] };
        self.store.txn(txn).await.map(drop).map_err(|error| Status::unavailable(error.to_string()))
    }

    /// The addresses of the servers that say they are there.
    pub async fn endpoint_leases(&self) -> Result<Vec<String>, Failure> {
        let page = self.store.range(Range::prefix(LEASES.as_bytes())).await;
        let page = page.map_err(|error| Status::unavailable(error.to_string()))?;
        let addresses = page.items.iter().filter_map(|item| address_of(&item.key));
        // In the order of the addresses' texts, as in kube-apiserver.
        Ok(addresses.collect::<BTreeSet<String>>().into_iter().collect())
    }

    /// Makes these addresses the endpoints of the service `kubernetes`. What is right already is not written. No
    /// address at all changes nothing: some server serves.
    pub async fn write_kubernetes_endpoints(&self, addresses: &[String]) -> Result<(), Failure> {
        let Some(first) = addresses.first() else { return Ok(()) };
        let port = i64::from(self.options.advertise_port);
        let ports = value!([{"name": "https", "port": port, "protocol": "TCP"}]);
        let ips: Vec<Value> = addresses.iter().map(|ip| value!({"ip": (ip.as_str())})).collect();
        let subsets = value!([{"addresses": ips, "ports": (ports.clone())}]);
        let target = self.target("", "endpoints", NAMESPACE, NAME);
        self.write_parts(&target, (SKIP_MIRROR, "true"), &[("subsets", subsets)]).await?;
        let ready =
            |ip: &String| value!({"addresses": [(ip.as_str())], "conditions": {"ready": true}});
        let endpoints: Vec<Value> = addresses.iter().map(ready).collect();
        let family = if first.contains(':') { "IPv6" } else { "IPv4" };
        let parts = [
            ("addressType", Value::from(family)),
            ("endpoints", Value::Array(endpoints)),
            ("ports", ports),
        ];
        let target = self.target("discovery.k8s.io", "endpointslices", NAMESPACE, NAME);
        self.write_parts(&target, (SERVICE_NAME, NAME), &parts).await
    }

    /// Makes an object with a label and these members, or gives it them.
    async fn write_parts(
        &self,
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
        let updated = |object| Updated { object, owned: false, warnings: vec![] };
        let Some(entry) = self.cached(&target.kind, NAMESPACE, NAME) else {
            let mut object = change(&Object::new());
            object.set_gvk(&target.schema().gvk);
            object.set_meta("name", NAME);
            object.set_meta("namespace", NAMESPACE);
            return unless_overtaken(
                self.create_object(&permit, target, updated(object), &options).await,
            );
        };
        let live = target.kind.decode(&entry)?;
        if change(&live) == live {
            return Ok(());
        }
        let make = |live: Option<&Object>| {
            live.map(|live| updated(change(live))).ok_or_else(|| target.not_found())
        };
        unless_overtaken(self.change(&permit, target, Part::Main, &make, &options).await)
    }
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
