//! Objects with a schema: conversion of JSON to values, compared with kube-apiserver 1.36.

use keelson_cel::{
    DeclField, DeclType, Environment, Limits, ListKind, ObjectType, Shape, Version, adapt, escape,
    to_json,
};
use keelson_meta::{Value, value};
use std::sync::Arc;

fn of(shape: Shape) -> Arc<DeclType> {
    Arc::new(DeclType::new(shape).with_size_max(20))
}

fn nullable(shape: Shape) -> Arc<DeclType> {
    Arc::new(DeclType { nullable: true, ..DeclType::new(shape).with_size_max(20) })
}

fn object(name: &str, properties: Vec<(&str, Arc<DeclType>)>) -> Arc<DeclType> {
    let field = |(property, decl_type): (&str, Arc<DeclType>)| DeclField {
        name: escape(property).expect("properties can be named").into(),
        property: property.into(),
        decl_type,
    };
    let fields = properties.into_iter().map(field).collect();
    of(Shape::Object(Arc::new(ObjectType::new(name, fields))))
}

fn schema() -> Arc<DeclType> {
    let keyed = || {
        let item = object("self.lm.@idx", vec![("k", of(Shape::String)), ("v", of(Shape::Int))]);
        of(Shape::List(item, ListKind::Map(vec!["k".into()])))
    };
    let meta = object("self.emb.metadata", vec![("name", of(Shape::String))]);
    object(
        "self",
        vec![
            ("ls", of(Shape::List(of(Shape::String), ListKind::Set))),
            ("la", of(Shape::List(of(Shape::String), ListKind::Atomic))),
            ("lm", keyed()),
            ("lm2", keyed()),
            ("n", of(Shape::Double)),
            ("ios", of(Shape::IntOrString)),
            ("ios2", of(Shape::IntOrString)),
            ("dt", of(Shape::Timestamp)),
            ("d", of(Shape::Date)),
            ("du", of(Shape::Duration)),
            ("by", of(Shape::Bytes)),
            ("nul", nullable(Shape::String)),
            ("mm", of(Shape::Map(nullable(Shape::String)))),
            ("namespace", of(Shape::String)),
            ("a-b", of(Shape::String)),
            ("o", object("self.o", vec![("p", of(Shape::Int)), ("q", of(Shape::String))])),
            ("emb", object("self.emb", vec![("kind", of(Shape::String)), ("metadata", meta)])),
        ],
    )
}

fn instance() -> Value {
    value!({
        "ls": ["a", "b"], "la": ["a", "b"],
        "lm": [{"k": "x", "v": 1}, {"k": "y", "v": 2}],
        "lm2": [{"k": "z", "v": 3}, {"k": "x", "v": 9}],
        "n": 5, "ios": 5, "ios2": "50%", "dt": "2020-01-01T01:00:00+01:00", "d": "2020-01-01",
        "du": "1h", "by": "YWJj", "nul": null, "mm": {"a": "b", "n": null}, "namespace": "ns",
        "a-b": "ab", "o": {"p": 1, "unknown": 2},
        "emb": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
    })
}

fn answer(text: &str) -> String {
    let schema = schema();
    let env =
        Environment::kubernetes(Version::NEW_EXPRESSIONS).with_decl_type("self", schema.clone());
    let program = match env.compile(text) {
        Ok(compiled) => compiled.program,
        Err(error) => {
            let shown = error.to_string();
            let first = shown.lines().next().unwrap_or_default();
            return first.replace("compilation failed: ERROR: <input>:", "");
        }
    };
    let instance = instance();
    let variables = [adapt(&instance, Some(&schema)).ok()];
    let result = program.evaluate(&variables, &Limits::default()).result;
    result.map_or_else(|error| error.to_string(), |val| format!("{:?}", to_json(&val)))
}

fn is_true(text: &str) {
    assert_eq!(answer(text), "Ok(Bool(true))", "{text}");
}

#[test]
fn list_equality_and_concatenation_follow_the_list_type() {
    is_true("self.ls == ['b', 'a']");
    is_true("self.ls != ['a', 'b', 'b']");
    is_true("self.la != ['b', 'a']");
    is_true("self.ls + ['c', 'a'] == ['a', 'b', 'c']");
    is_true("self.la + ['a'] == ['a', 'b', 'a']");
    is_true("self.lm + self.lm == self.lm");
    is_true("(self.lm + self.lm2).size() == 3");
    is_true("(self.lm + self.lm2)[0].v == 9");
    is_true("(self.lm + self.lm2).map(e, e.k) == ['x', 'y', 'z']");
}

