//! Identity leases: one Lease in kube-system for each API server that runs, by which others find it, and the
//! collector of those whose server is gone (kube-apiserver's `APIServerIdentity`).

use crate::client::{Client, unless_ending};
use keelson_meta::{Failure, Object, Status, Timestamp};
use keelson_registry::options::DeleteOptions;
use keelson_registry::{Part, Registry, Target};
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const NAMESPACE: &str = "kube-system";
const IDENTITY_LABEL: &str = "apiserver.kubernetes.io/identity";
const HOST_LABEL: &str = "kubernetes.io/hostname";
const ADDRESS_ANNOTATION: &str = "kubernetes.io/peer-advertise-address";
const IDENTITY: &str = "kube-apiserver";
/// How long a lease counts that is not renewed.
const LEASE_SECONDS: i64 = 3600;
/// Between two renewals.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// From a write that failed to the next.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// How often it is looked for leases that have ended.
const COLLECT_INTERVAL: Duration = Duration::from_secs(3600);

/// Keeps the lease of this server, on a host of this name. Runs until it is dropped.
pub(crate) async fn keep(registry: Arc<Registry>, host_name: Arc<str>) {
    let client = Client::api_server(&registry);
    let name = server_name(&host_name);
    let holder = format!("{name}_{}", registry.new_uid());
    let own = Own { client, host_name, name, holder };
    // That of an earlier server on this host, which ended without a word.
    while let Err(error) = own.delete().await {
        tracing::warn!(%error, lease = %own.name, "old identity lease not deleted; trying again");
        tokio::time::sleep(RETRY_DELAY).await;
    }
    loop {
        let wait = match own.renew().await {
            Ok(()) => RENEW_INTERVAL,
            Err(error) => {
                tracing::warn!(%error, lease = %own.name, "identity lease not renewed; trying again");
                RETRY_DELAY
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// What a server on this host is called.
fn server_name(host_name: &str) -> String {
    let mut hash = Sha256::new();
    for part in [host_name, IDENTITY] {
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
        hash.update(length.to_be_bytes());
        hash.update(part.as_bytes());
    }
    format!("apiserver-{}", base32(&hash.finalize()[..16]))
}

/// RFC 4648, in small letters and without padding.
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
struct Own {
    client: Client,
    host_name: Arc<str>,
    name: String,
    holder: String,
}

impl Own {
    fn target(&self) -> Result<Target, Failure> {
        let kind = self.client.kind("coordination.k8s.io", "leases");
        let kind = kind.ok_or_else(|| Status::internal("leases are not served".to_owned()))?;
        Ok(Target::of(&kind, NAMESPACE, &self.name))
    }

    async fn delete(&self) -> Result<(), Failure> {
        unless_ending(self.client.delete(&self.target()?, &DeleteOptions::default()).await)
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
            // Who holds it, and what others have added, stays.
            Some(lease) => {
                self.client.update(&target, Part::Main, self.renewed(lease)).await.map(drop)
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

/// Deletes the leases of API servers that are gone, at the start and each hour. Runs until it is dropped.
pub(crate) async fn collect(registry: Arc<Registry>) {
    let client = Client::api_server(&registry);
    loop {
        if let Err(error) = look(&client).await {
            tracing::warn!(%error, "identity leases not looked at; again in an hour");
        }
        tokio::time::sleep(COLLECT_INTERVAL).await;
    }
}

async fn look(client: &Client) -> Result<(), Failure> {
    let Some(kind) = client.kind("coordination.k8s.io", "leases") else { return Ok(()) };
    let leases = client.registry.cached_all(&kind);
    for entry in leases.range(&format!("{NAMESPACE}/"), "") {
        if entry.label(IDENTITY_LABEL) != Some(IDENTITY) {
            continue;
        }
        let lease = kind.decode(entry)?;
        if has_ended(&lease, client.now()) {
            let version = lease.str_at(&["metadata", "resourceVersion"]);
            // One that is renewed meanwhile stays.
            let options = DeleteOptions {
                resource_version: Some(version.into()),
                ..DeleteOptions::default()
            };
            let target = Target::of(&kind, NAMESPACE, lease.name());
            match client.delete(&target, &options).await {
                Err(status) if status.code == 409 => {}
                deleted => unless_ending(deleted)?,
            }
        }
    }
    Ok(())
}

/// Whether a lease is nobody's any more: it was not renewed in time, or does not say when it was and for how long.
fn has_ended(lease: &Object, now: Timestamp) -> bool {
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
            assert_eq!(has_ended(&lease, now), want, "{spec:?}");
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
