//! Access reviews. Expected responses are those of kube-apiserver 1.36.

use crate::world::{Client, Server, without_accounts};
use serde_json::{Value, json};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Returns the error of a review with a selector in its resource attributes: the evaluation error
/// or the message.
fn error_of(client: &Client, name: &str, selector: &Value) -> String {
    let attributes = json!({"verb": "list", "resource": "pods", name: selector});
    let review = json!({"spec": {"user": "u", "resourceAttributes": attributes}});
    let answer = client.post(REVIEWS, &review);
    let error = match answer.status {
        201 => &answer.body["status"]["evaluationError"],
        _ => &answer.body["message"],
    };
    error.as_str().unwrap_or_default().to_owned()
}

#[test]
fn invalid_selectors_of_a_review_are_reported() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let check = |name: &str, selector: Value, want: &str| {
        let got = error_of(&client, name, &selector);
        let at = format!("spec.resourceAttributes.{name}");
        let want = match want {
            "" => String::new(),
            "ignored" | "partially ignored" => format!("{at} {want} due to parse error"),
            refusal => format!(".authorization.k8s.io \"\" is invalid: {at}.requirements{refusal}"),
        };
        assert_eq!(got, want, "{name} {selector}");
    };
    let one = |key: &str, operator: &str, values: &[&str]| json!({"requirements": [{"key": key, "operator": operator, "values": values}]});
    let needs = "[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'";
    let has = "[0].values: Forbidden: may not be specified when `operator` is 'Exists' or \
               'DoesNotExist'";
    for name in ["fieldSelector", "labelSelector"] {
        check(name, one("a", "In", &["x"]), "");
        check(name, one("a", "In", &[]), needs);
        check(name, one("a", "Exists", &["x"]), has);
        check(name, one("a", "Bad", &["x"]), "ignored");
        check(name, json!({"rawSelector": "=bad="}), "ignored");
        check(name, json!({"rawSelector": "a==b,c!=d"}), "");
    }
    let fields = "fieldSelector";
    check(fields, one("a", "In", &["x", "y"]), "ignored");
    check(fields, one("a", "Exists", &[]), "ignored");
    check(fields, one("", "In", &["x"]), "[0].key: Required value: must be specified");
    check(fields, json!({"rawSelector": "a in (b)"}), "ignored");
    let both = json!({"requirements": [{"key": "a", "operator": "Exists"},
        {"key": "b", "operator": "In", "values": ["q"]}]});
    check(fields, both.clone(), "partially ignored");
    check("labelSelector", both, "");
    check("labelSelector", one("a", "Exists", &[]), "");
    let attributes =
        json!({"verb": "list", "resource": "pods", "fieldSelector": one("", "In", &["x"])});
    let nobody = client.post(REVIEWS, &json!({"spec": {"resourceAttributes": attributes}})).body;
    let fields: Vec<&Value> = nobody["details"]["causes"]
        .as_array()
        .expect("causes")
        .iter()
        .map(|cause| &cause["field"])
        .collect();
    let key = "spec.resourceAttributes.fieldSelector.requirements[0].key";
    assert_eq!(fields, ["spec.user", key]);
    let attributes = json!({"verb": "list", "resource": "pods", "fieldSelector": {"rawSelector": "bad"},
        "labelSelector": {"rawSelector": "=b="}});
    let review = json!({"spec": {"user": "u", "resourceAttributes": attributes}});
    assert_eq!(
        client.post(REVIEWS, &review).body["status"]["evaluationError"],
        "spec.resourceAttributes.fieldSelector ignored due to parse error; \
         spec.resourceAttributes.labelSelector ignored due to parse error"
    );
    server.stop();
}

#[test]
fn rules_of_a_binding_with_repeated_subjects_are_listed_once() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "r"},
        "rules": [{"apiGroups": ["example.org"], "resources": ["widgets"], "verbs": ["get"]}]});
    assert_eq!(client.post(&format!("{rbac}/clusterroles"), &role).status, 201);
    let binding = json!({"metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "u"}, {"kind": "Group", "name": "g"}]});
    assert_eq!(client.post(&format!("{rbac}/clusterrolebindings"), &binding).status, 201);
    let headers = "Impersonate-User: u\r\nImpersonate-Group: g\r\nImpersonate-Group: g\r\n\
                   Content-Type: application/json\r\n";
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let review = json!({"spec": {"namespace": "default"}});
    let answer = client.request("POST", path, headers, Some(&review)).body;
    let rules = answer["status"]["resourceRules"].as_array().expect("rules");
    let ours = rules.iter().filter(|rule| rule["resources"] == json!(["widgets"])).count();
    assert_eq!(ours, 1);
    server.stop();
}

/// Recorded from kube-apiserver 1.36.3.
#[test]
fn a_token_review_keeps_what_a_client_wrote_to_its_status() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let status = json!({"authenticated": true, "audiences": ["x"], "error": "e",
        "user": {"username": "u"}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = json!({"spec": {"token": "unknown"}, "status": status});
    let answer = client.post(reviews, &review);
    let want = json!({"audiences": ["x"], "error": "invalid bearer token",
        "user": {"username": "u"}});
    assert_eq!((answer.status, &answer.body["status"]), (201, &want));
    let answer = client.post(reviews, &json!({"spec": {"token": "unknown"}}));
    let want = json!({"error": "invalid bearer token", "user": {}});
    assert_eq!((answer.status, &answer.body["status"]), (201, &want));
}