#[test]
fn string_formats_become_typed_values() {
    is_true("self.n == 5.0");
    is_true("self.ios == 5 && self.ios2 == '50%'");
    is_true("self.dt == timestamp('2020-01-01T00:00:00Z')");
    is_true("self.d == timestamp('2020-01-01T00:00:00Z')");
    is_true("self.du == duration('1h')");
    is_true("self.by == b'abc'");
}

#[test]
fn null_fields_are_absent_and_null_map_values_are_not() {
    is_true("!has(self.nul)");
    is_true("has(self.mm.n) && self.mm.size() == 2");
    is_true("self.mm.all(k, self.mm[k] != 'x')");
    assert_eq!(answer("self.nul == 'a'"), "no such key: nul");
}

#[test]
fn property_names_are_escaped() {
    is_true("self.__namespace__ == 'ns' && has(self.__namespace__)");
    is_true("self.a__dash__b == 'ab'");
    assert_eq!(answer("self.o.unknown == 1"), "1:7: undefined field 'unknown'");
    assert_eq!(answer("dyn(self.o).unknown == 1"), "no such key: unknown");
    is_true("self.emb.metadata.name == 'x' && self.emb.kind == 'Pod'");
}

#[test]
fn objects_are_not_maps() {
    let check = |text: &str, expected: &str| assert_eq!(answer(text), expected, "{text}");
    check(
        "self.o.size() == 1",
        "1:12: found no matching overload for 'size' applied to 'self.o.()'",
    );
    check(
        "'p' in self.o",
        "1:5: found no matching overload for '@in' applied to '(string, self.o)'",
    );
    check(
        "self.o['p'] == 1",
        "1:7: found no matching overload for '_[_]' applied to '(self.o, string)'",
    );
    check(
        "self.o.all(k, k == 'p')",
        "1:5: expression of type 'self.o' cannot be range of a comprehension (must be list, map, or \
         dynamic)",
    );
    check(
        "self.o == self.emb",
        "1:8: found no matching overload for '_==_' applied to '(self.o, self.emb)'",
    );
    check(
        "self.lm == [{'k': 'x'}]",
        "1:9: found no matching overload for '_==_' applied to '(list(self.lm.@idx), \
         list(map(string, string)))'",
    );
    check(
        "self.nul == null",
        "1:10: found no matching overload for '_==_' applied to '(string, null)'",
    );
    is_true("self.o == self.o && self == self && self.o != null");
}

#[test]
fn results_convert_to_json() {
    let check = |text: &str, expected: Value| {
        assert_eq!(answer(text), format!("Ok({expected:?})"), "{text}");
    };
    check("{'a': self.ls, 'b': ['c']}", value!({"a": ["a", "b"], "b": ["c"]}));
    check("self.lm.map(e, {e.k: e.v})", value!([{"x": 1}, {"y": 2}]));
    check("self.du", value!("3600s"));
    check("self.by", value!("YWJj"));
    check("optional.of(self.ls)", value!(["a", "b"]));
    assert_eq!(
        answer("quantity('1')"),
        "Err(EvalError(ErrorInner { message: \"type conversion error from 'kubernetes.Quantity' to \
         'google.protobuf.Value'\", cause: Value }))"
    );
}

#[test]
fn json_of_the_wrong_type_is_an_error_when_read() {
    let schema = object(
        "self",
        vec![("n", of(Shape::Int)), ("l", of(Shape::List(of(Shape::Int), ListKind::Atomic)))],
    );
    let env =
        Environment::kubernetes(Version::NEW_EXPRESSIONS).with_decl_type("self", schema.clone());
    let check = |object: Value, text: &str, expected: &str| {
        let program = env.compile(text).unwrap().program;
        let variables = [adapt(&object, Some(&schema)).ok()];
        let error = program.evaluate(&variables, &Limits::default()).result.unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    };
    check(value!({"n": "a"}), "self.n == 1", "invalid data, expected a number, got string");
    check(value!({"l": 1}), "self.l.size() == 1", "invalid data, expected an array");
    check(
        value!({"l": [null]}),
        "self.l[0] == 1",
        "invalid data, got null for schema with nullable=false",
    );
}
