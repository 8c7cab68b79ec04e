//! Field sets and their FieldsV1 encoding.

use super::*;
use crate::testing::{json, show};
use expect_test::{Expect, expect};
use keelson_meta::{Str, Value};

fn set(text: &str) -> FieldSet {
    FieldSet::decode(&json(text)).unwrap()
}

fn check(set: &FieldSet, expected: Expect) {
    expected.assert_eq(&show(&set.encode()));
}

#[test]
fn a_tree_is_written_in_upstreams_order() {
    check(
        &set(r#"{"f:b":{"k:{\"port\":443,\"a\":1}":{},"k:{\"port\":80,\"a\":1}":{".":{},"f:x":{}},
                ".":{}},"f:a":{"v:\"x\"":{},"v:3":{},"v:true":{},"i:2":{}},"f:B":{".":{}}}"#),
        expect![[
            r#"{"f:B":{},"f:a":{"v:3":{},"v:\"x\"":{},"v:true":{},"i:2":{}},"f:b":{".":{},"k:{\"a\":1,\"port\":80}":{".":{},"f:x":{}},"k:{\"a\":1,\"port\":443}":{}}}"#
        ]],
    );
}

#[test]
fn unknown_elements_are_dropped_and_malformed_ones_rejected() {
    check(&set(r#"{"x:y":{},"f:a":{"z:1":{}}}"#), expect![[r#"{"f:a":{}}"#]]);
    for (text, expected) in [
        (r#"{"f":{}}"#, expect!["key must be 2 characters long:"]),
        (r#"{"fab":{}}"#, expect!["missing colon: fab"]),
        (r#"{"k:{":{}}"#, expect!["k:{: unexpected end of JSON input"]),
        (r#"{"i:x":{}}"#, expect!["i:x: expected a whole number"]),
        (r#"[]"#, expect!["expected a map, got array"]),
    ] {
        expected.assert_eq(&FieldSet::decode(&json(text)).unwrap_err().to_string());
    }
}

#[test]
fn paths_are_shown_level_by_level() {
    let all =
        set(r#"{"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{}}},
        "f:x":{}},"f:z":{},"f:l":{"v:\"a\"":{},"i:3":{}}}"#);
    expect![[r#"
        .z
        .l[="a"]
        .l[3]
        .spec.x
        .spec.ports[port=80,protocol="TCP"]
        .spec.ports[port=80,protocol="TCP"].name"#]]
    .assert_eq(&all.texts().join("\n"));
    assert_eq!(all.len(), 6);
}

#[test]
fn sets_are_added_subtracted_and_intersected() {
    let a = || set(r#"{"f:a":{".":{},"f:x":{},"f:y":{}},"f:b":{},"f:d":{"f:q":{}}}"#);
    let b = set(r#"{"f:a":{"f:x":{},"f:z":{}},"f:b":{"f:c":{}},"f:d":{}}"#);
    let mut sum = a();
    sum.add(b.clone());
    check(
        &sum,
        expect![[
            r#"{"f:a":{".":{},"f:x":{},"f:y":{},"f:z":{}},"f:b":{".":{},"f:c":{}},"f:d":{".":{},"f:q":{}}}"#
        ]],
    );
    let mut rest = a();
    assert!(rest.subtract(&b));
    check(&rest, expect![[r#"{"f:a":{".":{},"f:y":{}},"f:b":{},"f:d":{"f:q":{}}}"#]]);
    let mut trees = a();
    assert!(trees.subtract_recursive(&b));
    check(&trees, expect![[r#"{"f:a":{".":{},"f:y":{}},"f:b":{}}"#]]);
    check(&a().intersection(&b), expect![[r#"{"f:a":{"f:x":{}}}"#]]);
    assert!(a().intersection(&b).is_subset(&a()));
    assert!(!b.is_subset(&a()));
    assert!(!a().subtract(&set(r#"{"f:zz":{}}"#)));
}

#[test]
fn integers_and_floats_are_one_key() {
    let mut a = set(r#"{"k:{\"p\":80}":{}}"#);
    assert!(a.contains(&[Element::key(vec![(Str::new("p"), Value::Float(80.0))])]));
    assert!(a.subtract(&set(r#"{"k:{\"p\":80.0}":{}}"#)));
    assert!(a.is_empty());
}

#[test]
fn filters_exclude_trees_and_include_patterns() {
    let all = || {
        set(
            r#"{"f:status":{"f:x":{}},"f:spec":{"f:c":{"k:{\"n\":1}":{".":{},"f:r":{"f:cpu":{}},"f:i":{}}}}}"#,
        )
    };
    let mut spec = all();
    Filter::Exclude(FieldSet::of_fields(&[&["status"]])).apply(&mut spec);
    check(
        &spec,
        expect![[r#"{"f:spec":{"f:c":{"k:{\"n\":1}":{".":{},"f:i":{},"f:r":{"f:cpu":{}}}}}}"#]],
    );
    let mut resources = all();
    let pattern = vec![
        PatternElement::Field("spec".into()),
        PatternElement::Field("c".into()),
        PatternElement::Any,
        PatternElement::Field("r".into()),
    ];
    Filter::Include(vec![pattern]).apply(&mut resources);
    check(
        &resources,
        expect![[r#"{"f:spec":{"f:c":{"k:{\"n\":1}":{".":{},"f:r":{"f:cpu":{}}}}}}"#]],
    );
}

#[test]
fn a_text_decodes_like_its_tree() {
    let check = |text: &str, is_as_written: bool| {
        let (set, is_same) = FieldSet::decode_canonical(&Value::Raw(text.into())).unwrap();
        assert_eq!(set, FieldSet::decode(&json(text)).unwrap(), "{text}");
        assert_eq!(is_same, is_as_written, "{text}");
        assert!(!is_same || show(&set.encode()) == text, "{text}");
    };
    check("{}", true);
    check(r#"{"f:a":{".":{},"f:b":{}},"f:c":{}}"#, true);
    check(r#"{"f:l":{"k:{\"n\":\"x\",\"p\":80}":{".":{},"f:n":{}},"v:3":{},"v:\"x\"":{}}}"#, true);
    // Unsorted, duplicate, only ".", unescaped characters, numbers that are not canonical, indexes.
    check(r#"{"f:b":{},"f:a":{}}"#, false);
    check(r#"{"f:a":{".":{}}}"#, false);
    check(r#"{"f:a":{"f:b":{},".":{}}}"#, false);
    check(r#"{"f:a<":{}}"#, false);
    check(r#"{"f:a\\":{}}"#, false);
    check(r#"{"v:3.0":{}}"#, false);
    check(r#"{"i:1":{}}"#, false);
    check(r#"{"x:y":{},"f:a":{}}"#, false);
}

/// A small set is looked up in a large one by bisection.
#[test]
fn small_and_large_sets_are_combined() {
    let set = |numbers: &mut dyn Iterator<Item = i64>| {
        let node =
            |at| Node { element: Element::Index(at), is_member: true, children: FieldSet::new() };
        FieldSet::from_nodes(numbers.map(node).collect())
    };
    let large = set(&mut (0..1_000).filter(|at| at % 3 == 0));
    let small = set(&mut [-1, 0, 1, 300, 301, 999, 2_000].into_iter());
    let both = set(&mut [0, 300, 999].into_iter());
    assert_eq!(small.intersection(&large), both);
    assert_eq!(large.intersection(&small), both);
    assert!(both.is_subset(&large) && !small.is_subset(&large) && !large.is_subset(&both));
    let mut rest = small.clone();
    assert!(rest.subtract(&large));
    assert_eq!(rest, set(&mut [-1, 1, 301, 2_000].into_iter()));
    let sets: Vec<FieldSet> = (0..7).map(|at| set(&mut (at..at + 2))).collect();
    assert_eq!(FieldSet::union(sets), set(&mut (0..8)));
    assert_eq!(FieldSet::union(vec![]), FieldSet::new());
}
