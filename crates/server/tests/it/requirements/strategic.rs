//! R-SMP: strategic merge patches over HTTP. The cases of the algorithm are in
//! `apply/src/strategic_tests.rs`.

use super::{MAPS, MERGE_PATCH, STRATEGIC_PATCH, map, patch, server};
use crate::world::{Client, Server};
use serde_json::{Value, json};

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/d";

/// A server with a Deployment whose Pods have two containers and a node selector.
fn deployed() -> (Server, Client) {
    let server = server();
    let client = server.client();
    let spec = json!({
        "containers": [
            {"name": "a", "image": "a:1", "args": ["1", "2"],
                "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
            {"name": "b", "image": "b:1"}
        ],
        "nodeSelector": {"k": "1", "l": "2"}
    });
    let obj = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}
        }
    });
    let made = client.post("/apis/apps/v1/namespaces/default/deployments", &obj);
    assert_eq!(made.status, 201, "{made:?}");
    (server, client)
}

/// Patches the Pod spec of the Deployment, checks that a GET returns the same object, and returns
/// the Pod spec.
fn change(client: &Client, spec: Value) -> Value {
    let body = json!({"spec": {"template": {"spec": spec}}});
    let done = patch(client, DEPLOYMENT, STRATEGIC_PATCH, &body);
    assert_eq!(client.get(DEPLOYMENT).body, done);
    assert!(!done.to_string().contains('$'), "{done}");
    done["spec"]["template"]["spec"].clone()
}

/// Returns the items of a list with only the named fields.
fn members(list: &Value, names: &[&str]) -> Value {
    let one = |item: &Value| {
        let shown = names.iter().filter(|name| !item[**name].is_null());
        Value::Object(shown.map(|name| ((*name).to_owned(), item[*name].clone())).collect())
    };
    list.as_array().expect("a list").iter().map(one).collect()
}

