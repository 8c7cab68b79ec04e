//! The playground of the explorer: evaluates a CEL expression over an object that the page sends,
//! with the libraries, limits and costs that new expressions of policies and rules have. It reads
//! nothing of the cluster.

use bytes::Bytes;
use keelson_auth::long_work;
use keelson_cel::{Environment, Limits, Type, Version, adapt, to_json};
use keelson_meta::{Failure, Map, Status, Str, Value};
use keelson_schema::json;
use keelson_server::ExtraPath;

/// The path that evaluates. The body is JSON: `expression`, and the `object` that the variables
/// `object` and `self` are.
pub const PATH: &str = "/keelson/cel";

/// Returns the path of a server.
pub fn path() -> ExtraPath {
    ExtraPath::post_body(PATH, |request| {
        Box::pin(answer(request.user.clone(), request.body.clone()))
    })
}

/// Evaluates on a thread for long work. The answer has `value` and `type`, or `error`; and `cost`
/// unless the expression does not compile.
pub async fn answer(user: Str, body: Bytes) -> Result<Value, Failure> {
    long_work::run_elsewhere(&user, move || evaluate(&body)).await?
}

fn evaluate(body: &[u8]) -> Result<Value, Failure> {
    let request = json::parse(body).map_err(|error| Status::bad_request(error.to_string()))?.value;
    let Some(expression) = request.str_at(&["expression"]) else {
        return Err(Status::bad_request("expression is missing"));
    };
    let none = Value::Null;
    let object = request.get("object").unwrap_or(&none);
    let env = Environment::kubernetes(Version::NEW_EXPRESSIONS)
        .with_variable("object", Type::Dyn)
        .with_variable("self", Type::Dyn);
    let mut shown = Map::default();
    shown.insert("kind", "Evaluation");
    let limits = Limits::default();
    shown.insert("costLimit", i64::try_from(limits.cost_max).unwrap_or(i64::MAX));
    let compiled = match env.compile(expression) {
        Ok(compiled) => compiled,
        Err(error) => {
            shown.insert("error", error.to_string());
            return Ok(Value::Object(shown));
        }
    };
    let variables = [adapt(object, None).ok(), adapt(object, None).ok()];
    let outcome = compiled.program.evaluate(&variables, &limits);
    shown.insert("cost", i64::try_from(outcome.cost).unwrap_or(i64::MAX));
    let value = outcome.result.and_then(|value| Ok((to_json(&value)?, value.ty().to_string())));
    match value {
        Ok((value, type_name)) => {
            shown.insert("type", type_name);
            shown.insert("value", value);
        }
        Err(error) => {
            shown.insert("error", error.to_string());
        }
    }
    Ok(Value::Object(shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluated(expression: &str) -> String {
        let object = r#"{"spec":{"replicas":3,"names":["a","b"]}}"#;
        let quoted = keelson_meta::status::quote(expression);
        let body = format!(r#"{{"expression":{quoted},"object":{object}}}"#);
        let mut shown = evaluate(body.as_bytes()).expect("an evaluation");
        let members = shown.as_object_mut().expect("an object");
        members.remove("kind");
        members.remove("costLimit");
        let mut text = vec![];
        json::write_value(&shown, &mut text);
        String::from_utf8(text).expect("UTF-8")
    }

    #[test]
    fn values_types_costs_and_errors_are_shown() {
        for (expression, expected) in [
            ("object.spec.replicas > 2", r#"{"cost":4,"type":"bool","value":true}"#),
            (
                "self.spec.names.map(n, n + 'x')",
                r#"{"cost":32,"type":"list(dyn)","value":["ax","bx"]}"#,
            ),
            ("object.spec.none", r#"{"cost":3,"error":"no such key: none"}"#),
        ] {
            assert_eq!(evaluated(expression), expected, "{expression}");
        }
        let wrong = evaluated("object.spec.");
        assert!(wrong.contains("Syntax error") && !wrong.contains("cost"), "{wrong}");
    }

    #[test]
    fn an_expression_has_the_limits_of_a_rule() {
        let endless = "lists.range(10000).all(i, lists.range(10000).all(j, i + j >= 0))";
        let ended = evaluated(endless);
        assert!(ended.contains("actual cost limit exceeded"), "{ended}");
    }

    #[test]
    fn a_request_without_an_expression_is_refused() {
        for body in ["", "{}", r#"{"expression":1}"#] {
            assert_eq!(evaluate(body.as_bytes()).expect_err("a refusal").code, 400, "{body}");
        }
    }
}
