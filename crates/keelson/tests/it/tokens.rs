//! Service account tokens over HTTP: request, use, review and invalidation.

use crate::http::{Client, Response, Server, without_controllers};
use serde_json::{Value, json};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

fn request(client: &Client, spec: &Value) -> Response {
    client.post(&format!("{ACCOUNTS}/a/token"), &json!({"spec": spec}))
}

fn token(client: &Client, spec: &Value) -> String {
    let answer = request(client, spec);
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.body["status"]["token"].as_str().expect("a token").to_owned()
}

/// Returns the user name of a token, or the status code of the error.
fn who(client: &Client, token: &str) -> String {
    let headers = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
    let answer = client.request("POST", WHO, &headers, Some(&json!({})));
    match answer.body["status"]["userInfo"]["username"].as_str() {
        Some(name) => name.to_owned(),
        None => answer.status.to_string(),
    }
}

const NAME: &str = "system:serviceaccount:default:a";

#[test]
fn a_token_is_valid_until_its_account_or_pod_is_deleted() {
    let server = Server::start_plain(without_controllers());
    let client = server.client();
    let account = json!({"metadata": {"name": "a"}});
    assert_eq!(client.post(ACCOUNTS, &account).status, 201);
    let free = token(&client, &json!({}));
    assert_eq!(who(&client, &free), NAME);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "a",
        "containers": [{"name": "c", "image": "i"}]}});
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(client.post(pods, &pod).status, 201);
    let bound = json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}});
    let bound = token(&client, &bound);
    assert_eq!(who(&client, &bound), NAME);
    assert_eq!(client.delete(&format!("{pods}/p?gracePeriodSeconds=0")).status, 200);
    assert_eq!(who(&client, &bound), "401");
    assert_eq!(who(&client, &free), NAME);
    assert_eq!(client.delete(&format!("{ACCOUNTS}/a")).status, 200);
    assert_eq!(who(&client, &free), "401");
    assert_eq!(client.post(ACCOUNTS, &account).status, 201);
    assert_eq!(who(&client, &free), "401");
    server.stop();
}

#[test]
fn token_requests_with_a_bad_duration_or_object_are_rejected() {
    let server = Server::start_plain(without_controllers());
    let client = server.client();
    assert_eq!(request(&client, &json!({})).status, 404);
    assert_eq!(client.post(ACCOUNTS, &json!({"metadata": {"name": "a"}})).status, 201);
    let check = |spec: Value, status: u16, message: &str| {
        let answer = request(&client, &spec);
        assert_eq!((answer.status, answer.body["message"].as_str()), (status, Some(message)));
    };
    let bound = |kind: &str, uid: &str| json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": "s", "uid": uid}});
    check(bound("Pod", ""), 404, "pods \"s\" not found");
    check(bound("Foo", ""), 400, "cannot bind token to object of type /v1, Kind=Foo");
    let secret = json!({"metadata": {"name": "s"}});
    assert_eq!(client.post("/api/v1/namespaces/default/secrets", &secret).status, 201);
    check(
        bound("Secret", "other"),
        409,
        "Operation cannot be fulfilled on Secret \"s\": the UID in the bound object reference \
         (other) does not match the UID in record. The object might have been deleted and then \
         recreated",
    );
    check(
        json!({"expirationSeconds": 5}),
        422,
        "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid \
         value: 5: may not specify a duration less than 10 minutes",
    );
    server.stop();
}

#[test]
fn the_signing_key_survives_a_restart_and_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a folder");
    let start = || Server::start_plain(without_controllers().data_dir(dir.path()));
    let server = start();
    assert_eq!(server.client().post(ACCOUNTS, &json!({"metadata": {"name": "a"}})).status, 201);
    let token = token(&server.client(), &json!({}));
    server.stop();
    let server = start();
    assert_eq!(who(&server.client(), &token), NAME);
    let key = dir.path().join("pki/sa.key").metadata().expect("the key");
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    let keys = server.client().request("GET", "/openid/v1/jwks", "Accept: */*\r\n", None).body;
    assert_eq!((&keys["keys"][0]["alg"], &keys["keys"][0]["kty"]), (&json!("ES256"), &json!("EC")));
    server.stop();
}
