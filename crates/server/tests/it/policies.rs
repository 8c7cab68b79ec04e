//! Admission policies in CEL, over HTTP. The expected responses are those of a kube-apiserver 1.36;
//! thousands of generated ones are compared by `crates/testkit/compare/policies.py`.

use crate::world::{Client, Response, Server, without_accounts};
use serde_json::{Value, json};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MERGE: &str = "application/merge-patch+json";

fn validating(client: &Client, name: &str, spec: Value, bound: Value) {
    policy(client, "Validating", name, spec, bound);
}

fn mutating(client: &Client, name: &str, spec: Value) {
    policy(client, "Mutating", name, spec, json!({}));
}

/// Creates a policy with its binding. It selects ConfigMaps unless `spec` has matchConstraints.
fn policy(client: &Client, kind: &str, name: &str, mut spec: Value, mut bound: Value) {
    if spec.get("matchConstraints").is_none() {
        spec["matchConstraints"] = rules(&["CREATE", "UPDATE"], &["configmaps"]);
    }
    bound["policyName"] = name.into();
    let lower = kind.to_lowercase();
    for (plural, suffix, spec) in
        [("policies", "Policy", spec), ("policybindings", "PolicyBinding", bound)]
    {
        let body = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}Admission{suffix}"),
            "metadata": {"name": name}, "spec": spec
        });
        let made = client.post(&format!("{GROUP}/{lower}admission{plural}"), &body);
        assert_eq!(made.status, 201, "{made:?}");
    }
}

fn rules(operations: &[&str], resources: &[&str]) -> Value {
    json!({"resourceRules": [{
        "apiGroups": ["*"], "apiVersions": ["*"], "operations": operations, "resources": resources
    }]})
}

fn map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn message(answer: &Response) -> &str {
    answer.body["message"].as_str().unwrap_or_default()
}

#[test]
fn a_policy_refuses_with_its_message_reason_and_cause() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let spec = json!({
        "variables": [{"name": "team", "expression": "object.data.team"}],
        "validations": [
            {"expression": "variables.team != 'x'", "reason": "Forbidden",
             "messageExpression": "'team ' + variables.team + ' of ' + namespaceObject.metadata.name"},
            {"expression": "object.data.size() < 2"},
        ]
    });
    validating(&client, "p", spec, json!({"validationActions": ["Deny"]}));
    let refused = client.post(MAPS, &map("a", &json!({"team": "x"})));
    let why = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: team x of default";
    let want = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": 403,
        "reason": "Forbidden", "message": format!("configmaps \"a\" is forbidden: {why}"),
        "details": {"name": "a", "kind": "configmaps", "causes": [{"message": why}]}
    });
    assert_eq!((refused.status, &refused.body), (403, &want));
    let refused = client.post(MAPS, &map("a", &json!({"team": "y", "b": ""})));
    assert_eq!((refused.status, &refused.body["reason"]), (422, &json!("Invalid")));
    assert!(
        message(&refused).ends_with("denied request: failed expression: object.data.size() < 2")
    );
    let refused = client.post(MAPS, &map("a", &json!({"b": ""})));
    let why = "expression 'variables.team != 'x'' resulted in error: composited variable \"team\" fails to \
               evaluate: no such key: team";
    assert!(message(&refused).ends_with(why), "{refused:?}");
    assert_eq!(client.post(MAPS, &map("a", &json!({"team": "y"}))).status, 201);
    // A deleted policy is not evaluated.
    assert_eq!(client.delete(&format!("{GROUP}/validatingadmissionpolicies/p")).status, 200);
    assert_eq!(client.post(MAPS, &map("b", &json!({"team": "x"}))).status, 201);
    server.stop();
}