/// Proves: R-SMP-01, R-SMP-02, R-SMP-03, R-SMP-08, R-SMP-09.
#[test]
fn keyed_lists_merge_and_other_lists_are_replaced() {
    let (server, client) = deployed();
    // A new container is added in front of the others, as in kube-apiserver.
    let spec = change(&client, json!({"containers": [{"name": "c", "image": "c:1"}]}));
    let want = json!([
        {"name": "c", "image": "c:1"}, {"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}
    ]);
    assert_eq!(members(&spec["containers"], &["name", "image"]), want);
    // An existing container is changed in its place, and its lists are merged in the same way.
    let spec = change(
        &client,
        json!({"containers": [
            {"name": "a", "image": "a:2", "args": ["3"], "env": [{"name": "Y", "value": "9"}]}
        ]}),
    );
    let want = json!({
        "name": "a", "image": "a:2", "args": ["3"],
        "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "9"}]
    });
    assert_eq!(members(&spec["containers"], &["name", "image", "args", "env"])[1], want);
    assert_eq!(members(&spec["containers"], &["image"])[2], json!({"image": "b:1"}));
    // Null removes a member.
    let spec = change(
        &client,
        json!({"nodeSelector": {"k": null}, "containers": [
            {"name": "a", "args": null}
        ]}),
    );
    assert_eq!(spec["nodeSelector"], json!({"l": "2"}));
    assert_eq!(spec["containers"][1]["args"], Value::Null);
    server.stop();
}

/// Proves: R-SMP-04, R-SMP-11.
#[test]
fn lists_of_scalars_that_merge_are_sets() {
    let server = server();
    let client = server.client();
    let path = format!("{MAPS}/m");
    let mut obj = map("m", "1");
    obj["metadata"]["finalizers"] = json!(["example.org/a", "example.org/b"]);
    assert_eq!(client.post(MAPS, &obj).status, 201);
    let change = |metadata: Value| {
        let body = json!({"metadata": metadata});
        patch(&client, &path, STRATEGIC_PATCH, &body)["metadata"]["finalizers"].clone()
    };
    let added = ["example.org/b", "example.org/c", "example.org/c"];
    let all = json!(["example.org/a", "example.org/b", "example.org/c"]);
    assert_eq!(change(json!({"finalizers": added})), all);
    let off = change(json!({"$deleteFromPrimitiveList/finalizers": ["example.org/a", "x"]}));
    assert_eq!(off, json!(["example.org/b", "example.org/c"]));
    let order = ["example.org/c", "example.org/d", "example.org/b"];
    let ordered = change(json!({
        "finalizers": ["example.org/d"], "$setElementOrder/finalizers": order
    }));
    assert_eq!(ordered, json!(order));
    server.stop();
}

/// Proves: R-SMP-05, R-SMP-06, R-SMP-09.
#[test]
fn directives_in_lists_replace_the_list_or_delete_items() {
    let (server, client) = deployed();
    let spec = change(
        &client,
        json!({"containers": [
            {"$patch": "delete", "name": "b"},
            {"name": "a", "env": [{"$patch": "delete", "name": "X"}, {"name": "Z", "value": "3"}]},
            {"name": "c", "image": "c:1"}
        ]}),
    );
    let want = json!([
        {"name": "a", "image": "a:1",
            "env": [{"name": "Z", "value": "3"}, {"name": "Y", "value": "2"}]},
        {"name": "c", "image": "c:1"}
    ]);
    assert_eq!(members(&spec["containers"], &["name", "image", "env"]), want);
    let spec = change(
        &client,
        json!({"containers": [
            {"name": "n", "image": "n:1"}, {"$patch": "replace"}, {"name": "a", "image": "a:9"}
        ]}),
    );
    let want = json!([{"name": "n", "image": "n:1"}, {"name": "a", "image": "a:9"}]);
    assert_eq!(members(&spec["containers"], &["name", "image", "args", "env"]), want);
    // Directives inside a replaced list have no effect.
    let spec = change(
        &client,
        json!({"containers": [
            {"$patch": "replace"},
            {"name": "a", "image": "a:1", "env": [{"$patch": "delete", "name": "X"}]}
        ]}),
    );
    let want = json!([{"name": "a", "image": "a:1", "env": [{"name": "X"}]}]);
    assert_eq!(members(&spec["containers"], &["name", "image", "env"]), want);
    server.stop();
}

/// Proves: R-SMP-07, R-SMP-08, R-SMP-09, R-SMP-11.
#[test]
fn directives_in_maps_replace_delete_or_keep_members() {
    let (server, client) = deployed();
    let spec = change(&client, json!({"nodeSelector": {"m": "3"}}));
    assert_eq!(spec["nodeSelector"], json!({"k": "1", "l": "2", "m": "3"}));
    let spec = change(&client, json!({"nodeSelector": {"$patch": "replace", "n": "4"}}));
    assert_eq!(spec["nodeSelector"], json!({"n": "4"}));
    let spec = change(&client, json!({"nodeSelector": {"$patch": "delete"}}));
    assert_eq!(spec["nodeSelector"], Value::Null);
    // A replaced map loses its nested fields too.
    let context = json!({"runAsUser": 1, "seLinuxOptions": {"level": "a"}});
    change(&client, json!({"securityContext": context}));
    let spec = change(&client, json!({"securityContext": {"$patch": "replace", "runAsUser": 2}}));
    assert_eq!(spec["securityContext"], json!({"runAsUser": 2}));

    let strategy = |strategy: Value| {
        let body = json!({"spec": {"strategy": strategy}});
        patch(&client, DEPLOYMENT, STRATEGIC_PATCH, &body)["spec"]["strategy"].clone()
    };
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2}});
    assert_eq!(strategy(rolling)["rollingUpdate"]["maxSurge"], 2);
    let kept = strategy(json!({"type": "Recreate", "$retainKeys": ["type"]}));
    assert_eq!(kept, json!({"type": "Recreate"}));
    let spec = change(
        &client,
        json!({
            "containers": [{"name": "b", "image": "b:2"}, {"name": "n", "image": "n:1"}],
            "$setElementOrder/containers": [{"name": "b"}, {"name": "n"}, {"name": "a"}]
        }),
    );
    let want = json!([{"name": "b"}, {"name": "n"}, {"name": "a"}]);
    assert_eq!(members(&spec["containers"], &["name"]), want);
    server.stop();
}

