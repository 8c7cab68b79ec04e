//! The type check of ValidatingAdmissionPolicies, compared with a recording of kube-apiserver
//! and kube-controller-manager 1.36.

use super::{MERGE, create, with_controllers};
use serde_json::{Value, json};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// One policy per line: name, spec and resulting status. The names of types had random digits at
/// their ends.
const RECORDED: &str = include_str!("../files/policy_types.txt");

fn foos() -> Value {
    let spec = json!({"type": "object", "properties": {
        "n": {"type": "integer"},
        "ios": {"x-kubernetes-int-or-string": true},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "l": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
        "t": {"type": "string", "format": "date-time"},
    }});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    json!({
        "metadata": {"name": "foos.x.io"},
        "spec": {"group": "x.io", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo", "singular": "foo"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}]}
    })
}

#[test]
fn policy_status_has_a_warning_for_each_mistyped_expression() {
    let server = with_controllers();
    let client = server.client();
    create(&client, DEFINITIONS, &foos());
    let established = |answer: &Value| {
        let conditions = answer["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True")
    };
    client.poll(&format!("{DEFINITIONS}/foos.x.io"), |answer| established(&answer.body));
    let recorded: Vec<Value> =
        RECORDED.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(recorded.len() >= 60, "{}", recorded.len());
    for case in &recorded {
        create(
            &client,
            POLICIES,
            &json!({"metadata": {"name": case["name"]}, "spec": case["spec"]}),
        );
    }
    for case in &recorded {
        let path = format!("{POLICIES}/{}", case["name"].as_str().expect("a name"));
        let checked =
            client.poll(&path, |answer| answer.body["status"]["observedGeneration"].is_i64());
        // Keelson has its own wording for two types of the same name.
        let text = checked.body["status"].to_string().replace("DeploymentParams", "Deployment");
        let found: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(found, case["status"], "{}: {:#}", case["name"], case["spec"]);
    }
}

#[test]
fn policy_status_follows_the_spec() {
    let server = with_controllers();
    let client = server.client();
    let policy = |expression: &str| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "a"},
            "spec": {
                "matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"],
                    "resources": ["deployments"], "operations": ["CREATE"]}]},
                "validations": [{"expression": expression}]
            }
        })
    };
    create(&client, POLICIES, &policy("object.spec.nope == 1"));
    let path = format!("{POLICIES}/a");
    let checked = client.poll(&path, |answer| answer.body["status"]["observedGeneration"] == 1);
    let warnings = &checked.body["status"]["typeChecking"]["expressionWarnings"];
    assert_eq!(warnings[0]["fieldRef"], "spec.validations[0].expression");
    let spec = json!({"validations": [{"expression": "object.spec.replicas == 1"}]});
    let patched = client.call("PATCH", &path, MERGE, Some(&json!({"spec": spec})));
    assert_eq!(patched.status, 200, "{patched:?}");
    let checked = client.poll(&path, |answer| answer.body["status"]["observedGeneration"] == 2);
    // An apply of an empty map where there were warnings leaves none.
    assert_eq!(checked.body["status"].get("typeChecking"), None);
    let by = |entry: &&Value| entry["manager"] == "validatingadmissionpolicy-status";
    let entries = checked.body["metadata"]["managedFields"].as_array().expect("entries");
    let entry = entries.iter().find(by).expect("the loop's entry");
    assert_eq!((&entry["operation"], &entry["subresource"]), (&json!("Apply"), &json!("status")));
}
