//! A lease has one holder; another server gets it when it expires or is released.

use crate::harness::Harness;
use keelson_auth::Permit;
use keelson_builtin::{Candidate, campaign, resign};
use std::time::Duration;

#[tokio::test]
async fn a_lease_has_one_holder_until_it_expires() {
    let harness = Harness::open().await;
    let registry = &harness.registry;
    let permit = Permit::internal("test");
    let lasts = Duration::from_secs(1);
    let mut candidates = ["a", "b", "c"].map(|identity| Candidate::new("l", identity, lasts));
    let [a, b, c] = &mut candidates;
    assert!(campaign(registry, &permit, a).await.expect("an answer"));
    assert!(!campaign(registry, &permit, b).await.expect("an answer"));
    assert!(campaign(registry, &permit, a).await.expect("an answer"));
    // The lease is no longer renewed.
    while !campaign(registry, &permit, b).await.expect("an answer") {
        tokio::task::yield_now().await;
    }
    assert!(!campaign(registry, &permit, a).await.expect("an answer"));
    // Only the holder can release it.
    resign(registry, &permit, a).await.expect("nothing to give up");
    assert!(!campaign(registry, &permit, c).await.expect("an answer"));
    resign(registry, &permit, b).await.expect("given up");
    assert!(campaign(registry, &permit, c).await.expect("an answer"));
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l";
    let (_, lease) = harness.send("GET", path, "", b"").await.expect("the lease");
    assert_eq!(lease.str_at(&["spec", "holderIdentity"]), Some("c"));
    assert_eq!(lease.int_at(&["spec", "leaseTransitions"]), Some(2));
}
