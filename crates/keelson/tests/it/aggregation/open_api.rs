//! OpenAPI documents of servers behind this one that have v2 only, and how often servers are asked.

use super::external_service;
use super::scripted::{AGGREGATED, Page, Registered, Scripted};
use crate::http::{POLL_TIMEOUT, Server, without_controllers};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_aggregation::{Outcome, Pace, Probes};
use keelson_egress::{BoxFuture, Egress, Resolved, Resolver};
use keelson_meta::Str;
use keelson_resources::RemoteServer;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a server is asked for its v2 document.
const TIMES: usize = 10;
pub const PATH: &str = "apis/behind.example/v1";
const THING: &str = "example.behind.v1.Thing";

/// A v2 document of two versions.
pub fn v2_document() -> Value {
    let item = |version: &str| {
        let kind = json!({"group": "behind.example", "version": version, "kind": "Thing"});
        json!({"get": {"operationId": format!("list{version}"), "produces": ["application/json"],
            "x-kubernetes-action": "list", "x-kubernetes-group-version-kind": kind,
            "responses": {"200": {"description": "OK",
                "schema": {"$ref": format!("#/definitions/{THING}")}}}}})
    };
    let path =
        |version: &str| format!("/apis/behind.example/{version}/namespaces/{{namespace}}/things");
    let kinds = ["v1", "v2"]
        .map(|version| json!({"group": "behind.example", "version": version, "kind": "Thing"}));
    json!({"swagger": "2.0", "info": {"title": "behind", "version": "1"},
        "paths": {path("v1"): item("v1"), path("v2"): item("v2")},
        "definitions": {
            THING: {"type": "object", "description": "Thing is a thing.",
                "x-kubernetes-group-version-kind": kinds,
                "properties": {"size": {"$ref": "#/definitions/example.behind.v1.Size",
                    "description": "How large it is."}}},
            "example.behind.v1.Size": {"type": "string"}}})
}

/// The pages of a server that has v2 documents only.
pub fn v2_only(tag: Option<&'static str>) -> Vec<(&'static str, Page)> {
    let thing = json!({"resource": "things", "scope": "Namespaced", "singularResource": "thing",
        "responseKind": {"group": "behind.example", "version": "v1", "kind": "Thing"},
        "verbs": ["get", "list"]});
    let versions = ["v1", "v2"].map(|version| json!({"version": version, "resources": [thing]}));
    let body = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "items": [{"metadata": {"name": "behind.example"}, "versions": versions}]});
    let list = |version: &str| {
        let group_version = format!("behind.example/{version}");
        Page::json(json!({"kind": "APIResourceList", "groupVersion": group_version,
            "resources": [{"name": "things", "singularName": "thing", "namespaced": true,
                "kind": "Thing", "verbs": ["get", "list"]}]}))
    };
    vec![
        ("/apis", Page { media_type: AGGREGATED, tag, body }),
        ("/apis/behind.example/v1", list("v1")),
        ("/apis/behind.example/v2", list("v2")),
        ("/openapi/v2", Page { media_type: "application/json", tag, body: v2_document() }),
    ]
}

#[test]
fn v3_documents_are_made_for_a_server_that_has_v2_only() {
    let behind = Scripted::start(&v2_only(Some("\"1\"")));
    let front = Server::start_plain(without_controllers());
    let client = front.client();
    external_service(&client);
    let priorities = (100, 10);
    behind.register(&client, Registered { group: "behind.example", version: "v1", priorities });
    let index = client.poll("/openapi/v3", |answer| answer.body["paths"][PATH].is_object()).body;
    let url = index["paths"][PATH]["serverRelativeURL"].as_str().expect("a URL");
    let hash = url.strip_prefix("/openapi/v3/apis/behind.example/v1?hash=").expect("a hash");
    let answer = client.get(url);
    assert_eq!(answer.header("etag"), Some(format!("\"{hash}\"").as_str()));
    assert_eq!(answer.header("cache-control"), Some("public, immutable"));
    let document = answer.body;
    assert_eq!(document["openapi"], "3.0.0");
    let size = &document["components"]["schemas"][THING]["properties"]["size"];
    let reference = json!([{"$ref": "#/components/schemas/example.behind.v1.Size"}]);
    assert_eq!(*size, json!({"allOf": reference, "description": "How large it is."}));
    let path = "/apis/behind.example/v1/namespaces/{namespace}/things";
    let answered = &document["paths"][path]["get"]["responses"]["200"]["content"];
    let schema = json!({"$ref": format!("#/components/schemas/{THING}")});
    assert_eq!(answered["application/json"]["schema"], schema);
    let moved = client.get(&format!("/openapi/v3/{PATH}?hash=OLD"));
    assert_eq!((moved.status, moved.header("location")), (301, Some(url)));
    let known = format!("If-None-Match: \"{hash}\"\r\n");
    let same = client.request("GET", &format!("/openapi/v3/{PATH}"), &known, None);
    assert_eq!(same.status, 304);
    let v2 = client.get("/openapi/v2").body;
    assert!(v2["paths"][path].is_object());
    front.stop();
}

