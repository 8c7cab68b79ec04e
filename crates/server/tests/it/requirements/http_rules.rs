//! R-HTTP: status codes.

use super::faulty_server::FaultyServer;
use super::{MAPS, create, map, pod, refused, seconds, server};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Proves: R-HTTP-01, R-HTTP-02, R-HTTP-03, R-HTTP-04.
#[test]
fn success_is_200_or_201_or_204_without_a_body() {
    let server = server();
    let client = server.client();
    let made = client.post(MAPS, &map("a", "1"));
    assert_eq!((made.status, &made.body["kind"]), (201, &json!("ConfigMap")));
    let one = format!("{MAPS}/a");
    assert_eq!(client.get(&one).status, 200);
    assert_eq!(client.get(MAPS).status, 200);
    let changed = client.call("PUT", &one, "application/json", Some(&map("a", "2")));
    assert_eq!((changed.status, &changed.body["data"]["v"]), (200, &json!("2")));
    assert_eq!(client.delete(&one).status, 200);
    // The log of an unscheduled Pod exists and is empty.
    assert_eq!(client.post(PODS, &pod("p")).status, 201);
    let log = client.get(&format!("{PODS}/p/log"));
    assert_eq!((log.status, &log.body), (204, &json!("")));
    assert_eq!(log.header("content-type"), None);
    let head = client.request("HEAD", "/healthz", "", None);
    assert_eq!((head.status, &head.body), (200, &json!("")));
    server.stop();
}

