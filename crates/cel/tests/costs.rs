//! Static estimates, compared with kube-apiserver 1.36: the maximum cost of each expression for one
//! item `x` of a list, derived from its responses to CustomResourceDefinitions with such rules.

use keelson_cel::{DeclField, DeclType, Environment, ListKind, ObjectType, Shape, Version};
use std::sync::Arc;

/// With this many items, the factor by which the budget is exceeded is the cost of one item.
const ITEMS: u64 = 10_000_000;

/// Upstream only reports that the budget is exceeded more than a hundred times.
const MORE: u64 = u64::MAX;

fn decl_type(shape: Shape, size_max: u64) -> Arc<DeclType> {
    Arc::new(DeclType::new(shape).with_size_max(size_max))
}

fn object(name: &str, fields: Vec<(&str, Arc<DeclType>)>) -> Arc<DeclType> {
    let fields = fields.into_iter().map(|(name, decl_type)| DeclField {
        name: name.into(),
        property: name.into(),
        decl_type,
    });
    decl_type(Shape::Object(Arc::new(ObjectType::new(name, fields.collect()))), 0)
}

/// A list of objects. The size of a string is four times its `maxLength`.
fn schema() -> Arc<DeclType> {
    let int = || decl_type(Shape::Int, 0);
    let text = |size: u64| decl_type(Shape::String, size);
    let list = |items, size| decl_type(Shape::List(items, ListKind::Atomic), size);
    let item = object(
        "item",
        vec![
            ("s", text(40)),
            ("t", text(80)),
            ("u", text(3_145_726)),
            ("i", int()),
            ("j", int()),
            ("b", decl_type(Shape::Bool, 0)),
            ("n", decl_type(Shape::Double, 0)),
            ("l", list(text(200), 3)),
            ("li", list(int(), 5)),
            ("m", decl_type(Shape::Map(int()), 4)),
            ("ms", decl_type(Shape::Map(text(120)), 4)),
            ("o", object("o", vec![("p", int())])),
            ("d", decl_type(Shape::Timestamp, 0)),
            ("du", decl_type(Shape::Duration, 0)),
            ("by", decl_type(Shape::Bytes, 40)),
            ("x", decl_type(Shape::IntOrString, 3_145_726)),
            ("en", text(3)),
            ("ip", text(156)),
        ],
    );
    list(item, ITEMS)
}

