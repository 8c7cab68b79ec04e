//! R-IDEM: existing names and generated names.

use super::faulty_server::FaultyServer;
use super::{MAPS, create, map, names, refused, server};
use crate::world::{Client, Response};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Proves: R-IDEM-01, R-IDEM-02, R-HTTP-11, R-STAT-14.
#[test]
fn a_create_of_an_existing_name_is_409() {
    let server = server();
    let client = server.client();
    let made = create(&client, "a");
    let answer = client.post(MAPS, &map("a", "2"));
    refused(&answer, 409, "AlreadyExists", "configmaps \"a\" already exists");
    assert_eq!(answer.body["details"], json!({"name": "a", "kind": "configmaps"}));
    assert_eq!(client.get(&format!("{MAPS}/a")).body, made);
    // One of several concurrent creates succeeds.
    let codes: Vec<u16> = std::thread::scope(|scope| {
        let tries: Vec<_> = (0..8)
            .map(|who| {
                let client = server.client();
                scope.spawn(move || client.post(MAPS, &map("b", &who.to_string())).status)
            })
            .collect();
        tries.into_iter().map(|one| one.join().expect("an answer")).collect()
    });
    let made = codes.iter().filter(|code| **code == 201).count();
    let refused = codes.iter().filter(|code| **code == 409).count();
    assert_eq!((made, refused), (1, 7), "{codes:?}");
    server.stop();
}

/// Creates a ConfigMap with this metadata.
fn post(client: &Client, metadata: Value) -> Response {
    let mut obj = map("", "1");
    obj["metadata"] = metadata;
    client.post(MAPS, &obj)
}

/// Proves: R-IDEM-03, R-IDEM-04, R-IDEM-08.
#[test]
fn generate_name_generates_a_name() {
    let server = server();
    let client = server.client();
    let mut made = BTreeSet::new();
    for _ in 0..50 {
        let answer = post(&client, json!({"generateName": "web-"}));
        assert_eq!(answer.status, 201, "{answer:?}");
        let name = answer.body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let suffix = name.strip_prefix("web-").unwrap_or_default();
        let letters = "bcdfghjklmnpqrstvwxz2456789";
        assert!(suffix.len() == 5 && suffix.chars().all(|c| letters.contains(c)), "{name}");
        assert_eq!(answer.body["metadata"]["generateName"], "web-");
        assert_eq!(client.get(&format!("{MAPS}/{name}")).body, answer.body);
        assert!(made.insert(name), "{answer:?}");
    }
    let listed = client.get(MAPS).body;
    assert_eq!(names(&listed), made.iter().map(String::as_str).collect::<Vec<_>>());

    let named = post(&client, json!({"name": "own", "generateName": "web-"}));
    assert_eq!((named.status, &named.body["metadata"]["name"]), (201, &json!("own")));
    let nameless = post(&client, json!({}));
    assert_eq!((nameless.status, &nameless.body["reason"]), (422, &json!("Invalid")));
    let cause = &nameless.body["details"]["causes"][0];
    let shown = (&cause["field"], &cause["message"]);
    let why = "Required value: name or generateName is required";
    assert_eq!(shown, (&json!("metadata.name"), &json!(why)));
    server.stop();
}

/// Proves: R-IDEM-05.
#[test]
fn generate_name_is_validated_and_truncated() {
    let server = server();
    let client = server.client();
    for base in ["Upper-", "under_score-", "-dash"] {
        let answer = post(&client, json!({"generateName": base}));
        assert_eq!((answer.status, &answer.body["reason"]), (422, &json!("Invalid")), "{answer:?}");
        let causes = answer.body["details"]["causes"].as_array().expect("causes");
        assert!(causes.iter().any(|c| c["field"] == "metadata.generateName"), "{answer:?}");
    }
    let long = "a".repeat(100);
    let answer = post(&client, json!({"generateName": long}));
    assert_eq!(answer.status, 201, "{answer:?}");
    let name = answer.body["metadata"]["name"].as_str().unwrap_or_default();
    assert_eq!((name.len(), &name[..58]), (63, &long[..58]));
    assert_eq!(answer.body["metadata"]["generateName"], long);
    server.stop();
}

/// Proves: R-IDEM-06, R-IDEM-07, R-STAT-08.
#[test]
fn colliding_generated_names_are_a_409_with_retry() {
    let server = FaultyServer::start();
    let client = server.client();
    let faults = &server.faults;
    faults.set(&faults.random_repeats, true);
    let first = post(&client, json!({"generateName": "web-"}));
    assert_eq!(first.status, 201, "{first:?}");
    let name = first.body["metadata"]["name"].as_str().unwrap_or_default();
    let second = post(&client, json!({"generateName": "web-"}));
    let why = format!(
        "configmaps \"{name}\" already exists, the server was not able to generate a unique name \
         for the object"
    );
    refused(&second, 409, "AlreadyExists", &why);
    assert_eq!(second.body["details"]["retryAfterSeconds"], 1, "{second:?}");
    assert_eq!(second.header("retry-after"), Some("1"));
    faults.set(&faults.random_repeats, false);
    assert_eq!(post(&client, json!({"generateName": "web-"})).status, 201);
    server.stop();
}

/// Proves: R-IDEM-08.
#[test]
fn objects_that_are_not_stored_need_no_name() {
    let server = server();
    let client = server.client();
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for _ in 0..2 {
        let answer = client.post(path, &review);
        assert_eq!((answer.status, &answer.body["status"]["allowed"]), (201, &json!(true)));
        assert_eq!(answer.body["metadata"]["name"], Value::Null);
    }
    assert_eq!(client.get(path).status, 405);
    server.stop();
}
