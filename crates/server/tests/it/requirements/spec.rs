//! R-SPEC and R-SUB: spec, status and subresources.

use super::world::{
    DEPLOYMENTS, PODS, SERVICES, Walked, define, deployment, everything, made, namespace, read,
    widget_definition, with_widgets,
};
use super::{MERGE_PATCH, create, patch, pod, put, refused, server, without_accounts};
use crate::world::{Client, Options, Server};
use keelson_server::Limits;
use serde_json::{Value, json};

/// A value for the status of a kind, which a create and an update of the main resource must ignore.
fn status_of(resource: &str) -> Value {
    let condition = json!([{"type": "Sent", "status": "True", "reason": "Sent", "message": "m",
        "lastTransitionTime": "2024-01-01T00:00:00Z"}]);
    match resource {
        "cronjobs" => json!({"lastScheduleTime": "2024-01-01T00:00:00Z"}),
        "horizontalpodautoscalers" => json!({"currentReplicas": 2, "desiredReplicas": 2}),
        "ingresses" => json!({"loadBalancer": {"ingress": [{"ip": "10.1.1.1"}]}}),
        "resourcequotas" => json!({"hard": {"pods": "7"}}),
        "persistentvolumes" | "volumeattachments" => json!({}),
        "resourceclaims" => json!({}),
        "storageversionmigrations" | "mutatingadmissionpolicies" => json!({}),
        "daemonsets" | "replicasets" | "statefulsets" => json!({"observedGeneration": 9}),
        _ => json!({"conditions": condition}),
    }
}

/// Returns what is in `sent` and also in `status`.
fn kept(sent: &Value, status: &Value) -> bool {
    let text = status.to_string();
    let words = [
        "\"Sent\"",
        "2024-01-01",
        "10.1.1.1",
        "\"7\"",
        "\"observedGeneration\":9",
        "\"currentReplicas\":2",
    ];
    words.iter().any(|word| sent.to_string().contains(word) && text.contains(word))
}

fn has_main_status(walked: &Walked) -> bool {
    walked.has_status && !matches!(&*walked.resource, "customresourcedefinitions" | "apiservices")
}

/// Every kind with a status: a create and an update ignore it, a write to the status changes
/// nothing else.
///
/// Proves: R-SPEC-01, R-SPEC-02, R-SUB-02, R-SUB-03, R-SUB-04, R-GEN-01.
#[test]
fn spec_and_status_are_written_at_their_own_urls() {
    // Else the server writes the status of FlowSchemas.
    let limits = Limits { fairness: false, ..Limits::default() };
    let server = Server::start_plain(Options { limits, ..without_accounts() });
    let client = server.client();
    define(&client, &widget_definition());
    let mut count = 0;
    for walked in everything().iter().filter(|walked| has_main_status(walked)) {
        let sent = status_of(&walked.resource);
        let all = walked.all();
        let one = walked.one();
        let mut obj = walked.sample.clone();
        obj["status"] = sent.clone();
        let first = made(&client, &all, &obj);
        // A kubelet creates its Node with a status.
        assert_eq!(kept(&sent, &first["status"]), walked.resource == "nodes", "{first}");
        let mut with_status = read(&client, &one);
        with_status["status"] = if walked.resource == "nodes" { json!({}) } else { sent.clone() };
        let second = put(&client, &one, &with_status);
        assert_eq!(second["status"], first["status"], "{one}");
        // The status has rules of its own: it takes what the main resource ignores, and no spec.
        let mut both = second.clone();
        both["status"] = sent.clone();
        both["spec"] = json!({});
        let body = json!({"status": sent, "spec": {"paused": true, "minReadySeconds": 9, "color": "Blue"}});
        let third = patch(&client, &format!("{one}/status"), MERGE_PATCH, &body);
        assert_eq!(third["spec"], second["spec"], "{third}");
        assert_eq!(kept(&sent, &third["status"]), sent != json!({}), "{third}");
        assert_eq!(third["metadata"]["generation"], second["metadata"]["generation"], "{third}");
        assert_eq!(read(&client, &one)["status"], third["status"], "{one}");
        // An update of the main resource keeps the stored status.
        let label = json!({"metadata": {"labels": {"l": "1"}}, "status": null});
        let fourth = patch(&client, &one, MERGE_PATCH, &label);
        assert_eq!(kept(&sent, &fourth["status"]), sent != json!({}), "{fourth}");
        assert_eq!(client.delete(&one).status, 200);
        count += 1;
    }
    assert!(count > 15, "{count}");
    server.stop();
}

