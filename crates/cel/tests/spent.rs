//! Runtime cost, compared with kube-apiserver 1.36: the cost of `expression` for each item `x` in
//! `self.all(x, expression)`, derived from the longest list that the limit of 1,000,000 allows.

use keelson_cel::{DeclType, Environment, Limits, ListKind, Shape, Version, adapt};
use keelson_meta::Value;
use std::sync::Arc;

#[test]
fn runtime_cost_matches_kube_apiserver() {
    let items = Arc::new(DeclType::new(Shape::Int));
    let list = Arc::new(DeclType::new(Shape::List(items, ListKind::Atomic)));
    let env =
        Environment::kubernetes(Version::NEW_EXPRESSIONS).with_decl_type("self", list.clone());
    let mut wrong = vec![];
    for (expr, wanted) in SPENT {
        let compiled = env.compile(&format!("self.all(x, {expr})")).unwrap();
        let spent = |count: usize| {
            let value = Value::Array(vec![Value::Int(0); count]);
            let variables = [adapt(&value, Some(&list)).ok()];
            let outcome = compiled.program.evaluate(&variables, &Limits::default());
            outcome.result.map(|_| outcome.cost).unwrap_or_else(|error| panic!("{expr}: {error}"))
        };
        let found = spent(2) - spent(1);
        if found != *wanted {
            wrong.push(format!("{expr}: wanted {wanted}, found {found}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), SPENT.len(), wrong.join("\n"));
}

/// Expressions and their cost.
const SPENT: &[(&str, u64)] = &[
    ("x == 0", 5),
    ("x < 5", 5),
    ("true", 3),
    ("(x < 5 ? x : x) < 7", 6),
    ("[x][0] == 0", 17),
    ("x in [x]", 16),
    ("{'a':x}.a == 0", 37),
    ("{'a':x}['a'] == 0", 37),
    ("has({'a':x}.a)", 35),
    ("optional.of(x).hasValue()", 6),
    ("[x].all(y, y == 0)", 20),
    ("[x].map(y, y).size() == 1", 30),
    ("[x].map(y, 1).size() == 1", 19),
    ("[x].exists_one(y, y == 0)", 20),
    ("[x].exists(y, y == 0)", 21),
    ("string(x) == '0'", 6),
    ("dyn(x) == 0", 6),
    ("x + x == 0", 7),
    ("-x == 0", 6),
    ("!(x == 1)", 6),
    ("size([x]) == 1", 16),
    ("[x].filter(y, true).size() == 1", 30),
    ("duration('1s') == duration('1s')", 4),
    ("'abc'.matches('a+')", 4),
    ("'abc'.matches('a' + '+')", 5),
    ("lists.range(2).size() == 2", 18),
    ("[x,x].sort()[0] == 0", 37),
    ("quantity('1') == quantity('1')", 6),
    ("optional.of(x).optMap(y, y + 1).value() == 1", 14),
    ("[x].transformList(i, v, v).size() == 1", 30),
    ("{'a': x}.transformMap(k, v, v).size() == 1", 41),
    ("{'k': {'a': x}}.k.a == 0", 68),
    ("(x == 0 ? {'a':x} : {'a': 1}).a == 0", 38),
    ("self[x] == 0", 6),
    ("self[0] == 0", 6),
    ("self[x + 0] == 0", 8),
    ("sets.contains([x],[0])", 16),
    ("'a' + 'b' == 'ab'", 5),
    ("'abc'.startsWith('a')", 4),
    ("[x].sum() == 0", 16),
    ("[x].indexOf(0) == 0", 16),
    ("x == 0 || x == 1", 5),
    ("x == 1 || x == 0", 7),
    ("x == 0 && x == 0", 7),
    ("(x == 0 ? true : false)", 5),
    ("(x == 0 ? x == 0 : x == 1)", 7),
    ("{'a':{'b':x}}.?a.?b.hasValue()", 68),
    ("[[x]][0][0] == 0", 28),
    ("[x].sortBy(y, y)[0] == 0", 46),
    ("[x].distinct().size() == 1", 29),
    ("'%d'.format([x]) == '0'", 16),
    ("ip('1.2.3.4') == ip('1.2.3.4')", 6),
    ("cidr('1.0.0.0/8').containsIP('1.2.3.4')", 6),
    ("cidr('1.0.0.0/8').containsCIDR('1.2.0.0/16')", 8),
    ("'abc'.find('a+') == 'a'", 5),
    ("'a,b'.split(',').size() == 2", 6),
    ("'abc'.replace('a','b').size() == 3", 6),
    ("'abc'.indexOf('c') == 2", 4),
    ("url('https://a/b').getHost() == 'a'", 7),
    ("semver('1.2.3').major() == 1", 6),
    ("[x] + [x] == [0,0]", 27),
    ("[x,1].isSorted()", 16),
    ("{'a': x} == {'a': 0}", 35),
    ("'' == ''", 3),
    ("[x].transformList(i, v, i == 0, v).size() == 1", 32),
    ("{'a': x}.all(k, v, v == 0)", 40),
    ("[?optional.of(x)].size() == 1", 17),
    ("[x][?0].hasValue()", 17),
    ("[0,2,3][x] == 0", 6),
    ("x in [0,2,3]", 4),
    ("{'a':x}.?a.orValue(3) == 0", 37),
    ("has({'a':{'b':x}}.a.b)", 66),
    ("format.dns1123Label().validate('abc').hasValue() == false", 14),
    ("'é'.size() == 1", 5),
    ("x in {0: 1}", 5),
    ("{0: 1}[x] == 1", 6),
    ("{'a': {'b': [x]}}.a.b[0] == 0", 79),
    ("(x == 0 ? self : [1])[0] == 0", 7),
    ("self[self[0]] == 0", 7),
    ("[1,2].all(y, [1,2].all(z, y > 0 && z > 0))", 40),
    ("dyn({'a':1}).a == 1", 6),
    ("'a' < 'b'", 4),
    ("b'abc' == b'abc'", 4),
    ("bytes('abc').size() == 3", 5),
    ("string(b'abc') == 'abc'", 4),
    ("timestamp('2020-01-01T00:00:00Z').getHours() == 0", 5),
    ("optional.none().orValue(x) == 0", 6),
    ("optional.of(x).value() == 0", 7),
    ("!has({'a':x}.b)", 36),
    ("(true ? 1 : 2) == 1", 4),
    ("'aéa'.indexOf('a') == 0", 4),
    ("'aXb'.lowerAscii() == 'axb'", 5),
    ("'abc'.contains('b')", 4),
    ("[[x]].map(y, y[0])[0] == 0", 42),
];
