//! Which of several servers on one store does what only one may do: whoever holds a Lease, which goes to
//! another one when it was not renewed for as long as it says (client-go `leaderelection`).

use keelson_auth::Permit;
use keelson_meta::{Failure, Object, Str, value};
use keelson_registry::options::WriteOptions;
use keelson_registry::{Entry, NewObject, Registry, Subresource, Target};
use keelson_store::Revision;
use std::time::Duration;
use tokio::time::Instant;

const NAMESPACE: &str = "kube-system";

/// One server that wants a lease.
#[derive(Debug)]
pub struct Candidate {
    /// The lease's name.
    name: Str,
    /// Who this is, among all that want it.
    identity: Str,
    /// How long a lease that is not renewed stays with its holder.
    lasts: Duration,
    /// The version that was seen last, and when it was seen first: clocks of servers may differ.
    seen: (Revision, Instant),
}

impl Candidate {
    /// Has seen nothing yet.
    pub fn new(name: &str, identity: &str, lasts: Duration) -> Candidate {
        let seen = (Revision(0), Instant::now());
        Candidate { name: name.into(), identity: identity.into(), lasts, seen }
    }

    /// Whether it is another's, who may still be there.
    fn is_foreign(&mut self, lease: &Object, version: Revision) -> bool {
        if self.seen.0 != version {
            self.seen = (version, Instant::now());
        }
        let holder = lease.str_at(&["spec", "holderIdentity"]);
        let seconds = lease.int_at(&["spec", "leaseDurationSeconds"]).unwrap_or(0);
        let lasts = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        !holder.is_empty() && holder != self.identity && self.seen.1.elapsed() < lasts
    }
}

/// Takes a lease that is free, or renews it. Answers whether the candidate has it now.
pub async fn campaign(
    registry: &Registry,
    permit: &Permit,
    candidate: &mut Candidate,
) -> Result<bool, Failure> {
    let target = registry.target("coordination.k8s.io", "leases", NAMESPACE, &candidate.name);
    registry.wait_for_latest().await?;
    let now = registry.clock.now().micro().to_string();
    let Some(entry) = registry.entry(&target)? else {
        let mut object = Object::new();
        object.set_meta("name", &candidate.name);
        object.set_meta("namespace", NAMESPACE);
        hold(&mut object, candidate, &now);
        return write_lease(registry, permit, &target, None, object).await;
    };
    let mut lease = target.kind.decode(&entry)?;
    if candidate.is_foreign(&lease, entry.modified()) {
        return Ok(false);
    }
    hold(&mut lease, candidate, &now);
    write_lease(registry, permit, &target, Some(&entry), lease).await
}

/// Gives a lease up, if the candidate has it, so that another one need not wait.
pub async fn resign(
    registry: &Registry,
    permit: &Permit,
    candidate: &Candidate,
) -> Result<(), Failure> {
    let target = registry.target("coordination.k8s.io", "leases", NAMESPACE, &candidate.name);
    registry.wait_for_latest().await?;
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

/// Writes a lease in the place of one of this version, or of none; false when there was another.
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
    let made = |object: Object| NewObject { object, managed: false, warnings: vec![] };
    let written = match old {
        None => registry.add(permit, target, object, &options).await,
        Some(entry) => {
            object.set_meta("resourceVersion", &entry.modified().to_string());
            let make = |live: Option<&Object>| {
                live.map(|_| made(object.clone())).ok_or_else(|| target.not_found())
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

/// Makes a lease the candidate's.
fn hold(lease: &mut Object, candidate: &Candidate, now: &str) {
    let holder = lease.str_at(&["spec", "holderIdentity"]);
    let transitions = lease.int_at(&["spec", "leaseTransitions"]);
    let spec = value!({"holderIdentity": (candidate.identity.clone()), "acquireTime": now,
        "leaseDurationSeconds": (i64::try_from(candidate.lasts.as_secs()).unwrap_or(i64::MAX)),
        "renewTime": now, "leaseTransitions": (transitions.map_or(0, |before| before + 1))});
    if holder == candidate.identity {
        lease.object_mut("spec").insert("renewTime", now);
    } else {
        lease.root.insert("spec", spec);
    }
}