/// Leads to this host.
struct Here;

impl Resolver for Here {
    fn resolve<'a>(&'a self, _: &'a str, port: u16) -> BoxFuture<'a, Result<Resolved, String>> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Box::pin(async move { Ok(Resolved::Addresses(vec![address])) })
    }
}

/// Asks for both versions of a server until it was asked `count` times for its v2 document. Returns
/// the outcomes when they were first complete, and at the end.
///
/// All runs on one thread, so that both are wanted before the server is asked first.
fn outcomes(behind: &Scripted, count: usize) -> [[Outcome; 2]; 2] {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(outcomes_of(behind, count))
}

async fn outcomes_of(behind: &Scripted, count: usize) -> [[Outcome; 2]; 2] {
    let server = RemoteServer {
        namespace: "default".into(),
        service: "behind".into(),
        port: behind.port,
        ca_bundle: Some(STANDARD.decode(&behind.bundle).expect("base64").into()),
        is_insecure: false,
    };
    let pace = Pace { check: Duration::from_millis(2), documents: Duration::from_millis(4) };
    let egress = Arc::new(Egress::new(Arc::new(Here)));
    let probes = Probes::with_pace(egress, Arc::new(|| None), pace);
    let group = Str::new("behind.example");
    let versions = [Str::new("v1"), Str::new("v2")];
    let mut first = None;
    let deadline = Instant::now() + POLL_TIMEOUT;
    loop {
        let found = versions.each_ref().map(|version| probes.outcome(&group, version, &server));
        let is_complete = |outcome: &Outcome| {
            outcome.resources.is_some() && outcome.documents.converted.is_some()
        };
        if let [Some(one), Some(other)] = found
            && is_complete(&one)
            && is_complete(&other)
        {
            let now = [one, other];
            if behind.asked("/openapi/v2").len() >= count {
                return [first.unwrap_or_else(|| now.clone()), now];
            }
            first.get_or_insert(now);
        }
        let asked = behind.asked("/openapi/v2");
        assert!(Instant::now() < deadline, "it was asked {asked:?}");
        tokio::task::yield_now().await;
    }
}

/// Proves that nothing is read again: what was read has the same place.
fn check_kept(outcomes: &[[Outcome; 2]; 2]) {
    let [first, last] = outcomes;
    for (first, last) in first.iter().zip(last) {
        assert!(Arc::ptr_eq(&first.documents, &last.documents));
        let place = |outcome: &Outcome| outcome.resources.as_ref().map(Arc::as_ptr);
        assert_eq!(place(first), place(last));
    }
}

#[test]
fn a_server_of_several_versions_is_asked_once_for_what_it_has() {
    let behind = Scripted::start(&v2_only(Some("\"1\"")));
    check_kept(&outcomes(&behind, TIMES));
    for path in ["/apis", "/openapi/v2"] {
        let asked = behind.asked(path);
        let new: Vec<_> = asked.iter().filter(|asked| asked.known.is_empty()).collect();
        assert_eq!(new.len(), 1, "{path}: {asked:?}");
        assert!(asked[1..].iter().all(|asked| asked.status == 304), "{path}: {asked:?}");
    }
    let users: Vec<String> = ["/apis", "/openapi/v2", "/openapi/v3"]
        .map(|path| behind.asked(path)[0].user.clone())
        .into();
    assert_eq!(users, ["system:kube-aggregator", "system:aggregator", "system:aggregator"]);
}

#[test]
fn what_a_server_without_etags_sends_again_is_not_read_again() {
    let behind = Scripted::start(&v2_only(None));
    check_kept(&outcomes(&behind, TIMES));
    assert!(behind.asked("/openapi/v2").iter().all(|asked| asked.status == 200));
}