#[test]
fn estimates_match_kube_apiserver() {
    let env = Environment::kubernetes(Version::NEW_EXPRESSIONS)
        .with_decl_type("self", schema())
        .with_decl_type("oldSelf", schema());
    let mut wrong = vec![];
    for (expr, wanted) in ESTIMATES {
        let compiled = match env.compile(&format!("self.all(x, {expr})")) {
            Ok(compiled) => compiled,
            Err(error) => {
                wrong.push(format!("{expr}: {error}"));
                continue;
            }
        };
        let found = compiled.cost.max / ITEMS;
        let alike = if *wanted == MORE { found >= 100 } else { found == *wanted };
        if !alike {
            wrong.push(format!("{expr}: wanted {wanted}, found {found}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), ESTIMATES.len(), wrong.join("\n"));
}

/// Expressions and their cost.
const ESTIMATES: &[(&str, u64)] = &[
    ("x.i == x.j", 7),
    ("x.i == 1", 5),
    ("x.i < x.j", 8),
    ("x.b", 5),
    ("x.b && x.b", 7),
    ("x.b || x.i < 1", 8),
    ("x.b ? x.i == 1 : x.s == 'a'", 8),
    ("x.s == x.t", 11),
    ("x.s == 'abc'", 6),
    ("x.s == x.u", 11),
    ("x.u == 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'", 11),
    ("x.s != x.t", 11),
    ("x.s < x.t", 11),
    ("x.s + x.t == x.s", 25),
    ("x.s.size() < 5", 7),
    ("size(x.s) < 5", 7),
    ("x.s.startsWith(x.t)", 15),
    ("x.s.startsWith('abc')", 6),
    ("x.s.contains('abcdefghijklmnopqrstuvwxyz')", 17),
    ("x.t.contains(x.t)", 71),
    ("x.s.matches('a+b+c+d+')", 15),
    ("x.t.matches(x.s)", 97),
    ("x.l.size() < 3", 7),
    ("x.l.all(y, y == 'a')", 21),
    ("x.l.all(y, y == x.s)", 36),
    ("x.l.exists(y, y.size() < 2)", 27),
    ("x.l.exists_one(y, y == 'a')", 19),
    ("x.l.map(y, y + 'a') == x.l", MORE),
    ("x.l.filter(y, y == 'a').size() < 1", 63),
    ("x.l.filter(y, y == 'a') == x.l", 64),
    ("x.li.all(y, y > 1)", 31),
    ("x.li.sum() < 3", 11),
    ("x.li.map(y, y + 1).sum() < 3", 92),
    ("x.l.isSorted()", 68),
    ("x.l.indexOf(x.s) < 2", 71),
    ("x.s.indexOf('a') < 2", 10),
    ("x.l[0] == 'a'", 7),
    ("x.l[0] == x.l[1]", 29),
    ("x.li[0] < 2", 7),
    ("x.m['a'] == 1", 6),
    ("x.ms['a'] == x.t", 16),
    ("x.ms.a == x.t", 16),
    ("x.m.all(k, k == 'a')", 22),
    ("x.m.all(k, x.m[k] > 1)", 38),
    ("x.m.all(k, v, v > 1)", 26),
    ("x.ms.all(k, v, v == x.t)", 62),
    ("x.l.all(i, y, y == x.t)", 48),
    ("x.l.all(i, y, i < 5)", 21),
    ("x.o.p < 3", 7),
    ("x.o == x.o", 7),
    ("has(x.o)", 4),
    ("has(x.o.p)", 5),
    ("has(x.s) && x.s == 'a'", 7),
    ("x.d < timestamp('2020-01-01T00:00:00Z')", 7),
    ("x.du < duration('1s')", 7),
    ("x.by == b'abc'", 6),
    ("x.x == 1", 6),
    ("x.x == 'abc'", 6),
    ("x.en == 'a'", 6),
    ("x.en == x.t", 8),
    ("x.en == x.en", 8),
    ("'a' in x.l", 8),
    ("x.s in ['a','b','c']", 18),
    ("x.s in x.l", 10),
    ("x.s in x.m", 8),
    ("[1,2,3].all(y, y > x.i)", 35),
    ("[x.s, x.t].all(y, y == 'a')", 28),
    ("{'a': x.s}.all(k, k == 'a')", 41),
    ("{'a': x.s}['a'] == x.t", 42),
    ("[x.s][0] == x.t", 22),
    ("x.l + x.l == x.l", 11),
    ("(x.l + x.l).all(y, y == 'a')", 39),
    ("x.s.lowerAscii() == x.t", 15),
    ("x.s.replace('a', 'bb') == x.t", 23),
    ("x.t.split(',').size() < 2", 23),
    ("x.t.split(',').all(y, y == 'a')", MORE),
    ("x.t.split(',', 2).all(y, y == 'a')", 32),
    ("x.l.join(',') == x.t", 76),
    ("x.s.substring(2) == x.t", 15),
    ("x.s.trim() == x.t", 15),
    ("x.t.find('a+b+c+') == 'a'", 24),
    ("x.t.findAll('a+b+c+').size() < 3", 25),
    ("string(x.i) == 'a'", 7),
    ("int(x.s) == 1", 7),
    ("dyn(x.s) == 'abc'", 7),
    ("dyn(x.u) == 'abc'", 7),
    ("x.?s == optional.of('a')", MORE),
    ("x.?s.orValue('a') == 'b'", 7),
    ("x.?s.hasValue()", 6),
    ("x.l[?0].orValue('a') == x.t", 17),
    ("optional.of(x.i).optMap(y, y + 1).hasValue()", 25),
    ("x.?i.optMap(y, y + 1).orValue(2) == 3", 24),
    ("quantity(x.s) == quantity('1')", 11),
    ("quantity(x.s).isLessThan(quantity(x.t))", 20),
    ("isQuantity(x.s)", 9),
    ("url(x.s) == url(x.t)", 27),
    ("url(x.s).getHost() == 'a'", 11),
    ("isURL(x.s)", 6),
    ("ip(x.ip) == ip('1.2.3.4')", 23),
    ("isIP(x.ip)", 21),
    ("ip(x.ip).family() == 4", 23),
    ("ip.isCanonical(x.ip)", 37),
    ("cidr(x.ip).containsIP('1.2.3.4')", 26),
    ("cidr(x.ip).containsIP(x.ip)", 43),
    ("cidr('1.0.0.0/8').containsIP(ip(x.ip))", 26),
    ("cidr(x.ip).containsCIDR(x.ip)", 46),
    ("isCIDR(x.ip)", 21),
    ("semver(x.s) == semver('1.2.3')", 11),
    ("isSemver(x.s)", 9),
    ("format.dns1123Label().validate(x.s).hasValue()", MORE),
    ("!format.named('uri').hasValue()", 6),
    ("sets.contains(x.l, ['a'])", 19),
    ("sets.equivalent(x.li, [1])", 26),
    ("sets.intersects(x.l, x.l)", 17),
    ("x.li.distinct().size() < 3", 68),
    ("x.l.distinct().size() < 3", 36),
    ("x.l.sort()[0] == 'a'", 37),
    ("x.li.sort()[0] == 1", 68),
    ("x.li.slice(0, 2).size() < 3", 20),
    ("x.li.reverse()[0] == 1", 23),
    ("x.l.reverse()[0] == x.t", 30),
    ("lists.range(3).all(y, y < x.i)", 39),
    ("x.l.sortBy(y, y)[0] == x.t", MORE),
    ("x.li.first().hasValue()", 7),
    ("'%s %d'.format([x.s, x.i]) == 'a'", 19),
    ("strings.quote(x.s) == x.t", 19),
    ("x.s.charAt(1) == 'a'", 7),
    ("x.l.map(y, y).all(z, z == x.t)", 98),
    ("x.l.map(y, y.lowerAscii()).all(z, z == x.t)", MORE),
    ("x.l.map(y, y.size()).all(z, z < 5)", 74),
    ("x.m.map(k, k).all(z, z == x.t)", MORE),
    ("x.l.filter(y, true).map(y, y).size() < 3", MORE),
    ("x.ms.transformMap(k, v, v + 'a').all(k, v, v == x.t)", MORE),
    ("x.l.transformList(i, v, v + 'a').all(z, z == x.t)", MORE),
    ("x.n < 1.5", 6),
    ("x.n == x.n", 7),
    ("-x.i < 1", 7),
    ("!x.b", 6),
    ("x.i + x.j < 3", 9),
    ("x.i % 3 == 0", 7),
    ("type(x.i) == int", MORE),
    ("bytes(x.s) == b'abc'", 10),
    ("string(x.by) == 'abc'", 10),
    ("x.i in [1,2,3]", 18),
    ("x.d.getFullYear() == 2020", 7),
    ("[x.l, x.l].all(q, q.all(y, y == 'a'))", MORE),
    ("x.l.all(y, x.l.all(z, y == z))", MORE),
    ("(x.b ? x.l : ['a']).all(y, y == x.t)", 58),
    ("(x.b ? x.s : x.t) == x.u", 17),
    ("oldSelf.all(y, y.s == x.s)", MORE),
];
