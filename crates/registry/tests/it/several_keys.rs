//! Writes of several keys: a write that is cancelled at any await leaves no partial state; quotas
//! admit exactly their limit; nothing is stored in a deleted namespace.

use crate::gate::Gate;
use crate::harness::Harness;
use keelson_meta::time::{GoDuration, Timestamp};
use keelson_meta::{Object, Value};
use keelson_registry::options::{DeleteOptions, ListOptions, WriteOptions};
use keelson_registry::{Answer, Clock, Deleted, NewObject, Subresource, SystemClock};
use keelson_store::{Embedded, WriteError};
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const QUOTA: &str = "/api/v1/namespaces/default/resourcequotas/q";
/// More polls than any write takes, so that every await is cancelled once.
const POLLS_MAX: usize = 60;

async fn send(harness: &Harness, method: &str, path: &str, body: &str) -> (u16, Value) {
    let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    harness.send(method, path, media, body.as_bytes()).await.expect("the harness knows the path")
}

/// Drops a write after `polls` polls, between which other tasks run. Returns whether it was
/// complete.
async fn cut_off(write: impl Future, polls: usize) -> bool {
    let mut write = pin!(write);
    for _ in 0..polls {
        let done = poll_fn(|context| Poll::Ready(write.as_mut().poll(context).is_ready())).await;
        if done {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

async fn items(harness: &Harness, group: &str, resource: &str, namespace: &str) -> Vec<Value> {
    let target = harness.registry.target(group, resource, namespace, "");
    let list = harness
        .registry
        .list(&harness.permit, &target, &ListOptions::default())
        .await
        .expect("a list");
    let decode = |entry| target.kind.decode(entry).expect("it can be read").into_value();
    list.items.iter().map(decode).collect()
}

/// Returns the addresses of services, and those of IPAddress objects.
async fn addresses(harness: &Harness) -> (BTreeSet<String>, BTreeSet<String>) {
    let text = |value: &Value, path: &[&str]| value.str_at(path).unwrap_or_default().to_owned();
    let services = items(harness, "", "services", "default").await;
    let had = services.iter().map(|service| text(service, &["spec", "clusterIP"]));
    let addresses = items(harness, "networking.k8s.io", "ipaddresses", "").await;
    let held = addresses.iter().map(|held| text(held, &["metadata", "name"]));
    (had.filter(|ip| !ip.is_empty()).collect(), held.collect())
}

#[tokio::test]
async fn a_cancelled_service_create_leaks_no_address_and_no_port() {
    let harness = Harness::open().await;
    let body = |n: usize, kind: &str| {
        let port = 30_000 + n;
        let spec = match kind {
            "ExternalName" => r#"{"type":"ExternalName","externalName":"a.b"}"#.to_owned(),
            kind => format!(r#"{{"type":"{kind}","ports":[{{"port":80,"nodePort":{port}}}]}}"#),
        };
        format!(r#"{{"metadata":{{"name":"s{n}"}},"spec":{spec}}}"#)
    };
    let mut cuts = 0;
    for polls in 1..=POLLS_MAX {
        let path = format!("{SERVICES}/s{polls}");
        let made = body(polls, "NodePort");
        let other = r#"{"spec":{"type":"ExternalName","externalName":"a.b","clusterIP":null,"clusterIPs":null}}"#;
        for (method, path, body) in [
            ("POST", SERVICES, made.as_str()),
            ("PATCH", path.as_str(), other),
            ("DELETE", path.as_str(), ""),
        ] {
            let done = cut_off(send(&harness, method, path, body), polls).await;
            cuts += usize::from(!done);
            harness.registry.wait_for_writes().await;
            let (had, held) = addresses(&harness).await;
            assert_eq!(held, had, "{method} after {polls} polls");
            if method == "POST" {
                send(&harness, "POST", SERVICES, &made).await;
            }
        }
        send(&harness, "DELETE", &path, "").await;
        // Its port is free again: another service gets it.
        let again = send(&harness, "POST", SERVICES, &made).await;
        assert_eq!(again.0, 201, "after {polls} polls: {:?}", again.1);
    }
    // How far a write gets between two polls depends on the machine; none ends with its first poll.
    assert!(cuts >= 3, "only {cuts} writes were cut off");
}

/// Creates a quota of `limit` ConfigMaps and recalculates it as its controller does.
async fn make_quota(harness: &Harness, limit: usize) {
    let body = format!(
        r#"{{"metadata":{{"name":"q"}},"spec":{{"hard":{{"count/configmaps":"{limit}"}}}}}}"#
    );
    let made = send(harness, "POST", "/api/v1/namespaces/default/resourcequotas", &body).await;
    assert_eq!(made.0, 201, "{:?}", made.1);
    harness.registry.recalculate_quota(&harness.permit, "default", "q").await.expect("a count");
}

async fn used(harness: &Harness) -> usize {
    let quota = send(harness, "GET", QUOTA, "").await.1;
    let used = quota.str_at(&["status", "used", "count/configmaps"]).expect("it was counted");
    used.parse().expect("a number")
}

fn config_map(name: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}"}}}}"#)
}

#[tokio::test]
async fn a_cancelled_create_leaves_the_quota_usage_correct() {
    let harness = Harness::open().await;
    make_quota(&harness, 1_000).await;
    for polls in 1..=POLLS_MAX {
        let body = config_map(&format!("m{polls}"));
        cut_off(send(&harness, "POST", CONFIG_MAPS, &body), polls).await;
        harness.registry.wait_for_writes().await;
        let count = items(&harness, "", "configmaps", "default").await.len();
        assert_eq!(used(&harness).await, count, "after {polls} polls");
    }
}

#[tokio::test]
async fn a_failed_create_refunds_its_quota_charge() {
    let harness = Harness::open().await;
    make_quota(&harness, 5).await;
    assert_eq!(send(&harness, "POST", CONFIG_MAPS, &config_map("a")).await.0, 201);
    for _ in 0..10 {
        assert_eq!(send(&harness, "POST", CONFIG_MAPS, &config_map("a")).await.0, 409);
    }
    assert_eq!(used(&harness).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_writers_get_exactly_the_limit_of_a_quota() {
    const LIMIT: usize = 40;
    let harness = Arc::new(Harness::open().await);
    make_quota(&harness, LIMIT).await;
    let counting = tokio::spawn({
        let harness = harness.clone();
        async move {
            loop {
                let counted =
                    harness.registry.recalculate_quota(&harness.permit, "default", "q").await;
                counted.expect("a count");
            }
        }
    });
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..64 {
        let harness = harness.clone();
        writers.spawn(async move {
            let mut made = 0;
            for n in 0..4 {
                let body = config_map(&format!("w{writer}-{n}"));
                match send(&harness, "POST", CONFIG_MAPS, &body).await {
                    (201, _) => made += 1,
                    (403, why) => {
                        let why = why.str_at(&["message"]).unwrap_or_default();
                        assert!(why.contains("exceeded quota: q"), "{why}");
                    }
                    other => panic!("{other:?}"),
                }
            }
            made
        });
    }
    let made: usize = writers.join_all().await.into_iter().sum();
    counting.abort();
    assert_eq!(made, LIMIT);
    assert_eq!(items(&harness, "", "configmaps", "default").await.len(), LIMIT);
    assert_eq!(used(&harness).await, LIMIT);
}

/// Deletes a namespace with its content, as the namespace controller does.
async fn remove_namespace(harness: &Harness, name: &str) {
    let registry = &harness.registry;
    let target = registry.target("", "namespaces", "", name);
    let options = DeleteOptions::default();
    registry.delete(&harness.permit, &target, &options, &mut vec![]).await.expect("it is marked");
    let all = registry.target("", "configmaps", name, "");
    let every = ListOptions::default();
    registry
        .delete_collection(&harness.permit, &all, &every, &options, &mut vec![])
        .await
        .expect("emptied");
    let released = |live: Option<&Object>| {
        let mut object = live.cloned().ok_or_else(|| target.not_found())?;
        object.object_mut("spec").remove("finalizers");
        Ok(NewObject { object, managed: true, warnings: vec![] })
    };
    let subresource = Subresource::Other("finalize");
    let write = WriteOptions::default();
    let written = registry.modify(&harness.permit, &target, subresource, &released, &write).await;
    let gone = matches!(written.expect("it is let go").answer, Answer::Object(_));
    assert!(gone, "{name} is still there");
}

/// Returns a harness whose writes of ConfigMaps can be held back.
async fn gated() -> (Arc<Gate>, Arc<Harness>) {
    let gate = Gate::new("/registry/configmaps/");
    let harness = Harness::over(gate.clone(), Box::new(SystemClock)).await;
    (gate, Arc::new(harness))
}

#[tokio::test]
async fn a_create_during_namespace_deletion_leaves_no_orphan() {
    let (gate, harness) = gated().await;
    let namespace = r#"{"metadata":{"name":"going"}}"#;
    assert_eq!(send(&harness, "POST", "/api/v1/namespaces", namespace).await.0, 201);
    gate.close();
    // The object is admitted and not yet stored when the namespace is read for the last time.
    let late = tokio::spawn({
        let harness = harness.clone();
        let path = "/api/v1/namespaces/going/configmaps";
        async move { send(&harness, "POST", path, &config_map("late")).await.0 }
    });
    gate.arrival().await;
    remove_namespace(&harness, "going").await;
    gate.open();
    assert_eq!(late.await.expect("an answer"), 404);
    assert_eq!(items(&harness, "", "configmaps", "going").await, []);
}

#[tokio::test]
async fn a_create_during_a_namespace_change_is_admitted_again() {
    let (gate, harness) = gated().await;
    let namespace = r#"{"metadata":{"name":"changing"}}"#;
    assert_eq!(send(&harness, "POST", "/api/v1/namespaces", namespace).await.0, 201);
    gate.close();
    let late = tokio::spawn({
        let harness = harness.clone();
        let path = "/api/v1/namespaces/changing/configmaps";
        async move { send(&harness, "POST", path, &config_map("late")).await.0 }
    });
    gate.arrival().await;
    let label = r#"{"metadata":{"labels":{"a":"b"}}}"#;
    let changed = send(&harness, "PATCH", "/api/v1/namespaces/changing", label).await;
    assert_eq!(changed.0, 200);
    gate.open();
    assert_eq!(late.await.expect("an answer"), 201);
}

#[tokio::test]
async fn a_quota_recount_waits_for_charged_objects() {
    let (gate, harness) = gated().await;
    make_quota(&harness, 1).await;
    gate.close();
    let slow = tokio::spawn({
        let harness = harness.clone();
        async move { send(&harness, "POST", CONFIG_MAPS, &config_map("slow")).await.0 }
    });
    gate.arrival().await;
    let counted = tokio::spawn({
        let harness = harness.clone();
        async move { harness.registry.recalculate_quota(&harness.permit, "default", "q").await }
    });
    // Long enough for a count that does not wait.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    gate.open();
    assert_eq!(slow.await.expect("an answer"), 201);
    counted.await.expect("it ends").expect("a count");
    assert_eq!(used(&harness).await, 1);
    assert_eq!(send(&harness, "POST", CONFIG_MAPS, &config_map("more")).await.0, 403);
}

/// A clock that tests set.
struct MovedClock(Arc<AtomicI64>);

impl Clock for MovedClock {
    fn now(&self) -> Timestamp {
        SystemClock.now().plus(GoDuration::from_seconds(self.0.load(Ordering::Relaxed)))
    }

    fn random(&self) -> [u8; 16] {
        SystemClock.random()
    }
}

#[tokio::test]
async fn a_leaked_address_is_freed_after_a_minute_and_an_event_says_so() {
    let moved = Arc::new(AtomicI64::new(0));
    let harness = {
        let clock = Box::new(MovedClock(moved.clone()));
        Harness::over(Embedded::in_memory(), clock).await
    };
    let service =
        r#"{"metadata":{"name":"a"},"spec":{"clusterIP":"10.0.0.50","ports":[{"port":80}]}}"#;
    assert_eq!(send(&harness, "POST", SERVICES, service).await.0, 201);
    let leaked = r#"{"metadata":{"name":"10.0.0.99","labels":{
        "ipaddress.kubernetes.io/ip-family":"IPv4",
        "ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io"}},
        "spec":{"parentRef":{"resource":"services","namespace":"default","name":"gone"}}}"#;
    let path = "/apis/networking.k8s.io/v1/ipaddresses";
    assert_eq!(send(&harness, "POST", path, leaked).await.0, 201);
    let wrong = leaked.replace("10.0.0.99", "10.0.0.98").replace("gone", "a");
    assert_eq!(send(&harness, "POST", path, &wrong).await.0, 201);
    // Addresses with another `managed-by` label are not released.
    let foreign = leaked.replace("10.0.0.99", "10.0.0.97").replace("ipallocator.k8s.io", "me");
    assert_eq!(send(&harness, "POST", path, &foreign).await.0, 201);
    harness.services.free_leaked_addresses(&harness.registry).await.expect("a look");
    assert_eq!(send(&harness, "GET", &format!("{path}/10.0.0.99"), "").await.0, 200);
    moved.store(61, Ordering::Relaxed);
    harness.services.free_leaked_addresses(&harness.registry).await.expect("a look");
    let (had, mut held) = addresses(&harness).await;
    assert!(held.remove("10.0.0.97"), "{held:?}");
    assert_eq!(held, had);
    let events = items(&harness, "", "events", "default").await;
    let mut said: Vec<_> = events
        .iter()
        .map(|event| {
            let text = |name: &str| event.str_at(&[name]).unwrap_or_default();
            format!("{} {} {}", text("type"), text("reason"), text("message"))
        })
        .collect();
    said.sort();
    assert_eq!(
        said,
        [
            "Normal IPAddressNotAllocated IPAddress: 10.0.0.99 for Service default/gone appears to \
             have leaked: cleaning up",
            "Normal IPAddressWrongReference IPAddress: 10.0.0.98 for Service default/a has a wrong \
             reference; cleaning up",
        ]
    );
}

#[tokio::test]
async fn a_missing_ip_address_object_of_a_service_is_recreated() {
    let harness = Harness::open().await;
    let service = r#"{"metadata":{"name":"a"},"spec":{"ports":[{"port":80}]}}"#;
    assert_eq!(send(&harness, "POST", SERVICES, service).await.0, 201);
    let (had, _) = addresses(&harness).await;
    for address in &had {
        let path = format!("/apis/networking.k8s.io/v1/ipaddresses/{address}");
        assert_eq!(send(&harness, "DELETE", &path, "").await.0, 200);
    }
    harness.services.repair(&harness.registry).await.expect("a repair");
    let (had, held) = addresses(&harness).await;
    assert_eq!(held, had);
    let events = items(&harness, "", "events", "default").await;
    let reasons: BTreeSet<_> = events.iter().map(|e| e.str_at(&["reason"]).unwrap_or("")).collect();
    assert_eq!(reasons, BTreeSet::from(["ClusterIPNotAllocated"]));
}

#[tokio::test]
async fn a_finished_pod_that_others_remove_after_its_mark_is_deleted() {
    let gate = Gate::new("/registry/pods/");
    let harness = Arc::new(Harness::over(gate.clone(), Box::new(SystemClock)).await);
    let pods = "/api/v1/namespaces/default/pods";
    let body = r#"{"metadata":{"name":"p"},"spec":{"nodeName":"x",
        "automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}"#;
    let status = r#"{"status":{"phase":"Succeeded"}}"#;
    let account = r#"{"metadata":{"name":"default"}}"#;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    assert_eq!(send(&harness, "POST", accounts, account).await.0, 201);
    let target = harness.registry.target("", "pods", "default", "p");
    // The first write marks the pod, the second one removes it.
    for (passed, expected) in [(0, None), (1, Some("p"))] {
        let made = send(&harness, "POST", pods, body).await;
        assert_eq!(made.0, 201, "{:?}", made.1);
        assert_eq!(send(&harness, "PATCH", &format!("{pods}/p/status"), status).await.0, 200);
        gate.close_after(passed);
        let deletion = tokio::spawn({
            let harness = harness.clone();
            let target = target.clone();
            async move {
                let options = DeleteOptions::default();
                harness.registry.delete(&harness.permit, &target, &options, &mut vec![]).await
            }
        });
        gate.arrival().await;
        gate.remove("/registry/pods/default/p").await;
        gate.open();
        match (deletion.await.expect("an answer"), expected) {
            (Ok(Deleted::Gone(pod)), Some(name)) => assert_eq!(pod.name(), name),
            (Err(failure), None) => assert_eq!(failure.code, 404),
            (other, _) => panic!("after {passed} writes: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_goes_on_when_the_outcome_of_a_first_write_is_unknown() {
    let gate = Gate::new("/registry/clusterroles/");
    gate.fail_next(WriteError::Unknown { source: Arc::new(std::io::Error::other("no leader")) });
    let harness = Harness::over(gate, Box::new(SystemClock)).await;
    let roles = items(&harness, "rbac.authorization.k8s.io", "clusterroles", "").await;
    assert!(roles.len() > 50, "{} cluster roles", roles.len());
}
