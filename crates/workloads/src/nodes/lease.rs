//! The leases of simulated nodes. A renewal is one small write every [`RENEW_INTERVAL`]; the
//! lifecycle controller waits at least 40 seconds. Nodes renew in groups: what a write costs is
//! mostly to wake the store and all who wait for it, and a group does that once.

use super::{Nodes, node};
use keelson_meta::{Failure, Object, Timestamp};
use keelson_registry::{NewObject, Subresource, Target};
use std::time::Duration;

/// Time between two renewals.
const RENEW_INTERVAL: Duration = Duration::from_secs(25);
/// Nodes that renew at the same time.
const GROUP_NODES: usize = 128;
/// A node that has just written its lease renews it with its group after at least this time.
const RENEW_INTERVAL_MIN: Duration = Duration::from_secs(5);

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
        let next = until_next(name, self.state().node_count(), now);
        if registry.cached(&leases, "kube-node-lease", name).is_none() {
            let lease = node::new_lease(&nodes.decode(&entry)?, now);
            client.create(&target, lease).await?;
            return Ok(Some(next));
        }
        let renew = |live: Option<&Object>| {
            let mut object = live.cloned().ok_or_else(|| target.not_found())?;
            object.object_mut("spec").insert("renewTime", now.micro().to_string());
            Ok(NewObject { object, managed: false, warnings: vec![] })
        };
        client.modify(&target, Subresource::None, &renew).await?;
        Ok(Some(next))
    }
}

/// Returns the time until a node renews its lease with its group. The groups of many nodes are
/// spread over the interval.
fn until_next(name: &str, nodes: usize, now: Timestamp) -> Duration {
    let interval = RENEW_INTERVAL.as_nanos();
    let groups = u64::try_from(nodes.div_ceil(GROUP_NODES).max(1)).unwrap_or(u64::MAX);
    let group = u128::from(crate::random::of_text(name) % groups);
    let offset = interval * group / u128::from(groups);
    let seconds = u128::from(now.seconds.unsigned_abs());
    let soonest = seconds * 1_000_000_000 + u128::from(now.nanos) + RENEW_INTERVAL_MIN.as_nanos();
    let wait = interval - 1 - (soonest + interval - 1 - offset) % interval;
    RENEW_INTERVAL_MIN + Duration::from_nanos(u64::try_from(wait).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn at(millis: i64) -> Timestamp {
        let nanos = (millis % 1_000) * 1_000_000;
        Timestamp::new(1_780_000_000 + millis / 1_000, u32::try_from(nanos).unwrap_or(0))
    }

    /// The time of the next renewal, in milliseconds.
    fn next(name: &str, nodes: usize, millis: i64) -> i64 {
        let wait = until_next(name, nodes, at(millis)).as_millis();
        millis + i64::try_from(wait).unwrap_or(i64::MAX)
    }

    #[test]
    fn nodes_renew_together_in_groups_and_again_and_again() {
        let names: Vec<String> = (0..1_000).map(|number| format!("node-{number}")).collect();
        let times = |nodes: usize, millis: i64| -> HashSet<i64> {
            names.iter().map(|name| next(name, nodes, millis)).collect()
        };
        assert_eq!(times(100, 3_700).len(), 1);
        assert_eq!(times(100, 3_700), times(100, 4_200));
        assert_eq!(times(1_000, 3_700).len(), 8);
        for millis in [0, 1, 777, 12_345, 24_999, 25_000, 60_001] {
            for name in ["a", "b"] {
                let first = next(name, 1_000, millis);
                assert!((5_000..=30_000).contains(&(first - millis)), "{millis}: {first}");
                // A little early or late, a node keeps its group.
                for about in [first - 2, first, first + 40] {
                    assert_eq!(next(name, 1_000, about), first + 25_000);
                }
            }
        }
    }
}
