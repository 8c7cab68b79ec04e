//! Validation errors of objects, as kube-apiserver 1.36 reports them.

use super::*;
use crate::types::Shape;
use keelson_meta::{GroupVersionKind, value};

#[test]
fn pattern_classes_match_only_ascii() {
    let check = |pattern: &str, text: &str, expected: bool| {
        let found = regex(pattern).map(|regex| regex.is_match(text));
        assert_eq!(found, Some(expected), "{pattern} on {text}");
    };
    check(r"^\d$", "5", true);
    check(r"^\d$", "\u{665}", false);
    check(r"^\w+$", "az_9", true);
    check(r"^\w$", "\u{e9}", false);
    check(r"^\W$", "\u{e9}", true);
    check(r"^\s$", "\t", true);
    check(r"^\s$", "\u{a0}", false);
    check(r"^[\d-]$", "\u{665}", false);
    check("(?i)^abc$", "aBC", true);
    check("^[[:alpha:]]$", "\u{e9}", false);
    assert!(regex(r"a\Z").is_none() && regex("(?=a)").is_none());
}

/// Expected errors are those of kube-apiserver 1.36.
#[test]
fn unknown_formats_and_those_of_other_types_are_ignored() {
    let check = |schema: Value, given: Value, expected: &[&str]| {
        let schema = value!({"type": "object", "properties": {"f": (schema)}});
        let object: Map = [(Str::from("f"), given)].into_iter().collect();
        let faults = Structural::read(Some(&schema)).for_objects().validate(&object, None);
        let messages: Vec<String> = faults.iter().map(|fault| fault.to_string()).collect();
        let expected: Vec<String> = expected.iter().map(|why| format!("f: {why}")).collect();
        assert_eq!(messages, expected, "{schema:?}");
    };
    let typed = |kind: &str, format: &str| value!({"type": (kind), "format": (format)});
    let of = |kind: &str, given: &str| {
        format!("Invalid value: \"{given}\": f in body must be of type {kind}: \"{given}\"")
    };
    check(typed("integer", "date-time"), "aaa".into(), &[&of("integer", "string")]);
    check(typed("integer", "double"), true.into(), &[&of("integer", "boolean")]);
    check(typed("integer", "int32"), true.into(), &[&of("int32", "")]);
    check(typed("number", "int32"), value!({}), &[&of("number", "object")]);
    check(typed("number", "double"), value!({}), &[&of("double", "")]);
    check(typed("boolean", "int64"), "".into(), &[&of("boolean", "string")]);
    check(typed("object", "date-time"), value!([]), &[&of("object", "array")]);
    check(typed("string", "int32"), 1.into(), &[&of("string", "integer")]);
    check(typed("string", "made-up"), value!(["a"]), &[&of("string", "array")]);
    check(typed("string", "date-time"), 1.into(), &[&of("date-time", "int64")]);
    let untyped =
        |format: &str| value!({"x-kubernetes-preserve-unknown-fields": true, "format": (format)});
    check(untyped("int32"), true.into(), &[]);
    check(untyped("date-time"), true.into(), &[&of("date-time", "")]);
    let either = |format: &str| value!({"x-kubernetes-int-or-string": true, "format": (format)});
    check(either("int32"), 1.5.into(), &[&of("integer,string", "number")]);
    check(either("date-time"), value!([]), &[&of("integer,string", "array")]);
    check(either("date-time"), "aaa".into(), &[&of("date-time", "aaa")]);
}

/// As in kube-apiserver 1.36, only this rule writes keys of maps in brackets.
#[test]
fn duplicates_in_a_map_of_lists_are_reported_by_its_key() {
    let schema = value!({"type": "object", "properties": {"f": {"type": "object",
        "additionalProperties": {"type": "array", "x-kubernetes-list-type": "set",
            "items": {"type": "string"}}}}});
    let object: Map = [(Str::from("f"), value!({"k": ["a", "a"]}))].into_iter().collect();
    let faults = Structural::read(Some(&schema)).validate(&object, None);
    let messages: Vec<String> = faults.iter().map(|fault| fault.to_string()).collect();
    assert_eq!(messages, ["f[k][1]: Duplicate value: \"a\""]);
}

