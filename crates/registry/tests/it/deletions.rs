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
