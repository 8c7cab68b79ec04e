//! The node authorizer and NodeRestriction: nodes read objects of their Pods and change their own
//! objects.

use crate::world::{Client, Response, Server, without_accounts};
use serde_json::{Value, json};

fn call(client: &Client, method: &str, path: &str, body: Option<&Value>) -> Response {
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let headers = format!(
        "Impersonate-User: system:node:n\r\nImpersonate-Group: system:nodes\r\n\
         Content-Type: {kind}\r\n"
    );
    client.request(method, path, &headers, body)
}

/// Checks the status and the end of the message of a request by the node `n`.
fn check(client: &Client, method: &str, path: &str, body: &Value, status: u16, end: &str) {
    let answer = call(client, method, path, Some(body).filter(|body| !body.is_null()));
    let message = answer.body["message"].as_str().unwrap_or_default();
    assert_eq!(answer.status, status, "{method} {path}: {message}");
    assert!(message.ends_with(end), "{method} {path}: {message}");
}

fn pod(name: &str, node: &str, secret: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"nodeName": node,
        "containers": [{"name": "c", "image": "i", "envFrom": [{"secretRef": {"name": secret}}]}]}})
}

const NS: &str = "/api/v1/namespaces/default";
const UNRELATED: &str = "no relationship found between node 'n' and this object";

#[test]
fn a_node_reads_only_objects_that_its_pods_refer_to() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let pods = format!("{NS}/pods");
    for name in ["mine", "theirs"] {
        let secret = json!({"metadata": {"name": name}});
        assert_eq!(client.post(&format!("{NS}/secrets"), &secret).status, 201);
    }
    let secret = |name: &str| format!("{NS}/secrets/{name}");
    check(&client, "GET", &secret("mine"), &Value::Null, 403, UNRELATED);
    assert_eq!(client.post(&pods, &pod("mine", "n", "mine")).status, 201);
    assert_eq!(client.post(&pods, &pod("theirs", "m", "theirs")).status, 201);
    check(&client, "GET", &secret("mine"), &Value::Null, 200, "");
    let only = format!("{NS}/secrets?fieldSelector=metadata.name%3Dmine&watch=1&timeoutSeconds=1");
    check(&client, "GET", &only, &Value::Null, 200, "");
    check(&client, "GET", &secret("theirs"), &Value::Null, 403, UNRELATED);
    check(&client, "GET", &format!("{NS}/secrets"), &Value::Null, 403, "No Object name found");
    let account = format!("{NS}/serviceaccounts/robot");
    let metadata = json!({"metadata": {"name": "robot"}});
    assert_eq!(client.post(&format!("{NS}/serviceaccounts"), &metadata).status, 201);
    check(&client, "GET", &account, &Value::Null, 403, UNRELATED);
    let mut of_robot = pod("robot", "n", "mine");
    of_robot["spec"]["serviceAccountName"] = "robot".into();
    assert_eq!(client.post(&pods, &of_robot).status, 201);
    check(&client, "GET", &account, &Value::Null, 200, "");
    let end = "can only create tokens for individual service accounts";
    check(&client, "GET", &format!("{NS}/serviceaccounts"), &Value::Null, 403, end);
    assert_eq!(client.delete(&format!("{pods}/robot?gracePeriodSeconds=0")).status, 200);
    let end = "can only read resources of this type";
    check(&client, "DELETE", &secret("mine"), &Value::Null, 403, end);
    let own = format!("{pods}?fieldSelector=spec.nodeName%3Dn");
    check(&client, "GET", &own, &Value::Null, 200, "");
    let end = "can only list/watch pods with spec.nodeName field selector";
    check(&client, "GET", &own.replace("%3Dn", "%3Dm"), &Value::Null, 403, end);
    check(&client, "GET", &own.replace("%3Dn", "!%3Dn"), &Value::Null, 403, end);
    check(&client, "GET", &format!("{pods}/theirs"), &Value::Null, 403, UNRELATED);
    let mine = format!("{pods}/mine?gracePeriodSeconds=0");
    assert_eq!(client.delete(&mine).status, 200);
    check(&client, "GET", &secret("mine"), &Value::Null, 403, UNRELATED);
    server.stop();
}

#[test]
fn the_pod_ip_of_a_status_comes_first_in_its_pod_ips() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let pods = format!("{NS}/pods");
    assert_eq!(client.post(&pods, &pod("p", "n", "s")).status, 201);
    let check = |status: Value, want: Value| {
        let path = format!("{pods}/p/status");
        let answer = call(&client, "PATCH", &path, Some(&json!({"status": status})));
        assert_eq!(answer.status, 200, "{answer:?}");
        let got = &answer.body["status"];
        assert_eq!(json!([got["podIP"], got["podIPs"]]), want, "{status}");
    };
    check(json!({"podIP": "10.9.9.9"}), json!(["10.9.9.9", [{"ip": "10.9.9.9"}]]));
    check(json!({"podIP": "10.9.9.8"}), json!(["10.9.9.8", [{"ip": "10.9.9.8"}]]));
    let both = json!([{"ip": "10.9.9.7"}, {"ip": "fd00::7"}]);
    check(json!({"podIP": null, "podIPs": both.clone()}), json!(["10.9.9.7", both]));
    server.stop();
}