/// Proves: R-HTTP-04, R-HTTP-10, R-STAT-19.
///
/// kube-apiserver answers OPTIONS with 405 where no origins are allowed.
#[test]
fn an_unsupported_method_is_405() {
    let server = server();
    let client = server.client();
    create(&client, "a");
    let why = "the server does not allow this method on the requested resource";
    let one = format!("{MAPS}/a");
    for (method, path) in [
        ("POST", one.as_str()),
        ("PUT", MAPS),
        ("PATCH", MAPS),
        ("OPTIONS", &one),
        ("OPTIONS", MAPS),
        ("DELETE", "/api/v1/namespaces"),
        ("GET", "/api/v1/namespaces/default/bindings"),
        ("DELETE", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ("DELETE", &format!("{PODS}/p/log")),
    ] {
        let answer = client.call(method, path, "application/json", None);
        refused(&answer, 405, "MethodNotAllowed", why);
        assert_eq!(answer.body["details"], json!({}), "{method} {path}");
    }
    let head = client.request("HEAD", &one, "", None);
    assert_eq!((head.status, &head.body), (405, &json!("")));
    assert_eq!(client.get(&one).status, 200);
    server.stop();
}

/// Proves: R-HTTP-06, R-STAT-10.
#[test]
fn a_malformed_request_is_400() {
    let server = server();
    let client = server.client();
    let made = create(&client, "a");
    let one = format!("{MAPS}/a");
    let renamed = "the name of the object (b) does not match the name on the URL (a)";
    let other = "Pod in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Pod) to \
                 (core.ConfigMap): unknown conversion";
    let options = "no kind \"Pod\" is registered for version \"v1\" in scheme \
                   \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\"";
    let number = "strconv.ParseInt: parsing \"x\": invalid syntax";
    let limit = format!("{MAPS}?limit=x");
    for (method, path, body, why) in [
        ("GET", limit.as_str(), None, number),
        ("PUT", &one, Some(map("b", "1")), renamed),
        ("POST", MAPS, Some(pod("p")), other),
        ("DELETE", &one, Some(pod("p")), options),
    ] {
        let answer = client.call(method, path, "application/json", body.as_ref());
        refused(&answer, 400, "BadRequest", why);
    }
    assert_eq!(client.get(&one).body, made);
    server.stop();
}

/// Proves: R-HTTP-07, R-HTTP-08, R-STAT-11, R-STAT-12.
#[test]
fn unknown_users_get_401_and_unauthorized_ones_403() {
    let server = server();
    let client = server.client();
    let made = create(&client, "a");
    let one = format!("{MAPS}/a");
    let wrong = client.request("DELETE", &one, "Authorization: Bearer wrong\r\n", None);
    refused(&wrong, 401, "Unauthorized", "Unauthorized");
    // Credentials with an unknown scheme are ignored.
    let basic = client.request("DELETE", &one, "Authorization: Basic YTpi\r\n", None);
    let why = "configmaps \"a\" is forbidden: User \"system:anonymous\" cannot delete resource \
               \"configmaps\" in API group \"\" in the namespace \"default\"";
    refused(&basic, 403, "Forbidden", why);
    let nobody = "Authorization: Bearer t\r\nImpersonate-User: nobody\r\n";
    for (method, path, verb, details) in [
        ("GET", one.as_str(), "get", json!({"name": "a", "kind": "configmaps"})),
        ("GET", MAPS, "list", json!({"kind": "configmaps"})),
        ("DELETE", &one, "delete", json!({"name": "a", "kind": "configmaps"})),
    ] {
        let answer = client.request(method, path, nobody, None);
        let name = if verb == "list" { String::new() } else { " \"a\"".to_owned() };
        let why = format!(
            "configmaps{name} is forbidden: User \"nobody\" cannot {verb} resource \"configmaps\" \
             in API group \"\" in the namespace \"default\""
        );
        refused(&answer, 403, "Forbidden", &why);
        assert_eq!(answer.body["details"], details);
    }
    assert_eq!(client.get(&one).body, made);
    server.stop();
}

/// Proves: R-HTTP-09, R-STAT-13.
#[test]
fn absent_objects_and_their_parents_are_404() {
    let server = server();
    let client = server.client();
    let none = client.get(&format!("{MAPS}/none"));
    refused(&none, 404, "NotFound", "configmaps \"none\" not found");
    assert_eq!(none.body["details"], json!({"name": "none", "kind": "configmaps"}));
    let apps = client.get("/apis/apps/v1/namespaces/default/deployments/none");
    refused(&apps, 404, "NotFound", "deployments.apps \"none\" not found");
    let details = json!({"name": "none", "group": "apps", "kind": "deployments"});
    assert_eq!(apps.body["details"], details);
    let within = client.post("/api/v1/namespaces/none/configmaps", &map("a", "1"));
    refused(&within, 404, "NotFound", "namespaces \"none\" not found");
    assert_eq!(within.body["details"], json!({"name": "none", "kind": "namespaces"}));
    let resource = client.get("/api/v1/things");
    let why = "the server could not find the requested resource";
    refused(&resource, 404, "NotFound", why);
    assert_eq!(client.get("/apis/example.org/v1/things").status, 404);
    server.stop();
}

/// Proves: R-HTTP-13, R-STAT-16.
#[test]
fn an_invalid_object_is_422_with_all_its_causes() {
    let server = server();
    let client = server.client();
    let mut obj = pod("Wrong");
    obj["spec"]["containers"][0]["name"] = json!("");
    obj["spec"]["restartPolicy"] = json!("Sometimes");
    let answer = client.post(PODS, &obj);
    assert_eq!((answer.status, &answer.body["reason"]), (422, &json!("Invalid")), "{answer:?}");
    let details = &answer.body["details"];
    assert_eq!((&details["name"], &details["kind"]), (&json!("Wrong"), &json!("Pod")));
    let causes = details["causes"].as_array().expect("causes");
    let shown: Vec<(&str, &str)> = causes
        .iter()
        .map(|cause| {
            let text = |name: &str| cause[name].as_str().unwrap_or_default();
            assert_ne!(text("message"), "", "{cause}");
            (text("field"), text("reason"))
        })
        .collect();
    for want in [
        ("metadata.name", "FieldValueInvalid"),
        ("spec.containers[0].name", "FieldValueRequired"),
        ("spec.restartPolicy", "FieldValueNotSupported"),
    ] {
        assert!(shown.contains(&want), "{shown:?}");
    }
    let message = answer.body["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("Pod \"Wrong\" is invalid: ["), "{message}");
    server.stop();
}

