//! Strict decoding errors and merged duplicates, as kube-apiserver 1.36 has them.

use keelson_meta::{GroupVersionKind, Value, value};
use keelson_schema::Schema;
use keelson_schema::catalogue::Catalogue;
use keelson_schema::decode::{Format, decode};

fn schema(group: &str, kind: &str) -> Schema {
    let gvk = GroupVersionKind::new(group, "v1", kind);
    Catalogue::shared().schema(&gvk).expect("the kind is known")
}

fn check(schema: &Schema, format: Format, body: &str, want: Result<(Value, &[&str]), &str>) {
    let got = decode(schema, body.as_bytes(), format, &|_| true)
        .map(|decoded| (decoded.object.into_value(), decoded.strict_errors))
        .map_err(|error| error.message.to_string());
    let texts = |errors: &[&str]| errors.iter().map(|error| (*error).to_owned()).collect();
    let want = want.map(|(value, errors)| (value, texts(errors))).map_err(str::to_owned);
    assert_eq!(got, want, "{body}");
}

#[test]
fn duplicates_and_unknown_fields_come_in_the_order_of_the_text() {
    check(
        &schema("", "ConfigMap"),
        Format::Json,
        r#"{"zz":1,"metadata":{"name":"a","foo":1,"labels":{"a":"1"},"bar":2,"labels":{"b":"2"},"foo":3},
            "data":{"x":"1"},"aa":{},"data":{"x":"2","x":"3"},"zz":2}"#,
        Ok((
            value!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "labels": {"a": "1", "b": "2"}}, "data": {"x": "3"}}),
            &[
                "unknown field \"zz\"",
                "unknown field \"metadata.foo\"",
                "unknown field \"metadata.bar\"",
                "duplicate field \"metadata.labels\"",
                "unknown field \"aa\"",
                "duplicate field \"data\"",
                "duplicate field \"data.x\"",
            ],
        )),
    );
    check(
        &schema("", "ConfigMap"),
        Format::Json,
        r#"{"metadata":{"labels":{"a":"1"},"labels":null},"data":{"x":"1"},"data":null}"#,
        Ok((
            value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}),
            &["duplicate field \"metadata.labels\"", "duplicate field \"data\""],
        )),
    );
}

#[test]
fn unknown_fields_of_yaml_come_in_the_order_of_sorted_keys() {
    check(
        &schema("", "ConfigMap"),
        Format::Yaml,
        "zz: 1\nmetadata:\n  name: a\n  foo: 1\n  labels:\n    a: \"1\"\n  bar: 2\n  labels:\n    b: \"2\"\n\
         data:\n  x: \"1\"\naa: {}\ndata: {x: \"2\", x: \"3\"}\nzz: 2\n",
        Ok((
            value!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "labels": {"b": "2"}}, "data": {"x": "3"}}),
            &[
                "yaml: unmarshal errors:\n  line 9: key \"labels\" already set in map\n  line 13: key \
                 \"x\" already set in map\n  line 13: key \"data\" already set in map\n  line 14: key \
                 \"zz\" already set in map",
                "unknown field \"aa\"",
                "unknown field \"metadata.bar\"",
                "unknown field \"metadata.foo\"",
                "unknown field \"zz\"",
            ],
        )),
    );
}

#[test]
fn a_value_of_a_wrong_type_is_an_error_although_another_follows() {
    let message = |words: &str| {
        format!("Deployment in version \"v1\" cannot be handled as a Deployment: json: {words}")
    };
    for (body, words) in [
        (
            r#"{"metadata":{"annotations":5,"annotations":{"a":"b"}},"spec":{"replicas":"x"}}"#,
            "cannot unmarshal number into Go struct field ObjectMeta.metadata.annotations of type \
             map[string]string",
        ),
        (
            r#"{"spec":{"template":{"spec":{"containers":[{"args":5}],"containers":[]}}}}"#,
            "cannot unmarshal number into Go struct field \
             Container.spec.template.spec.containers.args of type []string",
        ),
        (
            r#"{"metadata":{"labels":{"a":1,"a":"1"}}}"#,
            "cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
    ] {
        check(&schema("apps", "Deployment"), Format::Json, body, Err(&message(words)));
    }
}

#[test]
fn yaml_that_json_cannot_hold_is_rejected() {
    let message = |why: &str, hex: &str| {
        format!("the object provided is unrecognized (must be of type ConfigMap): {why} ({hex})")
    };
    for (body, why, hex) in [
        ("data: {x: .inf}", "json: unsupported value: +Inf", "646174613a207b783a202e696e667d"),
        (
            "data: {~: x}",
            "unsupported map key of type: %!s(<nil>), key: <nil>, value: \"x\"",
            "646174613a207b7e3a20787d",
        ),
        (
            "a:\n  b: [\n",
            "yaml: line 2: did not find expected node content",
            "613a0a2020623a205b0a",
        ),
    ] {
        check(&schema("", "ConfigMap"), Format::Yaml, body, Err(&message(why, hex)));
    }
}
