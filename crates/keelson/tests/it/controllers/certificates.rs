//! CertificateSigningRequests: approved, signed by the server's CA, rejected.

use super::{MERGE, create, with_controllers};
use crate::http::Client;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Returns a certificate signing request in PEM.
fn pem(key: &KeyPair, common_name: &str, organization: &str, names: &[&str]) -> String {
    let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut params = CertificateParams::new(names).expect("names");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.serialize_request(key).expect("a request").pem().expect("PEM")
}

fn csr(name: &str, request: &str, signer: &str, usages: &[&str], seconds: Option<i64>) -> Value {
    let mut spec = json!({"request": STANDARD.encode(request), "usages": usages,
        "signerName": format!("kubernetes.io/{signer}")});
    if let Some(seconds) = seconds {
        spec["expirationSeconds"] = seconds.into();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn approve(client: &Client, name: &str) {
    let condition = json!({"type": "Approved", "status": "True", "reason": "Test", "message": "m"});
    let patch = json!({"status": {"conditions": [condition]}});
    let approved =
        client.call("PATCH", &format!("{REQUESTS}/{name}/approval"), MERGE, Some(&patch));
    assert_eq!(approved.status, 200, "{approved:?}");
}

/// Waits for the certificate of a CertificateSigningRequest. Returns it in DER.
fn certificate(client: &Client, name: &str) -> Vec<u8> {
    let signed = client
        .poll(&format!("{REQUESTS}/{name}"), |got| got.body["status"]["certificate"].is_string());
    let text = signed.body["status"]["certificate"].as_str().expect("text").to_owned();
    let pem = STANDARD.decode(text).expect("base64");
    keelson_auth::CertificateAuthority::der(&pem).expect("PEM")
}

#[test]
fn an_approved_request_is_signed_with_the_requested_usages() {
    let server = with_controllers();
    let client = server.client();
    let key = KeyPair::generate().expect("a key");
    let request = pem(&key, "jane", "devs", &["jane.example.com"]);
    let usages = ["client auth", "digital signature"];
    let asked = csr("jane", &request, "kube-apiserver-client", &usages, Some(3600));
    create(&client, REQUESTS, &asked);
    super::settle(&client);
    let waiting = client.get(&format!("{REQUESTS}/jane")).body;
    assert_eq!(waiting["status"].get("certificate"), None, "nobody approved it");
    approve(&client, "jane");
    let der = certificate(&client, "jane");
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).expect("a certificate");
    assert_eq!(parsed.subject().to_string(), "O=devs, CN=jane");
    assert_eq!(parsed.public_key().raw, rcgen::PublicKeyData::subject_public_key_info(&key));
    let purposes = parsed.extended_key_usage().expect("readable").expect("there").value;
    assert!(purposes.client_auth && !purposes.server_auth);
    let usage = parsed.key_usage().expect("readable").expect("there").value;
    assert!(usage.digital_signature() && !usage.key_cert_sign());
    assert!(!parsed.is_ca());
    let names = parsed.subject_alternative_name().expect("readable").expect("there");
    assert_eq!(names.value.general_names.len(), 1);
    let validity = parsed.validity();
    let seconds = validity.not_after.timestamp() - validity.not_before.timestamp();
    assert_eq!(seconds, 3600 + 300);
    let ca = client.get("/api/v1/namespaces/default/configmaps/kube-root-ca.crt").body;
    let ca = ca["data"]["ca.crt"].as_str().expect("text").as_bytes().to_vec();
    let ca = keelson_auth::CertificateAuthority::der(&ca).expect("PEM");
    assert!(keelson_auth::x509::is_signed_by(&der, &ca));
    server.stop();
}

#[test]
fn a_request_that_the_signer_rejects_fails_with_a_reason() {
    let server = with_controllers();
    let client = server.client();
    let key = KeyPair::generate().expect("a key");
    let request = pem(&key, "jane", "devs", &[]);
    let check = |name: &str, signer: &str, usages: &[&str], why: &str| {
        create(&client, REQUESTS, &csr(name, &request, signer, usages, None));
        approve(&client, name);
        let failed = client.poll(&format!("{REQUESTS}/{name}"), |got| {
            got.body["status"]["conditions"].as_array().is_some_and(|all| all.len() == 2)
        });
        let condition = &failed.body["status"]["conditions"][1];
        let facts = ["type", "status", "reason", "message"].map(|name| condition[name].clone());
        let want = ["Failed", "True", "SignerValidationFailure", why].map(Value::from);
        assert_eq!(facts, want);
    };
    let serving = ["server auth", "digital signature"];
    let why = "invalid usage for client certificate: server auth";
    check("client", "kube-apiserver-client", &serving, why);
    let why = "subject organization is not system:nodes";
    check("serving", "kubelet-serving", &serving, why);
    check("kubelet", "kube-apiserver-client-kubelet", &["client auth"], why);
    server.stop();
}

#[test]
fn requests_of_authorized_kubelets_are_approved() {
    let server = with_controllers();
    let client = server.client();
    let key = KeyPair::generate().expect("a key");
    let request = pem(&key, "system:node:n1", "system:nodes", &[]);
    let usages = ["client auth", "digital signature"];
    let signer = "kube-apiserver-client-kubelet";
    // The requester is an administrator, so it is approved.
    create(&client, REQUESTS, &csr("n1", &request, signer, &usages, None));
    certificate(&client, "n1");
    let condition = &client.get(&format!("{REQUESTS}/n1")).body["status"]["conditions"][0];
    let message = "Auto approving kubelet client certificate after SubjectAccessReview.";
    assert_eq!(
        (&condition["reason"], &condition["message"]),
        (&"AutoApproved".into(), &message.into())
    );
    // A user who may create requests, but not use this signer.
    let roles = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!([{"verbs": ["create"], "apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests"]}]);
    create(
        &client,
        &format!("{roles}/clusterroles"),
        &json!({"metadata": {"name": "r"}, "rules": rules}),
    );
    let binding = json!({"metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}]});
    create(&client, &format!("{roles}/clusterrolebindings"), &binding);
    let asked = csr("n2", &request, signer, &usages, None);
    let made = client.request("POST", REQUESTS, "Impersonate-User: eve\r\n", Some(&asked));
    assert_eq!(made.status, 201, "{made:?}");
    super::settle(&client);
    let waiting = client.get(&format!("{REQUESTS}/n2")).body;
    assert_eq!(waiting["status"].get("conditions"), None);
    server.stop();
}

/// Returns the published authorities of client certificates.
fn published_client_ca(server: &crate::http::Server) -> String {
    let registry = server.keelson.registry().clone();
    let map = server.block_on(async {
        let target =
            registry.target("", "configmaps", "kube-system", "extension-apiserver-authentication");
        let mut progress = registry.cache.progress_of(&registry.objects(&target.kind));
        let known = async {
            loop {
                let known = registry.cached(&target.kind, &target.namespace, &target.name);
                if let Some(known) = known {
                    return target.kind.decode(&known).expect("a ConfigMap");
                }
                progress.changed().await.expect("the cache is there");
            }
        };
        tokio::time::timeout(crate::http::POLL_TIMEOUT, known).await.expect("it is made")
    });
    map.str_at(&["data", "client-ca-file"]).to_owned()
}

#[test]
fn client_ca_bundles_are_published_for_extension_servers() {
    let server = crate::http::Server::start(keelson::Keelson::builder().token("t", "admin"));
    let ca = published_client_ca(&server);
    assert!(ca.starts_with("-----BEGIN CERTIFICATE-----"), "{ca}");
    server.stop();
    // As in kube-apiserver, a file stands alone.
    let dir = tempfile::tempdir().expect("a folder");
    let (pem, _) = crate::certificates::authority("clients");
    let file = dir.path().join("clients.pem");
    std::fs::write(&file, &pem).expect("a file");
    let builder = keelson::Keelson::builder().token("t", "admin");
    let server = crate::http::Server::start(
        builder.with(|builder| builder.authentication.client_ca_file = Some(file)),
    );
    assert_eq!(published_client_ca(&server), pem.replace("\r\n", "\n"));
    server.stop();
}

#[test]
fn approval_and_signing_have_separate_field_managers() {
    let server = with_controllers();
    let client = server.client();
    let key = KeyPair::generate().expect("a key");
    let request = pem(&key, "jane", "devs", &[]);
    let owners = |name: &str, usage: &str| {
        let mut asked = csr(name, &request, "kube-apiserver-client", &[usage], None);
        asked["metadata"]["labels"] = json!({"a": "b"});
        create(&client, REQUESTS, &asked);
        approve(&client, name);
        let decided = client.poll(&format!("{REQUESTS}/{name}"), |got| {
            let status = &got.body["status"];
            status["certificate"].is_string() || status["conditions"][1]["type"] == "Failed"
        });
        let entries = decided.body["metadata"]["managedFields"]
            .as_array()
            .expect("managers")
            .iter()
            .filter_map(|entry| {
                let fields = entry["fieldsV1"]["f:status"]
                    .as_object()?
                    .keys()
                    .cloned()
                    .collect::<Vec<_>>()
                    .join(" ");
                Some(format!("{} {fields}", entry["subresource"].as_str().unwrap_or_default()))
            });
        entries.collect::<BTreeSet<_>>()
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let both = ["approval f:conditions", "status f:certificate"];
    assert_eq!(owners("signed", "client auth"), set(&both));
    // The condition has no field manager.
    assert_eq!(owners("refused", "server auth"), set(&["approval f:conditions"]));
    server.stop();
}

#[test]
fn an_approval_may_change_metadata_too() {
    let server = with_controllers();
    let client = server.client();
    let request = pem(&KeyPair::generate().expect("a key"), "jane", "devs", &[]);
    create(
        &client,
        REQUESTS,
        &csr("jane", &request, "kube-apiserver-client", &["client auth"], None),
    );
    let patch = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"username": "joe"}});
    let changed = client.call("PATCH", &format!("{REQUESTS}/jane/approval"), MERGE, Some(&patch));
    assert_eq!(changed.status, 200, "{changed:?}");
    assert_eq!(changed.body["metadata"]["labels"], json!({"a": "b"}));
    assert_ne!(changed.body["spec"]["username"], "joe");
    server.stop();
}
