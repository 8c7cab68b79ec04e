//! Expressions of the Common Expression Language. They are parsed, type checked, estimated and
//! evaluated twice, with equal results.

use super::{Target, hash_outcome};
use keelson_cel::{
    DeclField, DeclType, Environment, Library, Limits, ListKind, ObjectType, Shape, Val, Version,
    adapt,
};
use keelson_meta::{Value, value};
use std::sync::{Arc, OnceLock};

/// A tenth of the limit of Kubernetes, so that one input takes little time.
const COST_MAX: u64 = 100_000;

pub const CEL: Target = Target {
    name: "cel",
    seeds: || SEEDS.iter().map(|text| text.as_bytes().to_vec()).collect(),
    dictionary: &[
        b"self",
        b".",
        b"?.",
        b"[?",
        b"(",
        b")",
        b"[",
        b"]",
        b"{",
        b"}",
        b",",
        b":",
        b"?",
        b"==",
        b"!=",
        b"<",
        b"&&",
        b"||",
        b"!",
        b"-",
        b"+",
        b"*",
        b"/",
        b"%",
        b" in ",
        b"1",
        b"1u",
        b"1.5",
        b"'a'",
        b"b'a'",
        b"null",
        b"true",
        b"x",
        b"all",
        b"exists",
        b"exists_one",
        b"map",
        b"filter",
        b"has",
        b"transformMap",
        b"transformList",
        b"optMap",
        b"sortBy",
        b"size",
        b"matches",
        b"find",
        b"format",
        b"join",
        b"split",
        b"replace",
        b"substring",
        b"sum",
        b"sort",
        b"flatten",
        b"distinct",
        b"slice",
        b"lists.range",
        b"quantity",
        b"url",
        b"ip",
        b"cidr",
        b"semver",
        b"duration",
        b"timestamp",
        b"dyn",
        b"type",
        b"optional.of",
        b"sets.contains",
        b"math.greatest",
        b"cel.bind",
        b"9223372036854775807",
        b"\\u00e9",
        b"'%s %d'",
        b"-9223372036854775808",
        b"[1, 2]",
        b"{'a': 1}",
        b"Object{",
        b"JSONPatch{",
    ],
    attempt: |input| {
        let Ok(text) = std::str::from_utf8(input) else { return Ok(0) };
        let (env, decl_type, object) = fixture();
        let compiled = match env.compile(text) {
            Ok(compiled) => compiled,
            Err(error) => return Ok(hash_outcome(&error.to_string())),
        };
        if compiled.cost.min > compiled.cost.max {
            return Err(format!("the minimum cost exceeds the maximum: {:?}", compiled.cost));
        }
        let limits = Limits { cost_max: COST_MAX };
        let variables = [adapt(object, Some(decl_type)).ok(), Some(Val::Int(7))];
        let first = compiled.program.evaluate(&variables, &limits);
        let second = compiled.program.evaluate(&variables, &limits);
        let text = |outcome: &keelson_cel::Outcome<'_>| match &outcome.result {
            Ok(val) => format!("{:?}", val.ty()),
            Err(error) => error.to_string(),
        };
        if (text(&first), first.cost) != (text(&second), second.cost) {
            return Err(format!("two evaluations differ: {first:?} and {second:?}"));
        }
        Ok(hash_outcome(&text(&first)) ^ first.cost.min(64))
    },
};

const SEEDS: &[&str] = &[
    "self.replicas <= self.max && self.name.matches('^[a-z]+$')",
    "self.items.all(i, has(i.name) && i.name.size() < 5)",
    "self.items.filter(i, i.count > 1).map(i, i.count + 1).sum() > x",
    "self.labels.exists(k, k.startsWith('a') && self.labels[k] == 'b')",
    "self.labels.transformMap(k, v, v + 'a').size() == self.labels.size()",
    "self.?name.optMap(n, n + 'a').orValue('b') == 'c'",
    "[1, 2, 3].sortBy(y, -y)[0] == 3 ? 'a' : 'b'",
    "duration('1h') < duration('2h') || timestamp('2020-01-01T00:00:00Z').getFullYear() == 2020",
    "quantity('1Gi').isGreaterThan(quantity('1Mi')) && ip('10.0.0.1').family() == 4",
    "cidr('10.0.0.0/8').containsIP('10.1.2.3') && url('https://a/b').getHost() == 'a'",
    "semver('1.2.3').major() == 1 || format.dns1123Label().validate('a').hasValue()",
    "'%s is %d'.format([self.name, x]).split(' ').join('-').lowerAscii()",
    "cel.bind(y, self.items, sets.contains([y], [y])) && math.greatest(1, x) == 7",
    "{'a': [1u, 2u], ?'b': optional.none()}[?'a'].value()[0] == dyn(1.0)",
    "dyn(self).items[0].count / 0 == 1 || true",
    "Object{spec: Object.spec{?a: self.?name}}.spec.a == JSONPatch{op: 'add', value: x}.value",
];

/// The environment, and type and value of the variable `self`.
type Fixture = (Environment, Arc<DeclType>, Value);

fn fixture() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(|| {
        let decl_type = decl_type();
        let env = Environment::kubernetes(Version::STORED_EXPRESSIONS)
            .with_library(Library::Math)
            .with_library(Library::Bindings)
            .with_library(Library::JsonPatch)
            .with_mutations()
            .with_decl_type("self", decl_type.clone())
            .with_variable("x", keelson_cel::Type::Int);
        let object = value!({
            "name": "abc", "replicas": 3, "max": 5, "labels": {"a": "b", "c": "d"},
            "items": [{"name": "one", "count": 1}, {"name": "two", "count": 2}]
        });
        (env, decl_type, object)
    })
}

fn decl_type() -> Arc<DeclType> {
    let bounded = |shape: Shape, size: u64| Arc::new(DeclType::new(shape).with_size_max(size));
    let object = |name: &str, fields: Vec<(&str, Arc<DeclType>)>| {
        let field = |(name, decl_type): (&str, Arc<DeclType>)| DeclField {
            name: name.into(),
            property: name.into(),
            decl_type,
        };
        let fields = fields.into_iter().map(field).collect();
        bounded(Shape::Object(Arc::new(ObjectType::new(name, fields))), 0)
    };
    let item = object(
        "item",
        vec![("name", bounded(Shape::String, 20)), ("count", bounded(Shape::Int, 0))],
    );
    object(
        "self",
        vec![
            ("name", bounded(Shape::String, 20)),
            ("replicas", bounded(Shape::Int, 0)),
            ("max", bounded(Shape::Int, 0)),
            ("labels", bounded(Shape::Map(bounded(Shape::String, 10)), 10)),
            ("items", bounded(Shape::List(item, ListKind::Map(vec!["name".into()])), 10)),
        ],
    )
}
