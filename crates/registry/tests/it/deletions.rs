//! Deletions with a grace period or with the finalizers of a propagation policy.

use crate::harness::{Harness, SetClock};
use crate::rules::Session;
use keelson_meta::Value;
use keelson_store::Embedded;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

#[tokio::test]
async fn a_namespace_takes_the_finalizer_of_its_first_deletion() {
    let session = Session::open().await;
    for (name, finalizers, deletions, expected) in [
        ("orphan", r#"["a/b"]"#, &[r#"{"propagationPolicy":"Orphan"}"#][..], r#"["a/b","orphan"]"#),
        (
            "first",
            r#"["a/b"]"#,
            &[r#"{"propagationPolicy":"Foreground"}"#, r#"{"propagationPolicy":"Orphan"}"#],
            r#"["a/b","foregroundDeletion"]"#,
        ),
        ("unset", r#"["orphan"]"#, &["{}"], r#"["orphan"]"#),
        (
            "background",
            r#"["orphan","a/b"]"#,
            &[r#"{"propagationPolicy":"Background"}"#],
            r#"["a/b"]"#,
        ),
        ("older", "[]", &[r#"{"orphanDependents":false}"#], r#"["foregroundDeletion"]"#),
    ] {
        let body = format!(r#"{{"metadata":{{"name":"{name}","finalizers":{finalizers}}}}}"#);
        session.check("POST /api/v1/namespaces", &body, 201, &[]).await;
        let path = format!("/api/v1/namespaces/{name}");
        for options in deletions {
            session.check(&format!("DELETE {path}"), options, 200, &[]).await;
        }
        let place = ["metadata", "finalizers"];
        session.check_at(&format!("GET {path}"), "", &place, expected).await;
    }
}

#[tokio::test]
async fn a_second_deletion_sets_no_deletion_timestamp_in_the_past() {
    let seconds = Arc::new(AtomicI64::new(0));
    let clock = Box::new(SetClock(seconds.clone()));
    let session = Session::over(Harness::over(Embedded::in_memory(), clock).await).await;
    let pods = "/api/v1/namespaces/n/pods";
    let body = r#"{"metadata":{"name":"p","finalizers":["a/b"]},"spec":{"nodeName":"x",
        "automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}"#;
    session.check(&format!("POST {pods}"), body, 201, &[]).await;
    let mut seen = vec![];
    for (now, options) in [
        (10, "{}"),
        (16, r#"{"gracePeriodSeconds":20}"#),
        (16, r#"{"gracePeriodSeconds":2,"propagationPolicy":"Foreground"}"#),
        (17, r#"{"gracePeriodSeconds":1,"propagationPolicy":"Orphan"}"#),
        (18, r#"{"gracePeriodSeconds":0}"#),
        (19, r#"{"propagationPolicy":"Orphan"}"#),
    ] {
        seconds.store(now, Ordering::Relaxed);
        session.check(&format!("DELETE {pods}/p"), options, 200, &[]).await;
        let (_, pod) = session.send(&format!("GET {pods}/p"), "").await;
        let metadata = pod.get("metadata").expect("it waits for its finalizer");
        let until = metadata.str_at(&["deletionTimestamp"]).unwrap_or_default();
        seen.push(format!(
            "{} {} {}",
            &until[17..19],
            metadata.int_at(&["deletionGracePeriodSeconds"]).unwrap_or(-1),
            metadata
                .array_at(&["finalizers"])
                .iter()
                .filter_map(Value::as_str)
                .collect::<Vec<_>>()
                .join(" "),
        ));
    }
    let expected = [
        "40 30 a/b",
        "30 20 a/b",
        "16 1 a/b foregroundDeletion",
        "16 1 a/b foregroundDeletion",
        "18 0 a/b foregroundDeletion",
        "18 0 a/b orphan",
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn an_event_is_deleted_without_waiting_for_dependents() {
    let session = Session::open().await;
    let body =
        r#"{"metadata":{"name":"e","finalizers":["orphan"]},"involvedObject":{"namespace":"n"}}"#;
    for options in [r#"{"propagationPolicy":"Foreground"}"#, "{}"] {
        let events = "/api/v1/namespaces/n/events";
        session.check(&format!("POST {events}"), body, 201, &[]).await;
        session.check(&format!("DELETE {events}/e"), options, 200, &[]).await;
        session.check(&format!("GET {events}/e"), "", 404, &[]).await;
    }
}

#[tokio::test]
async fn without_garbage_collection_a_policy_sets_finalizers_of_namespaces_only() {
    let harness = Harness::with(|options| options.garbage_collection = false).await;
    let session = Session::over(harness).await;
    let maps = "/api/v1/namespaces/n/configmaps";
    let controllers = "/api/v1/namespaces/n/replicationcontrollers";
    let controller = r#"{"metadata":{"name":"c"},"spec":{"selector":{"a":"b"},"template":{
        "metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
    for options in
        [r#"{"propagationPolicy":"Foreground"}"#, r#"{"propagationPolicy":"Orphan"}"#, "{}"]
    {
        session.check(&format!("POST {maps}"), r#"{"metadata":{"name":"m"}}"#, 201, &[]).await;
        session.check(&format!("DELETE {maps}/m"), options, 200, &[]).await;
        session.check(&format!("GET {maps}/m"), "", 404, &[]).await;
        // A kind whose dependents are orphaned by default.
        session.check(&format!("POST {controllers}"), controller, 201, &[]).await;
        session.check(&format!("DELETE {controllers}/c"), options, 200, &[]).await;
        session.check(&format!("GET {controllers}/c"), "", 404, &[]).await;
    }
    let held = r#"{"metadata":{"name":"held","finalizers":["a/b","orphan"]}}"#;
    session.check(&format!("POST {maps}"), held, 201, &[]).await;
    session
        .check(&format!("DELETE {maps}/held"), r#"{"propagationPolicy":"Foreground"}"#, 200, &[])
        .await;
    let place = ["metadata", "finalizers"];
    let kept = r#"["a/b","orphan"]"#;
    session.check_at(&format!("GET {maps}/held"), "", &place, kept).await;
    let namespace = r#"{"metadata":{"name":"space"}}"#;
    session.check("POST /api/v1/namespaces", namespace, 201, &[]).await;
    let path = "/api/v1/namespaces/space";
    let orphan = r#"{"propagationPolicy":"Orphan"}"#;
    session.check(&format!("DELETE {path}"), orphan, 200, &[]).await;
    session.check_at(&format!("GET {path}"), "", &place, r#"["orphan"]"#).await;
}
