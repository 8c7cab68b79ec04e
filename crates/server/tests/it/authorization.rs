//! RBAC over HTTP: roles, bindings, and the rights that writing them requires.

use crate::world::{Client, Options, Response, Server, without_accounts};
use keelson_meta::Features;
use keelson_store::Embedded;
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Sends a request as another user than the administrator.
fn call_as(
    client: &Client,
    user: &str,
    method: &str,
    path: &str,
    kind: &str,
    body: Option<&Value>,
) -> Response {
    let headers = format!("Impersonate-User: {user}\r\nContent-Type: {kind}\r\n");
    client.request(method, path, &headers, body)
}

fn get_as(client: &Client, user: &str, path: &str) -> u16 {
    call_as(client, user, "GET", path, "application/json", None).status
}

fn role(name: &str, group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name},
        "rules": [{"apiGroups": [group], "resources": resources, "verbs": verbs}]
    })
}

fn binding(name: &str, role: &str, user: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]
    })
}

/// Creates a role and binds a user to it.
fn grant(client: &Client, user: &str, role: &Value) {
    assert_eq!(client.post(ROLES, role).status, 201);
    let name = role["metadata"]["name"].as_str().expect("a name");
    assert_eq!(client.post(BINDINGS, &binding(name, name, user)).status, 201);
}

#[test]
fn a_binding_applies_from_its_creation_to_its_deletion() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    assert_eq!(client.post(ROLES, &role("r", "", &["configmaps"], &["list"])).status, 201);
    for round in 0..20 {
        assert_eq!(get_as(&client, "bob", CONFIG_MAPS), 403, "round {round}");
        assert_eq!(client.post(BINDINGS, &binding("b", "r", "bob")).status, 201);
        assert_eq!(get_as(&client, "bob", CONFIG_MAPS), 200, "round {round}");
        assert_eq!(get_as(&client, "eve", CONFIG_MAPS), 403, "round {round}");
        assert_eq!(client.delete(&format!("{BINDINGS}/b")).status, 200);
    }
    server.stop();
}

/// As in upstream's `handlers/responsewriters/errors.go`: such an answer repeats what the client
/// sent.
#[test]
fn a_browser_must_not_guess_the_type_of_a_refusal() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let impersonating = "Impersonate-User: bob\r\n";
    for (path, headers) in [(CONFIG_MAPS, ""), ("/metrics", ""), (CONFIG_MAPS, impersonating)] {
        let refused = client.send_as(&format!("GET {path}"), headers, b"");
        let header = refused.header("x-content-type-options");
        assert_eq!((refused.status, header), (403, Some("nosniff")), "{path}");
    }
    let missing = client.get(&format!("{CONFIG_MAPS}/missing"));
    assert_eq!((missing.status, missing.header("x-content-type-options")), (404, None));
    server.stop();
}

/// Proves: R-REF-02.
#[test]
fn writers_of_roles_and_bindings_cannot_escalate() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let verbs = ["create", "update", "patch", "get"];
    let group = "rbac.authorization.k8s.io";
    grant(&client, "bob", &role("writer", group, &["roles", "rolebindings"], &verbs));
    assert_eq!(client.post(ROLES, &role("strong", "", &["secrets"], &["get"])).status, 201);
    let weak = role("weak", group, &["roles"], &["get"]);
    let strong = role("weak", "", &["secrets"], &["get"]);
    let write = |method: &str, path: &str, kind: &str, body: &Value| {
        call_as(&client, "bob", method, path, kind, Some(body))
    };
    let json = "application/json";
    let apply = "application/apply-patch+yaml";
    let named = format!("{ROLES}/weak");
    let force = format!("{named}?fieldManager=m&force=true");
    let refused = |answer: Response| {
        let message = answer.body["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(answer.status, 403, "{message}");
        assert!(message.contains("attempting to grant RBAC permissions not currently held:\n"));
        assert!(message.contains("{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}"));
    };
    for existing in [false, true] {
        if existing {
            assert_eq!(write("POST", ROLES, json, &weak).status, 201);
        } else {
            refused(write("POST", ROLES, json, &strong));
        }
        refused(write("PUT", &named, json, &strong));
        refused(write("PATCH", &force, apply, &strong));
    }
    let merge = "application/merge-patch+json";
    refused(write("PATCH", &named, merge, &json!({"rules": strong["rules"]})));
    let add = json!([{"op": "add", "path": "/rules/-", "value": strong["rules"][0]}]);
    refused(write("PATCH", &named, "application/json-patch+json", &add));
    assert_eq!(write("PUT", &named, json, &weak).status, 200);
    let named = format!("{BINDINGS}/b?fieldManager=m");
    refused(write("POST", BINDINGS, json, &binding("b", "strong", "bob")));
    refused(write("PUT", &named, json, &binding("b", "strong", "bob")));
    refused(write("PATCH", &named, apply, &binding("b", "strong", "bob")));
    assert_eq!(write("POST", BINDINGS, json, &binding("b", "weak", "bob")).status, 201);
    // An update without changes needs no rights, also if an empty list replaces an absent one.
    let mut nobody = binding("nobody", "strong", "eve");
    nobody.as_object_mut().expect("an object").remove("subjects");
    assert_eq!(client.post(BINDINGS, &nobody).status, 201);
    let nobody = format!("{BINDINGS}/nobody");
    assert_eq!(write("PATCH", &nobody, merge, &json!({"subjects": []})).status, 200);
    refused(write("PATCH", &nobody, merge, &json!({"metadata": {"labels": {"a": "b"}}})));
    grant(&client, "bob", &role("binder", group, &["roles"], &["bind", "escalate"]));
    assert_eq!(write("POST", BINDINGS, json, &binding("c", "strong", "bob")).status, 201);
    assert_eq!(write("PUT", &format!("{ROLES}/weak"), json, &strong).status, 200);
    server.stop();
}

