//! R-OPT and R-PUT: optional and required fields, and updates of whole objects.

use super::world::{
    DEPLOYMENTS, PODS, SERVICES, WIDGETS, define, deployment, everything, invalid, made, read,
    widget, widget_definition, with_widgets,
};
use super::{JSON_PATCH, MERGE_PATCH, patch, pod, put, server};
use serde_json::{Value, json};

/// Returns the paths of required fields that an object has, as JSON pointers, by the published
/// schemas.
fn required(schemas: &Value, reference: &str, obj: &Value, at: &str, found: &mut Vec<String>) {
    let schema = &schemas[reference.trim_start_matches("#/definitions/")];
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap_or_default();
        assert!(schema["properties"][name].is_object(), "{reference} requires {name}");
        if obj.get(name).is_some() {
            found.push(format!("{at}/{name}"));
        }
    }
    for (name, value) in obj.as_object().into_iter().flatten() {
        let property = &schema["properties"][name];
        let path = format!("{at}/{name}");
        if let Some(inner) = property["$ref"].as_str() {
            required(schemas, inner, value, &path, found);
        } else if let Some(inner) = property["items"]["$ref"].as_str() {
            for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                required(schemas, inner, item, &format!("{path}/{index}"), found);
            }
        }
    }
}

/// Required fields without which a kube-apiserver 1.36 accepts an object, too: their zero value is
/// valid.
const TOLERATED: [&str; 12] = [
    "Event /involvedObject",
    "LimitRange /spec/limits",
    "ControllerRevision /revision",
    "CSIDriver /spec",
    "CSINode /spec",
    "CSINode /spec/drivers",
    "CustomResourceDefinition /spec/versions/0/served",
    "DeviceClass /spec",
    "ResourceClaim /spec",
    "ResourceClaimTemplate /spec",
    "ResourceClaimTemplate /spec/spec",
    "ResourceSlice /spec/pool/generation",
];

/// Every kind is refused without any one of the fields that OpenAPI says are required.
///
/// Proves: R-OPT-01, R-OPT-02, R-OPT-03, R-OPT-06.
#[test]
fn objects_need_the_fields_that_openapi_requires_and_no_others() {
    let server = with_widgets();
    let client = server.client();
    let schemas = read(&client, "/openapi/v2")["definitions"].clone();
    let mut count = 0;
    let mut accepted = vec![];
    for walked in everything() {
        let (group, version) =
            walked.api_version.split_once('/').unwrap_or(("", &walked.api_version));
        let gvk = json!({"group": group, "version": version, "kind": walked.kind});
        let of = |(_, schema): &(&String, &Value)| {
            schema["x-kubernetes-group-version-kind"]
                .as_array()
                .is_some_and(|all| all.contains(&gvk))
        };
        let named = schemas.as_object().expect("definitions").iter().find(of);
        let (name, _) = named.unwrap_or_else(|| panic!("no {gvk}"));
        let mut found = vec![];
        required(&schemas, name, &walked.sample, "", &mut found);
        // The sample has nothing but what is required, and is accepted.
        let path = format!("{}?dryRun=All", walked.all());
        made(&client, &path, &walked.sample);
        for field in found {
            let mut obj = walked.sample.clone();
            let (parent, last) = field.rsplit_once('/').expect("a pointer");
            obj.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object").remove(last);
            let answer = client.post(&path, &obj);
            count += 1;
            if answer.status == 201 {
                accepted.push(format!("{} {field}", walked.kind));
            } else {
                assert_eq!(
                    (answer.status, &answer.body["reason"]),
                    (422, &json!("Invalid")),
                    "{field}: {answer:?}"
                );
            }
        }
    }
    assert_eq!(accepted, TOLERATED);
    assert!(count > 60, "{count}");
    server.stop();
}

