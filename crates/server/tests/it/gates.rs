//! Feature gates that switch how requests are read and answered.

use crate::world::{Response, Server, without_accounts};
use keelson_meta::{Feature, Features};
use serde_json::json;

/// Sends a request to a server with the default gates, and to one with a gate switched off.
fn off_and_on(gate: Feature, line: &str, headers: &str) -> [Response; 2] {
    [false, true].map(|is_on| {
        let features = Features::default().with(gate, is_on);
        let server = Server::start_plain(without_accounts().with(|all| all.features = features));
        let client = server.client();
        let data = json!({"metadata": {"name": "long"}, "data": {"a": "x".repeat(200_000)}});
        assert_eq!(client.post("/api/v1/namespaces/default/configmaps", &data).status, 201);
        client.send_bytes(line, headers, b"")
    })
}

#[test]
fn responses_are_compressed_with_the_gate() {
    let line = "GET /api/v1/namespaces/default/configmaps/long";
    let gate = Feature::APIResponseCompression;
    let [off, on] = off_and_on(gate, line, "Accept-Encoding: gzip\r\n");
    assert_eq!(off.header("content-encoding"), None);
    assert_eq!(on.header("content-encoding"), Some("gzip"));
}

#[test]
fn watch_lists_need_their_gate() {
    let line = "GET /api/v1/configmaps?watch=1&timeoutSeconds=1&sendInitialEvents=true\
                &resourceVersionMatch=NotOlderThan";
    let [off, on] = off_and_on(Feature::WatchList, line, "");
    assert_eq!((off.status, on.status), (422, 200));
    assert_eq!(
        off.body["details"]["causes"],
        json!([{"reason": "FieldValueForbidden", "field": "sendInitialEvents",
            "message": "Forbidden: sendInitialEvents is forbidden for watch unless the WatchList \
                        feature gate is enabled"}])
    );
}

#[test]
fn discovery_has_hashes_of_storage_versions_with_the_gate() {
    let hash = |answer: &Response| {
        let resources = answer.body["resources"].clone();
        let all = resources.as_array().expect("resources").clone();
        all.iter().find(|one| one["name"] == "configmaps").expect("one")["storageVersionHash"]
            .clone()
    };
    let [off, on] = off_and_on(Feature::StorageVersionHash, "GET /api/v1", "");
    assert_eq!(hash(&off), json!(null));
    assert_eq!(hash(&on), json!("qFsyl6wFWjQ="));
}
