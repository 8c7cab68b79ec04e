//! Field managers and `managedFields`. The expected results are those of kube-apiserver 1.36.

use super::*;
use crate::testing::{Server, config_map, deployment, endpoint_slice, json, schema, show};
use expect_test::{Expect, expect};

fn check(server: &Server, expected: Expect) {
    expected.assert_eq(&server.owners());
}

fn config_maps() -> Server {
    Server::new(config_map())
}

#[test]
fn a_creator_owns_all_fields_except_system_metadata() {
    let mut server = config_maps();
    server.put(
        "c",
        r#"{"data":{"k":"v"},"metadata":{"labels":{"a":"b"},"finalizers":["x.com/a"],
            "ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"1"}]}}"#,
    );
    check(
        &server,
        expect![[
            r#"c Update 00:01 {"f:data":{".":{},"f:k":{}},"f:metadata":{"f:finalizers":{".":{},"v:\"x.com/a\"":{}},"f:labels":{".":{},"f:a":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"1\"}":{}}}}"#
        ]],
    );
}

#[test]
fn structs_held_by_value_are_not_owned() {
    let mut server = Server::new(deployment());
    server.put(
        "c",
        r#"{"spec":{"replicas":1,"selector":{"matchLabels":{"app":"d"}},
            "strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"25%"}},
            "template":{"metadata":{"labels":{"app":"d"}},"spec":{"containers":[{"name":"c",
                "env":[{"name":"B","value":"2"}],"ports":[{"containerPort":80}]}],
                "securityContext":{}}}},"status":{"replicas":1}}"#,
    );
    check(
        &server,
        expect![[
            r#"c Update 00:01 {"f:spec":{"f:replicas":{},"f:selector":{},"f:strategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{}},"f:type":{}},"f:template":{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"B\"}":{".":{},"f:name":{},"f:value":{}}},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}},"f:resources":{}}},"f:securityContext":{}}}}}"#
        ]],
    );
}