#[test]
fn a_put_or_apply_that_creates_requires_create() {
    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    grant(&client, "bob", &role("maps", "", &["configmaps"], &["update", "patch"]));
    grant(&client, "bob", &role("leases", "coordination.k8s.io", &["leases"], &["update"]));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}});
    let applied = format!("{CONFIG_MAPS}/x?fieldManager=m");
    let write = || {
        let kind = "application/apply-patch+yaml";
        let map = call_as(&client, "bob", "PATCH", &applied, kind, Some(&map));
        let lease = call_as(&client, "bob", "PUT", LEASE, "application/json", Some(&lease));
        [map, lease].map(|answer| (answer.status, answer.body["message"].clone()))
    };
    let why = |resource: &str, group: &str| {
        json!(format!(
            "User \"bob\" cannot create resource \"{resource}\" in API group \"{group}\" in the \
             namespace \"default\""
        ))
    };
    let ends_with = |answer: &(u16, Value), why: &Value| {
        let message = answer.1.as_str().unwrap_or_default();
        let why = why.as_str().unwrap();
        assert!(answer.0 == 403 && message.ends_with(why), "{answer:?}");
    };
    let [map, lease] = write();
    ends_with(&map, &why("configmaps", ""));
    ends_with(&lease, &why("leases", "coordination.k8s.io"));
    grant(&client, "bob", &role("creator", "*", &["configmaps", "leases"], &["create"]));
    assert_eq!(write().map(|answer| answer.0), [201, 201]);
    server.stop();
}

#[test]
fn default_roles_are_reconciled_at_start_and_keep_added_rules() {
    let store = Embedded::in_memory();
    let start = || Server::start_plain(without_accounts().store(store.clone()));
    let server = start();
    let client = server.client();
    let gone = format!("{RBAC}/clusterroles/view");
    let less = format!("{RBAC}/clusterroles");
    let less = format!("{less}/system:basic-user");
    assert_eq!(client.delete(&gone).status, 200);
    let own = json!({"apiGroups": ["x"], "resources": ["y"], "verbs": ["get"]});
    let rules = json!({"rules": [own]});
    let merge = "application/merge-patch+json";
    assert_eq!(client.call("PATCH", &less, merge, Some(&rules)).status, 200);
    server.stop();
    let server = start();
    let client = server.client();
    assert_eq!(client.get(&gone).status, 200);
    let role = client.get(&less).body;
    assert_eq!(role["rules"][0], own);
    assert_eq!(role["rules"].as_array().map(Vec::len), Some(4), "{role}");
    assert_eq!(get_as(&client, "bob", "/version"), 200);
    server.stop();
}