#[test]
fn proxy_names_may_have_a_scheme_and_port() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let service =
        json!({"metadata": {"name": "svc"}, "spec": {"ports": [{"port": 80, "name": "w"}]}});
    assert_eq!(client.post(&format!("{NS}/services"), &service).status, 201);
    let check = |path: &str, status: u16, message: &str| {
        let answer = client.get(&format!("{path}/proxy/"));
        assert_eq!((answer.status, answer.body["message"].as_str()), (status, Some(message)));
    };
    let services = format!("{NS}/services");
    for id in ["p", "p:80", "https:p:x", ":p:80"] {
        check(&format!("{services}/{id}"), 404, "services \"p\" not found");
    }
    for id in ["ftp:svc:80", ":svc", "a:b:c:d", "::"] {
        let message = format!("invalid service request {id:?}");
        check(&format!("{services}/{id}"), 400, &message);
    }
    let message = "no service port 81 found for service \"svc\"";
    check(&format!("{services}/svc:81"), 503, message);
    check("/api/v1/nodes/https:nn:10250", 404, "nodes \"nn\" not found");
    check("/api/v1/nodes/a:b:c", 400, "invalid node request \"a:b:c\"");
    check(&format!("{NS}/pods/pp:80"), 404, "pods \"pp\" not found");
    check(&format!("{NS}/pods/a:b:c"), 400, "invalid pod request \"a:b:c\"");
    server.stop();
}

/// Recorded from kube-apiserver 1.36.3.
#[test]
fn the_missing_node_of_a_pod_is_named_as_a_pod() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    assert_eq!(client.post(&format!("{NS}/pods"), &pod("p", "nowhere", "s")).status, 201);
    for path in ["log", "exec?command=x", "attach", "portforward"] {
        let answer = client.get(&format!("{NS}/pods/p/{path}"));
        let message = answer.body["message"].as_str();
        assert_eq!((answer.status, message), (404, Some("pods \"nowhere\" not found")), "{path}");
        assert_eq!(answer.body["details"], json!({"name": "nowhere", "kind": "pods"}), "{path}");
    }
    server.stop();
}

#[test]
fn a_node_without_a_name_cannot_create_objects_or_reviews() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let headers = "Impersonate-User: system:node:\r\nImpersonate-Group: system:nodes\r\n\
                   Content-Type: application/json\r\n";
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = client.request("POST", path, headers, Some(&json!({})));
    let message = "selfsubjectreviews.authentication.k8s.io \"Unknown\" is forbidden: could not \
                   determine node from user \"system:node:\"";
    assert_eq!((answer.status, answer.body["message"].as_str()), (403, Some(message)));
    server.stop();
}

#[test]
fn a_node_changes_only_its_own_objects() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let node =
        |name: &str, label: &str| json!({"metadata": {"name": name, "labels": {label: "x"}}});
    let nodes = "/api/v1/nodes";
    let pods = format!("{NS}/pods");
    let end = "node \"n\" is not allowed to modify node \"m\"";
    check(&client, "POST", nodes, &node("m", "a"), 403, end);
    let label = "node-restriction.kubernetes.io/a";
    let end = "is not allowed to set the following labels: node-restriction.kubernetes.io/a";
    check(&client, "POST", nodes, &node("n", label), 403, end);
    check(&client, "POST", nodes, &node("n", "kubernetes.io/arch"), 201, "");
    let own = format!("{nodes}/n");
    let end = "is not allowed to modify labels: node-role.kubernetes.io/master";
    check(&client, "PATCH", &own, &node("n", "node-role.kubernetes.io/master"), 403, end);
    let taints = json!({"spec": {"taints": null}});
    check(&client, "PATCH", &own, &taints, 403, "is not allowed to modify taints");
    let owners = json!({"metadata": {"ownerReferences":
        [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b"}]}});
    check(&client, "PATCH", &own, &owners, 403, "is not allowed to modify ownerReferences");
    check(&client, "PATCH", &own, &json!({"spec": {"unschedulable": true}}), 200, "");
    let end = "only its own Node object";
    check(&client, "GET", &format!("{nodes}/m"), &Value::Null, 403, end);
    let end = "node \"n\" can only create mirror pods";
    check(&client, "POST", &pods, &pod("p", "n", "s"), 403, end);
    let mut mirror = pod("p", "n", "s");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    let end = "can only create pods with an owner reference set to itself";
    check(&client, "POST", &pods, &mirror, 403, end);
    let uid = client.get(&own).body["metadata"]["uid"].clone();
    mirror["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid, "controller": true}]);
    check(&client, "POST", &pods, &mirror, 403, "can not create pods that reference secrets");
    mirror["spec"]["containers"][0]["envFrom"] = json!([]);
    check(&client, "POST", &pods, &mirror, 201, "");
    assert_eq!(client.post(&pods, &pod("theirs", "m", "s")).status, 201);
    let status = json!({"status": {"phase": "Running"}});
    let end = "can only update pod status for pods with spec.nodeName set to itself";
    check(&client, "PATCH", &format!("{pods}/theirs/status"), &status, 403, end);
    check(&client, "PATCH", &format!("{pods}/p/status"), &status, 200, "");
    let end = "can only delete pods with spec.nodeName set to itself";
    check(&client, "DELETE", &format!("{pods}/theirs"), &Value::Null, 403, end);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": "theirs"}});
    let end = "can only evict pods with spec.nodeName set to itself";
    check(&client, "POST", &format!("{pods}/theirs/eviction"), &eviction, 403, end);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let lease = |name: &str| json!({"metadata": {"name": name}});
    let end = "can only access node lease with the same name as the requesting node";
    check(&client, "POST", leases, &lease("m"), 403, end);
    check(&client, "POST", leases, &lease("n"), 201, "");
    server.stop();
}