/// Proves: R-OPT-04, R-OPT-05.
#[test]
fn zero_values_are_kept_and_absent_ones_not_shown() {
    let server = with_widgets();
    let client = server.client();
    let mut zero = deployment("d");
    zero["spec"]["replicas"] = json!(0);
    zero["spec"]["revisionHistoryLimit"] = json!(0);
    zero["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(0);
    zero["spec"]["template"]["spec"]["automountServiceAccountToken"] = json!(false);
    made(&client, DEPLOYMENTS, &zero);
    let spec = read(&client, &format!("{DEPLOYMENTS}/d"))["spec"].clone();
    assert_eq!((&spec["replicas"], &spec["revisionHistoryLimit"]), (&json!(0), &json!(0)));
    let of_pod = &spec["template"]["spec"];
    assert_eq!(of_pod["terminationGracePeriodSeconds"], 0);
    assert_eq!(of_pod["automountServiceAccountToken"], false);
    // Absent ones have no key, those that are never omitted are empty.
    assert!(spec.get("paused").is_none() && of_pod.get("nodeName").is_none(), "{spec}");
    assert_eq!(of_pod["containers"][0]["resources"], json!({}));
    assert_eq!(of_pod["securityContext"], json!({}));
    let empty =
        made(&client, "/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "m"}}));
    assert!(empty.get("data").is_none() && empty.get("immutable").is_none(), "{empty}");
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget =
        made(&client, budgets, &json!({"metadata": {"name": "b"}, "spec": {"maxUnavailable": 0}}));
    assert_eq!(budget["spec"]["maxUnavailable"], 0);
    for count in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        assert_eq!(budget["status"][count], 0, "{budget}");
    }
    let mut own = widget("w");
    own["spec"] = json!({"color": "Red", "size": 0, "note": "", "on": false, "tags": []});
    made(&client, WIDGETS, &own);
    assert_eq!(read(&client, &format!("{WIDGETS}/w"))["spec"], own["spec"]);
    server.stop();
}

/// Every kind: what was read can be put back, and changes nothing, twice.
///
/// Proves: R-PUT-03, R-PUT-04.
#[test]
fn an_object_that_was_read_can_be_put_back() {
    let server = with_widgets();
    let client = server.client();
    for walked in everything() {
        let one = walked.one();
        let obj = walked.settled(&client);
        let first = put(&client, &one, &obj);
        assert_eq!(put(&client, &one, &first), first, "{one}");
        assert_eq!(first, obj, "{one}");
        let mut edited = first.clone();
        edited["metadata"]["labels"]["edited"] = json!("yes");
        edited["metadata"]["annotations"]["edited"] = json!("yes");
        let second = put(&client, &one, &edited);
        assert_eq!(second["metadata"]["annotations"]["edited"], "yes");
        assert_eq!(second["spec"], first["spec"], "{one}");
        assert_ne!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
        // The same without a version is the same again.
        let mut again = second.clone();
        again["metadata"].as_object_mut().expect("a map").remove("resourceVersion");
        let needs_version = client.call("PUT", &one, "application/json", Some(&again));
        if needs_version.status == 200 {
            assert_eq!(needs_version.body, second, "{one}");
        }
        assert_eq!(client.delete(&one).status, 200);
    }
    server.stop();
}

/// Proves: R-PUT-01, R-PUT-02, R-PUT-03, R-PUT-07.
#[test]
fn a_put_replaces_the_whole_object() {
    let server = server();
    let client = server.client();
    let one = format!("{DEPLOYMENTS}/d");
    let mut full = deployment("d");
    full["metadata"]["labels"] = json!({"l": "1"});
    full["spec"]["replicas"] = json!(5);
    full["spec"]["minReadySeconds"] = json!(9);
    full["spec"]["revisionHistoryLimit"] = json!(3);
    let first = made(&client, DEPLOYMENTS, &full);
    let mut bare = deployment("d");
    bare["spec"].as_object_mut().expect("a map").remove("replicas");
    let version = &first["metadata"]["resourceVersion"];
    let path =
        format!("{DEPLOYMENTS}?watch=1&resourceVersion={}", version.as_str().unwrap_or_default());
    let done = put(&client, &one, &bare);
    // What was left out is cleared and defaulted, and who watches is told.
    assert_eq!(done["metadata"]["labels"], Value::Null);
    assert_eq!(
        (&done["spec"]["replicas"], &done["spec"]["revisionHistoryLimit"]),
        (&json!(1), &json!(10))
    );
    assert_eq!(done["spec"]["minReadySeconds"], Value::Null);
    let event = &client.watch(&path, 1).expect("an event")[0];
    assert_eq!((&event["type"], &event["object"]), (&json!("MODIFIED"), &done));
    assert_eq!(put(&client, &one, &bare), done);
    // The same manifest as a new object has the same spec.
    bare["metadata"]["name"] = json!("e");
    assert_eq!(made(&client, DEPLOYMENTS, &bare)["spec"], done["spec"]);
    // What a controller has set and must not be cleared is an error.
    let mut bound = pod("p");
    bound["spec"]["nodeName"] = json!("n");
    let mut stored = made(&client, PODS, &bound);
    stored["spec"].as_object_mut().expect("a map").remove("nodeName");
    let answer = client.call("PUT", &format!("{PODS}/p"), "application/json", Some(&stored));
    invalid(&answer, &["spec"]);
    server.stop();
}

/// Proves: R-PUT-05, R-PUT-06, R-PUT-09.
#[test]
fn immutable_fields_that_the_server_set_may_be_left_out() {
    let server = server();
    let client = server.client();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}});
    let first = made(&client, SERVICES, &service);
    let one = format!("{SERVICES}/s");
    let address = &first["spec"]["clusterIP"];
    assert!(address.as_str().is_some_and(|ip| ip.starts_with("10.")), "{first}");
    // The manifest, which never had it, and an old client that does not know newer fields.
    let again = put(&client, &one, &service);
    assert_eq!(
        (&again["spec"]["clusterIP"], &again["spec"]["clusterIPs"]),
        (address, &json!([address]))
    );
    let mut known = first.clone();
    for newer in ["clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
        known["spec"].as_object_mut().expect("a map").remove(newer);
    }
    known["metadata"]["labels"] = json!({"old": "client"});
    let done = put(&client, &one, &known);
    assert_eq!(done["spec"], first["spec"]);
    let mut other = first.clone();
    other["metadata"].as_object_mut().expect("a map").remove("resourceVersion");
    // Not the one that the service happens to have.
    let another = if address == "10.0.0.77" { "10.0.0.78" } else { "10.0.0.77" };
    other["spec"]["clusterIP"] = json!(another);
    let answer = client.call("PUT", &one, "application/json", Some(&other));
    invalid(&answer, &["spec.clusterIPs[0]"]);
    assert_eq!(read(&client, &one)["spec"]["clusterIP"], *address);
    // The selector of a Job is generated and immutable.
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let selector = made(&client, jobs, &job)["spec"]["selector"].clone();
    let change =
        json!([{"op": "replace", "path": "/spec/selector/matchLabels", "value": {"a": "b"}}]);
    let answer = client.call("PATCH", &format!("{jobs}/j"), JSON_PATCH, Some(&change));
    assert_eq!(answer.status, 422, "{answer:?}");
    let suspended =
        patch(&client, &format!("{jobs}/j"), MERGE_PATCH, &json!({"spec": {"suspend": true}}));
    assert_eq!(suspended["spec"]["selector"], selector);
    server.stop();
}