/// Proves: R-SPEC-03, R-SPEC-04, R-SPEC-08, R-SPEC-09, R-SPEC-11.
#[test]
fn a_spec_is_stored_at_once_with_defaults_and_is_gone_with_its_object() {
    let server = server();
    let client = server.client();
    let one = format!("{DEPLOYMENTS}/d");
    let first = made(&client, DEPLOYMENTS, &deployment("d"));
    assert_eq!(read(&client, &one), first);
    assert_eq!(first["spec"]["replicas"], 2);
    assert_eq!(first["spec"]["revisionHistoryLimit"], 10);
    let mut wanted = first.clone();
    wanted["spec"]["replicas"] = json!(7);
    let second = put(&client, &one, &wanted);
    assert_eq!(read(&client, &one)["spec"], second["spec"]);
    assert_eq!(read(&client, &one)["spec"]["replicas"], 7);
    // Others set parts of it later, for example through the scale.
    patch(&client, &format!("{one}/scale"), MERGE_PATCH, &json!({"spec": {"replicas": 3}}));
    assert_eq!(read(&client, &one)["spec"]["replicas"], 3);
    // A status may hold what was allocated, and its history may be left out.
    made(&client, PODS, &pod("p"));
    let status = json!({"status": {"podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}],
        "conditions": [{"type": "Ready", "status": "False"}]}});
    let with_ip = patch(&client, &format!("{PODS}/p/status"), MERGE_PATCH, &status);
    assert_eq!(with_ip["status"]["podIP"], "10.1.2.3");
    let ready = &with_ip["status"]["conditions"][0];
    assert_eq!((&ready["type"], &ready["lastTransitionTime"]), (&json!("Ready"), &Value::Null));
    assert_eq!(client.delete(&one).status, 200);
    refused(&client.get(&one), 404, "NotFound", "deployments.apps \"d\" not found");
    assert_eq!(read(&client, DEPLOYMENTS)["items"], json!([]));
    server.stop();
}

/// Grants a user verbs on resources in the namespace `default`.
fn grant(client: &Client, user: &str, resources: &[&str], verbs: &[&str]) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"metadata": {"name": user},
        "rules": [{"apiGroups": ["apps", ""], "resources": resources, "verbs": verbs}]});
    made(client, &format!("{rbac}/roles"), &role);
    let binding = json!({"metadata": {"name": user},
        "subjects": [{"kind": "User", "name": user}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user}});
    made(client, &format!("{rbac}/rolebindings"), &binding);
}

/// Proves: R-SPEC-06, R-SUB-04, R-AUTH-02, R-AUTH-03, R-ALLOC-10.
#[test]
fn spec_and_status_have_rights_of_their_own() {
    let server = server();
    let client = server.client();
    namespace(&client, "other");
    grant(&client, "writer", &["deployments"], &["get", "update", "patch"]);
    grant(&client, "reporter", &["deployments/status"], &["get", "update", "patch"]);
    made(&client, DEPLOYMENTS, &deployment("d"));
    made(&client, &DEPLOYMENTS.replace("default", "other"), &deployment("d"));
    let one = format!("{DEPLOYMENTS}/d");
    let send = |user: &str, path: &str, body: &Value| {
        let headers = format!(
            "Authorization: Bearer t\r\nImpersonate-User: {user}\r\nContent-Type: {MERGE_PATCH}\r\n"
        );
        client.request("PATCH", path, &headers, Some(body)).status
    };
    let spec = json!({"spec": {"replicas": 5}});
    let status = json!({"status": {"replicas": 5}});
    for (user, path, body, code) in [
        ("writer", one.clone(), &spec, 200),
        ("writer", format!("{one}/status"), &status, 403),
        ("reporter", one.clone(), &spec, 403),
        ("reporter", format!("{one}/status"), &status, 200),
        ("nobody", one.clone(), &spec, 403),
        ("writer", one.replace("default", "other"), &spec, 403),
        ("reporter", format!("{}/status", one.replace("default", "other")), &status, 403),
    ] {
        assert_eq!(send(user, &path, body), code, "{user} {path}");
    }
    // No default role for users of a namespace grants writes to a status.
    for role in ["admin", "edit", "view"] {
        let path =
            format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:aggregate-to-{role}");
        let object = read(&client, &path);
        let rules = object["rules"].as_array().expect("rules");
        assert!(!rules.is_empty(), "{role}");
        for rule in rules.iter().filter(|rule| rule["resources"].to_string().contains("/status\""))
        {
            for verb in rule["verbs"].as_array().expect("verbs") {
                assert!(
                    [json!("get"), json!("list"), json!("watch")].contains(verb),
                    "{role}: {rule}"
                );
            }
        }
    }
    server.stop();
}