#[test]
fn a_policy_warns_and_ignores_failures() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let spec = json!({"validations": [{"expression": "object.data.a == 'b'", "message": "no b"}]});
    validating(&client, "w", spec.clone(), json!({"validationActions": ["Warn", "Audit"]}));
    let warned = client.post(MAPS, &map("a", &json!({"a": "c"})));
    let warning =
        "299 - \"Validation failed for ValidatingAdmissionPolicy 'w' with binding 'w': no b\"";
    assert_eq!((warned.status, warned.header("warning")), (201, Some(warning)));
    let mut ignoring = spec;
    ignoring["failurePolicy"] = "Ignore".into();
    validating(&client, "i", ignoring, json!({"validationActions": ["Deny"]}));
    assert_eq!(client.post(MAPS, &map("b", &json!({"other": "c"}))).status, 201);
    assert_eq!(client.post(MAPS, &map("c", &json!({"a": "c"}))).status, 422);
    server.stop();
}

#[test]
fn params_may_be_custom_resources_and_are_read_per_request() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "limits.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced", "names": {"plural": "limits", "kind": "Limit"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"max": {"type": "integer"}}}}}]
        }
    });
    let spec = json!({
        "paramKind": {"apiVersion": "example.org/v1", "kind": "Limit"},
        "validations": [{"expression": "object.data.size() <= params.max"}]
    });
    let params = json!({"name": "l", "parameterNotFoundAction": "Deny"});
    validating(&client, "p", spec, json!({"validationActions": ["Deny"], "paramRef": params}));
    let with_two =
        || client.post(&format!("{MAPS}?dryRun=All"), &map("a", &json!({"a": "", "b": ""})));
    let why = "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource \
               referenced by paramKind: 'example.org/v1, Kind=Limit'";
    assert!(message(&with_two()).ends_with(why));
    let made = client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
    assert_eq!(made.status, 201, "{made:?}");
    let limits = "/apis/example.org/v1/namespaces/default/limits";
    client.poll(limits, |answer| answer.status == 200);
    let why = "denied request: failed to configure binding: no params found for policy binding with `Deny` \
               parameterNotFoundAction";
    assert!(message(&with_two()).ends_with(why));
    let limit = json!({"apiVersion": "example.org/v1", "kind": "Limit", "metadata": {"name": "l"}, "max": 1});
    assert_eq!(client.post(limits, &limit).status, 201);
    assert!(message(&with_two()).ends_with("failed expression: object.data.size() <= params.max"));
    let raised = client.call("PATCH", &format!("{limits}/l"), MERGE, Some(&json!({"max": 2})));
    assert_eq!((raised.status, with_two().status), (200, 201));
    server.stop();
}

#[test]
fn mutating_policies_run_in_order_with_reinvocation() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let apply = |text: &str| json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}});
    let patch = |text: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": text}});
    // Is evaluated again after `b` has changed what it counts.
    let counts =
        "Object{data: {'count': string(object.data.size() - ('count' in object.data ? 1 : 0))}}";
    mutating(&client, "a", json!({"reinvocationPolicy": "IfNeeded", "mutations": [apply(counts)]}));
    let adds =
        patch("[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('b'), value: 'yes'}]");
    let tests = patch(
        "[JSONPatch{op: 'test', path: '/data/b', value: 'no'}, JSONPatch{op: 'remove', path: '/data'}]",
    );
    mutating(&client, "b", json!({"reinvocationPolicy": "Never", "mutations": [adds, tests]}));
    let made = client.post(MAPS, &map("m", &json!({"x": "1"})));
    assert_eq!(
        (made.status, &made.body["data"]),
        (201, &json!({"x": "1", "b": "yes", "count": "2"}))
    );
    let owned = made.body["metadata"]["managedFields"][0]["fieldsV1"].to_string();
    assert!(!owned.contains("f:count"), "nobody owns what policies set: {owned}");
    server.stop();
}

