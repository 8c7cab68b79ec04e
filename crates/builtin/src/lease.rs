//! Leader election among servers on one store (client-go `leaderelection`): the leader holds a
//! Lease and renews it; another candidate may take the Lease once it was not renewed for its
//! duration.

use keelson_auth::Permit;
use keelson_meta::{Failure, Object, Str, value};
use keelson_records::Entry;
use keelson_registry::options::WriteOptions;
use keelson_registry::{NewObject, Registry, Subresource, Target};
use keelson_store::Revision;
use std::time::Duration;
use tokio::time::Instant;

const NAMESPACE: &str = "kube-system";

/// A candidate in a leader election.
#[derive(Debug)]
pub struct Candidate {
    /// The name of the lease.
    name: Str,
    /// The identity of this candidate, unique among all candidates.
    identity: Str,
    /// The duration that the candidate writes into the lease.
    lease_duration: Duration,
    /// The last observed version of the lease, and when it was first observed. Ages are measured by
    /// the local clock, because clocks of servers may differ.
    observed: (Revision, Instant),
}

impl Candidate {
    /// Creates a candidate for a lease in `kube-system`.
    pub fn new(name: &str, identity: &str, lease_duration: Duration) -> Candidate {
        let observed = (Revision(0), Instant::now());
        Candidate { name: name.into(), identity: identity.into(), lease_duration, observed }
    }

    /// Returns whether another candidate holds the lease and it has not expired.
    fn is_held_by_other(&mut self, lease: &Object, version: Revision) -> bool {
        if self.observed.0 != version {
            self.observed = (version, Instant::now());
        }
        let holder = lease.str_at(&["spec", "holderIdentity"]);
        let seconds = lease.int_at(&["spec", "leaseDurationSeconds"]).unwrap_or(0);
        let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        !holder.is_empty() && holder != self.identity && self.observed.1.elapsed() < duration
    }
}

/// Acquires a free lease, or renews it. Returns whether the candidate holds it now.
pub async fn campaign(
    registry: &Registry,
    permit: &Permit,
    candidate: &mut Candidate,
) -> Result<bool, Failure> {
    let target = registry.target("coordination.k8s.io", "leases", NAMESPACE, &candidate.name);
    registry.wait_for_latest_of(&target.kind).await?;
    let now = registry.clock.now().micro().to_string();
    let Some(entry) = registry.entry(&target)? else {
        let mut object = Object::new();
        object.set_meta("name", &candidate.name);
        object.set_meta("namespace", NAMESPACE);
        set_holder(&mut object, candidate, &now);
        return write_lease(registry, permit, &target, None, object).await;
    };
    let mut lease = target.kind.decode(&entry)?;
    if candidate.is_held_by_other(&lease, entry.modified()) {
        return Ok(false);
    }
    set_holder(&mut lease, candidate, &now);
    write_lease(registry, permit, &target, Some(&entry), lease).await
}

/// Releases the lease if the candidate holds it, so that another one need not wait until it
/// expires.
pub async fn resign(
    registry: &Registry,
    permit: &Permit,
    candidate: &Candidate,
) -> Result<(), Failure> {
    let target = registry.target("coordination.k8s.io", "leases", NAMESPACE, &candidate.name);
    registry.wait_for_latest_of(&target.kind).await?;
    let Some(entry) = registry.entry(&target)? else { return Ok(()) };
    let mut lease = target.kind.decode(&entry)?;
    if lease.str_at(&["spec", "holderIdentity"]) == candidate.identity {
        let now = registry.clock.now().micro().to_string();
        let spec = lease.object_mut("spec");
        spec.remove("holderIdentity");
        spec.insert("leaseDurationSeconds", 1);
        spec.insert("renewTime", now.as_str());
        spec.insert("acquireTime", now.as_str());
        write_lease(registry, permit, &target, Some(&entry), lease).await?;
    }
    Ok(())
}

/// Updates the lease in the version `old`, or creates it. Returns false on a conflict.
async fn write_lease(
    registry: &Registry,
    permit: &Permit,
    target: &Target,
    old: Option<&Entry>,
    mut object: Object,
) -> Result<bool, Failure> {
    let options =
        WriteOptions { field_manager: "kube-controller-manager".into(), ..Default::default() };
    object.set_gvk(&target.schema().gvk);
    let updated = |object: Object| NewObject { object, managed: false, warnings: vec![] };
    let written = match old {
        None => registry.add(permit, target, object, &options).await,
        Some(entry) => {
            object.set_meta("resourceVersion", &entry.modified().to_string());
            let make = |live: Option<&Object>| {
                live.map(|_| updated(object.clone())).ok_or_else(|| target.not_found())
            };
            registry.modify(permit, target, Subresource::None, &make, &options).await
        }
    };
    match written {
        Ok(_) => Ok(true),
        Err(status) if matches!(status.code, 404 | 409) => Ok(false),
        Err(status) => Err(status),
    }
}

/// Sets or renews the candidate as the holder of a lease.
fn set_holder(lease: &mut Object, candidate: &Candidate, now: &str) {
    let holder = lease.str_at(&["spec", "holderIdentity"]);
    let transitions = lease.int_at(&["spec", "leaseTransitions"]);
    let spec = value!({"holderIdentity": (candidate.identity.clone()), "acquireTime": now,
        "leaseDurationSeconds": (i64::try_from(candidate.lease_duration.as_secs()).unwrap_or(i64::MAX)),
        "renewTime": now, "leaseTransitions": (transitions.map_or(0, |before| before + 1))});
    if holder == candidate.identity {
        lease.object_mut("spec").insert("renewTime", now);
    } else {
        lease.root.insert("spec", spec);
    }
}
