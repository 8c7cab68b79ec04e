//! The cases written by hand, one for each fact.

use super::runner::{Case, Request};
use keelson_testkit::sorted;
use keelson_testkit::webhook::hex;
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/$NS/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/$NS/deployments";
const MERGE: &str = "application/merge-patch+json";

/// All cases.
pub fn all() -> Vec<Case> {
    let mut cases = answers();
    cases.extend(patches());
    cases.extend(sequences());
    cases.extend(matching());
    cases.extend(operations());
    cases
}

fn config_map() -> Request {
    let body = json!({"metadata": {"name": "a", "labels": {"app": "a"}}, "data": {"k": "v"}});
    Request::new("POST", CONFIG_MAPS, body)
}

fn deployment() -> Request {
    let template = json!({"metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"app": "a"}}, "template": template});
    Request::new("POST", DEPLOYMENTS, json!({"metadata": {"name": "a"}, "spec": spec}))
}

fn script(word: &str, argument: &Value) -> String {
    format!("{word}={}", hex(&sorted(argument.clone()).to_string()))
}

fn validating(name: &str, webhooks: Vec<Value>) -> Case {
    let requests = vec![config_map()];
    Case { name: name.to_owned(), validating: webhooks, requests, ..Case::default() }
}

fn mutating(name: &str, webhooks: Vec<Value>) -> Case {
    let requests = vec![config_map()];
    Case { name: name.to_owned(), mutating: webhooks, requests, ..Case::default() }
}

/// Valid and invalid responses of webhooks.
fn answers() -> Vec<Case> {
    let mut scripts: Vec<(&str, String)> =
        ["allow", "deny", "yaml", "large", "close", "204", "202"]
            .into_iter()
            .chain(["400", "401", "403", "404", "405", "406", "409", "415", "418", "422", "500"])
            .chain(["503", "504", "text.500", "text.403", "text.406"])
            .map(|word| (word, word.to_owned()))
            .collect();
    let refusals = [
        json!({"message": "no", "code": 418, "reason": "Teapot"}),
        json!({"message": "no", "reason": "Conflict", "code": 409}),
        json!({"reason": "NotFound"}),
        json!({"code": 200, "status": "Success", "message": "x"}),
        json!({"code": 99}),
        json!({"message": "m", "details": {"name": "n", "group": "g", "kind": "k", "uid": "u",
            "retryAfterSeconds": 3, "causes": [{"reason": "r", "message": "c", "field": "f"}]}}),
        json!("text"),
        json!({"code": "x"}),
        json!({"message": 5}),
    ];
    scripts.extend(refusals.iter().map(|status| ("refuse", script("refuse", status))));
    let responses = [
        json!({"uid": "other"}),
        json!({"uid": null}),
        json!({"allowed": "yes"}),
        json!({"allowed": null}),
        json!({"warnings": ["one", "", "two \"quoted\"", "line\nbreak", "é"]}),
        json!({"warnings": "one"}),
        json!({"allowed": false, "warnings": ["refused"]}),
        json!({"auditAnnotations": {"a": "b"}}),
        json!({"auditAnnotations": {"a": 1}}),
        json!({"auditAnnotations": []}),
        json!({"patch": "W10="}),
        json!({"patchType": "JSONPatch"}),
        json!({"patch": "%%"}),
    ];
    scripts.extend(responses.iter().map(|members| ("respond", script("respond", members))));
    let reviews = [
        json!({"response": null}),
        json!({"response": "x"}),
        json!({"kind": "Pod"}),
        json!({"apiVersion": "admission.k8s.io/v1beta1"}),
        json!({"apiVersion": "a/v1"}),
        json!({"apiVersion": null, "kind": null}),
        json!({"more": 1}),
    ];
    scripts.extend(reviews.iter().map(|members| ("review", script("review", members))));
    for body in ["", "{", "[]", "5", "null", "\"x\"", "{\"kind\": 1}", "<html>", "a: b"] {
        scripts.push(("body", format!("body={}", hex(body))));
    }
    let failure = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"from it"}"#;
    scripts.push(("body of a Status", format!("body={}", hex(failure))));
    let mut cases: Vec<Case> = scripts
        .iter()
        .map(|(word, script)| {
            validating(&format!("answer {word}"), vec![json!({"script": script})])
        })
        .collect();
    cases.extend(failures_and_versions());
    cases
}

/// Failure policies, and versions of reviews.
fn failures_and_versions() -> Vec<Case> {
    let mut cases = vec![validating("slow", vec![json!({"script": "slow", "timeoutSeconds": 1})])];
    let ignored = |script: &str| json!({"script": script, "failurePolicy": "Ignore"});
    cases.push(validating("ignored failures", vec![ignored("500"), ignored("close")]));
    cases.push(validating("a refusal is not ignored", vec![ignored("deny")]));
    cases.push(mutating("ignored failures", vec![ignored("500"), json!({"script": "allow"})]));
    for versions in [json!(["v1beta1"]), json!(["v1beta1", "v1"]), json!(["v7", "v1"])] {
        let of = |script: &str| json!({"script": script, "admissionReviewVersions": versions});
        cases.push(validating("versions of reviews", vec![of("allow")]));
        cases.push(mutating("versions of reviews", vec![of(&labelled("a", "b"))]));
        cases.push(mutating("versions of reviews", vec![of("deny")]));
    }
    let beta = json!(["v1beta1"]);
    let odd = script("respond", &json!({"uid": "other", "patchType": "Odd", "patch": "W10="}));
    let odd = json!({"script": odd, "admissionReviewVersions": beta});
    cases.push(validating("v1beta1 asks for less", vec![odd.clone()]));
    cases.push(mutating("v1beta1 asks for less", vec![odd]));
    cases
}

/// A script that adds a label.
fn labelled(name: &str, value: &str) -> String {
    let path = format!("/metadata/labels/{name}");
    script("patch", &json!([{"op": "add", "path": path, "value": value}]))
}

fn patches() -> Vec<Case> {
    let operations = [
        json!([]),
        json!(null),
        json!({"a": 1}),
        json!(["x"]),
        json!([null]),
        json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]),
        json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b b"}}]),
        json!([{"op": "add", "path": "/data/hook", "value": "1"}]),
        json!([{"op": "add", "path": "/data", "value": "1"}]),
        json!([{"op": "add", "path": "/unknown", "value": 1}]),
        json!([{"op": "remove", "path": "/data"}]),
        json!([{"op": "remove", "path": "/none"}]),
        json!([{"op": "test", "path": "/data/k", "value": "x"}]),
        json!([{"op": "frob", "path": "/x"}]),
        json!([{"op": "replace", "path": "", "value": []}]),
        json!([{"op": "replace", "path": "/metadata/name", "value": "z"}]),
        json!([{"op": "replace", "path": "/metadata/namespace", "value": "default"}]),
        json!([{"op": "remove", "path": "/metadata/namespace"}]),
        json!([{"op": "replace", "path": "/metadata/uid", "value": "abc"}]),
        json!([{"op": "replace", "path": "/kind", "value": "Odd"}]),
        json!([{"op": "replace", "path": "/apiVersion", "value": "v2"}]),
        json!([{"op": "remove", "path": "/kind"}]),
        json!([{"op": "add", "path": "/metadata/finalizers", "value": ["a.b/c"]}]),
        json!([{"op": "add", "path": "/immutable", "value": true}]),
    ];
    let mut cases: Vec<Case> = operations
        .iter()
        .map(|operations| mutating("patch", vec![json!({"script": script("patch", operations)})]))
        .collect();
    for members in [
        json!({"patch": "W10=", "patchType": null}),
        json!({"patch": "W10=", "patchType": "Merge"}),
        json!({"patch": "W3sib3AiOiJhZGQifV0=", "patchType": "Merge"}),
        json!({"patch": "aGVsbG8=", "patchType": "JSONPatch"}),
        json!({"patch": "W10=", "patchType": ""}),
        json!({"patchType": "JSONPatch"}),
    ] {
        cases.push(mutating("patch type", vec![json!({"script": script("respond", &members)})]));
    }
    let change = json!([{"op": "replace", "path": "/spec/replicas", "value": 3}]);
    let rules = |resources: &[&str]| {
        json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
            "resources": resources}])
    };
    let hook = |resources: &[&str], operations: &Value| json!({"script": script("patch", operations), "rules": rules(resources)});
    let mut case = mutating("patch of a deployment", vec![hook(&["deployments"], &change)]);
    case.requests = vec![deployment()];
    cases.push(case.clone());
    case.name = "patch of a scale".to_owned();
    case.mutating = vec![hook(&["deployments/scale"], &change)];
    case.before = vec![deployment()];
    let body = json!({"spec": {"replicas": 7}});
    let path = format!("{DEPLOYMENTS}/a/scale");
    case.requests = vec![Request { media: MERGE, ..Request::new("PATCH", &path, body) }];
    cases.push(case.clone());
    case.name = "what a patch changes beside the status stays".to_owned();
    case.mutating = vec![hook(&["deployments/status"], &change)];
    let path = format!("{DEPLOYMENTS}/a/status");
    let body = json!({"status": {"replicas": 7}});
    case.requests = vec![Request { media: MERGE, ..Request::new("PATCH", &path, body) }];
    cases.push(case);
    cases
}

