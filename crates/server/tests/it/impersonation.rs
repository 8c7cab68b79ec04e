//! Constrained impersonation over HTTP: each mode requires its own permissions, for the request and
//! for the user.

use crate::world::{Client, Server, without_accounts};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Replaces alice's permissions.
fn grant(client: &Client, rules: &[(&str, &str, &[&str])]) {
    let rule = |(group, resource, verbs): &(&str, &str, &[&str])| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    let rules: Vec<Value> = rules.iter().map(rule).collect();
    let role = json!({"metadata": {"name": "imp"}, "rules": rules});
    let path = format!("{RBAC}/clusterroles/imp");
    let status = client.call("PUT", &path, "application/json", Some(&role)).status;
    assert!(matches!(status, 200 | 201), "{status}");
}

/// Sends alice's request with these headers. Checks name and groups of the impersonated user, or
/// the error message.
fn check(client: &Client, headers: &[&str], want: &str) {
    let headers: String =
        headers.iter().map(|header| format!("Impersonate-{header}\r\n")).collect();
    let headers = format!("Authorization: Bearer a\r\nContent-Type: application/json\r\n{headers}");
    let answer = client.request("POST", WHO, &headers, Some(&json!({})));
    let info = &answer.body["status"]["userInfo"];
    let got = match answer.status {
        201 => format!("{} {}", info["username"], info["groups"]),
        _ => answer.body["message"].as_str().unwrap_or_default().to_owned(),
    };
    assert!(got.starts_with(want), "{headers}: {got}");
}

