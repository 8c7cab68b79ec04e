//! The types of mutating admission policies, compared with kube-apiserver 1.36.

use keelson_cel::{Environment, Library, Limits, Map, Type, Val, Version, to_json};
use keelson_meta::{Value, value};

fn environment() -> Environment {
    Environment::kubernetes(Version::NEW_EXPRESSIONS)
        .with_library(Library::JsonPatch)
        .with_variable("object", Type::Dyn)
        .with_mutations()
}

#[test]
fn struct_type_checks_match_upstream() {
    let env = environment();
    let check = |text: &str, expected: &str| {
        let found = match env.compile(text) {
            Ok(compiled) => compiled.program.result_type().to_string(),
            Err(error) => {
                let shown = error.to_string();
                let places = shown.lines().filter_map(|line| line.split_once("<input>:"));
                places.map(|(_, place)| place).collect::<Vec<_>>().join("\n")
            }
        };
        assert_eq!(found, expected, "{text}");
    };
    check("Object{spec: Object.spec{replicas: 1}}", "Object");
    check("Object.spec{a: Object.b{}}", "Object.spec");
    check("Object{?spec: optional.none()}", "Object");
    check("[JSONPatch{op: 'add', path: '/a', value: 1}]", "list(JSONPatch)");
    check("[JSONPatch{op: 'a'}.op == 'a' ? JSONPatch{} : JSONPatch{}]", "list(JSONPatch)");
    check("Object{spec: Object.spec{a: object.foo}}", "Object");
    check("Object{spec: Object.spec{a: 1}}.spec.a == 1", "bool");
    check("Object", "type(Object)");
    check("Foo{a: 1}", "1:4: undeclared reference to 'Foo' (in container '')");
    check(
        "[JSONPatch{op: 1}]",
        "1:14: expected type of field 'op' is 'string' but provided type is 'int'",
    );
    check(
        "[JSONPatch{bad: 'x'}]",
        "1:15: expected type of field 'bad' is '' but provided type is 'string'",
    );
    check("Object{?spec: 1}", "1:15: expected type 'optional_type(int)' but found 'int'");
    check("[Object{a: 1}, JSONPatch{}]", "1:25: expected type 'Object' but found 'JSONPatch'");
    check("Object{`a-b`: 1}", "1:8: unsupported syntax: '`'");
    check(
        "object{a: 1}",
        "1:7: 'dyn' is not a type\n1:9: unexpected failed resolution of 'object'",
    );
}

#[test]
fn struct_literals_are_evaluated() {
    let env = environment();
    let check = |text: &str, expected: Value, cost: u64| {
        let program = env.compile(text).unwrap().program;
        let outcome = program.evaluate(&[None], &Limits::default());
        assert_eq!(to_json(&outcome.result.unwrap()), Ok(expected), "{text}");
        assert_eq!(outcome.cost, cost, "{text}");
    };
    let nested = "Object{spec: Object.spec{replicas: 1, ?a: optional.none(), ?b: optional.of(2)}}";
    check(nested, value!({"spec": {"replicas": 1, "b": 2}}), 82);
    check("Object{a: 1, a: 2}", value!({"a": 2}), 40);
    check(
        "[JSONPatch{op: 'test', path: '/' + jsonpatch.escapeKey('a/b~c'), value: null}]",
        value!([{"op": "test", "path": "/a~1b~0c", "value": null}]),
        52,
    );
}

#[test]
fn struct_value_has_its_type() {
    let program = environment().compile("Object{spec: Object.spec{}}").unwrap().program;
    let Ok(Val::Map(Map::Owned(object))) = program.evaluate(&[None], &Limits::default()).result
    else {
        panic!("no struct was made");
    };
    assert_eq!(object.type_name(), Some("Object"));
    let (_, Val::Map(Map::Owned(spec))) = &object.entries()[0] else { panic!("no spec") };
    assert_eq!(spec.type_name(), Some("Object.spec"));
}

#[test]
fn object_types_need_mutations() {
    let env = Environment::kubernetes(Version::NEW_EXPRESSIONS);
    assert!(env.compile("Object{}").is_err());
    assert!(env.compile("JSONPatch{}").is_err());
}

#[test]
fn older_versions_have_fewer_libraries() {
    let has = |minor: u32, function: &str| {
        Environment::kubernetes(Version::minor(minor)).has_function(function)
    };
    for (function, since) in [
        ("quantity", 28),
        ("sets.contains", 29),
        ("ip", 30),
        ("format.named", 31),
        ("cel.@mapInsert", 32),
        ("semver", 33),
        ("lists.range", 34),
    ] {
        assert!(!has(since - 1, function) && has(since, function), "{function}");
    }
    assert!(Version::NEW_EXPRESSIONS < Version::STORED_EXPRESSIONS);
}