/// Several webhooks, and reinvocation.
fn sequences() -> Vec<Case> {
    let again = |script: String| json!({"script": script, "reinvocationPolicy": "IfNeeded"});
    let once = |script: String| json!({"script": script});
    let tests = script("patch", &json!([{"op": "test", "path": "/data/k", "value": "v"}]));
    vec![
        mutating("in order", vec![once(labelled("a", "1")), once(labelled("b", "2"))]),
        mutating("again after others", vec![again(labelled("a", "1")), once(labelled("b", "2"))]),
        mutating("not after itself", vec![once(labelled("a", "1")), again(labelled("b", "2"))]),
        mutating("both again", vec![again(labelled("a", "1")), again(labelled("b", "2"))]),
        mutating("nothing changed", vec![again("allow".into()), once(labelled("app", "a"))]),
        mutating("a patch that only tests", vec![again("allow".into()), once(tests.clone())]),
        mutating("a patch that only tests", vec![again(tests.clone()), once(tests.clone())]),
        mutating("a patch that only tests", vec![once(tests.clone()), again(tests)]),
        mutating("the first refuses", vec![once("deny".into()), once(labelled("b", "2"))]),
        mutating(
            "one that matches what another made",
            vec![
                json!({"script": "deny", "objectSelector": {"matchLabels": {"b": "2"}}}),
                once(labelled("b", "2")),
                json!({"script": labelled("c", "3"), "objectSelector": {"matchLabels": {"b": "2"}}}),
            ],
        ),
        validating(
            "the first refusal in order",
            vec![
                json!({"script": script("refuse", &json!({"message": "first"}))}),
                json!({"script": "allow"}),
            ],
        ),
        Case {
            validating: vec![once(script("respond", &json!({"warnings": ["v"]})))],
            ..mutating("both sorts", vec![once(labelled("a", "1"))])
        },
    ]
}

