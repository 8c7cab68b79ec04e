//! The authorizers of a whole server, and the roles that a control loop aggregates.

use crate::http::{Client, Server, without_controllers};
use keelson::{Authorization, Keelson};
use serde_json::json;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Gets a path as another user than the administrator. Returns the status code.
fn get_as(client: &Client, user: &str, path: &str) -> u16 {
    let headers = format!("Impersonate-User: {user}\r\n");
    client.request("GET", path, &headers, None).status
}

#[test]
fn admin_edit_and_view_have_their_aggregated_rules() {
    let server = Server::start_plain(Keelson::builder());
    let client = server.client();
    for (name, resource) in [("view", "pods"), ("edit", "secrets"), ("admin", "rolebindings")] {
        client.poll(&format!("{RBAC}/clusterroles/{name}"), |role| {
            role.body["rules"].to_string().contains(&format!("\"{resource}\""))
        });
    }
    let view = json!({"metadata": {"name": "v"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "bob"}]});
    assert_eq!(client.post(BINDINGS, &view).status, 201);
    assert_eq!(get_as(&client, "bob", CONFIG_MAPS), 200);
    assert_eq!(get_as(&client, "bob", "/api/v1/namespaces/default/secrets"), 403);
    server.stop();
}

/// Proves: R-TYPE-10.
#[test]
fn authorization_modes_run_in_order_and_abac_reads_its_file() {
    let modes = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Authorization::modes(&words).expect("modes")
    };
    let status = |authorization: Authorization, path: &str| {
        let server = Server::start_plain(without_controllers().authorization(authorization));
        let status = get_as(&server.client(), "bob", path);
        server.stop();
        status
    };
    assert_eq!(status(modes(&["AlwaysAllow"]), CONFIG_MAPS), 200);
    assert_eq!(status(modes(&["AlwaysDeny"]), "/version"), 403);
    assert_eq!(status(modes(&["RBAC", "AlwaysAllow"]), CONFIG_MAPS), 200);
    let policy = r#"{"user":"bob","resource":"configmaps","readonly":true}"#;
    let abac = keelson_auth::Abac::parse(policy).expect("a policy");
    assert_eq!(status(modes(&["ABAC"]).with_abac(abac), CONFIG_MAPS), 200);
    assert_eq!(status(modes(&["ABAC"]), CONFIG_MAPS), 403);
}
