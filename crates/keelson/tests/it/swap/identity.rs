//! Scenarios of identities: CertificateSigningRequests, tokens of service accounts.

use super::cluster::items;
use super::scene::{POLL_TIMEOUT, Scene, conditions, facts, has, name};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_testkit::api::Api;
use keelson_testkit::poll;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const RBAC: &str = "rbac.authorization.k8s.io";
const TOKEN: (&str, &str) = ("abcdef", "0123456789abcdef");
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// Returns a certificate signing request and its key, both in PEM.
fn request(user: &str, group: &str) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    (request_of(&key, user, group), key.serialize_pem())
}

/// Returns a certificate signing request for a key, in PEM.
pub fn request_of(key: &KeyPair, user: &str, group: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.distinguished_name.push(DnType::CommonName, user);
    let request = params.serialize_request(key).expect("a request");
    request.pem().expect("PEM")
}

fn signing_request(pem: &str, signer: &str, usages: &[&str]) -> Value {
    json!({"metadata": {"generateName": "csr-"}, "spec": {
        "request": STANDARD.encode(pem), "signerName": signer, "usages": usages}})
}

/// Waits for the certificate of a CertificateSigningRequest.
fn certificate(api: &Api, made: &Value) -> Vec<u8> {
    let path = format!("{REQUESTS}/{}", made["metadata"]["name"].as_str().unwrap_or_default());
    let found = poll(POLL_TIMEOUT, || {
        let got = api.get(&path).ok()?;
        got.body["status"]["certificate"].as_str().map(str::to_owned)
    });
    let text = found.unwrap_or_else(|| panic!("no certificate: {:?}", api.get(&path)));
    STANDARD.decode(text).expect("base64")
}

/// A node that gets its certificate as kubeadm's nodes do: by a bootstrap token and a signing
/// request that kube-controller-manager approves and signs.
pub fn bootstrap(admin: &Api, node: &str) -> Api {
    let data = json!({"token-id": TOKEN.0, "token-secret": TOKEN.1,
        "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true"});
    let secret = json!({"metadata": {"name": format!("bootstrap-token-{}", TOKEN.0)},
        "type": "bootstrap.kubernetes.io/token", "stringData": data});
    let made = admin.post("/api/v1/namespaces/kube-system/secrets", &secret).expect("an answer");
    assert_eq!(made.code, 201, "{made:?}");
    for (name, role) in [
        ("bootstrap", "system:node-bootstrapper"),
        ("approve", "system:certificates.k8s.io:certificatesigningrequests:nodeclient"),
    ] {
        let binding = json!({"metadata": {"name": name},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "system:bootstrappers"}]});
        let made = admin.post(BINDINGS, &binding).expect("an answer");
        assert_eq!(made.code, 201, "{made:?}");
    }
    let token = format!("{}.{}", TOKEN.0, TOKEN.1);
    sign_node(&admin.with_token(Some(&token)).expect("a client"), node)
}

/// Returns a client of a node, whose certificate kube-controller-manager approves and signs.
pub fn sign_node(bootstrapper: &Api, node: &str) -> Api {
    let (pem, key) = request(&format!("system:node:{node}"), "system:nodes");
    let usages = ["digital signature", "client auth"];
    let asked = signing_request(&pem, KUBELET_CLIENT, &usages);
    // The server uses the token and the roles once its caches have them.
    let made = poll(POLL_TIMEOUT, || {
        bootstrapper.post(REQUESTS, &asked).ok().filter(|got| got.code == 201)
    })
    .unwrap_or_else(|| panic!("{:?}", bootstrapper.post(REQUESTS, &asked)));
    let chain = certificate(bootstrapper, &made.body);
    bootstrapper.with_certificate(&chain, key.as_bytes()).expect("a certificate of a node")
}

/// CertificateSigningRequests of a node, and those that need an approval.
pub fn certificates(scene: &Scene) {
    let list = scene.get(REQUESTS).body;
    let is_of_node = |request: &&Value| request["spec"]["signerName"] == KUBELET_CLIENT;
    for of_node in items(&list).filter(is_of_node) {
        let pointers = ["/spec/username", "/spec/groups", "/spec/signerName"];
        scene.record(format!("{} {}", facts(of_node, &pointers), conditions(of_node)));
    }
    for (verdict, reason) in [("Approved", "Fine"), ("Denied", "NotFine")] {
        let (pem, key) = request("jane", "devs");
        let asked = signing_request(&pem, CLIENT, &["client auth"]);
        let made = decided(scene, asked, verdict, reason);
        if verdict == "Denied" {
            let path = format!("{REQUESTS}/{}", name(&made));
            let denied = scene.wait_until(&path, |got| has(got, "Denied", "True"));
            scene.record(format!("{} {}", conditions(&denied), denied["status"]["certificate"]));
            continue;
        }
        let chain = certificate(&scene.api, &made);
        let jane = scene.api.with_certificate(&chain, key.as_bytes()).expect("a certificate");
        scene.record(who(&jane));
    }
}

