//! Controllers of tokens: service account tokens in Secrets, and bootstrap tokens.

use super::{MERGE, create, wait_deleted, with_controllers};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const SYSTEM_SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const ACCOUNT_ANNOTATION: &str = "kubernetes.io/service-account.name";
const ACCOUNT_TYPE: &str = "kubernetes.io/service-account-token";

#[test]
fn a_token_secret_gets_a_token_and_is_deleted_with_its_account() {
    let server = with_controllers();
    let client = server.client();
    let uid = create(&client, ACCOUNTS, &json!({"metadata": {"name": "robot"}}));
    let secret = |name: &str, account: &str| {
        json!({"metadata": {"name": name, "annotations": {ACCOUNT_ANNOTATION: account}},
            "type": ACCOUNT_TYPE})
    };
    create(&client, SECRETS, &secret("token", "robot"));
    let path = format!("{SECRETS}/token");
    let filled = client.poll(&path, |got| got.body["data"]["token"].is_string()).body;
    let annotations = &filled["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/service-account.uid"], uid);
    assert_eq!(filled["data"]["namespace"], STANDARD.encode("default"));
    assert!(filled["data"]["ca.crt"].is_string());
    let token = STANDARD.decode(filled["data"]["token"].as_str().expect("text")).expect("base64");
    let token = String::from_utf8(token).expect("text");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token}});
    let review = client.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).body;
    let user = &review["status"]["user"]["username"];
    assert_eq!(user, "system:serviceaccount:default:robot", "{review}");
    assert_eq!(client.delete(&format!("{ACCOUNTS}/robot")).status, 200);
    wait_deleted(&client, &path);
    create(&client, SECRETS, &secret("nobodys", "nobody"));
    wait_deleted(&client, &format!("{SECRETS}/nobodys"));
    server.stop();
}

#[test]
fn bootstrap_tokens_sign_cluster_info_and_expire() {
    let server = with_controllers();
    let client = server.client();
    let token = |id: &str, expires: &str| {
        json!({"metadata": {"name": format!("bootstrap-token-{id}")},
            "type": "bootstrap.kubernetes.io/token", "stringData": {"token-id": id,
            "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true",
            "expiration": expires}})
    };
    create(&client, SYSTEM_SECRETS, &token("abcdef", "9999-01-01T00:00:00Z"));
    create(&client, SYSTEM_SECRETS, &token("000000", "2020-01-01T00:00:00Z"));
    let maps = "/api/v1/namespaces/kube-public/configmaps";
    let info = json!({"metadata": {"name": "cluster-info"}, "data": {"kubeconfig": "k"}});
    create(&client, maps, &info);
    let path = format!("{maps}/cluster-info");
    let signature = "jws-kubeconfig-abcdef";
    let signed = client.poll(&path, |got| got.body["data"][signature].is_string()).body;
    assert_eq!(signed["data"].as_object().expect("a map").len(), 2, "{signed}");
    wait_deleted(&client, &format!("{SYSTEM_SECRETS}/bootstrap-token-000000"));
    // The signature follows the text, and is removed with the token.
    let before = signed["data"][signature].clone();
    let patch = json!({"data": {"kubeconfig": "other"}});
    assert_eq!(client.call("PATCH", &path, MERGE, Some(&patch)).status, 200);
    client.poll(&path, |got| got.body["data"][signature] != before);
    assert_eq!(client.delete(&format!("{SYSTEM_SECRETS}/bootstrap-token-abcdef")).status, 200);
    client.poll(&path, |got| got.body["data"].get(signature).is_none());
    server.stop();
}