/// Selectors, match conditions, scopes and match policies.
fn matching() -> Vec<Case> {
    let deny = |members: Value| {
        let mut webhook = members;
        webhook["script"] = json!("deny");
        webhook
    };
    let condition =
        |text: &str| deny(json!({"matchConditions": [{"name": "c", "expression": text}]}));
    let mut cases = vec![];
    for selector in [
        json!({"matchLabels": {"app": "a"}}),
        json!({"matchLabels": {"app": "b"}}),
        json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
        json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}),
    ] {
        cases.push(validating("object selector", vec![deny(json!({"objectSelector": selector}))]));
    }
    let other = json!({"matchLabels": {"case": "$NS", "more": "x"}});
    cases.push(validating("namespace selector", vec![deny(json!({"namespaceSelector": other}))]));
    for text in [
        "object.data.k == 'v'",
        "object.data.k == 'x'",
        "object.data.x == 'v'",
        "request.operation == 'CREATE' && request.resource.resource == 'configmaps'",
        "request.userInfo.username == 'admin' && request.dryRun == false",
        "has(request.subResource)",
        "request.name == 'a' && request.namespace.startsWith('case')",
        "authorizer.group('').resource('pods').namespace('default').check('get').allowed()",
        "oldObject == null",
    ] {
        cases.push(validating("match condition", vec![condition(text)]));
        cases.push(mutating("match condition", vec![condition(text)]));
    }
    let mut ignored = condition("object.data.x == 'v'");
    ignored["failurePolicy"] = json!("Ignore");
    cases.push(validating("match condition that fails", vec![ignored]));
    for (rules, policy) in [
        (rule("", "v1", "configmaps", "Namespaced"), "Exact"),
        (rule("", "v1", "configmaps", "Cluster"), "Exact"),
        (rule("", "v2", "configmaps", "*"), "Equivalent"),
        (rule("apps", "v1", "*", "*"), "Equivalent"),
        (rule("", "v1", "*", "*"), "Exact"),
        (rule("", "v1", "*/*", "*"), "Exact"),
        (rule("", "v1", "configmaps/*", "*"), "Exact"),
        (rule("", "v1", "*/status", "*"), "Exact"),
    ] {
        let webhook = deny(json!({"rules": rules, "matchPolicy": policy}));
        cases.push(validating("rules", vec![webhook]));
    }
    cases.extend(equivalents());
    cases
}

