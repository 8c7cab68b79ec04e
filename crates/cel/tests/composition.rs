//! Variables of admission policies are evaluated on first read, once, and charged to the expression
//! that reads them.

use keelson_cel::admission::{Compiler, Expression, Inputs, Purpose, activation};
use keelson_cel::{CompositedVariables, Type, Version};
use keelson_meta::{Object, value};

const BUDGET: u64 = 10_000;

/// Returns the value or error of an expression, and its cost.
fn evaluate(variables: &[(&str, &str)], text: &str) -> (Result<String, String>, u64) {
    let mut compiler = Compiler::policy(Version::STORED_EXPRESSIONS, false);
    let mut computed = CompositedVariables::new();
    for (name, text) in variables {
        computed.push(compiler.variable(name, text));
    }
    let expression = Expression::new(&compiler, text, Purpose::Message);
    let object = Object::from_value(value!({"a": 1, "list": [1, 2, 3]})).expect("a map");
    let inputs = Inputs { object: Some(&object.root), ..Inputs::default() };
    let given = inputs.variables();
    let activation = activation(&given, &computed);
    let mut budget = BUDGET;
    let result =
        expression.evaluate(&activation, &mut budget).unwrap_or_else(|e| Err(e.to_string()));
    (result.map(|val| val.as_str().unwrap_or_default().to_owned()), BUDGET - budget)
}

#[test]
fn variables_can_read_earlier_variables() {
    let variables = [("a", "object.a + 1"), ("b", "variables.a * 10")];
    assert_eq!(evaluate(&variables, "string(variables.b)").0, Ok("20".into()));
    assert_eq!(evaluate(&variables, "has(variables.a) ? 'yes' : 'no'").0, Ok("yes".into()));
    let undefined = evaluate(&[("a", "variables.b"), ("b", "1")], "string(variables.a)").0;
    assert!(undefined.unwrap_err().contains("fails to compile: compilation failed"));
}

#[test]
fn variable_cost_is_charged_once() {
    let variables = [("sum", "object.list.map(x, x * 2).sum()")];
    let (one, once) = evaluate(&variables, "string(variables.sum)");
    assert_eq!(one, Ok("12".into()));
    let (_, twice) = evaluate(&variables, "string(variables.sum + variables.sum)");
    // Reading the variable again costs two, the addition one.
    assert_eq!(twice - once, 3);
    assert_eq!(evaluate(&variables, "'unread'").1, 0);
}

#[test]
fn errors_name_the_variable() {
    let check = |variables: &[(&str, &str)], text: &str, want: &str| {
        let want = format!("expression '{text}' resulted in error: {want}");
        assert_eq!(evaluate(variables, text).0, Err(want), "{text}");
    };
    let variables = [("x", "object.x"), ("y", "variables.x")];
    check(
        &variables,
        "string(variables.x)",
        "composited variable \"x\" fails to evaluate: no such key: x",
    );
    check(
        &variables,
        "string(variables.y)",
        "composited variable \"y\" fails to evaluate: composited variable \"x\" fails to evaluate: no such \
         key: x",
    );
}

#[test]
fn last_variable_of_a_name_wins() {
    let variables = [("a", "1"), ("b", "variables.a"), ("a", "2")];
    assert_eq!(evaluate(&variables, "string(variables.b)").0, Ok("2".into()));
    let error = evaluate(&[("a", "1"), ("a", "variables.a + 1")], "string(variables.a)").0;
    assert!(error.is_err_and(|error| error.contains("reads itself")));
}

#[test]
fn variables_have_the_types_of_their_expressions() {
    let mut compiler = Compiler::policy(Version::STORED_EXPRESSIONS, false);
    for (name, text) in [("n", "1"), ("q", "quantity('1')"), ("l", "[[1]]"), ("o", "object.a")] {
        compiler.variable(name, text);
    }
    let check = |text: &str, want: &str| {
        let found = compiler
            .compile(text, Purpose::Variable)
            .map_or_else(|error| error, |program| program.result_type().to_string());
        assert!(found.contains(want), "{text}: {found}");
    };
    check("variables.n", "int");
    check("variables.q", "dyn");
    check("variables.l", "list(list(int))");
    check("variables.o", "dyn");
    check("variables.z", "undefined field 'z'");
    check("variables == 1", "applied to '(kubernetes.variables, int)'");
    check("params", "undeclared reference to 'params'");
    assert_eq!(compiler.compile("1", Purpose::Variable).unwrap().result_type(), &Type::Int);
}

#[test]
fn expressions_must_return_the_type_of_their_purpose() {
    let compiler = Compiler::policy(Version::STORED_EXPRESSIONS, true);
    let check = |text: &str, purpose: Purpose, want: &str| {
        let found = compiler.compile(text, purpose);
        assert_eq!(found.map_or_else(|error| error, |_| "ok".to_owned()), want, "{text}");
    };
    check("object.a", Purpose::Condition, "must evaluate to bool but got dyn");
    check("1", Purpose::Message, "must evaluate to string but got int");
    check("1", Purpose::Audit, "must evaluate to one of [string null_type] but got int");
    check("null", Purpose::Audit, "ok");
    check("[JSONPatch{op: 'test', path: '/a'}]", Purpose::JsonPatch, "ok");
    check("Object{}", Purpose::ApplyConfiguration, "ok");
    check("params.x", Purpose::Variable, "ok");
}