#[test]
fn an_ill_typed_mutation_is_rejected() {
    let check = |expression: &str, code: u16, want: &str| {
        let server = Server::start_plain(without_accounts());
        let client = server.client();
        let (patch_type, member) = match expression.starts_with('[') {
            true => ("JSONPatch", "jsonPatch"),
            false => ("ApplyConfiguration", "applyConfiguration"),
        };
        let mutation = json!({"patchType": patch_type, member: {"expression": expression}});
        mutating(&client, "m", json!({"reinvocationPolicy": "Never", "mutations": [mutation]}));
        let refused = client.post(MAPS, &map("a", &json!({"a": "b"})));
        assert_eq!((refused.status, message(&refused)), (code, want), "{expression}");
        server.stop();
    };
    check(
        "[JSONPatch{op: 'remove', path: '/x'}]",
        403,
        "policy 'm' with binding 'm' denied request: JSON Patch: error in remove for path: '/x': Unable to remove \
         nonexistent key: x: missing value",
    );
    check(
        "Object{data: Object.wrong{x: 'y'}}",
        403,
        "policy 'm' with binding 'm' denied request: type mismatch: unexpected type name \"Object.wrong\", expected \
         \"Object.data\", which matches field name path from root Object type",
    );
    check(
        "[JSONPatch{op: 'add', path: '/foo', value: 'x'}]",
        500,
        "Internal error occurred: strict decoding error: unknown field \"foo\"",
    );
    check(
        "Object{foo: 1}",
        403,
        "policy 'm' with binding 'm' denied request: error applying patch: failed to convert patch object to typed \
         object: .foo: field not declared in schema",
    );
}

#[test]
fn a_policy_gets_objects_in_the_version_of_its_rule() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let constraints = json!({"resourceRules": [{
        "apiGroups": ["autoscaling"], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["horizontalpodautoscalers"]
    }]});
    let spec = json!({
        "matchConstraints": constraints,
        "validations": [{"expression": "false", "messageExpression":
            "'%s %s %s'.format([request.resource.version, request.requestResource.version, object.apiVersion])"}]
    });
    validating(&client, "p", spec, json!({"validationActions": ["Deny"]}));
    let scaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}
    });
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let refused = client.post(path, &scaler);
    assert!(message(&refused).ends_with("denied request: v1 v2 autoscaling/v1"), "{refused:?}");
    server.stop();
}

/// Policies and reviews are exempt, so a policy that rejects everything can be deleted.
#[test]
fn a_policy_on_all_resources_can_be_deleted() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let refusing = json!({"patchType": "JSONPatch", "jsonPatch":
        {"expression": "[JSONPatch{op: 'remove', path: '/nothing'}]"}});
    let spec = json!({
        "matchConstraints": rules(&["*"], &["*/*"]), "reinvocationPolicy": "Never", "mutations": [refusing]
    });
    mutating(&client, "none", spec);
    let mut seen = 0;
    let mut groups = vec!["/api/v1".to_owned()];
    for group in client.get("/apis").body["groups"].as_array().expect("groups") {
        let version = group["preferredVersion"]["groupVersion"].as_str().expect("a version");
        groups.push(format!("/apis/{version}"));
    }
    for group in &groups {
        let found = client.get(group);
        for resource in found.body["resources"].as_array().expect("resources") {
            let creates =
                resource["verbs"].as_array().is_some_and(|v| v.contains(&json!("create")));
            let name = resource["name"].as_str().expect("a name");
            let is_review = group.contains("/auth");
            let is_exempt = name.contains("admissionpolic") || is_review;
            // A create needs no object; subresources need one.
            if !creates || is_exempt || name.contains('/') {
                continue;
            }
            let namespace = if resource["namespaced"] == true { "/namespaces/default" } else { "" };
            let version = group.trim_start_matches("/apis/").trim_start_matches("/api/");
            let body =
                json!({"apiVersion": version, "kind": resource["kind"], "metadata": {"name": "n"}});
            let refused = client.post(&format!("{group}{namespace}/{name}"), &body);
            let why = message(&refused);
            assert!(
                why.starts_with("policy 'none' with binding 'none' denied"),
                "{group} {name}: {why}"
            );
            seen += 1;
        }
    }
    assert!(seen > 40, "only {seen} resources");
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(client.post(path, &review).status, 201);
    assert_eq!(client.delete(&format!("{GROUP}/mutatingadmissionpolicies/none")).status, 200);
    assert_eq!(client.post(MAPS, &map("a", &json!({}))).status, 201);
    server.stop();
}

