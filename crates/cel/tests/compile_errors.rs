//! Errors of expressions that do not compile, compared with kube-apiserver 1.36: positions and
//! messages as in its responses to validation rules of a string field.

use keelson_cel::{DeclType, Environment, Shape, Version};
use std::sync::Arc;

fn environment() -> Environment {
    let text = Arc::new(DeclType::new(Shape::String).with_size_max(1000));
    Environment::kubernetes(Version::NEW_EXPRESSIONS)
        .with_decl_type("self", text.clone())
        .with_decl_type("oldSelf", text)
}

/// Replaced in the table by the tokens that can begin an expression.
const EXPRESSION_START: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, \
                     NUM_UINT, STRING, BYTES, IDENTIFIER}";

#[test]
fn compile_errors_match_kube_apiserver() {
    let env = environment();
    let mut wrong = vec![];
    for (expr, wanted) in COMPILE_ERRORS {
        let Err(error) = env.compile(expr) else {
            wrong.push(format!("{expr}: compiles"));
            continue;
        };
        let shown = error.to_string();
        let places = shown.lines().filter_map(|line| {
            line.trim_start_matches("compilation failed: ").strip_prefix("ERROR: <input>:")
        });
        let mut found = places.collect::<Vec<_>>().join("\n");
        if found.is_empty() {
            found = shown.clone();
        }
        if found.replace(EXPRESSION_START, "BEGIN") != *wanted {
            wrong.push(format!("{expr}\n  wanted {wanted}\n  found  {found}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), COMPILE_ERRORS.len(), wrong.join("\n"));
}

#[test]
fn message_shows_the_source_line_and_a_mark() {
    let error = environment().compile("math.abs(1) == 1").unwrap_err();
    assert_eq!(
        error.to_string(),
        "compilation failed: ERROR: <input>:1:1: undeclared reference to 'math' (in container '')\n \
         | math.abs(1) == 1\n | ^\nERROR: <input>:1:9: undeclared reference to 'abs' (in container \
         '')\n | math.abs(1) == 1\n | ........^"
    );
}

/// Expressions and expected errors.
const COMPILE_ERRORS: &[(&str, &str)] = &[
    (
        "-",
        "1:2: Syntax error: no viable alternative at input '-'\n1:2: Syntax error: mismatched input '<EOF>' expecting BEGIN",
    ),
    (
        "--  )",
        "1:5: Syntax error: no viable alternative at input '-  )'\n1:5: Syntax error: mismatched input ')' expecting BEGIN",
    ),
    (
        "- == 1",
        "1:3: Syntax error: no viable alternative at input '- =='\n1:3: Syntax error: extraneous input '==' expecting BEGIN",
    ),
    ("-!true", "1:2: Syntax error: no viable alternative at input '-!'"),
    ("!!-a", "1:4: Syntax error: no viable alternative at input '-a'"),
    (
        "!-",
        "1:3: Syntax error: no viable alternative at input '-'\n1:3: Syntax error: mismatched input '<EOF>' expecting BEGIN",
    ),
    ("!)", "1:2: Syntax error: extraneous input ')' expecting BEGIN"),
    ("1 + !", "1:6: Syntax error: extraneous input '<EOF>' expecting BEGIN"),
    ("1 +", "1:4: Syntax error: mismatched input '<EOF>' expecting BEGIN"),
    ("self.foo", "1:5: type 'string' does not support field selection"),
    ("x == 1", "1:1: undeclared reference to 'x' (in container '')"),
    ("../a", "1:2: Syntax error: no viable alternative at input '..'"),
    ("1 == .(", "1:7: Syntax error: no viable alternative at input '.('"),
    ("1 + 'a' == 2", "1:3: found no matching overload for '_+_' applied to '(int, string)'"),
    ("'a' == ", "1:8: Syntax error: mismatched input '<EOF>' expecting BEGIN"),
    ("self ==== 'a'", "1:8: Syntax error: extraneous input '==' expecting BEGIN"),
    ("[1,2", "1:5: Syntax error: mismatched input '<EOF>' expecting {']', ','}"),
    ("{'a':1", "1:7: Syntax error: mismatched input '<EOF>' expecting {'}', ','}"),
    (
        "'abc",
        "1:1: Syntax error: token recognition error at: ''abc'\n1:5: Syntax error: mismatched input '<EOF>' expecting BEGIN",
    ),
    ("foo(1)", "1:4: undeclared reference to 'foo' (in container '')"),
    ("self.size(1) == 1", "1:10: found no matching overload for 'size' applied to 'string.(int)'"),
    (
        "math.greatest(1,2) == 2",
        "1:1: undeclared reference to 'math' (in container '')\n1:14: undeclared reference to 'greatest' (in container '')",
    ),
    (
        "base64.encode(b'a') == 'a'",
        "1:1: undeclared reference to 'base64' (in container '')\n1:14: undeclared reference to 'encode' (in container '')",
    ),
    (
        "cel.bind(x, 1, x == 1)",
        "1:1: undeclared reference to 'cel' (in container '')\n1:9: undeclared reference to 'bind' (in container '')\n1:10: undeclared reference to 'x' (in container '')\n1:16: undeclared reference to 'x' (in container '')",
    ),
    ("1 == 1u", "1:3: found no matching overload for '_==_' applied to '(int, uint)'"),
    ("[1, 'a'] == []", "1:5: expected type 'int' but found 'string'"),
    ("{'a': 1, 'b': 'c'} == {}", "1:15: expected type 'int' but found 'string'"),
    (
        "$ == 1",
        "1:1: Syntax error: token recognition error at: '$'\n1:3: Syntax error: extraneous input '==' expecting BEGIN",
    ),
    ("1 == 9999999999999999999999", "1:6: invalid int literal"),
    ("self matches 'a'", "1:6: Syntax error: mismatched input 'matches' expecting <EOF>"),
    (
        "int('abc') == 1",
        "program instantiation failed: type conversion error from 'string' to 'int'",
    ),
    ("duration('abc') == duration('1s')", "1:10: invalid duration argument"),
    ("self.matches('(')", "1:14: invalid matches argument"),
    (
        "'%d'.format(['a']) == 'a'",
        "1:14: error during formatting: decimal clause can only be used on integers, was given string",
    ),
    ("'%d %d'.format([1]) == 'a'", "1:15: index 1 out of range"),
    (
        "'%q'.format([1]) == 'a'",
        "1:12: could not parse formatting clause: unrecognized formatting clause \"q\"",
    ),
    ("[1].all(x, x)", "1:12: expected type 'bool' but found 'int'"),
    ("[1].map(x.y, x) == []", "1:10: argument is not an identifier"),
    ("has(self)", "1:5: invalid argument to has() macro"),
    ("has(x)", "1:5: invalid argument to has() macro"),
    ("self.`foo bar` == 1", "1:6: unsupported syntax: '`'"),
    ("[1, dyn('a')] == []", "1:8: expected type 'int' but found 'dyn'"),
    ("[dyn(1), 'a'] == []", "1:10: expected type 'dyn' but found 'string'"),
    ("[1, null] == []", "1:5: expected type 'int' but found 'null'"),
    ("{'a':1, 2:1} == {}", "1:9: expected type 'string' but found 'int'"),
    (
        "quantity('1') == 1",
        "1:15: found no matching overload for '_==_' applied to '(kubernetes.Quantity, int)'",
    ),
    (
        "ip('1.2.3.4') == 1",
        "1:15: found no matching overload for '_==_' applied to '(net.IP, int)'",
    ),
    (
        "optional.of(1) == 1",
        "1:16: found no matching overload for '_==_' applied to '(optional_type(int), int)'",
    ),
    (
        "timestamp('2020-01-01T00:00:00Z') == 1",
        "1:35: found no matching overload for '_==_' applied to '(timestamp, int)'",
    ),
    (
        "duration('1s') == 1",
        "1:16: found no matching overload for '_==_' applied to '(duration, int)'",
    ),
    ("b'a' == 1", "1:6: found no matching overload for '_==_' applied to '(bytes, int)'"),
    ("type(1) == 1", "1:9: found no matching overload for '_==_' applied to '(type(int), int)'"),
    ("[] == 1", "1:4: found no matching overload for '_==_' applied to '(list(dyn), int)'"),
    ("{} == 1", "1:4: found no matching overload for '_==_' applied to '(map(dyn, dyn), int)'"),
    ("[1].all(x, y, x)", "1:15: expected type 'bool' but found 'int'"),
    ("[1].all(x.y, y, true)", "1:10: argument must be a simple name"),
    ("[1].all(1, true)", "1:9: argument must be a simple name"),
    ("[1].exists_one(1, true)", "1:16: argument must be a simple name"),
    ("[1].existsOne(1, true)", "1:14: undeclared reference to 'existsOne' (in container '')"),
    ("[1].filter(1, true) == []", "1:12: argument is not an identifier"),
    ("[1].transformList(1, v, true) == []", "1:19: argument must be a simple name"),
    ("[1].transformMap(1, v, true) == {}", "1:18: argument must be a simple name"),
    (
        "[1].transformMapEntry(k, v, v) == {}",
        "1:22: found no matching overload for 'cel.@mapInsert' applied to '(map(dyn, dyn), int)'",
    ),
    (
        "[1].transformMapEntry(k, v, {v:v, dyn(1):1}) == {}",
        "1:38: expected type 'int' but found 'dyn'",
    ),
    ("[1].map(__result__, true) == []", "1:9: iteration variable overwrites accumulator variable"),
    ("[1].all(@result, true)", "1:9: Syntax error: token recognition error at: '@'"),
    (
        "optional.of(1).optMap(1, 2) == 1",
        "1:23: optMap() variable name must be a simple identifier",
    ),
    (
        "optional.of(1).optFlatMap(1, 2) == 1",
        "1:27: optFlatMap() variable name must be a simple identifier",
    ),
    (
        "[1].map(x, y, z, 1) == []",
        "1:8: undeclared reference to 'map' (in container '')\n1:9: undeclared reference to 'x' (in container '')\n1:12: undeclared reference to 'y' (in container '')\n1:15: undeclared reference to 'z' (in container '')",
    ),
    (
        "self.map(x, x) == []",
        "1:1: expression of type 'string' cannot be range of a comprehension (must be list, map, or dynamic)",
    ),
    (
        "1.map(x, x) == []",
        "1:1: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
    ),
    ("a.b.c == 1", "1:1: undeclared reference to 'a' (in container '')"),
    ("self.a.b == 1", "1:5: type 'string' does not support field selection"),
    ("as == 1", "1:1: reserved identifier: as"),
    ("namespace == 1", "1:1: reserved identifier: namespace"),
    ("self.namespace == 1", "1:5: type 'string' does not support field selection"),
    ("true.a == 1", "1:5: type 'bool' does not support field selection"),
    ("1.5e400 == 1.0", "1:1: invalid double literal"),
    ("0x == 1", "1:2: Syntax error: mismatched input 'x' expecting <EOF>"),
    ("0xFFFFFFFFFFFFFFFFFF == 1", "1:1: invalid int literal"),
    ("99999999999999999999u == 1u", "1:1: invalid uint literal"),
    (
        "'\\q' == 'a'",
        "1:1: Syntax error: token recognition error at: ''\\q'\n1:10: Syntax error: extraneous input 'a' expecting <EOF>\n1:11: Syntax error: token recognition error at: '''",
    ),
    (
        "'\\400' == 'a'",
        "1:1: Syntax error: token recognition error at: ''\\4'\n1:6: Syntax error: mismatched input '' == '' expecting <EOF>\n1:13: Syntax error: token recognition error at: '''",
    ),
    ("b'\\u0041' == b'A'", "1:1: unable to unescape string"),
    ("'\\ud800' == 'a'", "1:1: invalid unicode code point"),
    (
        "\"a",
        "1:1: Syntax error: token recognition error at: '\"a'\n1:3: Syntax error: mismatched input '<EOF>' expecting BEGIN",
    ),
    ("1 ? 2 : 3", "1:3: found no matching overload for '_?_:_' applied to '(int, int, int)'"),
    (
        "true ? 1 : 'a'",
        "1:6: found no matching overload for '_?_:_' applied to '(bool, int, string)'",
    ),
    ("!1", "1:1: found no matching overload for '!_' applied to '(int)'"),
    ("-'a' == 1", "1:1: found no matching overload for '-_' applied to '(string)'"),
    ("-true == 1", "1:1: found no matching overload for '-_' applied to '(bool)'"),
    ("1 && true", "1:1: expected type 'bool' but found 'int'"),
    ("true || 'a'", "1:9: expected type 'bool' but found 'string'"),
    ("1 in 2", "1:3: found no matching overload for '@in' applied to '(int, int)'"),
    ("1 < 'a'", "1:3: found no matching overload for '_<_' applied to '(int, string)'"),
    ("size(1) == 1", "1:5: found no matching overload for 'size' applied to '(int)'"),
    ("self[0] == 'a'", "1:5: found no matching overload for '_[_]' applied to '(string, int)'"),
    (
        "[1]['a'] == 1",
        "1:4: found no matching overload for '_[_]' applied to '(list(int), string)'",
    ),
    (
        "{'a':1}[1] == 1",
        "1:8: found no matching overload for '_[_]' applied to '(map(string, int), int)'",
    ),
    ("Foo{} == 1", "1:4: undeclared reference to 'Foo' (in container '')"),
    (
        "kubernetes.Quantity{} == 1",
        "1:20: undeclared reference to 'kubernetes.Quantity' (in container '')",
    ),
    ("self{a: 1} == 1", "1:5: 'string' is not a type\n1:7: unexpected failed resolution of 'self'"),
    ("int{} == 1", "1:4: 'int' is not a message type"),
    ("has(self.foo)", "1:4: type 'string' does not support field selection"),
    ("has([1].foo)", "1:4: type 'list(int)' does not support field selection"),
    (
        "self.?foo == 1",
        "1:5: type 'string' does not support field selection\n1:11: found no matching overload for '_==_' applied to '(optional_type(dyn), int)'",
    ),
    ("self[?0] == 1", "1:5: found no matching overload for '_[?_]' applied to '(string, int)'"),
    ("[?1] == []", "1:3: expected type 'optional_type(int)' but found 'int'"),
    ("{?'a': 1} == {}", "1:8: expected type 'optional_type(int)' but found 'int'"),
    (
        "optional.of(1).foo == 1",
        "1:15: type 'int' does not support field selection\n1:20: found no matching overload for '_==_' applied to '(optional_type(dyn), int)'",
    ),
    (
        "['a'].sum() == 'a'",
        "1:10: found no matching overload for 'sum' applied to 'list(string).()'",
    ),
    (
        "self.find('(') == 'a'",
        "program instantiation failed: error parsing regexp: missing closing ): `(`",
    ),
    (
        "'a'.replace(1) == 'a'",
        "1:12: found no matching overload for 'replace' applied to 'string.(int)'",
    ),
    (
        "sets.contains([1], 2)",
        "1:14: found no matching overload for 'sets.contains' applied to '(list(int), int)'",
    ),
    (
        "sets.contains([1], ['a'])",
        "1:14: found no matching overload for 'sets.contains' applied to '(list(int), list(string))'",
    ),
    (
        "'abc'.reverse() == 'cba'",
        "1:14: found no matching overload for 'reverse' applied to 'string.()'",
    ),
    (
        "jsonpatch.escapeKey('a/b') == 'a~1b'",
        "1:1: undeclared reference to 'jsonpatch' (in container '')\n1:20: undeclared reference to 'escapeKey' (in container '')",
    ),
    (
        "authorizer.path('/').check('get').allowed()",
        "1:1: undeclared reference to 'authorizer' (in container '')",
    ),
    (
        "math.abs(1) == 1",
        "1:1: undeclared reference to 'math' (in container '')\n1:9: undeclared reference to 'abs' (in container '')",
    ),
    (
        "regex.replace('a','b','c') == 'a'",
        "1:1: undeclared reference to 'regex' (in container '')\n1:14: found no matching overload for 'replace' applied to '!error!.(string, string, string)'",
    ),
    (
        "[1,2].flatten() == [1]",
        "1:14: found no matching overload for 'flatten' applied to 'list(int).()'",
    ),
    (
        "[1].first() == 1",
        "1:13: found no matching overload for '_==_' applied to '(optional_type(int), int)'",
    ),
    (
        "image('a') == image('b')",
        "1:6: undeclared reference to 'image' (in container '')\n1:20: undeclared reference to 'image' (in container '')",
    ),
    (
        "type(quantity('1')) == 1",
        "1:21: found no matching overload for '_==_' applied to '(type(kubernetes.Quantity), int)'",
    ),
    ("self.", "1:6: Syntax error: no viable alternative at input '.'"),
    ("self.1", "1:5: Syntax error: extraneous input '.1' expecting <EOF>"),
    ("foo(1", "1:6: Syntax error: missing ')' at '<EOF>'"),
    (
        "foo(",
        "1:5: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', ')', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}",
    ),
    ("foo(1,", "1:7: Syntax error: mismatched input '<EOF>' expecting BEGIN"),
    ("(1", "1:3: Syntax error: missing ')' at '<EOF>'"),
    ("[1,,2]", "1:4: Syntax error: mismatched input ',' expecting ']'"),
    ("{1}", "1:3: Syntax error: mismatched input '}' expecting ':'"),
    ("{'a':}", "1:6: Syntax error: mismatched input '}' expecting BEGIN"),
    (
        "a[",
        "1:3: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', '?', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}",
    ),
    ("a[1", "1:4: Syntax error: missing ']' at '<EOF>'"),
    ("a ? b", "1:6: Syntax error: mismatched input '<EOF>' expecting ':'"),
    ("a ? b :", "1:8: Syntax error: mismatched input '<EOF>' expecting BEGIN"),
    ("1 2", "1:3: Syntax error: extraneous input '2' expecting <EOF>"),
    ("a.b.{", "1:5: Syntax error: no viable alternative at input '.{'"),
    (
        "a{",
        "1:3: Syntax error: mismatched input '<EOF>' expecting {'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}",
    ),
    ("a{b", "1:4: Syntax error: mismatched input '<EOF>' expecting ':'"),
    ("a{b:", "1:5: Syntax error: mismatched input '<EOF>' expecting BEGIN"),
    (")", "1:1: Syntax error: mismatched input ')' expecting BEGIN"),
    (
        "a = b",
        "1:3: Syntax error: token recognition error at: '= '\n1:5: Syntax error: extraneous input 'b' expecting <EOF>",
    ),
    (
        "a & b",
        "1:3: Syntax error: token recognition error at: '& '\n1:5: Syntax error: extraneous input 'b' expecting <EOF>",
    ),
    (
        "a | b",
        "1:3: Syntax error: token recognition error at: '| '\n1:5: Syntax error: extraneous input 'b' expecting <EOF>",
    ),
    ("a b c", "1:3: Syntax error: mismatched input 'b' expecting <EOF>"),
    (
        "self.?",
        "1:7: Syntax error: mismatched input '<EOF>' expecting {IDENTIFIER, ESC_IDENTIFIER}\n1:7: unsupported ident kind",
    ),
    ("[?", "1:3: Syntax error: mismatched input '<EOF>' expecting BEGIN"),
    ("a.'b'", "1:3: Syntax error: no viable alternative at input '.'b''"),
    ("a..b", "1:3: Syntax error: no viable alternative at input '..'"),
    ("a,b", "1:2: Syntax error: mismatched input ',' expecting <EOF>"),
    (
        "a;b",
        "1:2: Syntax error: token recognition error at: ';'\n1:3: Syntax error: extraneous input 'b' expecting <EOF>",
    ),
    (
        "a @ b",
        "1:3: Syntax error: token recognition error at: '@'\n1:5: Syntax error: extraneous input 'b' expecting <EOF>",
    ),
    (
        "f(,)",
        "1:3: Syntax error: extraneous input ',' expecting {'[', '{', '(', ')', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}",
    ),
    ("f(1,) == 1", "1:5: Syntax error: mismatched input ')' expecting BEGIN"),
    ("a.true", "1:3: Syntax error: mismatched input 'true' expecting IDENTIFIER"),
    ("1.foo", "1:2: type 'int' does not support field selection"),
    (
        "a ?: b",
        "1:4: Syntax error: extraneous input ':' expecting BEGIN\n1:7: Syntax error: mismatched input '<EOF>' expecting ':'",
    ),
    ("a &&", "1:5: Syntax error: mismatched input '<EOF>' expecting BEGIN"),
    ("a && && b", "1:6: Syntax error: extraneous input '&&' expecting BEGIN"),
    ("self.foo bar", "1:10: Syntax error: extraneous input 'bar' expecting <EOF>"),
    ("a ? b c", "1:7: Syntax error: missing ':' at 'c'"),
    (
        "has(",
        "1:5: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', ')', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}",
    ),
    ("(1 + 2", "1:7: Syntax error: missing ')' at '<EOF>'"),
    ("(1 + 2]", "1:7: Syntax error: mismatched input ']' expecting ')'"),
    ("[1 2]", "1:4: Syntax error: extraneous input '2' expecting {']', ','}"),
    ("foo(1 2)", "1:7: Syntax error: extraneous input '2' expecting ')'"),
    ("{1:2 3:4}", "1:6: Syntax error: mismatched input '3' expecting {'}', ','}"),
    ("1 + + 2", "1:5: Syntax error: extraneous input '+' expecting BEGIN"),
    ("self.all(x, x == 1", "1:19: Syntax error: missing ')' at '<EOF>'"),
    (
        "é == 1",
        "1:1: Syntax error: token recognition error at: 'é'\n1:3: Syntax error: extraneous input '==' expecting BEGIN",
    ),
    ("'é' == 1", "1:5: found no matching overload for '_==_' applied to '(string, int)'"),
    ("self.size().foo() == 1", "1:16: undeclared reference to 'foo' (in container '')"),
    (
        "ip.isCanonical('x') ? 'a' : 'b' == 'zz'",
        "1:21: found no matching overload for '_?_:_' applied to '(bool, string, bool)'",
    ),
    (
        "self.replace(self,self) == format.named(self).value()",
        "1:25: found no matching overload for '_==_' applied to '(string, kubernetes.NamedFormat)'",
    ),
    ("'%s %s'.format([self]) == ''", "1:15: index 1 out of range"),
    (
        "string(b'\\xff') == 'a'",
        "program instantiation failed: invalid UTF-8 in bytes, cannot convert to string",
    ),
    ("timestamp('0000-01-01T00:00:00Z') == timestamp(self)", "1:11: invalid timestamp argument"),
    (
        "({true:1,2:2,5u:3}[true]) == (1)",
        "1:10: expected type 'bool' but found 'int'\n1:14: expected type 'bool' but found 'uint'",
    ),
    (
        "dyn({0:1,2:2,5:3}[dyn(b'')]) || true",
        "program instantiation failed: invalid qualifier type: types.Bytes",
    ),
];