#[test]
fn approving_and_signing_require_rights_to_the_signer() {
    const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let pem = rcgen::CertificateParams::default();
    let key = rcgen::KeyPair::generate().expect("a key");
    let pem = pem.serialize_request(&key).and_then(|request| request.pem()).expect("a request");
    use base64::Engine;
    let pem = base64::engine::general_purpose::STANDARD.encode(pem);
    let request = json!({"metadata": {"name": "r"}, "spec": {"request": pem,
        "signerName": "example.com/a", "usages": ["client auth"]}});
    assert_eq!(client.post(REQUESTS, &request).status, 201);
    let rule = |resource: &str, verbs: &[&str]| json!({"apiGroups": ["certificates.k8s.io"], "resources": [resource], "verbs": verbs});
    let role = |signer: &str| {
        let mut signers = rule("signers", &["approve"]);
        signers["resourceNames"] = json!([signer]);
        let write = rule("certificatesigningrequests/approval", &["patch"]);
        let status = rule("certificatesigningrequests/status", &["patch"]);
        json!({"metadata": {"name": "approver"}, "rules": [write, status, signers]})
    };
    let put = |signer: &str| {
        let path = format!("{RBAC}/clusterroles/approver");
        client.call("PUT", &path, "application/json", Some(&role(signer))).status
    };
    assert_eq!(put("example.com/b"), 201);
    let bind = json!({"metadata": {"name": "approver"}, "subjects": [{"kind": "User", "name": "bob"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "approver"}});
    assert_eq!(client.post(&format!("{RBAC}/clusterrolebindings"), &bind).status, 201);
    let write = |part: &str, condition: &str| {
        let body = json!({"status": {"conditions": [
            {"type": condition, "status": "True", "reason": "r", "message": "m"}]}});
        let path = format!("{REQUESTS}/r/{part}");
        let answer =
            call_as(&client, "bob", "PATCH", &path, "application/merge-patch+json", Some(&body));
        (answer.status, answer.body["message"].as_str().unwrap_or_default().to_owned())
    };
    let refused = |verb: &str| {
        let why = "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: user not";
        (403, format!("{why} permitted to {verb} requests with signerName \"example.com/a\""))
    };
    assert_eq!(write("approval", "Approved"), refused("approve"));
    assert_eq!(put("example.com/*"), 200);
    assert_eq!(write("approval", "Approved").0, 200);
    assert_eq!(write("status", "Failed"), refused("sign"));
    server.stop();
}

#[test]
fn writing_a_trust_bundle_requires_attest_on_its_signer() {
    const BUNDLES: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
    const PATCH: &str = "application/merge-patch+json";
    let mut options = without_accounts();
    options.features = Features::parse(["ClusterTrustBundle=true"]).expect("gates");
    options.runtime_config.push(("certificates.k8s.io/v1beta1".to_owned(), true));
    let server = Server::start_plain(options);
    let client = server.client();
    let mut authority = rcgen::CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key");
    let pem = authority.self_signed(&key).expect("an authority").pem();
    let bundle = |name: &str, signer: &str| json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": pem}});
    let rule = |resource: &str, names: &[&str]| {
        json!({"apiGroups": ["certificates.k8s.io"],
        "resources": [resource], "resourceNames": names, "verbs": ["*"]})
    };
    for (user, signer) in
        [("no", "example.com/other"), ("one", "example.com/a"), ("domain", "example.com/*")]
    {
        let rules = [rule("clustertrustbundles", &[]), rule("signers", &[signer])];
        let role = json!({"metadata": {"name": user}, "rules": rules});
        assert_eq!(client.post(&format!("{RBAC}/clusterroles"), &role).status, 201);
        let bind = json!({"metadata": {"name": user}, "subjects": [{"kind": "User", "name": user}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}});
        assert_eq!(client.post(&format!("{RBAC}/clusterrolebindings"), &bind).status, 201);
    }
    let create = |user: &str, name: &str, signer: &str| {
        let body = bundle(name, signer);
        let answer = call_as(&client, user, "POST", BUNDLES, "application/json", Some(&body));
        (answer.status, answer.body["message"].as_str().unwrap_or_default().to_owned())
    };
    let refused = |name: &str, signer: &str| {
        let why = "is forbidden: user not permitted to attest for signerName";
        (403, format!("clustertrustbundles.certificates.k8s.io {name:?} {why} {signer:?}"))
    };
    assert_eq!(create("no", "plain", "").0, 201, "of no signer");
    let foreign = refused("example.com:a:no", "example.com/a");
    assert_eq!(create("no", "example.com:a:no", "example.com/a"), foreign);
    assert_eq!(create("one", "example.com:a:x", "example.com/a").0, 201);
    assert_eq!(
        create("one", "example.com:b:y", "example.com/b"),
        refused("example.com:b:y", "example.com/b")
    );
    assert_eq!(create("domain", "example.com:b:x", "example.com/b").0, 201);
    let patch = |user: &str, metadata: Value| {
        let body = json!({"metadata": metadata});
        call_as(&client, user, "PATCH", &format!("{BUNDLES}/example.com:a:x"), PATCH, Some(&body))
            .status
    };
    assert_eq!(patch("no", json!({"labels": {"a": "b"}})), 403);
    assert_eq!(
        patch("no", json!({"finalizers": ["example.com/a"]})),
        200,
        "as a garbage collector would"
    );
    assert_eq!(patch("one", json!({"labels": {"a": "b"}})), 200);
    server.stop();
}

#[test]
fn a_stream_that_starts_with_get_needs_the_right_to_create() {
    let server = Server::start_plain(Options::default());
    let client = server.client();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let subresources = json!(["pods/exec", "pods/attach", "pods/portforward"]);
    let role = json!({"metadata": {"name": "reader"}, "rules": [
        {"apiGroups": [""], "resources": subresources, "verbs": ["get"]}]});
    assert_eq!(client.post(&format!("{rbac}/clusterroles"), &role).status, 201);
    let binding = json!({"metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}]});
    assert_eq!(client.post(&format!("{rbac}/clusterrolebindings"), &binding).status, 201);
    for subresource in ["exec", "attach", "portforward"] {
        let line = format!("GET /api/v1/namespaces/default/pods/p/{subresource}");
        let answer = client.send_bytes(&line, "Impersonate-User: bob\r\n", b"");
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert_eq!(answer.status, 403, "{subresource}: {message}");
        // The log of the same pod would be a get.
        assert!(message.contains("pods \"p\" is forbidden"), "{message}");
    }
    server.stop();
}