/// Proves: R-SMP-10.
#[test]
fn published_schemas_contain_the_patch_strategies() {
    let server = server();
    let client = server.client();
    let v2 = client.get("/openapi/v2").body;
    let v3 = client.get("/openapi/v3/api/v1").body;
    for schemas in [&v2["definitions"], &v3["components"]["schemas"]] {
        for (kind, field, key) in [
            ("PodSpec", "containers", Some("name")),
            ("PodSpec", "volumes", Some("name")),
            ("PodStatus", "conditions", Some("type")),
            ("ServiceSpec", "ports", Some("port")),
            ("Container", "args", None),
        ] {
            let field = &schemas[format!("io.k8s.api.core.v1.{kind}")]["properties"][field];
            assert_eq!(field["type"], "array", "{kind}: {field}");
            assert_eq!(field["x-kubernetes-patch-merge-key"].as_str(), key, "{kind}: {field}");
            let strategy = field["x-kubernetes-patch-strategy"].as_str();
            let merges = strategy.is_some_and(|words| words.split(',').any(|w| w == "merge"));
            assert_eq!(merges, key.is_some(), "{kind}: {field}");
        }
        let meta = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"];
        assert_eq!(meta["finalizers"]["x-kubernetes-patch-strategy"], "merge");
        assert_eq!(meta["finalizers"]["x-kubernetes-patch-merge-key"], Value::Null);
    }
    server.stop();
}

/// Proves: R-SMP-12.
#[test]
fn conditions_merge_by_type() {
    let server = server();
    let client = server.client();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    assert_eq!(client.post("/api/v1/nodes", &node).status, 201);
    let change = |conditions: Value| {
        let body = json!({"status": {"conditions": conditions}});
        let done = patch(&client, "/api/v1/nodes/n/status", STRATEGIC_PATCH, &body);
        members(&done["status"]["conditions"], &["type", "status", "reason"])
    };
    change(json!([
        {"type": "Ready", "status": "False", "reason": "Starting"},
        {"type": "DiskPressure", "status": "False"}
    ]));
    let now = change(json!([{"type": "Ready", "status": "True"}]));
    let want = json!([
        {"type": "Ready", "status": "True", "reason": "Starting"},
        {"type": "DiskPressure", "status": "False"}
    ]);
    assert_eq!(now, want);
    server.stop();
}

/// Proves: R-SMP-13.
#[test]
fn concurrent_patches_of_different_fields_both_persist() {
    let (server, _) = deployed();
    std::thread::scope(|scope| {
        for who in 0..4 {
            let client = server.client();
            scope.spawn(move || {
                for round in 0..5 {
                    let env = json!([{"name": format!("E{who}"), "value": round.to_string()}]);
                    let containers = json!([{"name": "b", "env": env}]);
                    let label = json!({format!("l{who}"): round.to_string()});
                    let spec = json!({"spec": {"template": {"spec": {"containers": containers}}}});
                    patch(&client, DEPLOYMENT, STRATEGIC_PATCH, &spec);
                    let labels = json!({"metadata": {"labels": label}});
                    patch(&client, DEPLOYMENT, MERGE_PATCH, &labels);
                }
            });
        }
    });
    let now = server.client().get(DEPLOYMENT).body;
    for who in 0..4 {
        assert_eq!(now["metadata"]["labels"][format!("l{who}")], "4", "{now}");
    }
    let containers = now["spec"]["template"]["spec"]["containers"].as_array().expect("containers");
    let env = containers[1]["env"].as_array().expect("variables");
    let mut env: Vec<String> =
        env.iter().map(|one| format!("{}={}", one["name"], one["value"])).collect();
    env.sort();
    assert_eq!(env, (0..4).map(|who| format!("\"E{who}\"=\"4\"")).collect::<Vec<_>>());
    assert_eq!(containers[0]["env"][0], json!({"name": "X", "value": "1"}));
    server.stop();
}