#[test]
fn structs_of_custom_resources_have_owners() {
    let custom = schema(
        ("x.com", "v1", "Widget"),
        "Widget { apiVersion: string, kind: string, metadata: Meta, spec: Spec }
         Spec { n: int64, list: [string], any: json }
         Meta { name: string?, uid: string?, labels: <string>?, managedFields: [Entry]? }
         Entry { manager: string?, operation: string?, apiVersion: string?, time: time, fieldsType: string?, fieldsV1: fields }",
    );
    let mut server = Server::new(custom);
    server.put("c", r#"{"spec":{"n":1,"list":["a"],"any":{"a":{"b":[1]},"e":{}}}}"#);
    check(
        &server,
        expect![[
            r#"c Update 00:01 {"f:spec":{".":{},"f:any":{".":{},"f:a":{".":{},"f:b":{}},"f:e":{}},"f:list":{},"f:n":{}}}"#
        ]],
    );
    server.patch("p", r#"{"spec":{"any":{"a":5}}}"#);
    check(
        &server,
        expect![[r#"
            c Update 00:01 {"f:spec":{".":{},"f:any":{".":{},"f:e":{}},"f:list":{},"f:n":{}}}
            p Update 00:02 {"f:spec":{"f:any":{"f:a":{}}}}"#]],
    );
}

#[test]
fn an_update_owns_changed_fields_and_drops_removed_ones() {
    let mut server = config_maps();
    server.put("c", r#"{"data":{"k":"v","gone":"1"}}"#);
    server.patch("fine name", r#"{"data":{"k":"w"}}"#);
    check(
        &server,
        expect![[r#"
            c Update 00:01 {"f:data":{".":{},"f:gone":{}}}
            fine name Update 00:02 {"f:data":{"f:k":{}}}"#]],
    );
    server.patch("third", r#"{"data":{"gone":null}}"#);
    check(
        &server,
        expect![[r#"
            c Update 00:01 {"f:data":{}}
            fine name Update 00:02 {"f:data":{"f:k":{}}}"#]],
    );
    server.patch("third", r#"{"data":null}"#);
    check(&server, expect![""]);
}

#[test]
fn an_update_without_changes_keeps_times() {
    let mut server = config_maps();
    server.put("c", r#"{"data":{"k":"v"}}"#);
    server.put("c", r#"{"data":{"k":"v"}}"#);
    server.put("other", r#"{"data":{"k":"v"}}"#);
    check(&server, expect![[r#"c Update 00:01 {"f:data":{".":{},"f:k":{}}}"#]]);
    server.patch("c", r#"{"data":{"k":"w"}}"#);
    check(&server, expect![[r#"c Update 00:04 {"f:data":{".":{},"f:k":{}}}"#]]);
}

#[test]
fn times_are_restored_when_only_they_changed() {
    let old = Object::from_value(json(
        r#"{"metadata":{"name":"a","managedFields":[{"manager":"m","time":"1"},{"manager":"n"}]}}"#,
    ));
    let check = |new: &str, expected: Expect| {
        let mut new = Object::from_value(json(new)).unwrap();
        restore_times(old.as_ref().unwrap(), &mut new);
        expected.assert_eq(&show(new.at(&["metadata", "managedFields"]).unwrap()));
    };
    check(
        r#"{"metadata":{"name":"a","managedFields":[{"manager":"m","time":"2"},{"manager":"n"}]}}"#,
        expect![[r#"[{"manager":"m","time":"1"},{"manager":"n"}]"#]],
    );
    check(
        r#"{"metadata":{"name":"a","managedFields":[{"manager":"m"},{"manager":"n","time":"2"}]}}"#,
        expect![[r#"[{"manager":"m","time":"1"},{"manager":"n"}]"#]],
    );
    check(
        r#"{"metadata":{"name":"b","managedFields":[{"manager":"m","time":"2"},{"manager":"n"}]}}"#,
        expect![[r#"[{"manager":"m","time":"2"},{"manager":"n"}]"#]],
    );
    check(
        r#"{"metadata":{"name":"a","managedFields":[{"manager":"m","time":"2"}]}}"#,
        expect![[r#"[{"manager":"m","time":"2"}]"#]],
    );
}

#[test]
fn clients_may_set_and_reset_entries() {
    let mut server = config_maps();
    server.put("c", r#"{"data":{"k":"v"}}"#);
    let entry = r#"{"manager":"x","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:k":{".":{}}}}}"#;
    server.patch("p", &format!(r#"{{"metadata":{{"managedFields":[{entry}]}}}}"#));
    check(&server, expect![[r#"x Apply never {"f:data":{"f:k":{}}}"#]]);
    expect![[r#"[{"manager":"x","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:k":{}}}}]"#]]
        .assert_eq(&server.at(&["metadata", "managedFields"]));
    server.put("p", r#"{"data":{"k":"v"},"metadata":{"managedFields":[{"operation":"Bogus"}]}}"#);
    check(&server, expect![[r#"x Apply never {"f:data":{"f:k":{}}}"#]]);
    server.subresource = "status";
    server.put("p", r#"{"data":{"k":"v"},"metadata":{"managedFields":[{}]}}"#);
    check(&server, expect![[r#"x Apply never {"f:data":{"f:k":{}}}"#]]);
    server.subresource = "";
    server.put("p", r#"{"data":{"k":"v"},"metadata":{"managedFields":[{}]}}"#);
    check(&server, expect![""]);
    server.put("p", r#"{"data":{"k":"w"}}"#);
    check(&server, expect![""]);
}

#[test]
fn an_entry_with_a_set_of_fields_resets_nothing() {
    let mut server = config_maps();
    server.put("c", r#"{"data":{"k":"v"}}"#);
    server.put("c", r#"{"data":{"k":"w"},"metadata":{"managedFields":[{"fieldsV1":{}}]}}"#);
    check(&server, expect![[r#"c Update 00:02 {"f:data":{".":{},"f:k":{}}}"#]]);
    server.put("c", r#"{"data":{"k":"v"},"metadata":{"managedFields":[]}}"#);
    check(&server, expect![""]);
}

#[test]
fn an_empty_list_resets_nothing_in_a_custom_resource() {
    let gvk = keelson_meta::GroupVersionKind::new("x.com", "v1", "Widget");
    let custom = keelson_schema::structural::Structural::read(None).schema(gvk);
    let mut server = Server::new(custom);
    server.put("c", r#"{"spec":{"n":1}}"#);
    server.put("c", r#"{"spec":{"n":2},"metadata":{"managedFields":[]}}"#);
    check(&server, expect![[r#"c Update 00:02 {"f:spec":{".":{},"f:n":{}}}"#]]);
    server.put("c", r#"{"spec":{"n":3},"metadata":{"managedFields":[{}]}}"#);
    check(&server, expect![""]);
}

#[test]
fn a_creator_without_a_name_is_unknown() {
    let mut server = config_maps();
    server.put("", r#"{"data":{"k":"v"}}"#);
    check(&server, expect![[r#"unknown Update 00:01 {"f:data":{".":{},"f:k":{}}}"#]]);
    assert_eq!(manager_name("", "kubectl/v1.36 (linux)"), "kubectl");
    assert_eq!(manager_name("m", "kubectl/v1.36"), "m");
    assert_eq!(manager_name("", &"é".repeat(100)).len(), 128);
    assert_eq!(manager_name("", "a\tb"), "ab");
}

#[test]
fn the_oldest_updates_are_merged() {
    let mut server = config_maps();
    server.put("m00", r#"{"data":{"k00":"v"}}"#);
    for i in 1..10 {
        server.patch(&format!("m{i:02}"), &format!(r#"{{"data":{{"k{i:02}":"v"}}}}"#));
    }
    assert_eq!(server.owners().lines().count(), 10);
    server.patch("m10", r#"{"data":{"k10":"v"}}"#);
    server.patch("m11", r#"{"data":{"k11":"v"}}"#);
    let owners = server.owners();
    assert_eq!(owners.lines().count(), UPDATE_MANAGERS_MAX);
    expect![[r#"
        ancient-changes Update 00:03 {"f:data":{".":{},"f:k00":{},"f:k01":{},"f:k02":{}}}
        m03 Update 00:04 {"f:data":{"f:k03":{}}}"#]]
    .assert_eq(&owners.lines().take(2).collect::<Vec<_>>().join("\n"));
}

/// kube-apiserver has no maximum: entries are bounded by the size of the object only.
#[test]
fn an_object_has_as_many_appliers_as_it_stores() {
    let mut server = config_maps();
    server.apply("m", r#"{"data":{"k":"v"}}"#).expect("a new object");
    let entry = |i: usize| {
        json(&format!(
            r#"{{"manager":"m{i}","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{"f:data":{{"f:k":{{}}}}}}}}"#
        ))
    };
    let entries: Vec<Value> = (0..1_000).map(entry).collect();
    server.object.metadata_mut().insert("managedFields", entries);
    for name in ["a", "b"] {
        server.apply(name, r#"{"data":{"k":"v"}}"#).expect("entries have no maximum");
    }
    server.put("u", r#"{"data":{"k":"v","l":"v"}}"#);
    assert_eq!(server.owners().lines().count(), 1_003);
}

#[test]
fn many_entries_of_one_manager_count_once() {
    let entry = |manager: usize, time: usize| {
        json(&format!(
            r#"{{"manager":"m{manager}","operation":"Apply","apiVersion":"v{time}","fieldsType":"FieldsV1","fieldsV1":{{"f:a":{{}}}},"time":"2026-01-01T00:00:0{time}Z"}}"#
        ))
    };
    let entries: Vec<Value> = (0..300).map(|i| entry(i % 100, i / 100)).collect();
    let managers = Managers::decode(&entries).expect("the entries are valid");
    assert_eq!(managers.iter().count(), 100);
    assert!(managers.iter().all(|manager| manager.api_version == "v2"));
}

#[test]
fn entries_are_sorted_by_operation_time_and_name() {
    let entry = |manager: &str, operation: &str, time: &str| {
        json(&format!(
            r#"{{"manager":"{manager}","operation":"{operation}","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{"f:a":{{}}}},"time":{time}}}"#
        ))
    };
    let managers = Managers::decode(&[
        entry("u", "Update", "\"2026-01-01T00:00:00Z\""),
        entry("b", "Apply", "\"2026-01-01T00:00:02Z\""),
        entry("a", "Apply", "\"2026-01-01T00:00:02Z\""),
        entry("z", "Apply", "null"),
        entry("u", "Update", "\"2026-01-01T00:00:09Z\""),
    ]);
    let entries = managers.unwrap().encode();
    let names: Vec<&str> = entries.iter().filter_map(|entry| entry.str_at(&["manager"])).collect();
    assert_eq!(names, ["z", "a", "b", "u"]);
}

#[test]
fn invalid_entries_are_reported() {
    let check = |entry: &str, expected: Expect| {
        let error = Managers::decode(&[json(entry)]).unwrap_err();
        expected.assert_eq(&error.to_string());
    };
    check("{}", expect!["operation must be `Apply` or `Update`"]);
    check(r#"{"operation":"Apply"}"#, expect!["apiVersion must not be empty"]);
    check(
        r#"{"operation":"Apply","apiVersion":"v1"}"#,
        expect!["missing fieldsType in managed fields entry 0"],
    );
    check(
        r#"{"operation":"Apply","apiVersion":"v1","fieldsType":"V2"}"#,
        expect![[r#"invalid fieldsType "V2" in managed fields entry 0"#]],
    );
    check(
        r#"{"operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"x":{}}}"#,
        expect![
            "error decoding versioned set from map[apiVersion:v1 fieldsType:FieldsV1 fieldsV1:map[x:map[]] operation:Apply]: error decoding set: key must be 2 characters long:"
        ],
    );
}

#[test]
fn a_field_that_became_atomic_has_one_path() {
    let mut server = Server::new(deployment());
    server.put("c", r#"{"spec":{"selector":{"matchLabels":{"a":"b"}}}}"#);
    let entry = r#"[{"manager":"old","operation":"Update","apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:selector":{"f:matchLabels":{"f:a":{}}},"f:template":{"f:spec":{"f:tolerations":{"i:0":{}}}}}}}]"#;
    server.object.metadata_mut().insert("managedFields", json(entry));
    server.patch("p", r#"{"spec":{"replicas":2}}"#);
    check(
        &server,
        expect![[r#"
            old Update never {"f:spec":{"f:selector":{},"f:template":{"f:spec":{"f:tolerations":{}}}}}
            p Update 00:02 {"f:spec":{"f:replicas":{}}}"#]],
    );
}

/// Version v2 of a kind calls `count` what v1 calls `replicas`.
fn versions() -> (Schema, Schema) {
    let text = |field: &str| {
        format!(
            "Thing {{ apiVersion: string, kind: string, metadata: Meta!, spec: Spec! }}
             Spec {{ {field}: int32, label: string }}
             Meta {{ name: string?, uid: string?, managedFields: json }}"
        )
    };
    let make =
        |version: &'static str, field: &str| schema(("x.com", version, "Thing"), &text(field));
    (make("v1", "replicas"), make("v2", "count"))
}

fn convert(object: &Object, version: &GroupVersion) -> Option<(Schema, Object)> {
    let (v1, v2) = versions();
    let (schema, from, to) = match version.version.as_str() {
        "v1" => (v1, "count", "replicas"),
        "v2" => (v2, "replicas", "count"),
        _ => return None,
    };
    let mut object = object.clone();
    object.set_gvk(&schema.gvk);
    let spec = object.object_mut("spec");
    if let Some(value) = spec.remove(from) {
        spec.insert(to, value);
    }
    Some((schema, object))
}

#[test]
fn managers_of_other_versions_keep_their_paths() {
    let (v1, v2) = versions();
    let apply = |schema: &Schema, live: Object, manager: &str, spec: &str, now: &str| {
        let request = crate::apply::Request { manager, force: false, now };
        let version = schema.gvk.api_version();
        let text = format!(r#"{{"apiVersion":"{version}","kind":"Thing","spec":{spec}}}"#);
        let scope = Scope {
            schema,
            subresource: "",
            filter: None,
            convert: &|obj, version| Ok(convert(obj, version)),
        };
        crate::apply::apply(&scope, &request, &live, &json(&text)).map(|done| done.object)
    };
    let one =
        apply(&v1, Object::new(), "a", r#"{"replicas":3,"label":"x"}"#, "2026-01-01T00:00:01Z")
            .unwrap();
    let (_, two) = convert(&one, &v2.gvk.group_version()).unwrap();
    let error = apply(&v2, two.clone(), "b", r#"{"count":4}"#, "2026-01-01T00:00:02Z").unwrap_err();
    expect![[r#"Apply failed with 1 conflict: conflict with "a": .spec.replicas"#]]
        .assert_eq(&error.to_string());
    let two = apply(&v2, two, "b", r#"{"count":3}"#, "2026-01-01T00:00:02Z").unwrap();
    expect![[r#"[{"manager":"b","operation":"Apply","apiVersion":"x.com/v2","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:count":{}}}},{"manager":"a","operation":"Apply","apiVersion":"x.com/v1","time":"2026-01-01T00:00:01Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:label":{},"f:replicas":{}}}}]"#]]
        .assert_eq(&show(two.at(&["metadata", "managedFields"]).unwrap()));
    // `a` gives up both fields through v2: `b` still owns the count.
    let two = apply(&v2, two, "a", "{}", "2026-01-01T00:00:03Z").unwrap();
    expect![[r#"{"count":3}"#]].assert_eq(&show(two.get("spec").unwrap()));
}

#[test]
fn managers_of_versions_that_are_not_served_are_dropped() {
    let mut server = config_maps();
    server.put("c", r#"{"data":{"k":"v"}}"#);
    let entry = r#"[{"manager":"old","operation":"Update","apiVersion":"v0","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:k":{}}}}]"#;
    server.object.metadata_mut().insert("managedFields", json(entry));
    server.patch("p", r#"{"data":{"j":"1"}}"#);
    check(&server, expect![[r#"p Update 00:02 {"f:data":{"f:j":{}}}"#]]);
}

#[test]
fn a_scale_shows_who_owns_the_replicas_and_takes_them() {
    let entry = |manager: &str, operation: &str, version: &str, fields: &str| {
        json(&format!(
            r#"{{"manager":"{manager}","operation":"{operation}","apiVersion":"{version}","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{fields}}}"#
        ))
    };
    let show_all = |entries: &[Value]| {
        let lines = entries.iter().map(|entry| {
            let text = |name: &str| entry.str_at(&[name]).unwrap_or("-").to_owned();
            let fields = entry.get("fieldsV1").map(show).unwrap_or_default();
            let words = ["manager", "operation", "apiVersion", "time"].map(text);
            format!("{} {fields}", words.join(" "))
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    let spec: &[&str] = &["spec", "replicas"];
    let paths = scale::ReplicasPaths {
        api_version: "apps/v1",
        versions: &[("apps/v1", Some(spec)), ("apps/v1beta1", None)],
    };
    let entries = [
        entry("m1", "Apply", "apps/v1", r#"{"f:spec":{"f:paused":{},"f:replicas":{}}}"#),
        entry("other", "Update", "apps/v1", r#"{"f:spec":{"f:paused":{}}}"#),
        entry("old", "Update", "apps/v0", r#"{"f:spec":{"f:replicas":{}}}"#),
    ];
    let scale_entries = scale::to_scale(&entries, &paths).unwrap();
    expect![[r#"m1 Apply autoscaling/v1 2026-01-01T00:00:00Z {"f:spec":{"f:replicas":{}}}"#]]
        .assert_eq(&show_all(&scale_entries));
    let kept = scale::to_resource(&entries, &scale_entries, &paths).unwrap();
    assert_eq!(show_all(&kept), show_all(&entries[..2]));
    let taken = [entry("hpa", "Update", "autoscaling/v1", r#"{"f:spec":{"f:replicas":{}}}"#)];
    expect![[r#"
        m1 Apply apps/v1 2026-01-01T00:00:00Z {"f:spec":{"f:paused":{}}}
        hpa Update apps/v1 - {"f:spec":{"f:replicas":{}}}
        other Update apps/v1 2026-01-01T00:00:00Z {"f:spec":{"f:paused":{}}}"#]]
    .assert_eq(&show_all(&scale::to_resource(&entries, &taken, &paths).unwrap()));
}

#[test]
fn an_empty_list_in_place_of_null_changes_nothing() {
    let mut server = Server::new(endpoint_slice());
    server.put("a", r#"{"endpoints":[{"addresses":["10.1.1.1"],"conditions":{}}]}"#);
    server.put("b", r#"{"endpoints":null}"#);
    server.put("b", r#"{"endpoints":[]}"#);
    check(&server, expect![[r#"b Update 00:02 {"f:endpoints":{}}"#]]);

    let mut server = Server::new(endpoint_slice());
    server.put("a", r#"{"endpoints":[]}"#);
    check(&server, expect![[r#"a Update 00:01 {"f:endpoints":{}}"#]]);
}
