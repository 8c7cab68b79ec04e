//! Identity leases (feature `APIServerIdentity`): one Lease in kube-system for each running API
//! server, and a loop that deletes the leases of servers that are gone.

use keelson_loops::client::{Client, ignore_terminating};
use keelson_meta::{Failure, Object, Status, Timestamp};
use keelson_registry::options::DeleteOptions;
use keelson_registry::{Registry, Subresource, Target};
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const NAMESPACE: &str = "kube-system";
const IDENTITY_LABEL: &str = "apiserver.kubernetes.io/identity";
const HOST_LABEL: &str = "kubernetes.io/hostname";
const ADDRESS_ANNOTATION: &str = "kubernetes.io/peer-advertise-address";
const IDENTITY: &str = "kube-apiserver";
/// How long a lease is valid after its last renewal.
const LEASE_SECONDS: i64 = 3600;
/// Time between renewals.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// Delay after a failed write.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Time between searches for expired leases.
const COLLECT_INTERVAL: Duration = Duration::from_secs(3600);

/// Creates and renews the lease of this server. Runs until it is dropped.
pub(crate) async fn renew(registry: Arc<Registry>, host_name: Arc<str>) {
    let client = Client::api_server(&registry);
    let name = server_name(&host_name);
    let holder = format!("{name}_{}", registry.new_uid());
    let lease = IdentityLease { client, host_name, name, holder };
    // The lease of an earlier server on this host.
    while let Err(error) = lease.delete().await {
        tracing::warn!(%error, lease = %lease.name, "old identity lease not deleted; trying again");
        tokio::time::sleep(RETRY_DELAY).await;
    }
    loop {
        let wait = match lease.renew().await {
            Ok(()) => RENEW_INTERVAL,
            Err(error) => {
                tracing::warn!(%error, lease = %lease.name, "identity lease not renewed; trying again");
                RETRY_DELAY
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// Returns the name of the lease of a host, as kube-apiserver derives it.
pub fn server_name(host_name: &str) -> String {
    let mut hash = Sha256::new();
    for field in [host_name, IDENTITY] {
        let length = u16::try_from(field.len()).unwrap_or(u16::MAX);
        hash.update(length.to_be_bytes());
        hash.update(field.as_bytes());
    }
    format!("apiserver-{}", base32(&hash.finalize()[..16]))
}

/// Encodes bytes in base32 (RFC 4648), in lower case and without padding.
fn base32(bytes: &[u8]) -> String {
    let groups = bytes.chunks(5).flat_map(|chunk| {
        let mut group = [0; 8];
        group[3..3 + chunk.len()].copy_from_slice(chunk);
        let bits = u64::from_be_bytes(group);
        (0..(chunk.len() * 8).div_ceil(5)).map(move |i| (bits >> (35 - 5 * i)) as usize & 31)
    });
    groups.map(|digit| char::from(b"abcdefghijklmnopqrstuvwxyz234567"[digit])).collect()
}

/// The lease of this server.
struct IdentityLease {
    client: Client,
    host_name: Arc<str>,
    name: String,
    holder: String,
}

impl IdentityLease {
    fn target(&self) -> Result<Target, Failure> {
        let kind = self
            .client
            .kind("coordination.k8s.io", "leases")
            .ok_or_else(|| Status::internal("leases are not served".to_owned()))?;
        Ok(Target::of(&kind, NAMESPACE, &self.name))
    }

    async fn delete(&self) -> Result<(), Failure> {
        ignore_terminating(self.client.delete(&self.target()?, &DeleteOptions::default()).await)
    }

    async fn renew(&self) -> Result<(), Failure> {
        let target = self.target()?;
        match self.client.get(&target).await? {
            None => {
                let mut lease = Object::new();
                lease.set_meta("name", self.name.as_str());
                lease.set_meta("namespace", NAMESPACE);
                lease.object_mut("spec").insert("holderIdentity", self.holder.as_str());
                self.client.create(&target, self.renewed(lease)).await.map(drop)
            }
            // The holder and changes by others stay.
            Some(lease) => {
                self.client.update(&target, Subresource::None, self.renewed(lease)).await.map(drop)
            }
        }
    }

    fn renewed(&self, mut lease: Object) -> Object {
        let now = self.client.now().micro().to_string();
        let port = self.client.registry.options.advertise_port;
        let address = self.client.registry.options.advertise_address;
        let address = SocketAddr::new(address, port).to_string();
        let metadata = lease.metadata_mut();
        let labels = metadata.object_at("labels");
        labels.insert(IDENTITY_LABEL, IDENTITY);
        labels.insert(HOST_LABEL, &*self.host_name);
        metadata.object_at("annotations").insert(ADDRESS_ANNOTATION, address);
        let spec = lease.object_mut("spec");
        spec.insert("leaseDurationSeconds", LEASE_SECONDS);
        spec.insert("renewTime", now);
        lease
    }
}

/// Deletes expired leases of API servers, at the start and every hour. Runs until it is dropped.
pub(crate) async fn collect(registry: Arc<Registry>) {
    let client = Client::api_server(&registry);
    loop {
        if let Err(error) = delete_expired(&client).await {
            tracing::warn!(%error, "expired identity leases not deleted; retrying in an hour");
        }
        tokio::time::sleep(COLLECT_INTERVAL).await;
    }
}

async fn delete_expired(client: &Client) -> Result<(), Failure> {
    let Some(kind) = client.kind("coordination.k8s.io", "leases") else { return Ok(()) };
    let leases = client.registry.cached_all(&kind);
    for entry in leases.range(&format!("{NAMESPACE}/"), "") {
        if entry.label(IDENTITY_LABEL) != Some(IDENTITY) {
            continue;
        }
        let lease = kind.decode(entry)?;
        if is_expired(&lease, client.now()) {
            let version = lease.str_at(&["metadata", "resourceVersion"]);
            // Do not delete a lease that is renewed meanwhile.
            let options = DeleteOptions {
                resource_version: Some(version.into()),
                ..DeleteOptions::default()
            };
            let target = Target::of(&kind, NAMESPACE, lease.name());
            match client.delete(&target, &options).await {
                Err(status) if status.code == 409 => {}
                deleted => ignore_terminating(deleted)?,
            }
        }
    }
    Ok(())
}

/// Whether a lease is expired or lacks its times.
fn is_expired(lease: &Object, now: Timestamp) -> bool {
    let renewed = Timestamp::parse(lease.str_at(&["spec", "renewTime"])).ok();
    let seconds = lease.int_at(&["spec", "leaseDurationSeconds"]);
    renewed.zip(seconds).is_none_or(|(renewed, seconds)| now.since(renewed).seconds() > seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::{Value, value};

    #[test]
    fn a_server_is_named_after_its_host_as_by_kube_apiserver() {
        assert_eq!(server_name("vm"), "apiserver-wlv32tlttr4jl3gtroqexyxapa");
        // RFC 4648, section 10.
        for (text, want) in [("", ""), ("f", "my"), ("foob", "mzxw6yq"), ("fooba", "mzxw6ytb")] {
            assert_eq!(base32(text.as_bytes()), want);
        }
    }

    #[test]
    fn a_lease_without_a_time_or_a_length_has_ended() {
        let now = Timestamp::parse("2026-01-01T01:00:00Z").expect("a time");
        let check = |spec: Value, want: bool| {
            let lease = value!({"spec": (spec.clone())});
            let lease = Object::from_value(lease).expect("an object");
            assert_eq!(is_expired(&lease, now), want, "{spec:?}");
        };
        let renewed = |time: &str| value!({"renewTime": (time), "leaseDurationSeconds": 3600});
        check(renewed("2026-01-01T00:00:00.000000Z"), false);
        check(renewed("2025-12-31T23:59:59.000000Z"), true);
        check(renewed("2026-01-01T02:00:00.000000Z"), false);
        check(value!({"leaseDurationSeconds": 3600}), true);
        check(value!({"renewTime": "2026-01-01T01:00:00.000000Z"}), true);
        check(value!({}), true);
    }
}