/// A server on which [`grant`] sets alice's permissions.
fn start() -> Server {
    let mut options = without_accounts();
    options.tokens.insert("a", keelson_auth::User { name: "alice".into(), ..Default::default() });
    let server = Server::start_plain(options);
    let binding = json!({"metadata": {"name": "imp"}, "subjects": [{"kind": "User", "name": "alice"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "imp"}});
    let bindings = format!("{RBAC}/clusterrolebindings");
    assert_eq!(server.client().post(&bindings, &binding).status, 201);
    server
}

#[test]
fn impersonation_requires_rights_to_each_part_of_the_user() {
    let server = start();
    let client = server.client();
    let bob = "User: bob";
    let node = "User: system:node:n";
    let account = "User: system:serviceaccount:ns:x";
    let on = |mode: &str| {
        format!(
            "selfsubjectreviews.authentication.k8s.io is forbidden: User \"alice\" cannot \
             impersonate-on:{mode}:create resource \"selfsubjectreviews\""
        )
    };
    grant(&client, &[]);
    check(&client, &[bob], &on("user-info"));
    check(&client, &[node], &on("arbitrary-node"));
    check(&client, &[account], &on("serviceaccount"));
    let all_on: (&str, &str, &[&str]) = (
        "*",
        "*",
        &[
            "impersonate-on:user-info:create",
            "impersonate-on:arbitrary-node:create",
            "impersonate-on:serviceaccount:create",
        ],
    );
    // The permission for the request alone does not allow any user.
    grant(&client, &[all_on]);
    let refused = |resource: &str, name: &str, mode: &str| {
        format!(
            "{resource}.authentication.k8s.io \"{name}\" is forbidden: User \"alice\" cannot \
             impersonate:{mode} resource \"{resource}\" in API group \"authentication.k8s.io\""
        )
    };
    check(&client, &[bob], &refused("users", "bob", "user-info"));
    check(&client, &[node], &refused("nodes", "n", "arbitrary-node"));
    check(&client, &[account], &refused("serviceaccounts", "x", "serviceaccount"));
    let group = "authentication.k8s.io";
    grant(
        &client,
        &[
            all_on,
            (group, "users", &["impersonate:user-info"]),
            (group, "groups", &["impersonate:user-info"]),
            (group, "nodes", &["impersonate:arbitrary-node"]),
            (group, "serviceaccounts", &["impersonate:serviceaccount"]),
        ],
    );
    check(&client, &[bob, "Group: g"], "\"bob\" [\"g\",\"system:authenticated\"]");
    check(&client, &[bob, "Uid: u"], &refused("uids", "u", "user-info"));
    let masters = "groups.authentication.k8s.io \"system:masters\" is forbidden";
    check(&client, &[bob, "Group: system:masters"], masters);
    let nodes = "\"system:node:n\" [\"system:nodes\",\"system:authenticated\"]";
    check(&client, &[node], nodes);
    let legacy = "users \"system:node:n\" is forbidden: User \"alice\" cannot impersonate resource";
    check(&client, &[node, "Group: g"], legacy);
    check(&client, &[account], "\"system:serviceaccount:ns:x\" [\"system:serviceaccounts\",");
    server.stop();
}

#[test]
fn the_last_successful_impersonation_mode_is_tried_first() {
    let server = start();
    let client = server.client();
    let bob = "User: bob";
    let account = "User: system:serviceaccount:ns:x";
    grant(&client, &[("", "users", &["impersonate"]), ("", "groups", &["impersonate"])]);
    let on = "selfsubjectreviews.authentication.k8s.io is forbidden: User \"alice\" cannot \
              impersonate-on:user-info:create resource \"selfsubjectreviews\"";
    check(&client, &[bob, "Uid: u"], on);
    let all = "\"bob\" [\"system:masters\",\"system:authenticated\"]";
    check(&client, &[bob, "Group: system:masters"], all);
    // Its check is first, too. The uid is checked before the groups.
    let uid =
        "uids.authentication.k8s.io \"u\" is forbidden: User \"alice\" cannot impersonate resource";
    check(&client, &[bob, "Group: g", "Uid: u"], uid);
    check(
        &client,
        &[account],
        "serviceaccounts \"x\" is forbidden: User \"alice\" cannot impersonate ",
    );
    // Other names than those of nodes and service accounts are user names.
    for odd in
        ["system:node:", "system:node:N", "system:serviceaccount:ns", "system:serviceaccount:n_s:x"]
    {
        let who = format!("\"{odd}\" [\"system:authenticated\"]");
        check(&client, &[&format!("User: {odd}")], &who);
    }
    server.stop();
}

#[test]
fn many_groups_or_extra_values_require_a_wildcard_right() {
    let server = start();
    let client = server.client();
    let group = "authentication.k8s.io";
    let on: (&str, &str, &[&str]) = ("*", "*", &["impersonate-on:user-info:create"]);
    let users: (&str, &str, &[&str]) = (group, "users", &["impersonate:user-info"]);
    let named = |name: &str| {
        let rules = json!([
            {"apiGroups": ["*"], "resources": ["*"], "verbs": on.2},
            {"apiGroups": [group], "resources": ["users"], "verbs": users.2},
            {"apiGroups": [group], "resources": ["groups"], "verbs": ["impersonate:user-info"],
                "resourceNames": [name]}]);
        let role = json!({"metadata": {"name": "imp"}, "rules": rules});
        let path = format!("{RBAC}/clusterroles/imp");
        let status = client.call("PUT", &path, "application/json", Some(&role)).status;
        assert!(matches!(status, 200 | 201), "{status}");
    };
    let three = ["User: bob", "Group: a", "Group: b", "Group: c"];
    let four = ["User: bob", "Group: a", "Group: b", "Group: c", "Group: d"];
    named("*");
    check(&client, &three, "groups.authentication.k8s.io \"a\" is forbidden");
    check(&client, &four, "\"bob\" [\"a\",\"b\",\"c\",\"d\",\"system:authenticated\"]");
    named("a");
    check(&client, &four, "groups.authentication.k8s.io \"b\" is forbidden");
    let masters = ["User: bob", "Group: a", "Group: b", "Group: c", "Group: system:masters"];
    check(&client, &masters, "groups.authentication.k8s.io \"system:masters\" is forbidden");
    server.stop();
}