/// As in kube-apiserver 1.36, duplicates are only searched among objects.
#[test]
fn non_object_items_of_a_list_map_are_reported() {
    let schema = value!({"type": "object", "properties": {"f": {"type": "array",
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}});
    let object: Map =
        [(Str::from("f"), value!([1.5, 1.5, {"k": "a"}, {"k": "a"}]))].into_iter().collect();
    let faults = Structural::read(Some(&schema)).validate(&object, None);
    let messages: Vec<String> = faults.iter().map(|fault| fault.to_string()).collect();
    let typed = |at: usize| {
        format!(
            "f[{at}]: Invalid value: \"number\": f[{at}] in body must be of type object: \"number\""
        )
    };
    let other = "f[0]: Invalid value: 1.5: must be an object for an array of list-type map";
    assert_eq!(messages, [typed(0), typed(1), other.to_owned()]);
}

/// Checks the errors of an object; `schema` is that of the whole object.
fn check_object(schema: &Value, object: Value, expected: &[&str]) {
    let Value::Object(object) = object else { panic!("not an object") };
    let faults: Vec<String> = Structural::read(Some(schema))
        .for_objects()
        .validate(&object, None)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(faults, expected, "{schema:?}");
}

fn check_spec(schema: Value, spec: Value, expected: &[&str]) {
    let schema = value!({"type": "object", "properties": {"spec": (schema)}});
    check_object(&schema, value!({"spec": (spec)}), expected);
}

#[test]
fn errors_are_in_upstream_order() {
    let text = value!({"type": "string", "enum": ["x"], "minLength": 5, "pattern": "^b",
        "format": "date", "anyOf": [{"minLength": 9}]});
    let any = "<nil>: Invalid value: \"\": \"spec\" must validate at least one schema (anyOf)";
    let faults = [
        any,
        "spec: Invalid value: \"q\": spec in body should be at least 9 chars long",
        "spec: Invalid value: \"q\": spec in body should be at least 5 chars long",
        "spec: Invalid value: \"q\": spec in body must be of type date: \"q\"",
        "spec: Unsupported value: \"q\": supported values: \"x\"",
    ];
    check_spec(text, "q".into(), &faults);
    let number =
        value!({"type": "integer", "multipleOf": 2, "maximum": 1.5, "minimum": 9, "enum": [5]});
    let faults = [
        "spec: Invalid value: 7: spec in body should be a multiple of 2",
        "spec: Invalid value: 7: spec in body should be greater than or equal to 9",
        "<nil>: Invalid value: \"\": Maximum boundary value must be of type integer (default format) in spec",
        "spec: Invalid value: 7: spec in body should be less than or equal to 1.5",
        "spec: Unsupported value: 7: supported values: \"5\"",
    ];
    check_spec(number, 7.into(), &faults);
    let list = value!({"type": "array", "items": {"type": "string"}, "minItems": 4, "maxItems": 0});
    let faults = [
        "spec[0]: Invalid value: \"integer\": spec[0] in body must be of type string: \"integer\"",
        "spec: Invalid value: 1: spec in body should have at least 4 items",
        "spec: Too many: 1: must have at most 0 items",
    ];
    check_spec(list, value!([1]), &faults);
}

#[test]
fn errors_of_the_best_matching_alternative_are_reported() {
    let one = value!({"type": "object", "oneOf": [{"required": ["x"]},
        {"required": ["a"], "properties": {"a": {"required": ["k"], "properties": {"k": {"enum": ["Q"]}}}}},
        {"properties": {"a": {"properties": {"v": {"properties": {"z": {"enum": ["Q"]}}}}}}}],
        "properties": {"a": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let faults = [
        "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found none valid",
        "spec.a.v.z: Unsupported value: \"1\": supported values: \"Q\"",
    ];
    check_spec(one, value!({"a": {"k": "S", "v": {"z": "1"}}}), &faults);
    let any = value!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "anyOf": [{"required": ["x"]}, {"properties": {"a": {"enum": ["Q"]}}},
        {"properties": {"a": {"enum": ["Q"]}, "b": {"enum": ["R"]}}}]});
    let faults = [
        "<nil>: Invalid value: \"\": \"spec\" must validate at least one schema (anyOf)",
        "spec.a: Unsupported value: \"1\": supported values: \"Q\"",
        "spec.b: Unsupported value: \"2\": supported values: \"R\"",
    ];
    check_spec(any, value!({"a": "1", "b": "2"}), &faults);
}

#[test]
fn kind_api_version_and_metadata_are_validated_by_the_schema() {
    let schema = value!({"type": "object", "properties": {"kind": {"type": "string", "enum": ["x"]},
        "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 1}}}}});
    let faults = [
        "kind: Unsupported value: \"Thing\": supported values: \"x\"",
        "metadata.name: Too long: may not be more than 1 byte",
    ];
    check_object(&schema, value!({"kind": "Thing", "metadata": {"name": "o1"}}), &faults);
}

#[test]
fn equal_errors_are_reported_once() {
    let schema = value!({"type": "object", "required": ["a", "a"]});
    check_object(&schema, value!({}), &["a: Required value"]);
}

#[test]
fn the_type_of_a_whole_object_is_checked() {
    let schema = value!({"x-kubernetes-int-or-string": true});
    let fault =
        "<nil>: Invalid value: \"object\":  in body must be of type integer,string: \"object\"";
    check_object(&schema, value!({}), &[fault]);
}

#[test]
fn null_never_matches_an_enum() {
    let of = |list: Value| value!({"type": "string", "nullable": true, "enum": (list)});
    let fault = "spec: Unsupported value: null: supported values: ";
    check_spec(of(value!(["x"])), Value::Null, &[&format!("{fault}\"x\"")]);
    check_spec(of(value!(["x", null])), Value::Null, &[&format!("{fault}\"x\", \"null\"")]);
    check_spec(value!({"type": "string", "nullable": true, "minLength": 1}), Value::Null, &[]);
}

#[test]
fn members_are_forbidden_where_additional_properties_is_false() {
    let schema = value!({"type": "object", "additionalProperties": false});
    let fault = "spec: Invalid value: \"a\": spec.a in body is a forbidden property";
    check_spec(schema.clone(), value!({"a": {"b": 1}}), &[fault]);
    check_spec(schema, value!({}), &[]);
}

#[test]
fn empty_string_does_not_have_format_byte() {
    let schema = value!({"type": "string", "format": "byte"});
    let fault = "spec: Invalid value: \"\": spec in body must be of type byte: \"\"";
    check_spec(schema, "".into(), &[fault]);
}

/// Null is stored for nullable fields; other nulls are dropped.
#[test]
fn null_is_kept_where_the_schema_is_nullable() {
    let object = value!({"type": "object", "properties": {"x": {"type": "string"}}});
    let nullable = |mut schema: Value| {
        schema.as_object_mut().expect("a map").insert("nullable", true);
        schema
    };
    let schema = value!({"type": "object", "properties": {
        "kept": (nullable(object.clone())),
        "dropped": (object.clone()),
        "items": {"type": "array", "items": (nullable(object.clone()))},
        "values": {"type": "object", "additionalProperties": (nullable(object.clone()))},
        "others": {"type": "object", "additionalProperties": (object)},
        "any": {"type": "object", "additionalProperties": true},
    }});
    let given = value!({"kept": null, "dropped": null, "items": [null], "values": {"a": null},
        "others": {"a": null}, "any": {"a": null}});
    let schema = Structural::read(Some(&schema)).schema(GroupVersionKind::new("g", "v1", "K"));
    let decoded = crate::decode::canonicalize(&schema, given).expect("of the type");
    let mut text = vec![];
    crate::json::encode(&schema, &decoded.object, &mut text);
    let text = String::from_utf8(text).expect("UTF-8");
    let kept = r#""any":{"a":null},"items":[null],"kept":null,"others":{},"values":{"a":null}}"#;
    assert!(text.ends_with(kept), "{text}");
}

/// As a kube-apiserver 1.36.3: a null item or value whose schema has a default becomes that, and an
/// integer in a field of type number stays one.
#[test]
fn null_items_get_their_default_and_numbers_keep_their_digits() {
    let item = value!({"type": "object", "default": {"a": "b"},
        "properties": {"a": {"type": "string"}}});
    let schema = value!({"type": "object", "properties": {
        "items": {"type": "array", "items": (item.clone())},
        "values": {"type": "object", "additionalProperties": (item)},
        "number": {"type": "array", "items": {"type": "number"}},
    }});
    let given = value!({"items": [null, {}], "values": {"x": null, "y": {}},
        "number": [(9007199254740993_i64), (i64::MAX), 1.0, 1.5]});
    let schema = Structural::read(Some(&schema)).schema(GroupVersionKind::new("g", "v1", "K"));
    let mut decoded = crate::decode::canonicalize(&schema, given).expect("of the type");
    crate::default::fill(&schema, &mut decoded.object).expect("small");
    let mut text = vec![];
    crate::json::encode(&schema, &decoded.object, &mut text);
    let text = String::from_utf8(text).expect("UTF-8");
    let stored = concat!(
        r#""items":[{"a":"b"},{}],"number":[9007199254740993,9223372036854775807,1,1.5],"#,
        r#""values":{"x":{"a":"b"},"y":{}}}"#
    );
    assert!(text.ends_with(stored), "{text}");
}

/// A compiled pattern takes about 20 kB, so only those in use are kept.
#[test]
fn patterns_that_go_accepts_are_enforced() {
    for (pattern, length) in [(r"^\pL{1000}$", 1000), (r"^(\pL{100}){3}$", 300)] {
        let regex = regex(pattern).expect(pattern);
        assert!(regex.is_match(&"é".repeat(length)), "{pattern}");
        assert!(!regex.is_match(&"é".repeat(length - 1)), "{pattern}");
    }
    let depth = 300;
    let deep = format!("^{}a{}$", "(".repeat(depth), ")".repeat(depth));
    assert!(regex(&deep).expect("a deep pattern").is_match("a"));
}

#[test]
fn patterns_are_compiled_on_first_use() {
    let schema = value!({"type": "object", "properties": {
        "a": {"type": "string", "pattern": "^a+$"}, "b": {"type": "string", "pattern": "^b+$"}}});
    let read = Structural::read(Some(&schema)).for_objects();
    let is_compiled = |name: &str| {
        let pattern = read.root.property(name)?.validation.as_ref()?.pattern.as_ref()?;
        Some(pattern.regex.get().is_some())
    };
    assert_eq!((is_compiled("a"), is_compiled("b")), (Some(false), Some(false)));
    let Value::Object(object) = value!({"a": "b", "b": 1}) else { panic!("not an object") };
    let faults: Vec<String> =
        read.validate(&object, None).iter().map(|f| f.field.clone()).collect();
    assert_eq!(faults, ["a", "b"]);
    assert_eq!((is_compiled("a"), is_compiled("b")), (Some(true), Some(false)));
}

/// Expected errors are those of kube-apiserver 1.36.
#[test]
fn bounds_of_another_type_are_reported_and_compared_as_floats() {
    let of_type = |what: &str| {
        format!(
            "<nil>: Invalid value: \"\": {what} must be of type integer (default format) in spec"
        )
    };
    let check = |keyword: &str, bound: Value, given: Value, expected: &[&str]| {
        let schema: Map = [("type", "integer".into()), (keyword, bound)]
            .into_iter()
            .map(|(key, value)| (Str::from(key), value))
            .collect();
        check_spec(Value::Object(schema), given, expected);
    };
    let reported = of_type("MultipleOf value");
    let fault = "spec: Invalid value: 3: spec in body should be a multiple of 2.5";
    check("multipleOf", 2.5.into(), 3.into(), &[&reported, fault]);
    check("multipleOf", 2.5.into(), 5.into(), &[&reported]);
    // Close enough to a multiple, by upstream's tolerance.
    check("multipleOf", 2.5.into(), 2_147_483_648_i64.into(), &[&reported]);
    let fault =
        "spec: Invalid value: 2.147483648e+09: spec in body should be less than or equal to 0.5";
    let reported = of_type("Maximum boundary value");
    check("maximum", 0.5.into(), 2_147_483_648_i64.into(), &[&reported, fault]);
}

/// Expected errors are those of kube-apiserver 1.36.
#[test]
fn format_of_a_default_must_belong_to_its_type() {
    let check = |format: &str, given: Value, expected: &str| {
        let schema = value!({"type": "integer", "format": (format)});
        let faults = Structural::read(Some(&schema)).for_defaults().check_default(&given);
        let details: Vec<&str> = faults.iter().map(|fault| fault.detail.as_str()).collect();
        assert!(details.contains(&expected), "{format}: {details:?}");
    };
    let default = "Checked value must be of type integer (default format) in ";
    check("made-up", 1.5.into(), default);
    check("double", 1.5.into(), default);
    check("int32", 1.5.into(), "Checked value must be of type integer with format int32 in ");
}

#[test]
fn path_of_a_root_map_value_begins_with_a_dot() {
    let schema = value!({"type": "object", "additionalProperties": {"type": "integer"}});
    let faults = Structural::read(Some(&schema)).for_defaults().check_default(&value!({"a": "x"}));
    let details: Vec<&str> = faults.iter().map(|fault| fault.detail.as_str()).collect();
    assert_eq!(details, [".a in body must be of type integer: \"string\""]);
}

/// kube-apiserver 1.36 prunes these members and warns.
#[test]
fn objects_in_place_of_scalars_lose_their_members() {
    let schema = value!({"type": "object", "properties": {
        "q": {"x-kubernetes-int-or-string": true}, "t": {"type": "string", "format": "date-time"}}});
    let schema = Structural::read(Some(&schema)).schema(GroupVersionKind::new("x.com", "v1", "W"));
    let given = value!({"q": [{"a": 1}, 5.5], "t": {"b": 1}});
    let decoded = crate::decode::canonicalize(&schema, given).unwrap();
    assert_eq!(decoded.strict_errors, ["unknown field \"q[0].a\"", "unknown field \"t.b\""]);
    assert_eq!(decoded.object.root.get("q"), Some(&value!([{}, 5.5])));
}

#[test]
fn an_object_of_anything_may_be_atomic() {
    let shape_of = |map_type: &str| {
        let spec = value!({"type": "object", "x-kubernetes-map-type": map_type,
            "x-kubernetes-preserve-unknown-fields": true});
        let root = value!({"type": "object", "properties": {"spec": (spec)}});
        let gvk = GroupVersionKind::new("a.example", "v1", "A");
        let schema = Structural::read(Some(&root)).schema(gvk);
        schema.root().field("spec").map(|field| field.shape.clone())
    };
    let is_atomic = |shape: &Option<Shape>| matches!(shape, Some(Shape::Map(map)) if map.atomic);
    assert!(is_atomic(&shape_of("atomic")), "{:?}", shape_of("atomic"));
    assert!(matches!(shape_of("granular"), Some(Shape::Json)));
}

#[test]
fn a_list_that_preserves_unknown_fields_does_so_in_its_items() {
    let kept = |list_preserves: bool| {
        let inner = value!({"type": "object", "properties": {"known": {"type": "object"}}});
        let list = value!({"type": "array", "items": (inner),
            "x-kubernetes-preserve-unknown-fields": list_preserves});
        let root = value!({"type": "object", "properties": {"list": (list)}});
        let schema =
            Structural::read(Some(&root)).schema(GroupVersionKind::new("a.example", "v1", "A"));
        let given = value!({"list": [{"a.b": 1, "known": {"unknown": 2}}]});
        let decoded = crate::decode::canonicalize(&schema, given).expect("an object");
        decoded.object.at(&["list"]).map(keelson_meta::status::show).unwrap_or_default()
    };
    assert_eq!(kept(true), r#"[{"known":{},"a.b":1}]"#);
    assert_eq!(kept(false), r#"[{"known":{}}]"#);
}
