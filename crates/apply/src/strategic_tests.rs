//! Strategic merge patch.

use super::*;
use crate::testing::{config_map, deployment, json, pod, service, show};
use expect_test::{Expect, expect};

/// Patches the `spec` of a Pod.
fn check(spec: &str, patch: &str, expected: Expect) {
    check_at(&pod(), &["spec"], spec, patch, expected);
}

fn check_at(schema: &Schema, at: &[&str], original: &str, patch: &str, expected: Expect) {
    let wrap = |text: &str| {
        at.iter().rev().fold(json(text), |value, name| {
            Value::Object([(Str::new(name), value)].into_iter().collect())
        })
    };
    let got = match apply(schema, wrap(original), wrap(patch)) {
        Ok(value) => show(value.at(at).unwrap_or(&Value::Null)),
        Err(error) => format!("{error:?}"),
    };
    expected.assert_eq(&got);
}

const TWO: &str = r#"{"containers":[{"name":"a","image":"a:1","env":[{"name":"X","value":"1"},
    {"name":"Y","value":"2"}]},{"name":"b","image":"b:1"}]}"#;

#[test]
fn items_with_the_same_key_merge_where_they_stand() {
    check(
        TWO,
        r#"{"containers":[{"name":"b","image":"b:2"}]}"#,
        expect![[
            r#"{"containers":[{"name":"a","image":"a:1","env":[{"name":"X","value":"1"},{"name":"Y","value":"2"}]},{"name":"b","image":"b:2"}]}"#
        ]],
    );
}

#[test]
fn new_items_come_first() {
    check(
        r#"{"containers":[{"name":"a"},{"name":"b"}]}"#,
        r#"{"containers":[{"name":"c"}]}"#,
        expect![[r#"{"containers":[{"name":"c"},{"name":"a"},{"name":"b"}]}"#]],
    );
}

#[test]
fn items_of_the_patch_keep_its_order_and_others_stay_between_them() {
    check(
        r#"{"containers":[{"name":"a"},{"name":"x"},{"name":"b"},{"name":"y"}]}"#,
        r#"{"containers":[{"name":"b"},{"name":"a"},{"name":"n"}]}"#,
        expect![[
            r#"{"containers":[{"name":"x"},{"name":"b"},{"name":"a"},{"name":"n"},{"name":"y"}]}"#
        ]],
    );
}

#[test]
fn nested_lists_merge_and_items_are_deleted() {
    check(
        TWO,
        r#"{"containers":[{"name":"a","env":[{"name":"Z","value":"4"},{"$patch":"delete","name":"X"},
            {"name":"Y","value":null,"valueFrom":{"k":1}}]}]}"#,
        expect![[
            r#"{"containers":[{"name":"a","image":"a:1","env":[{"name":"Z","value":"4"},{"name":"Y","valueFrom":{"k":1}}]},{"name":"b","image":"b:1"}]}"#
        ]],
    );
}