/// Proves: R-HTTP-14, R-STAT-08.
#[test]
fn too_many_evictions_get_429_with_retry_after() {
    let server = server();
    let client = server.client();
    let mut obj = pod("p");
    obj["metadata"]["labels"] = json!({"a": "b"});
    obj["spec"]["nodeName"] = json!("n");
    assert_eq!(client.post(PODS, &obj).status, 201);
    let merge = super::MERGE_PATCH;
    let running = json!({"status": {
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]
    }});
    super::patch(&client, &format!("{PODS}/p/status"), merge, &running);
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}
    });
    assert_eq!(client.post(budgets, &budget).status, 201);
    let evict = |query: &str| {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}
        });
        client.post(&format!("{PODS}/p/eviction{query}"), &eviction)
    };
    let too_many = "Cannot evict pod as it would violate the pod's disruption budget.";
    let cause = |why: &str| json!([{"reason": "DisruptionBudget", "message": why}]);
    let answer = evict("");
    refused(&answer, 429, "TooManyRequests", too_many);
    assert_eq!(answer.header("retry-after"), Some("10"));
    assert_eq!(answer.body["details"]["retryAfterSeconds"], 10);
    let why = "The disruption budget b is still being processed by the server.";
    assert_eq!(answer.body["details"]["causes"], cause(why));

    let counts = |allowed: i64, healthy: i64| {
        let status = json!({"status": {
            "observedGeneration": 1, "disruptionsAllowed": allowed, "expectedPods": healthy,
            "desiredHealthy": 1, "currentHealthy": healthy
        }});
        super::patch(&client, &format!("{budgets}/b/status"), merge, &status);
    };
    counts(0, 1);
    let answer = evict("");
    refused(&answer, 429, "TooManyRequests", too_many);
    assert_eq!(answer.header("retry-after"), None);
    let why = "The disruption budget b needs 1 healthy pods and has 1 currently";
    assert_eq!(answer.body["details"], json!({"causes": cause(why)}));

    counts(1, 2);
    assert_eq!(evict("?dryRun=All").status, 201);
    assert_eq!(client.get(&format!("{PODS}/p")).body["metadata"]["deletionTimestamp"], Value::Null);
    let done = evict("");
    assert_eq!((done.status, &done.body["status"]), (201, &json!("Success")), "{done:?}");
    let going = client.get(&format!("{PODS}/p")).body;
    assert!(seconds(&going["metadata"]["deletionTimestamp"]) > 0);
    let why = &going["status"]["conditions"][1];
    assert_eq!((&why["type"], &why["status"]), (&json!("DisruptionTarget"), &json!("True")));
    let left = client.get(&format!("{budgets}/b")).body["status"].clone();
    assert_eq!(left["disruptionsAllowed"], 0);
    assert!(seconds(&left["disruptedPods"]["p"]) > 0, "{left}");
    assert_eq!(left["conditions"][0]["reason"], "InsufficientPods", "{left}");
    server.stop();
}

