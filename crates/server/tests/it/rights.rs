//! Rights that requests need beyond their own verb, as in kube-apiserver 1.36.

use crate::world::{Client, Response, Server, without_accounts};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// A service account of a driver, with the node of its Pod.
const DRIVER_POD: &str = "Impersonate-User: system:serviceaccount:default:driver\r\n\
    Impersonate-Extra-authentication.kubernetes.io%2fnode-name: node-1\r\n";

/// Sends a request as the user of some headers.
fn call_as(client: &Client, user: &str, request: (&str, &str, &str), body: &Value) -> Response {
    let (method, path, media) = request;
    let headers = format!("{user}Content-Type: {media}\r\n");
    client.request(method, path, &headers, (!body.is_null()).then_some(body))
}

/// Gives a user the rules of a new ClusterRole.
fn grant(client: &Client, name: &str, user: &str, rules: &Value) {
    let role = json!({"metadata": {"name": name}, "rules": rules});
    assert_eq!(client.post(&format!("{RBAC}/clusterroles"), &role).status, 201);
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]});
    assert_eq!(client.post(&format!("{RBAC}/clusterrolebindings"), &binding).status, 201);
}

#[test]
fn a_right_to_a_name_does_not_cover_a_deletecollection_that_selects_it() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    assert_eq!(client.post(MAPS, &json!({"metadata": {"name": "a"}})).status, 201);
    let verbs = ["get", "list", "watch", "delete", "deletecollection"];
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"],
        "verbs": verbs}]);
    grant(&client, "named", "bob", &rules);
    let code = |method: &str, query: &str| {
        let path = format!("{MAPS}?fieldSelector=metadata.name%3Da{query}");
        let user = "Impersonate-User: bob\r\n";
        call_as(&client, user, (method, &path, JSON), &Value::Null).status
    };
    assert_eq!(code("GET", ""), 200);
    assert_eq!(code("GET", "&watch=1&timeoutSeconds=-1"), 200);
    assert_eq!(code("DELETE", ""), 403);
    assert_eq!(client.get(&format!("{MAPS}/a")).status, 200);
    server.stop();
}

#[test]
fn nothing_is_served_at_a_path_with_an_empty_group() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    for path in [
        "//api/v1/pods",
        "///api/v1/pods",
        "//apis/apps/v1/deployments",
        "/apis//v1/pods",
        "/apis//v1/namespaces/default/pods",
        "/apis//v1",
        "/apis//v1/",
    ] {
        let answer = client.get(path);
        assert_eq!((answer.status, answer.body), (404, json!("404 page not found\n")), "{path}");
    }
    assert_eq!(client.get("/api/v1/namespaces//pods").status, 200);
    server.stop();
}

/// A server with a claim, and a user for each of some rights to the status of claims.
fn with_claim() -> Server {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "class"}}]}}});
    assert_eq!(client.post(CLAIMS, &claim).status, 201);
    let rule = |resource: &str, verbs: &[&str]| json!({"apiGroups": ["resource.k8s.io"], "resources": [resource], "verbs": verbs});
    let status = rule("resourceclaims/status", &["update", "patch"]);
    let driver = "system:serviceaccount:default:driver";
    for (name, user, right) in [
        ("none", "alice", json!(null)),
        ("binding", "binder", rule("resourceclaims/binding", &["patch"])),
        ("arbitrary", "any-node", rule("resourceclaims/driver", &["arbitrary-node:patch"])),
        ("associated", driver, rule("resourceclaims/driver", &["associated-node:patch"])),
    ] {
        let rules: Vec<Value> =
            [status.clone(), right].into_iter().filter(|rule| !rule.is_null()).collect();
        grant(&client, name, user, &json!(rules));
    }
    server
}

/// Patches the status of the claim in a dry run; returns the code and the message.
fn patch_status(client: &Client, user: &str, status: &Value) -> (u16, String) {
    let path = format!("{CLAIMS}/c/status?dryRun=All");
    let answer = call_as(client, user, ("PATCH", &path, MERGE), &json!({"status": status}));
    (answer.status, answer.body["message"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn the_status_of_a_claim_requires_rights_to_its_parts() {
    let server = with_claim();
    let client = server.client();
    let user = |name: &str| format!("Impersonate-User: {name}\r\n");
    let allocated = |node: &str| {
        let terms = json!([{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [node]}]}]);
        json!({"allocation": {"nodeSelector": {"nodeSelectorTerms": terms}, "devices": {"results": [
            {"request": "r", "driver": "d.x.io", "pool": "p", "device": "v"}]}}})
    };
    let bound = "ResourceClaim.resource.k8s.io \"c\" is invalid: status.allocation: Forbidden: changing \
        status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", \
        verb=\"patch\" permission: resourceclaims.resource.k8s.io is forbidden: User \"alice\" cannot patch \
        resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope";
    let node = allocated("node-1");
    assert_eq!(patch_status(&client, &user("alice"), &node), (422, bound.to_owned()));
    assert_eq!(patch_status(&client, &user("any-node"), &node).0, 422);
    assert_eq!(patch_status(&client, &user("binder"), &node).0, 200);
    let path = format!("{CLAIMS}/c/status");
    let body = json!({"status": node});
    assert_eq!(call_as(&client, "", ("PATCH", &path, MERGE), &body).status, 200);

    let devices = json!({"devices": [
        {"driver": "d.x.io", "pool": "p", "device": "v", "data": {"a": 1}}]});
    let refused = |who: &str, verbs: &str, verb: &str| {
        format!(
            "ResourceClaim.resource.k8s.io \"c\" is invalid: status.devices: Forbidden: changing \
             status.devices requires resource=\"resourceclaims/driver\", verb=\"[{verbs}]\" permission: \
             resourceclaims.resource.k8s.io \"d.x.io\" is forbidden: User \"{who}\" cannot {verb} resource \
             \"resourceclaims/driver\" in API group \"resource.k8s.io\" in the namespace \"default\""
        )
    };
    let arbitrary = "arbitrary-node:patch";
    let want = (422, refused("binder", arbitrary, arbitrary));
    assert_eq!(patch_status(&client, &user("binder"), &devices), want);
    assert_eq!(patch_status(&client, &user("any-node"), &devices).0, 200);
    assert_eq!(patch_status(&client, DRIVER_POD, &devices).0, 200);
    let driver = "system:serviceaccount:default:driver";
    let other_node = DRIVER_POD.replace("node-1", "node-2");
    let want = (422, refused(driver, arbitrary, arbitrary));
    assert_eq!(patch_status(&client, &other_node, &devices), want);
    assert_eq!(patch_status(&client, &user(driver), &devices), want);
    // A write that changes neither needs no further right.
    assert_eq!(patch_status(&client, &user("alice"), &json!({})).0, 200);
    server.stop();
}