#[test]
fn an_item_without_its_key_is_refused() {
    check(
        TWO,
        r#"{"containers":[{"image":"x"}]}"#,
        expect![[r#"Internal("map: map[image:x] does not contain declared merge key: name")"#]],
    );
    check(
        TWO,
        r#"{"containers":[{"$patch":"delete"}]}"#,
        expect![[
            r#"Internal("map: map[$patch:delete] does not contain declared merge key: name")"#
        ]],
    );
}

#[test]
fn a_replace_item_replaces_the_list_with_the_plain_items() {
    check(
        TWO,
        r#"{"containers":[{"$patch":"replace"},{"name":"n"}]}"#,
        expect![[r#"{"containers":[{"name":"n"}]}"#]],
    );
    check(
        TWO,
        r#"{"containers":[{"$patch":"replace","name":"n"}]}"#,
        expect![[r#"{"containers":[]}"#]],
    );
}

#[test]
fn unknown_directives_are_refused_only_where_there_is_something_to_merge() {
    check(
        r#"{"nodeSelector":{"a":"1"}}"#,
        r#"{"nodeSelector":{"$patch":"merge","y":"25"}}"#,
        expect![[r#"Internal("unknown patch type: merge in map: map[$patch:merge y:25]")"#]],
    );
    check(
        TWO,
        r#"{"containers":[{"$patch":"bogus","name":"n"}]}"#,
        expect![[r#"Internal("unknown patch type: bogus in map: map[$patch:bogus name:n]")"#]],
    );
    check("{}", r#"{"nodeSelector":{"$patch":"bogus","z":"26"}}"#, expect!["{}"]);
    check(
        r#"{"a":[]}"#,
        r#"{"volumes":[{"name":"v"},{"$patch":"delete","name":"w"}]}"#,
        expect![[r#"{"a":[],"volumes":[{"name":"v"}]}"#]],
    );
}

#[test]
fn maps_merge_are_replaced_and_emptied() {
    let original = r#"{"nodeSelector":{"a":"1","b":"2"}}"#;
    check(
        original,
        r#"{"nodeSelector":{"c":"3","a":null}}"#,
        expect![[r#"{"nodeSelector":{"b":"2","c":"3"}}"#]],
    );
    check(
        original,
        r#"{"nodeSelector":{"$patch":"replace","z":"26"}}"#,
        expect![[r#"{"nodeSelector":{"z":"26"}}"#]],
    );
    check(original, r#"{"nodeSelector":{"$patch":"delete"}}"#, expect![[r#"{"nodeSelector":{}}"#]]);
}

#[test]
fn a_struct_held_by_value_can_be_replaced_although_nothing_set_it() {
    check(
        r#"{"containers":[{"name":"a"}]}"#,
        r#"{"containers":[{"name":"a","resources":{"$patch":"replace","limits":{"cpu":"1"}}}]}"#,
        expect![[r#"{"containers":[{"name":"a","resources":{"limits":{"cpu":"1"}}}]}"#]],
    );
}

#[test]
fn lists_without_a_strategy_are_replaced() {
    check(
        r#"{"tolerations":[{"key":"a"}],"containers":[{"name":"a","args":["1","2"]}]}"#,
        r#"{"tolerations":[{"key":"b"}],"containers":[{"name":"a","args":["3"]}]}"#,
        expect![[r#"{"tolerations":[{"key":"b"}],"containers":[{"name":"a","args":["3"]}]}"#]],
    );
}

#[test]
fn two_items_of_the_patch_with_one_key_are_one_item() {
    check(
        r#"{"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"z","whenUnsatisfiable":"D"}]}"#,
        r#"{"topologySpreadConstraints":[{"maxSkew":2,"topologyKey":"z","whenUnsatisfiable":"D"},
            {"maxSkew":1,"topologyKey":"z","whenUnsatisfiable":"S"}]}"#,
        expect![[
            r#"{"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"z","whenUnsatisfiable":"S"}]}"#
        ]],
    );
}

#[test]
fn ports_are_matched_by_the_patch_merge_key_alone() {
    check_at(
        &service(),
        &["spec"],
        r#"{"ports":[{"name":"a","port":80,"protocol":"TCP"},{"name":"b","port":81}]}"#,
        r#"{"ports":[{"port":80,"targetPort":8080},{"$patch":"delete","port":81}],"selector":{"x":"y"}}"#,
        expect![[
            r#"{"ports":[{"name":"a","port":80,"protocol":"TCP","targetPort":8080}],"selector":{"x":"y"}}"#
        ]],
    );
}

#[test]
fn retain_keys_drops_what_is_not_listed() {
    let original = r#"{"volumes":[{"name":"v","emptyDir":{}},{"name":"w","secret":{}}]}"#;
    check(
        original,
        r#"{"volumes":[{"$retainKeys":["name","secret"],"name":"v","secret":{"secretName":"s"}}]}"#,
        expect![[
            r#"{"volumes":[{"name":"v","secret":{"secretName":"s"}},{"name":"w","secret":{}}]}"#
        ]],
    );
    check(
        original,
        r#"{"volumes":[{"$retainKeys":["name"],"name":"v","secret":{}}]}"#,
        expect![[r#"Malformed("invalid patch format of retainKeys")"#]],
    );
    check_at(
        &deployment(),
        &["spec"],
        r#"{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}}}"#,
        r#"{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}"#,
        expect![[r#"{"strategy":{"type":"Recreate"}}"#]],
    );
}

#[test]
fn set_element_order_orders_what_it_names() {
    let original = r#"{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}"#;
    check(
        original,
        r#"{"$setElementOrder/containers":[{"name":"c"},{"name":"a"},{"name":"b"}],"containers":[{"name":"a","image":"a:2"}]}"#,
        expect![[r#"{"containers":[{"name":"c"},{"name":"a","image":"a:2"},{"name":"b"}]}"#]],
    );
    check(
        r#"{"containers":[{"name":"c"},{"name":"a"},{"name":"b"}]}"#,
        r#"{"$setElementOrder/containers":[{"name":"n"},{"name":"b"}],"containers":[{"name":"n"}]}"#,
        expect![[r#"{"containers":[{"name":"n"},{"name":"c"},{"name":"a"},{"name":"b"}]}"#]],
    );
    check(
        original,
        r#"{"$setElementOrder/containers":[{"name":"a"}],"containers":[{"name":"b","image":"b:9"}]}"#,
        expect![[
            r#"Internal("The order in patch list:\n[map[image:b:9 name:b]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n")"#
        ]],
    );
    check(
        original,
        r#"{"$setElementOrder/containers":"x"}"#,
        expect![[r#"Internal("expected a []interface {}, but received a string")"#]],
    );
}

#[test]
fn scalars_merge_as_a_set() {
    let check = |original: &str, patch: &str, expected: Expect| {
        check_at(&config_map(), &["metadata"], original, patch, expected);
    };
    let original = r#"{"finalizers":["a","b","c"]}"#;
    check(
        original,
        r#"{"finalizers":["c","e"]}"#,
        expect![[r#"{"finalizers":["a","b","c","e"]}"#]],
    );
    check(
        original,
        r#"{"$deleteFromPrimitiveList/finalizers":["b"]}"#,
        expect![[r#"{"finalizers":["a","c"]}"#]],
    );
    check(
        original,
        r#"{"$setElementOrder/finalizers":["d","c","a"],"finalizers":["d"],"$deleteFromPrimitiveList/finalizers":["b"]}"#,
        expect![[r#"{"finalizers":["d","c","a"]}"#]],
    );
    check(
        original,
        r#"{"$deleteFromPrimitiveList/finalizers":"a"}"#,
        expect![[r#"{"finalizers":["a","b","c"]}"#]],
    );
    check(original, r#"{"finalizers":null}"#, expect!["{}"]);
    check(
        original,
        r#"{"finalizers":[5]}"#,
        expect![[r#"Internal("list element types are not identical: [[a b c] [5]]")"#]],
    );
    check(
        original,
        r#"{"finalizers":[["x"]],"$setElementOrder/none":[]}"#,
        expect![[
            r#"Internal("unable to find api field in struct ObjectMeta for the json field \"none\"")"#
        ]],
    );
}

#[test]
fn long_lists_merge_like_short_ones() {
    let names: Vec<String> = (0..60).map(|i| format!(r#"{{"name":"c{i}"}}"#)).collect();
    let original = json(&format!(r#"{{"spec":{{"containers":[{}]}}}}"#, names.join(",")));
    let patch = json(r#"{"spec":{"containers":[{"name":"c59","image":"x"},{"name":"new"}]}}"#);
    let merged = apply(&pod(), original, patch).unwrap();
    let list = merged.array_at(&["spec", "containers"]);
    let order: Vec<_> = list.iter().filter_map(|c| c.str_at(&["name"])).collect();
    assert_eq!((order.len(), order[0], order[59], order[60]), (61, "c0", "c59", "new"));
    assert_eq!(list[59].str_at(&["image"]), Some("x"));
}

#[test]
fn a_patch_that_is_no_map_is_refused() {
    let error = apply(&pod(), json("{}"), json("[]")).unwrap_err();
    expect!["json: cannot unmarshal array into Go value of type map[string]interface {}"]
        .assert_eq(&error.to_string());
}

#[test]
fn a_map_with_the_strategy_replace_is_replaced() {
    let gvk = keelson_meta::GroupVersionKind::new("policy", "v1", "PodDisruptionBudget");
    let budget = keelson_schema::catalogue::Catalogue::shared().schema(&gvk).expect("built in");
    check_at(
        &budget,
        &["spec"],
        r#"{"maxUnavailable":1,"selector":{"matchLabels":{"a":"1","b":"2"}}}"#,
        r#"{"selector":{"matchLabels":{"c":"3"}}}"#,
        expect![[r#"{"maxUnavailable":1,"selector":{"matchLabels":{"c":"3"}}}"#]],
    );
}