#[test]
fn a_binding_and_an_eviction_name_their_pod_and_its_namespace() {
    let server = server();
    let client = server.client();
    assert_eq!(client.post(PODS, &pod("p")).status, 201);
    for (part, kind, metadata, why) in [
        ("binding", "Binding", json!({}), "name in URL does not match name in Binding object"),
        (
            "eviction",
            "Eviction",
            json!({"generateName": "p"}),
            "name in URL does not match name in Eviction object",
        ),
        (
            "binding",
            "Binding",
            json!({"name": "p", "namespace": "x"}),
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ] {
        let version = if kind == "Binding" { "v1" } else { "policy/v1" };
        let body = json!({
            "apiVersion": version, "kind": kind, "metadata": metadata,
            "target": {"kind": "Node", "name": "n"}
        });
        let answer = client.post(&format!("{PODS}/p/{part}"), &body);
        refused(&answer, 400, "BadRequest", why);
    }
    server.stop();
}

/// Proves: R-HTTP-15, R-STAT-18, R-STAT-20.
///
/// kube-apiserver has reason ServerTimeout with 500, where older texts have 504.
#[test]
fn server_faults_and_lost_store_responses_are_500() {
    let server = FaultyServer::start();
    let client = server.client();
    let faults = &server.faults;
    create(&client, "a");

    faults.set(&faults.writes_stop, true);
    let answer = client.post(MAPS, &map("b", "1"));
    let why = "the disk failed the write: the disk is gone";
    refused(&answer, 500, "InternalError", &format!("Internal error occurred: {why}"));
    assert_eq!(answer.body["details"]["causes"], json!([{"message": why}]));
    faults.set(&faults.writes_stop, false);

    faults.set(&faults.values_unreadable, true);
    let answer = client.post(MAPS, &map("b", "1"));
    let why = json!("a stored value cannot be read: the disk is gone");
    assert_eq!((answer.status, &answer.body["message"]), (500, &why));
    assert_eq!(answer.body.get("reason"), None, "the reference has none either");
    faults.set(&faults.values_unreadable, false);

    faults.set(&faults.writes_get_lost, true);
    let one = format!("{MAPS}/a");
    for (method, path, body, action) in [
        ("POST", MAPS, Some(map("b", "1")), "create"),
        ("PUT", &one, Some(map("a", "2")), "update"),
        ("DELETE", &one, None, "delete"),
    ] {
        let answer = client.call(method, path, "application/json", body.as_ref());
        let why = format!(
            "The {action} operation against configmaps could not be completed at this time, please \
             try again."
        );
        refused(&answer, 500, "ServerTimeout", &why);
        let details = json!({"name": action, "kind": "configmaps", "retryAfterSeconds": 2});
        assert_eq!(answer.body["details"], details);
        assert_eq!(answer.header("retry-after"), Some("2"));
    }
    faults.set(&faults.writes_get_lost, false);

    faults.set(&faults.time_panics, true);
    let answer = client.post(MAPS, &map("b", "1"));
    let why = "This request caused apiserver to panic. Look in the logs for details.";
    assert_eq!((answer.status, answer.body.as_str().map(str::trim_end)), (500, Some(why)));
    faults.set(&faults.time_panics, false);
    assert_eq!(client.post(MAPS, &map("b", "1")).status, 201);
    server.stop();
}

/// Proves: R-HTTP-16.
#[test]
fn a_service_without_endpoints_is_503() {
    let server = server();
    let client = server.client();
    let path = "/api/v1/namespaces/default/services";
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"clusterIP": "None", "ports": [{"port": 80}]}
    });
    assert_eq!(client.post(path, &service).status, 201);
    let answer = client.get(&format!("{path}/s/proxy"));
    refused(&answer, 404, "NotFound", "services \"s\" not found");
    let endpoints = json!({"metadata": {"name": "s"}});
    let created = client.post("/api/v1/namespaces/default/endpoints", &endpoints);
    assert_eq!(created.status, 201);
    let answer = client.get(&format!("{path}/s/proxy"));
    refused(&answer, 503, "ServiceUnavailable", "no endpoints available for service \"s\"");
    server.stop();
}

/// Proves: R-HTTP-17, R-STAT-17.
///
/// kube-apiserver has reason Timeout with 504, where older texts have 429.
#[test]
fn a_request_has_the_timeout_of_its_parameter() {
    let server = server();
    let client = server.client();
    create(&client, "a");
    let began = Instant::now();
    let path = format!("{MAPS}/a?resourceVersion=1000000&timeout=100ms");
    let answer = client.get(&path);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let why = "Timeout: request did not complete within the allotted timeout";
    refused(&answer, 504, "Timeout", why);
    assert_eq!(answer.body["details"], json!({}));
    assert_eq!(client.get(&format!("{MAPS}/a?timeout=10s")).status, 200);
    assert_eq!(client.get(&format!("{MAPS}/a?timeout=0s")).status, 200);
    let answer = client.get(&format!("{MAPS}/a?timeout=soon"));
    let why = "invalid timeout specified in the request URL - time: invalid duration \"soon\"";
    refused(&answer, 400, "BadRequest", why);
    server.stop();
}

/// Proves: R-HTTP-18.
#[test]
fn an_unsupported_media_type_is_406() {
    let server = server();
    let client = server.client();
    create(&client, "a");
    for accept in ["text/html", "application/xml,image/png", "application/json;as=Chart;v=v1;g=x"] {
        let answer =
            client.request("GET", &format!("{MAPS}/a"), &format!("Accept: {accept}\r\n"), None);
        assert_eq!((answer.status, &answer.body["reason"]), (406, &json!("NotAcceptable")));
        assert_eq!(answer.body["code"], 406, "{answer:?}");
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert!(message.contains("application/json, application/yaml"), "{message}");
    }
    for accept in ["text/html,*/*;q=0.1", "application/json"] {
        let answer =
            client.request("GET", &format!("{MAPS}/a"), &format!("Accept: {accept}\r\n"), None);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    server.stop();
}