/// A rule for CREATE.
fn rule(groups: &str, versions: &str, resources: &str, scope: &str) -> Value {
    json!([{"operations": ["CREATE"], "apiGroups": [groups], "apiVersions": [versions],
        "resources": [resources], "scope": scope}])
}

/// Rules for other versions and groups than that of the request.
fn equivalents() -> Vec<Case> {
    let mut cases = vec![];
    for policy in ["Exact", "Equivalent"] {
        let scaler = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
        let path = "/apis/autoscaling/v2/namespaces/$NS/horizontalpodautoscalers";
        let annotate = json!([{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}]);
        let webhook = json!({"script": script("patch", &annotate), "matchPolicy": policy,
            "rules": rule("autoscaling", "v1", "horizontalpodautoscalers", "*")});
        let mut case = mutating("another version", vec![webhook]);
        case.requests = vec![Request::new("POST", path, scaler)];
        cases.push(case);
        let event = json!({"metadata": {"name": "e"}, "reason": "R", "message": "m",
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "$NS"}});
        let webhook = json!({"script": "deny", "matchPolicy": policy,
            "rules": rule("events.k8s.io", "v1", "events", "*")});
        let mut case = validating("another group", vec![webhook]);
        case.requests = vec![Request::new("POST", "/api/v1/namespaces/$NS/events", event)];
        cases.push(case);
    }
    cases
}

/// The review of each verb.
fn operations() -> Vec<Case> {
    let path = format!("{CONFIG_MAPS}/a");
    let patched = |media, body: Value| Request { media, ..Request::new("PATCH", &path, body) };
    let dry = |mut request: Request| {
        request.path.push_str("?dryRun=All");
        request
    };
    let update = || {
        let body = json!({"metadata": {"name": "a", "labels": {"app": "b"}}, "data": {"k": "w"}});
        Request::new("PUT", &path, body)
    };
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"},
        "data": {"k": "v"}});
    let apply = Request {
        media: "application/apply-patch+yaml",
        ..Request::new("PATCH", &format!("{CONFIG_MAPS}/b?fieldManager=f"), applied)
    };
    let deletion = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0,
        "propagationPolicy": "Background"});
    let requests = vec![
        update(),
        dry(update()),
        patched(MERGE, json!({"data": {"l": "1"}})),
        patched("application/strategic-merge-patch+json", json!({"data": {"m": "1"}})),
        patched(
            "application/json-patch+json",
            json!([{"op": "add", "path": "/data/n", "value": "1"}]),
        ),
        apply.clone(),
        apply,
        Request::new("PUT", &format!("{CONFIG_MAPS}/none"), json!({"metadata": {"name": "none"}})),
        dry(Request::new("DELETE", &path, Value::Null)),
        Request::new("DELETE", &path, deletion),
        Request::new("DELETE", CONFIG_MAPS, Value::Null),
    ];
    let both = |script: &str| Case {
        name: format!("verbs, {script}"),
        mutating: vec![json!({"script": script})],
        validating: vec![json!({"script": script, "sideEffects": "NoneOnDryRun"})],
        before: vec![config_map()],
        requests: requests.clone(),
    };
    let mut cases = vec![both("allow"), both("deny")];
    let touch = json!([{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}]);
    let mut deleting = both("allow");
    deleting.name = "a patch of what is deleted".to_owned();
    deleting.mutating = vec![json!({"script": script("patch", &touch)})];
    cases.push(deleting);
    let named = json!({"metadata": {"name": "$NS-x", "labels": {"case": "$NS"}}});
    let all = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
        "resources": ["namespaces", "namespaces/*"]}]);
    let mut spaces = validating("namespaces", vec![json!({"rules": all})]);
    let space = "/api/v1/namespaces/$NS-x";
    let labels = json!({"metadata": {"labels": {"more": "x"}}});
    spaces.requests = vec![
        Request::new("POST", "/api/v1/namespaces", named),
        Request { media: MERGE, ..Request::new("PATCH", space, labels) },
        Request::new("DELETE", space, Value::Null),
    ];
    cases.push(spaces);
    cases
}