/// Creates a CertificateSigningRequest, and approves or denies it.
fn decided(scene: &Scene, asked: Value, verdict: &str, reason: &str) -> Value {
    let mut made = scene.create(REQUESTS, asked);
    made["status"] = json!({"conditions": [
        {"type": verdict, "status": "True", "reason": reason, "message": "so it is"}]});
    let path = format!("{REQUESTS}/{}/approval", name(&made));
    let put = scene.api.put(&path, &made).expect("an answer");
    assert_eq!(put.code, 200, "{put:?}");
    made
}

/// Creates and approves a CertificateSigningRequest for a client. Returns its path.
pub fn approved(scene: &Scene, usages: &[&str]) -> String {
    let (pem, _) = request("jane", "devs");
    let made = decided(scene, signing_request(&pem, CLIENT, usages), "Approved", "Fine");
    format!("{REQUESTS}/{}", name(&made))
}

/// Formats the user that the server sees for a client.
fn who(api: &Api) -> String {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = api.post(path, &review).expect("an answer");
    let user = &answer.body["status"]["userInfo"];
    let extra = user["extra"].as_object().map(|extra| extra.keys().cloned().collect::<Vec<_>>());
    format!("{} {} {} {extra:?}", answer.code, user["username"], user["groups"])
}

/// Service account tokens of a Pod: user, permissions and expiry.
pub fn tokens(scene: &Scene) {
    scene.create("v1/serviceaccounts", json!({"metadata": {"name": "robot"}}));
    let spec = json!({"serviceAccountName": "robot", "terminationGracePeriodSeconds": 1,
        "nodeName": "node-a", "containers": [{"name": "main", "image": "robot:1"}]});
    let pod = scene.create("v1/pods", json!({"metadata": {"name": "robot"}, "spec": spec}));
    let running = scene.wait_until("v1/pods/robot", |pod| pod["status"]["phase"] == "Running");
    let volumes = &running["spec"]["volumes"][0]["projected"]["sources"];
    scene.record(format!("projected: {volumes}"));
    let bound =
        json!({"apiVersion": "v1", "kind": "Pod", "name": "robot", "uid": pod["metadata"]["uid"]});
    let asked = json!({"spec": {"boundObjectRef": bound, "expirationSeconds": 3607}});
    let given = scene.create("v1/serviceaccounts/robot/token", asked);
    let token = given["status"]["token"].as_str().expect("a token");
    let robot = scene.api.with_token(Some(token)).expect("a client");
    scene.record(who(&robot));
    let pods = scene.path("v1/pods");
    let refused = robot.get(&pods).expect("an answer");
    scene.record(format!("{} {}", refused.code, refused.body["message"]));
    let role = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"});
    let subject = json!([{"kind": "ServiceAccount", "name": "robot", "namespace": "token"}]);
    let binding = json!({"metadata": {"name": "robot"}, "roleRef": role, "subjects": subject});
    scene.create("rbac.authorization.k8s.io/v1/rolebindings", binding);
    let codes = |wanted: u16| {
        let met = poll(POLL_TIMEOUT, || robot.get(&pods).ok().filter(|got| got.code == wanted));
        assert!(met.is_some(), "{:?}", robot.get(&pods));
        scene.record(format!("lists pods: {wanted}"));
    };
    codes(200);
    let annotations = json!({"kubernetes.io/service-account.name": "robot"});
    scene.create(
        "v1/secrets",
        json!({"metadata": {"name": "old", "annotations": annotations},
        "type": "kubernetes.io/service-account-token"}),
    );
    let old = scene.wait_until("v1/secrets/old", |secret| secret["data"]["token"].is_string());
    let keys = old["data"].as_object().map(|data| data.keys().cloned().collect::<Vec<_>>());
    let text = old["data"]["token"].as_str().and_then(|text| STANDARD.decode(text).ok());
    let text = String::from_utf8(text.unwrap_or_default()).expect("a token");
    scene
        .record(format!("{keys:?} {}", who(&scene.api.with_token(Some(&text)).expect("a client"))));
    scene.delete("v1/pods/robot", "Background");
    scene.wait_deleted("v1/pods/robot");
    codes(401);
}
