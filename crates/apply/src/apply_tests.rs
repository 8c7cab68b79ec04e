//! Server-side apply. The expected results are those of kube-apiserver 1.36.

use super::*;
use crate::testing::{Server, config_map, deployment, endpoint_slice, json, pod, service};
use expect_test::{Expect, expect};
use keelson_meta::value;

fn check(result: Result<(), ApplyError>, expected: Expect) {
    match result {
        Ok(()) => expected.assert_eq("ok"),
        Err(error) => expected.assert_eq(&error.to_string()),
    }
}

fn config_maps() -> Server {
    Server::new(config_map())
}

#[test]
fn a_first_apply_creates_and_a_second_one_changes_nothing() {
    let mut server = config_maps();
    server.apply("m1", r#"{"data":{"k":"v"}}"#).unwrap();
    expect![[r#"m1 Apply 00:01 {"f:data":{"f:k":{}}}"#]].assert_eq(&server.owners());
    assert!(server.changed);
    server.apply("m1", r#"{"data":{"k":"v"}}"#).unwrap();
    expect![[r#"m1 Apply 00:01 {"f:data":{"f:k":{}}}"#]].assert_eq(&server.owners());
    assert!(!server.changed);
}

#[test]
fn fields_that_are_no_longer_applied_are_removed() {
    let mut server = config_maps();
    server.apply("m1", r#"{"data":{"k":"v2","n":"1"}}"#).unwrap();
    server.apply("m1", r#"{"data":{"n":"1"}}"#).unwrap();
    expect![[r#"{"n":"1"}"#]].assert_eq(&server.at(&["data"]));
    server.apply("m1", "{}").unwrap();
    expect!["absent"].assert_eq(&server.at(&["data"]));
    expect![""].assert_eq(&server.owners());
}

#[test]
fn a_second_manager_that_applies_the_same_value_shares_the_field() {
    let mut server = config_maps();
    server.apply("m1", r#"{"data":{"k":"v"}}"#).unwrap();
    server.apply("m2", r#"{"data":{"k":"v"}}"#).unwrap();
    server.put("m3", r#"{"data":{"k":"v","z":"1"}}"#);
    expect![[r#"
        m2 Apply never {"f:data":{"f:k":{}}}
        m1 Apply 00:01 {"f:data":{"f:k":{}}}
        m3 Update 00:03 {"f:data":{"f:z":{}}}"#]]
    .assert_eq(&server.owners());
    server.put("m3", r#"{"data":{"k":"changed","z":"1"}}"#);
    expect![[r#"m3 Update 00:04 {"f:data":{"f:k":{},"f:z":{}}}"#]].assert_eq(&server.owners());
}

#[test]
fn a_field_of_another_manager_is_a_conflict() {
    let mut server = config_maps();
    server.apply("m1", r#"{"data":{"j":"1","k":"v"}}"#).unwrap();
    check(
        server.apply("m2", r#"{"data":{"k":"w"}}"#),
        expect![[r#"Apply failed with 1 conflict: conflict with "m1": .data.k"#]],
    );
    check(
        server.apply("m2", r#"{"data":{"j":"2","k":"w"},"metadata":{"labels":{"l":"v"}}}"#),
        expect![[r#"
            Apply failed with 2 conflicts: conflicts with "m1":
            - .data.j
            - .data.k"#]],
    );
    server.force("m2", r#"{"data":{"k":"w"}}"#).unwrap();
    expect![[r#"
        m1 Apply 00:01 {"f:data":{"f:j":{}}}
        m2 Apply 00:04 {"f:data":{"f:k":{}}}"#]]
    .assert_eq(&server.owners());
    server.apply("m1", r#"{"data":{"j":"1"}}"#).unwrap();
    expect![[r#"{"j":"1","k":"w"}"#]].assert_eq(&server.at(&["data"]));
    server.apply("m2", r#"{"data":{}}"#).unwrap();
    expect![[r#"
        m1 Apply 00:01 {"f:data":{"f:j":{}}}
        m2 Apply 00:06 {"f:data":{}}"#]]
    .assert_eq(&server.owners());
}

#[test]
fn a_conflict_is_a_409_with_a_cause_per_field() {
    let mut server = Server::new(deployment());
    server.subresource = "scale";
    server.filter = None;
    server.put("hpa", r#"{"spec":{"replicas":5}}"#);
    server.subresource = "";
    let error = server.apply("m1", r#"{"spec":{"replicas":2}}"#).unwrap_err();
    let status = Failure::from(error);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    let causes = status.details.map(|details| details.causes).unwrap_or_default();
    let shown: Vec<String> =
        causes.iter().map(|c| format!("{} {}: {}", c.reason, c.field, c.message)).collect();
    expect![[r#"FieldManagerConflict .spec.replicas: conflict with "hpa" with subresource "scale" using apps/v1"#]]
        .assert_eq(&shown.join("\n"));
}

#[test]
fn conflicts_are_grouped_by_manager() {
    let mut server = config_maps();
    server.put("creator", r#"{"data":{"a":"1","b":"1"}}"#);
    server.apply("z", r#"{"data":{"c":"1"}}"#).unwrap();
    check(
        server.apply("m", r#"{"data":{"a":"2","b":"2","c":"2"}}"#),
        expect![[r#"
            Apply failed with 3 conflicts: conflicts with "creator" using v1:
            - .data.a
            - .data.b
            conflicts with "z":
            - .data.c"#]],
    );
}

#[test]
fn fields_of_updaters_stay_when_an_applier_drops_them() {
    let mut server = config_maps();
    server.put("creator", r#"{"data":{"j":"1","k":"v"}}"#);
    server.apply("m1", r#"{"data":{"k":"v"}}"#).unwrap();
    expect![[r#"
        m1 Apply never {"f:data":{"f:k":{}}}
        creator Update 00:01 {"f:data":{".":{},"f:j":{},"f:k":{}}}"#]]
    .assert_eq(&server.owners());
    server.force("m1", r#"{"data":{"k":"w"}}"#).unwrap();
    server.patch("creator", r#"{"data":{"k":"x"}}"#);
    expect![[r#"creator Update 00:04 {"f:data":{".":{},"f:j":{},"f:k":{}}}"#]]
        .assert_eq(&server.owners());
    server.force("m1", r#"{"data":{}}"#).unwrap();
    expect![[r#"{"j":"1","k":"x"}"#]].assert_eq(&server.at(&["data"]));
    expect![[r#"
        m1 Apply never {"f:data":{}}
        creator Update 00:04 {"f:data":{".":{},"f:j":{},"f:k":{}}}"#]]
    .assert_eq(&server.owners());
}

#[test]
fn shared_fields_stay_until_the_last_manager_drops_them() {
    let mut server = config_maps();
    server.apply("m1", r#"{"data":{"k":"v","one":"1"}}"#).unwrap();
    server.apply("m2", r#"{"data":{"k":"v","two":"2"}}"#).unwrap();
    server.apply("m1", r#"{"data":{"one":"1"}}"#).unwrap();
    expect![[r#"{"k":"v","one":"1","two":"2"}"#]].assert_eq(&server.at(&["data"]));
    server.apply("m2", r#"{"data":{"two":"2"}}"#).unwrap();
    expect![[r#"{"one":"1","two":"2"}"#]].assert_eq(&server.at(&["data"]));
    server.apply("m1", "{}").unwrap();
    expect![[r#"m2 Apply 00:04 {"f:data":{"f:two":{}}}"#]].assert_eq(&server.owners());
}

const TEMPLATE: &str = r#""selector":{"matchLabels":{"app":"d"}}"#;

fn deploy(containers: &str) -> String {
    format!(r#"{{"spec":{{{TEMPLATE},"template":{{"spec":{{"containers":{containers}}}}}}}}}"#)
}

fn containers(server: &Server) -> String {
    server.at(&["spec", "template", "spec", "containers"])
}

#[test]
fn items_of_lists_are_merged_by_key_in_the_order_of_the_configuration() {
    let mut server = Server::new(deployment());
    server
        .apply("m1", &deploy(r#"[{"name":"a","image":"a:1"},{"name":"b","image":"b:1"}]"#))
        .unwrap();
    let sidecar = r#"{"spec":{"template":{"spec":{"containers":[{"name":"s","image":"s:1"}]}}}}"#;
    server.apply("sidecar", sidecar).unwrap();
    server
        .apply("m1", &deploy(r#"[{"name":"b","image":"b:2"},{"name":"a","image":"a:1"}]"#))
        .unwrap();
    expect![[
        r#"[{"name":"b","image":"b:2"},{"name":"s","image":"s:1"},{"name":"a","image":"a:1"}]"#
    ]]
    .assert_eq(&containers(&server));
    server.apply("m1", &deploy(r#"[{"name":"b","image":"b:2"}]"#)).unwrap();
    expect![[r#"[{"name":"b","image":"b:2"},{"name":"s","image":"s:1"}]"#]]
        .assert_eq(&containers(&server));
    check(
        server.apply(
            "sidecar",
            r#"{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"x"}]}}}}"#,
        ),
        expect![[
            r#"Apply failed with 1 conflict: conflict with "m1": .spec.template.spec.containers[name="b"].image"#
        ]],
    );
    server.apply("sidecar", "{}").unwrap();
    expect![[r#"[{"name":"b","image":"b:2"}]"#]].assert_eq(&containers(&server));
    expect![[r#"m1 Apply 00:04 {"f:spec":{"f:selector":{},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"b\"}":{".":{},"f:image":{},"f:name":{}}}}}}}"#]]
        .assert_eq(&server.owners());
}

#[test]
fn a_removed_item_takes_its_defaults_with_it() {
    let mut server = Server::new(deployment());
    server
        .apply("m1", &deploy(r#"[{"name":"a","image":"a:1"},{"name":"b","image":"b:1"}]"#))
        .unwrap();
    // No manager owns a default.
    if let Some(Value::Array(items)) = server
        .object
        .object_mut("spec")
        .object_at("template")
        .object_at("spec")
        .get_mut("containers")
    {
        for item in items {
            item.as_object_mut().unwrap().insert("imagePullPolicy", "Always");
        }
    }
    server.apply("m1", &deploy(r#"[{"name":"b"}]"#)).unwrap();
    expect![[r#"[{"name":"b","imagePullPolicy":"Always"}]"#]].assert_eq(&containers(&server));
}

#[test]
fn keys_that_are_not_given_have_their_defaults() {
    let mut server = Server::new(service());
    let config =
        r#"{"spec":{"ports":[{"name":"a","port":80},{"name":"u","port":80,"protocol":"UDP"}]}}"#;
    server.apply("m1", config).unwrap();
    expect![[r#"m1 Apply 00:01 {"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{}},"k:{\"port\":80,\"protocol\":\"UDP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{}}}}}"#]]
        .assert_eq(&server.owners());
    check(
        server.apply("m2", r#"{"spec":{"ports":[{"name":"zz","port":80}]}}"#),
        expect![[
            r#"Apply failed with 1 conflict: conflict with "m1": .spec.ports[port=80,protocol="TCP"].name"#
        ]],
    );
    server.apply("m2", r#"{"spec":{"ports":[{"name":"x","port":90}]}}"#).unwrap();
    server.apply("m1", r#"{"spec":{"ports":[{"name":"u","port":80,"protocol":"UDP"}]}}"#).unwrap();
    expect![[r#"[{"name":"u","protocol":"UDP","port":80},{"name":"x","port":90}]"#]]
        .assert_eq(&server.at(&["spec", "ports"]));
}

#[test]
fn sets_and_atomic_values() {
    let mut server = Server::new(deployment());
    let config = |finalizer: &str, selector: &str| {
        format!(
            r#"{{"metadata":{{"finalizers":["{finalizer}"]}},"spec":{{"template":{{"spec":{{"nodeSelector":{{"{selector}":"1"}}}}}}}}}}"#
        )
    };
    server.apply("m1", &config("x.com/a", "a")).unwrap();
    server.apply("m2", r#"{"metadata":{"finalizers":["x.com/b"]}}"#).unwrap();
    expect![[r#"["x.com/a","x.com/b"]"#]].assert_eq(&server.at(&["metadata", "finalizers"]));
    check(
        server.apply("m2", &config("x.com/b", "b")),
        expect![[
            r#"Apply failed with 1 conflict: conflict with "m1": .spec.template.spec.nodeSelector"#
        ]],
    );
    server.force("m2", r#"{"spec":{"template":{"spec":{"nodeSelector":{"b":"2"}}}}}"#).unwrap();
    expect![[r#"["x.com/a"]"#]].assert_eq(&server.at(&["metadata", "finalizers"]));
    expect![[r#"
        m1 Apply 00:01 {"f:metadata":{"f:finalizers":{"v:\"x.com/a\"":{}}}}
        m2 Apply 00:04 {"f:spec":{"f:template":{"f:spec":{"f:nodeSelector":{}}}}}"#]]
    .assert_eq(&server.owners());
    server.apply("m2", "{}").unwrap();
    expect!["absent"].assert_eq(&server.at(&["spec", "template", "spec", "nodeSelector"]));
}

#[test]
fn null_owns_a_field_and_clears_it() {
    let mut server = Server::new(deployment());
    server.apply("m1", r#"{"spec":{"paused":true,"replicas":3,"strategy":{"type":"x"}}}"#).unwrap();
    server.apply("m1", r#"{"spec":{"paused":null,"replicas":null,"strategy":null}}"#).unwrap();
    expect![[r#"m1 Apply 00:02 {"f:spec":{"f:paused":{},"f:replicas":{},"f:strategy":{}}}"#]]
        .assert_eq(&server.owners());
    expect!["{}"].assert_eq(&server.at(&["spec"]));
}

/// As recorded of a kube-apiserver 1.36.
#[test]
fn an_applied_map_of_which_nothing_is_left_becomes_null() {
    let check = |first: &str, second: &str, left: Expect| {
        let mut server = Server::new(deployment());
        server.apply("m1", &format!(r#"{{"spec":{first}}}"#)).unwrap();
        server.apply("m1", &format!(r#"{{"spec":{second}}}"#)).unwrap();
        left.assert_eq(&server.at(&["spec"]));
    };
    let strategy = r#"{"strategy":{"type":"x"},"replicas":1}"#;
    check(strategy, r#"{"strategy":{},"replicas":1}"#, expect![[r#"{"replicas":1}"#]]);
    check(strategy, r#"{"strategy":{}}"#, expect!["{}"]);
    check(strategy, "{}", expect!["absent"]);
    let labels = r#"{"template":{"spec":{"nodeSelector":{"a":"b"}}}}"#;
    check(labels, r#"{"template":{"spec":{}}}"#, expect![[r#"{"template":{}}"#]]);
    check(labels, r#"{"template":{}}"#, expect!["{}"]);
}

#[test]
fn an_invalid_configuration_is_rejected() {
    let mut server = Server::new(deployment());
    let mut refuse = |config: &str, expected: Expect| check(server.apply("m", config), expected);
    refuse(
        r#"{"spec":{"replicas":"x"}}"#,
        expect![
            "failed to create typed patch object (/a; apps/v1, Kind=Deployment): .spec.replicas: expected numeric (int or float), got string"
        ],
    );
    refuse(
        &deploy(r#"[{"name":"c"},{"name":"c"}]"#),
        expect![[
            r#"failed to create typed patch object (/a; apps/v1, Kind=Deployment): .spec.template.spec.containers: duplicate entries for key [name="c"]"#
        ]],
    );
    refuse(
        r#"{"metadata":{"finalizers":["x","x"]}}"#,
        expect![[
            r#"failed to create typed patch object (/a; apps/v1, Kind=Deployment): .metadata.finalizers: duplicate entries for key [="x"]"#
        ]],
    );
    refuse(
        r#"{"spec":{"bogus":1,"paused":"x"}}"#,
        expect![
            "failed to create typed patch object (/a; apps/v1, Kind=Deployment): .spec.bogus: field not declared in schema"
        ],
    );
    refuse(
        r#"{"spec":{"paused":"x"},"metadata":{"labels":{"a":5},"finalizers":"x"}}"#,
        expect![[r#"
            failed to create typed patch object (/a; apps/v1, Kind=Deployment): errors:
              .metadata.finalizers: expected list, got &{x}
              .metadata.labels.a: expected string, got &value.valueUnstructured{Value:5}
              .spec.paused: expected boolean, got &{x}"#]],
    );
    refuse(
        r#"{"metadata":{"ownerReferences":[{"name":"x"},null]}}"#,
        expect![
            "failed to create typed patch object (/a; apps/v1, Kind=Deployment): .metadata.ownerReferences: element 1: associative list with keys may not have a null element"
        ],
    );
    refuse(r#"{"metadata":{"managedFields":[]}}"#, expect!["metadata.managedFields must be nil"]);
    refuse(r#"{"kind":"Pod","apiVersion":"v1"}"#, expect!["invalid object type: /v1, Kind=Pod"]);
    refuse(r#"{"kind":"Pod"}"#, expect!["invalid object type: /, Kind=Pod"]);
}

#[test]
fn an_object_without_managers_gets_before_first_apply() {
    let mut server = config_maps();
    server.put("creator", r#"{"data":{"k":"v"}}"#);
    server.object.metadata_mut().remove("managedFields");
    server.put("other", r#"{"data":{"k":"v","j":"1"}}"#);
    expect![""].assert_eq(&server.owners());
    check(
        server.apply("m1", r#"{"data":{"k":"w"}}"#),
        expect![[
            r#"Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.k"#
        ]],
    );
    server.apply("m1", r#"{"data":{"k":"v"}}"#).unwrap();
    expect![[r#"
        m1 Apply never {"f:data":{"f:k":{}}}
        before-first-apply Update 00:04 {"f:data":{".":{},"f:j":{},"f:k":{}}}"#]]
    .assert_eq(&server.owners());
}

const LAST: &str = r#"{\"apiVersion\":\"v1\",\"data\":{\"k\":\"v\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}\n"#;

fn annotated(data: &str) -> String {
    format!(
        r#"{{"data":{data},"metadata":{{"annotations":{{"kubectl.kubernetes.io/last-applied-configuration":"{LAST}"}}}}}}"#
    )
}

#[test]
fn kubectl_takes_over_client_side_fields_and_updates_its_annotation() {
    let mut server = config_maps();
    server.put("kubectl-client-side-apply", &annotated(r#"{"k":"v","own":"1"}"#));
    check(
        server.apply("kubectl", r#"{"data":{"k":"w","own":"2"}}"#),
        expect![[
            r#"Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.own"#
        ]],
    );
    check(
        server.apply("other", r#"{"data":{"k":"w"}}"#),
        expect![[
            r#"Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.k"#
        ]],
    );
    server.apply("kubectl", r#"{"data":{"k":"<w>"}}"#).unwrap();
    expect![[r#""{\"apiVersion\":\"v1\",\"data\":{\"k\":\"\\u003cw\\u003e\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}\n""#]]
        .assert_eq(&server.at(&[
            "metadata",
            "annotations",
            "kubectl.kubernetes.io/last-applied-configuration",
        ]));
    expect!["1"].assert_eq(server.object.str_at(&["data", "own"]));
    expect!["<w>"].assert_eq(server.object.str_at(&["data", "k"]));
}

#[test]
fn status_belongs_to_the_status_endpoint() {
    let mut server = Server::new(deployment());
    server.apply("m1", r#"{"spec":{"replicas":2},"status":{"replicas":9}}"#).unwrap();
    expect![[r#"m1 Apply 00:01 {"f:spec":{"f:replicas":{}}}"#]].assert_eq(&server.owners());
    server.subresource = "status";
    server.filter =
        Some(crate::fields::Filter::Exclude(crate::fields::FieldSet::of_fields(&[&["spec"]])));
    let condition =
        r#"{"status":{"conditions":[{"type":"Available","status":"True"}],"replicas":3}}"#;
    server.apply("ctl", condition).unwrap();
    server.patch("ctl", r#"{"status":{"readyReplicas":1}}"#);
    expect![[r#"
        m1 Apply 00:01 {"f:spec":{"f:replicas":{}}}
        ctl Apply/status 00:02 {"f:status":{"f:conditions":{"k:{\"type\":\"Available\"}":{".":{},"f:status":{},"f:type":{}}},"f:replicas":{}}}
        ctl Update/status 00:03 {"f:status":{"f:readyReplicas":{}}}"#]]
    .assert_eq(&server.owners());
    check(
        server.apply("ctl2", r#"{"status":{"replicas":4}}"#),
        expect![[
            r#"Apply failed with 1 conflict: conflict with "ctl" with subresource "status": .status.replicas"#
        ]],
    );
    server.apply("ctl", r#"{"status":{"replicas":3}}"#).unwrap();
    expect![[r#"{"replicas":3,"readyReplicas":1}"#]].assert_eq(&server.at(&["status"]));
}

#[test]
fn nested_list_items_of_a_pod() {
    let mut server = Server::new(pod());
    let env = |value: &str| {
        format!(
            r#"{{"spec":{{"containers":[{{"name":"c","env":[{{"name":"A","value":"{value}"}}],"resources":{{"limits":{{"cpu":"1"}}}}}}]}}}}"#
        )
    };
    server.apply("m1", &env("1")).unwrap();
    expect![[r#"m1 Apply 00:01 {"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:env":{"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}}},"f:name":{},"f:resources":{"f:limits":{"f:cpu":{}}}}}}}"#]]
        .assert_eq(&server.owners());
    check(
        server.apply("m2", &env("2")),
        expect![[
            r#"Apply failed with 1 conflict: conflict with "m1": .spec.containers[name="c"].env[name="A"].value"#
        ]],
    );
    server.apply("m1", r#"{"spec":{"containers":[{"name":"c"}]}}"#).unwrap();
    expect![[r#"[{"name":"c"}]"#]].assert_eq(&server.at(&["spec", "containers"]));
}

#[test]
fn invalid_managed_fields_are_rejected() {
    let mut server = config_maps();
    server.put("m", r#"{"data":{"k":"v"}}"#);
    server.object.metadata_mut().insert("managedFields", json(r#"[{"operation":"X"}]"#));
    check(
        server.apply("m1", "{}"),
        expect!["failed to decode managed fields: operation must be `Apply` or `Update`"],
    );
}

#[test]
fn the_name_stays_when_all_other_metadata_goes() {
    let mut server = config_maps();
    server.apply("m1", r#"{"metadata":{"labels":{"a":"b"}},"data":{"k":"v"}}"#).unwrap();
    server.apply("m1", r#"{"data":{"k":"v"}}"#).unwrap();
    expect!["a"].assert_eq(server.object.name());
    expect!["absent"].assert_eq(&server.at(&["metadata", "labels"]));
}

/// As a kube-apiserver 1.36 answers.
#[test]
fn an_atomic_list_that_is_applied_is_compared_as_it_was_written() {
    let stored = r#"{"endpoints":[{"addresses":["10.1.1.1"],"conditions":{}}]}"#;
    let mut server = Server::new(endpoint_slice());
    server.put("m1", stored);
    server.apply("m2", stored).unwrap();
    check(
        server.apply("m3", r#"{"endpoints":[{"addresses":["10.1.1.1"]}]}"#),
        expect![[r#"
            Apply failed with 2 conflicts: conflicts with "m1" using discovery.k8s.io/v1:
            - .endpoints
            conflicts with "m2":
            - .endpoints"#]],
    );
    server.force("m3", r#"{"endpoints":null}"#).unwrap();
    check(
        server.apply("m2", r#"{"endpoints":[]}"#),
        expect![[r#"Apply failed with 1 conflict: conflict with "m3": .endpoints"#]],
    );
}

/// As kube-apiserver 1.36 answers.
#[test]
fn validation_errors_of_custom_resources() {
    let x = value!({"type": "object", "properties": {"x": {"type": "string"}}});
    let schema = value!({"type": "object", "properties": {
        "b": {"type": "string", "format": "date-time"}, "bytes": {"type": "string", "format": "byte"},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"x": (x.clone())}},
        "spec": (x)}});
    let structural = keelson_schema::structural::Structural::read(Some(&schema)).for_objects();
    let gvk = GroupVersionKind::new("x.com", "v1", "W");
    let schema = structural.schema(gvk);
    let check = |config: Value, expected: &str| {
        let found = typed::validate(&schema, &config).err();
        assert_eq!(
            found.map(|found| found.to_string()).unwrap_or_default(),
            expected,
            "{config:?}"
        );
    };
    // The format of a string is left to the validation of the object.
    check(value!({"b": 5}), "");
    check(value!({"b": []}), ".b: expected any scalar, got &{[]}");
    let words = ".bytes: expected string, got &value.valueUnstructured{Value:5}";
    check(value!({"bytes": 5}), words);
    // `x-kubernetes-preserve-unknown-fields` holds for nested objects too.
    check(value!({"open": {"x": {"x": "a", "y": 1}}}), "");
    let words = ".open.x.x: expected string, got &value.valueUnstructured{Value:5}";
    check(value!({"open": {"x": {"x": 5, "y": 1}}}), words);
    check(value!({"spec": {"x": 5, "A": 1}}), ".spec.A: field not declared in schema");
}

/// As kube-apiserver 1.36 answers: an object that was stored in another version may not fit.
#[test]
fn a_custom_resource_of_other_types_is_not_applied_to() {
    let schema = value!({"type": "object", "properties": {"spec": {"type": "string"}}});
    let structural = keelson_schema::structural::Structural::read(Some(&schema)).for_objects();
    let gvk = GroupVersionKind::new("x.com", "v1", "W");
    let mut server = Server::new(structural.schema(gvk));
    server.object.root.insert("spec", value!({"a": {}}));
    // A configuration need not name it.
    server.object.set_meta("name", "a");
    server.object.set_meta("namespace", "n");
    let refused = server.apply("m", "{}").expect_err("an error");
    let why = "failed to create typed live object (n/a; x.com/v1, Kind=W): .spec: expected string, \
               got &value.valueUnstructured{Value:map[string]interface {}{\"a\":map[string]interface \
               {}{}}}";
    assert_eq!(refused.to_string(), why);
}