/// Proves: R-SPEC-07, R-SPEC-10, R-AUTH-04.
#[test]
fn reviews_answer_in_their_status_and_are_not_stored() {
    let server = server();
    let client = server.client();
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let ask = |user: &str, groups: &[&str]| {
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": user, "groups": groups,
                "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}});
        made(&client, reviews, &review)
    };
    assert_eq!(ask("nobody", &[])["status"]["allowed"], false);
    let allowed = ask("somebody", &["system:masters"]);
    assert_eq!(allowed["status"]["allowed"], true);
    let metadata = &allowed["metadata"];
    let absent = (&metadata["name"], &metadata["uid"], &metadata["resourceVersion"]);
    assert_eq!(absent, (&Value::Null, &Value::Null, &Value::Null), "{allowed}");
    let found = read(&client, "/apis/authorization.k8s.io/v1");
    for resource in found["resources"].as_array().expect("resources") {
        assert_eq!(resource["verbs"], json!(["create"]), "{resource}");
        let all = resource["namespaced"] == true;
        let name = resource["name"].as_str().unwrap_or_default();
        let scope = if all { "/namespaces/default" } else { "" };
        let path = format!("/apis/authorization.k8s.io/v1{scope}/{name}");
        assert_eq!((client.get(&path).status, client.delete(&path).status), (405, 405), "{path}");
    }
    // The status of a component is made when it is asked for.
    let status = read(&client, "/api/v1/componentstatuses/etcd-0");
    assert_eq!(status["conditions"][0]["type"], "Healthy");
    assert_eq!(status["metadata"]["resourceVersion"], Value::Null);
    server.stop();
}

/// Proves: R-SUB-01, R-SUB-09.
#[test]
fn a_binding_and_an_eviction_are_actions_on_a_pod() {
    let server = server();
    let client = server.client();
    made(&client, PODS, &pod("p"));
    made(&client, "/api/v1/nodes", &json!({"metadata": {"name": "n"}}));
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"}});
    let bound = client.post(&format!("{PODS}/p/binding"), &binding);
    assert_eq!((bound.status, &bound.body["status"]), (201, &json!("Success")), "{bound:?}");
    let obj = read(&client, &format!("{PODS}/p"));
    assert_eq!(obj["spec"]["nodeName"], "n");
    let scheduled = &obj["status"]["conditions"][0];
    assert_eq!(
        (&scheduled["type"], &scheduled["status"]),
        (&json!("PodScheduled"), &json!("True"))
    );
    assert_eq!(client.post(&format!("{PODS}/p/binding"), &binding).status, 409);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
        "deleteOptions": {"gracePeriodSeconds": 0}});
    assert_eq!(client.post(&format!("{PODS}/p/eviction"), &eviction).status, 201);
    assert_eq!(client.get(&format!("{PODS}/p")).status, 404);
    // A further one: a token for a service account.
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    made(&client, accounts, &json!({"metadata": {"name": "a"}}));
    let asked =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = made(&client, &format!("{accounts}/a/token"), &asked);
    assert!(token["status"]["token"].as_str().is_some_and(|token| token.split('.').count() == 3));
    server.stop();
}

/// One schema for all kinds, of which each keeps its number of replicas in its own field.
///
/// Proves: R-SUB-05.
#[test]
fn a_scale_reads_and_sets_the_replicas() {
    let server = with_widgets();
    let client = server.client();
    made(&client, DEPLOYMENTS, &deployment("d"));
    let one = format!("{DEPLOYMENTS}/d");
    let scale = read(&client, &format!("{one}/scale"));
    assert_eq!(scale["spec"], json!({"replicas": 2}));
    assert_eq!(scale["status"], json!({"replicas": 0, "selector": "app=d"}));
    let mut wanted = scale.clone();
    wanted["spec"]["replicas"] = json!(6);
    put(&client, &format!("{one}/scale"), &wanted);
    assert_eq!(read(&client, &one)["spec"]["replicas"], 6);
    let less = json!({"spec": {"replicas": -1}});
    let answer = client.call("PATCH", &format!("{one}/scale"), MERGE_PATCH, Some(&less));
    super::world::invalid(&answer, &["spec.replicas"]);
    create(&client, "m");
    assert_eq!(client.get("/api/v1/namespaces/default/configmaps/m/scale").status, 404);
    assert_eq!(client.get(&format!("{SERVICES}/none/scale")).status, 404);
    server.stop();
}
