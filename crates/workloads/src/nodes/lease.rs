//! The leases of simulated nodes. A renewal is one small write every [`RENEW_INTERVAL`]; the
//! lifecycle controller waits at least 40 seconds.

use super::{Nodes, node};
use keelson_meta::{Failure, Object};
use keelson_registry::{NewObject, Subresource, Target};
use std::time::Duration;

/// Time between two renewals.
const RENEW_INTERVAL: Duration = Duration::from_secs(25);

impl Nodes {
    /// Creates or renews the lease of a node that has power. Returns the time until the next
    /// renewal.
    pub(super) async fn renew_lease(&self, name: &str) -> Result<Option<Duration>, Failure> {
        let began = self.registry.clock.now();
        let again = self.write_lease(name).await?;
        match again {
            Some(again) => self.reports.set(name, super::after(began, again)),
            None => self.reports.remove(name),
        }
        Ok(again)
    }

    async fn write_lease(&self, name: &str) -> Result<Option<Duration>, Failure> {
        let registry = &self.registry;
        let kinds = (registry.kind("", "nodes"), registry.kind("coordination.k8s.io", "leases"));
        let (Some(nodes), Some(leases)) = kinds else { return Ok(None) };
        let is_running = self.state().node(name).is_some_and(|facts| !facts.is_failed);
        let entry = registry.cached(&nodes, "", name).filter(|_| is_running);
        let Some(entry) = entry else { return Ok(None) };
        let client = self.client_of(name);
        let target = Target::of(&leases, "kube-node-lease", name);
        let now = client.now();
        if registry.cached(&leases, "kube-node-lease", name).is_none() {
            let lease = node::new_lease(&nodes.decode(&entry)?, now);
            client.create(&target, lease).await?;
            return Ok(Some(first_interval(name)));
        }
        let renew = |live: Option<&Object>| {
            let mut object = live.cloned().ok_or_else(|| target.not_found())?;
            object.object_mut("spec").insert("renewTime", now.micro().to_string());
            Ok(NewObject { object, managed: false, warnings: vec![] })
        };
        client.modify(&target, Subresource::None, &renew).await?;
        Ok(Some(RENEW_INTERVAL))
    }
}

/// Returns the time of a node's first renewal, so that those of many nodes are spread.
fn first_interval(name: &str) -> Duration {
    let share = crate::random::of_text(name) % 1_000;
    RENEW_INTERVAL.mul_f64(0.5 + f64::from(u32::try_from(share).unwrap_or(0)) / 2_000.0)
}