/// Returns a definition whose two versions have different defaults of `spec.size`.
fn two_versions(rule: &str) -> Value {
    let mut definition = widget_definition();
    let mut first = definition["spec"]["versions"][0].clone();
    first.as_object_mut().expect("a map").remove("selectableFields");
    first["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] =
        json!([{"rule": rule, "message": "too large"}]);
    first["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["note"]["maxLength"] =
        json!(9);
    let mut second = first.clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    second["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"]["default"] =
        json!(7);
    definition["spec"]["versions"] = json!([first, second]);
    definition
}

/// Proves: R-PUT-08, R-DEF-02.
#[test]
fn another_version_has_its_own_defaults() {
    let server = server();
    let client = server.client();
    let rule = "!has(self.note) || self.note != 'small' || self.size < 5";
    define(&client, &two_versions(rule));
    let second = WIDGETS.replace("/v1/", "/v2/");
    let of_second = |name: &str| {
        let mut obj = widget(name);
        obj["apiVersion"] = json!("example.com/v2");
        obj
    };
    assert_eq!(made(&client, WIDGETS, &widget("a"))["spec"]["size"], 3);
    assert_eq!(made(&client, &second, &of_second("b"))["spec"]["size"], 7);
    assert_eq!(read(&client, &format!("{second}/a"))["spec"]["size"], 3);
    let replaced = |obj: &Value| {
        let name = obj["metadata"]["name"].as_str().unwrap_or_default();
        let stored = read(&client, &format!("{second}/{name}"));
        let mut obj = obj.clone();
        obj["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
        client.call("PUT", &format!("{second}/{name}"), "application/json", Some(&obj))
    };
    assert_eq!(replaced(&of_second("a")).body["spec"]["size"], 7);
    // Where validation forbids it, the client gets an error.
    let mut small = widget("c");
    small["spec"]["note"] = json!("small");
    assert_eq!(made(&client, WIDGETS, &small)["spec"]["size"], 3);
    small["apiVersion"] = json!("example.com/v2");
    invalid(&replaced(&small), &["spec"]);
    server.stop();
}
