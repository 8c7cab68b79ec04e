//! JSON Patch.

use super::*;
use crate::testing::{json, show};
use expect_test::{Expect, expect};
use keelson_meta::value;

fn check(doc: &str, patch: &str, expected: Expect) {
    let got = match apply(json(doc), &json(patch)) {
        Ok(value) => show(&value),
        Err(error) => format!("{error:?}"),
    };
    expected.assert_eq(&got);
}

#[test]
fn add_puts_members_and_items() {
    check(
        r#"{"a":[1,2],"b":{}}"#,
        r#"[{"op":"add","path":"/a/-","value":3},{"op":"add","path":"/a/1","value":9},
            {"op":"add","path":"/b/x~1y~0z","value":null},{"op":"add","path":"/a/-1","value":8}]"#,
        expect![[r#"{"a":[1,9,2,3,8],"b":{"x/y~z":null}}"#]],
    );
}

#[test]
fn a_copy_into_its_own_source_has_sorted_maps() {
    check(
        r#"{"a":[{"z":1,"b":{"y":1,"c":2}},{"y":1,"c":2}]}"#,
        r#"[{"op":"copy","path":"/a/0/b/d","from":"/a"}]"#,
        expect![[
            r#"{"a":[{"b":{"c":2,"d":[{"b":{"c":2,"y":1},"z":1},{"y":1,"c":2}],"y":1},"z":1},{"y":1,"c":2}]}"#
        ]],
    );
}

#[test]
fn an_index_outside_the_list_is_refused() {
    check(
        r#"{"a":[1]}"#,
        r#"[{"op":"add","path":"/a/9","value":3}]"#,
        expect![[
            r#"Unprocessable("error in add for path: '/a/9': Unable to access invalid index: 9: invalid index referenced")"#
        ]],
    );
    check(
        r#"{"a":[1]}"#,
        r#"[{"op":"remove","path":"/a/-2"}]"#,
        expect![[
            r#"Unprocessable("error in remove for path: '/a/-2': Unable to access invalid index: -2: invalid index referenced")"#
        ]],
    );
    check(
        r#"{"a":[1]}"#,
        r#"[{"op":"add","path":"/a/x","value":3}]"#,
        expect![[
            r#"Unprocessable("error in add for path: '/a/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax")"#
        ]],
    );
}

#[test]
fn remove_needs_the_member_and_replace_does_not() {
    check(
        r#"{"a":1}"#,
        r#"[{"op":"remove","path":"/b"}]"#,
        expect![[
            r#"Unprocessable("error in remove for path: '/b': Unable to remove nonexistent key: b: missing value")"#
        ]],
    );
    check(
        r#"{"a":1}"#,
        r#"[{"op":"replace","path":"/b","value":2},{"op":"remove","path":"/a"}]"#,
        expect![[r#"{"b":2}"#]],
    );
    check(
        r#"{"a":1}"#,
        r#"[{"op":"add","path":"/b/c","value":2}]"#,
        expect![[
            r#"Unprocessable("add operation does not apply: doc is missing path: \"/b/c\": missing value")"#
        ]],
    );
}

#[test]
fn move_and_copy_take_from_another_place() {
    check(
        r#"{"a":[1,2],"b":{"k":{"z":1}}}"#,
        r#"[{"op":"move","from":"/a/1","path":"/a/0"},{"op":"copy","from":"/b/k","path":"/c"},
            {"op":"copy","from":"/none","path":"/d"},{"op":"move","from":"/b","path":"/c/b"}]"#,
        expect![[r#"{"a":[2,1],"c":{"b":{"k":{"z":1}},"z":1},"d":null}"#]],
    );
}

#[test]
fn a_failed_test_stops_the_patch() {
    check(
        r#"{"a":{"x":1,"y":[true]}}"#,
        r#"[{"op":"test","path":"/a","value":{"y":[true],"x":1}},
            {"op":"test","path":"/none","value":null},{"op":"test","path":"/a/x","value":2}]"#,
        expect![[r#"TestFailed("testing value /a/x failed: test failed")"#]],
    );
}

#[test]
fn the_whole_document_can_be_replaced_but_not_removed() {
    check(
        r#"{"a":1}"#,
        r#"[{"op":"replace","path":"","value":{"c":1,"b":2}}]"#,
        expect![[r#"{"b":2,"c":1}"#]],
    );
    check(
        r#"{"a":1}"#,
        r#"[{"op":"remove","path":""}]"#,
        expect![[
            r#"Unprocessable("remove operation does not apply: doc is missing path: \"\": missing value")"#
        ]],
    );
}

#[test]
fn a_malformed_patch_is_rejected() {
    check(
        "{}",
        "{}",
        expect![[
            r#"Malformed("error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp")"#
        ]],
    );
    check(
        "{}",
        r#"[{"op":5}]"#,
        expect![[
            r#"Malformed("error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string")"#
        ]],
    );
    check("{}", r#"[{"op":"dig"}]"#, expect![[r#"Unprocessable("Unexpected kind: dig")"#]]);
    check("{}", "[null]", expect![[r#"Unprocessable("Unexpected kind: unknown")"#]]);
}

#[test]
fn unknown_members_are_reported() {
    let patch = json(r#"[{"op":"add","path":"/a","extra":1},{"Op":"x"}]"#);
    let expected =
        [r#"json patch unknown field "[0].extra""#, r#"json patch unknown field "[1].Op""#];
    assert_eq!(unknown_fields(&patch), expected);
}

fn repeat(operation: &str, times: usize) -> Value {
    json(&format!("[{}]", vec![operation; times].join(",")))
}

#[test]
fn operations_are_counted() {
    let patch = repeat(r#"{"op":"test","path":"/a","value":1}"#, OPERATIONS_MAX + 1);
    let error = apply(json(r#"{"a":1}"#), &patch).unwrap_err();
    expect!["The allowed maximum operations in a JSON patch is 10000, got 10001"]
        .assert_eq(&error.to_string());
    let status = keelson_meta::status::Failure::from(error);
    assert_eq!((status.code, status.reason.as_str()), (413, "RequestEntityTooLarge"));
}

#[test]
fn copies_are_bounded() {
    let doc = Value::Object([("a".into(), Value::from("x".repeat(100_000)))].into_iter().collect());
    let error = apply(doc, &repeat(r#"{"op":"copy","from":"/a","path":"/b"}"#, 40)).unwrap_err();
    expect![["Unable to complete the copy, the accumulated size increase of copy is 3200064, \
         exceeding the limit 3145728"]]
    .assert_eq(&error.to_string());
}

#[test]
fn nesting_is_bounded_also_when_it_grows_by_moves() {
    let mut text = vec![r#"{"op":"add","path":"/a","value":{}}"#; 1];
    for _ in 0..150 {
        text.push(r#"{"op":"add","path":"/b","value":{}}"#);
        text.push(r#"{"op":"move","from":"/a","path":"/b/a"}"#);
        text.push(r#"{"op":"move","from":"/b","path":"/a"}"#);
    }
    let shallow = format!("[{}]", text.join(","));
    assert!(apply(json("{}"), &json(&shallow)).unwrap().depth() > 150);
    let deep = format!("[{},{}]", text.join(","), text[1..].join(","));
    let error = apply(json("{}"), &json(&deep)).unwrap_err();
    expect!["the document exceeds 250 levels"].assert_eq(&error.to_string());
}

#[test]
fn many_shallow_moves_do_not_count_as_depth() {
    let there = r#"{"op":"move","from":"/a","path":"/b/c/d"}"#;
    let back = r#"{"op":"move","from":"/b/c/d","path":"/a"}"#;
    let patch = format!("[{}]", [there, back].repeat(2_000).join(","));
    let doc = json(r#"{"a":1,"b":{"c":{}}}"#);
    assert_eq!(apply(doc.clone(), &json(&patch)).unwrap(), doc);
}

/// The messages of kube-apiserver 1.36, which it shows for the patches of webhooks.
#[test]
fn failed_operations_have_upstream_messages() {
    let check = |operation: Value, want: &str| {
        let doc = value!({"data": {"k": "v"}, "list": ["a"]});
        let error = apply_operations(doc, std::slice::from_ref(&operation))
            .map_err(|error| error.to_string());
        assert_eq!(error.err().as_deref(), Some(want), "{operation:?}");
    };
    let of = |op: &str, path: &str| value!({"op": (op), "path": (path), "value": "x"});
    let from =
        |op: &str, from: &str, path: &str| value!({"op": (op), "from": (from), "path": (path)});
    let gone = "Unable to remove nonexistent key: z: missing value";
    let outside = "Unable to access invalid index: 5: invalid index referenced";
    let odd =
        "value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax";
    let lost = "operation does not apply: doc is missing";
    check(of("remove", "/z"), &format!("error in remove for path: '/z': {gone}"));
    check(of("remove", "/a/b"), &format!("remove {lost} path: \"/a/b\": missing value"));
    check(of("remove", "/list/5"), &format!("error in remove for path: '/list/5': {outside}"));
    check(of("replace", "/a/b"), &format!("replace {lost} path: /a/b: missing value"));
    check(of("replace", "/list/5"), &format!("replace {lost} key: /list/5: missing value"));
    check(of("add", "/a/b"), &format!("add {lost} path: \"/a/b\": missing value"));
    check(of("add", "/data/k/b"), &format!("add {lost} path: \"/data/k/b\": missing value"));
    check(of("add", "/list/5"), &format!("error in add for path: '/list/5': {outside}"));
    check(of("add", "/list/x"), &format!("error in add for path: '/list/x': {odd}"));
    check(of("test", "/z"), "testing value /z failed: test failed");
    check(
        of("test", "/a/b"),
        "test operation does not apply: is missing path: /a/b: missing value",
    );
    check(from("move", "/z", "/y"), &format!("error in move for path: 'z': {gone}"));
    check(from("move", "/a/b", "/y"), &format!("move {lost} from path: /a/b: missing value"));
    check(
        from("move", "/data", "/q/y"),
        &format!("move {lost} destination path: /q/y: missing value"),
    );
    check(from("copy", "/a/b", "/y"), &format!("copy {lost} from path: /a/b: missing value"));
    check(
        from("copy", "/data", "/q/y"),
        &format!("copy {lost} destination path: /q/y: missing value"),
    );
    check(
        value!({"op": "move", "path": "/y"}),
        "move operation failed to decode from: operation, missing from field: missing value",
    );
    check(value!({"op": "add", "path": 1}), "add operation failed to decode path: missing value");
    check(value!({"path": "/y"}), "Unexpected kind: unknown");
    check(of("replace", ""), "replace operation value must be object or array: %!w(<nil>)");
}