#[test]
fn every_write_verb_passes_the_policies() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}
    });
    assert_eq!(client.post(deployments, &deployment).status, 201);
    assert_eq!(client.post(MAPS, &map("m", &json!({}))).status, 201);
    let spec = json!({
        "matchConstraints": rules(&["*"], &["configmaps", "deployments", "deployments/*"]),
        "validations": [{"expression": "false",
            "messageExpression": "request.operation + ' ' + (has(request.subResource) ? request.subResource : '-')"}]
    });
    validating(&client, "p", spec, json!({"validationActions": ["Deny"]}));
    let check = |method: &str, path: &str, media: &str, body: Option<&Value>, want: &str| {
        let refused = client.call(method, path, media, body);
        let why = message(&refused);
        assert_eq!(why.rsplit(": ").next(), Some(want), "{method} {path}: {refused:?}");
    };
    let one = format!("{MAPS}/m");
    let json = "application/json";
    let changed = map("m", &json!({"x": "y"}));
    check("POST", MAPS, json, Some(&map("n", &json!({}))), "CREATE -");
    check("PUT", &one, json, Some(&changed), "UPDATE -");
    check("PATCH", &one, MERGE, Some(&json!({"data": {"x": "y"}})), "UPDATE -");
    check(
        "PATCH",
        &one,
        "application/json-patch+json",
        Some(&json!([{"op": "add", "path": "/data", "value": {"x": "y"}}])),
        "UPDATE -",
    );
    let apply = "application/apply-patch+yaml";
    check("PATCH", &format!("{one}?fieldManager=f"), apply, Some(&changed), "UPDATE -");
    let new = map("n", &json!({}));
    check("PATCH", &format!("{MAPS}/n?fieldManager=f"), apply, Some(&new), "CREATE -");
    check("DELETE", &one, json, None, "DELETE -");
    check("DELETE", MAPS, json, None, "DELETE -");
    let status = format!("{deployments}/d/status");
    check("PATCH", &status, MERGE, Some(&json!({"status": {"replicas": 1}})), "UPDATE status");
    let scale = format!("{deployments}/d/scale");
    check("PATCH", &scale, MERGE, Some(&json!({"spec": {"replicas": 3}})), "UPDATE scale");
    server.stop();
}

#[test]
fn expressions_are_checked_when_they_are_written() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let body = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {"matchConstraints": rules(&["*"], &["pods"]), "validations": [
            {"expression": "1 +"}, {"expression": "true", "messageExpression": "object.x"}]}
    });
    let refused = client.post(&format!("{GROUP}/validatingadmissionpolicies"), &body);
    let causes = &refused.body["details"]["causes"];
    assert_eq!(
        (refused.status, &causes[0]["field"]),
        (422, &json!("spec.validations[0].expression"))
    );
    let why = causes[0]["message"].as_str().unwrap_or_default();
    assert!(why.starts_with(
        "Invalid value: \"1 +\": compilation failed: ERROR: <input>:1:4: Syntax error"
    ));
    let why = "Invalid value: \"object.x\": must evaluate to string but got dyn";
    assert_eq!(causes[1]["message"], why);
    server.stop();
}

/// Upstream omits them when it converts the object for CEL.
#[test]
fn a_policy_does_not_see_empty_maps_that_the_client_sent() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let nothing = "!has(object.data) && !has(object.metadata.labels)";
    let spec = json!({"validations": [{"expression": nothing}]});
    validating(&client, "p", spec, json!({"validationActions": ["Deny"]}));
    assert_eq!(client.post(MAPS, &map("full", &json!({"a": "b"}))).status, 422);
    let mut empty = map("empty", &json!({}));
    empty["metadata"]["labels"] = json!({});
    let made = client.post(MAPS, &empty);
    assert_eq!(made.status, 201, "{made:?}");
}
