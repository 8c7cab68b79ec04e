//! Checks the types of the standard claims of a token, with the texts of go-oidc.

use crate::json::kind_of;
use keelson_meta::status::quote;
use serde_json::Value;

/// Returns a claim that is a time, in seconds since 1970.
#[expect(clippy::cast_possible_truncation, reason = "far times saturate")]
pub(super) fn seconds(value: &Value) -> Option<i64> {
    let number = || value.as_f64().map(|number| number as i64);
    value.as_i64().or_else(number).or_else(|| seconds_of(value.as_str()?))
}

/// Returns the seconds in a text, which may be any number of JSON.
fn seconds_of(text: &str) -> Option<i64> {
    let number: serde_json::Number = serde_json::from_str(text).ok()?;
    seconds(&Value::Number(number))
}

/// Checks the types of the standard claims.
pub(super) fn check(claims: &Value) -> Result<(), String> {
    for name in ["sub", "nonce", "at_hash"] {
        text(claims, name, &format!("idToken.{name}")).map_err(json)?;
    }
    audience(claims).map_err(json)?;
    // Only `nbf` may be null.
    for (name, is_optional) in [("exp", false), ("iat", false), ("nbf", true)] {
        time(claims, name, is_optional)?;
    }
    distributed(claims)
}

fn json(why: String) -> String {
    format!("oidc: failed to unmarshal claims: json: {why}")
}

/// Returns a member that is there and not null.
fn present<'v>(of: &'v Value, name: &str) -> Option<&'v Value> {
    of.get(name).filter(|value| !value.is_null())
}

fn wrong_type(value: &Value, field: &str, go_type: &str) -> String {
    format!("cannot unmarshal {} into Go struct field {field} of type {go_type}", kind_of(value))
}

/// Checks that a member is a text, if it is there.
fn text(of: &Value, name: &str, field: &str) -> Result<(), String> {
    match present(of, name).filter(|value| !value.is_string()) {
        None => Ok(()),
        Some(other) => Err(wrong_type(other, field, "string")),
    }
}

fn audience(claims: &Value) -> Result<(), String> {
    const FIELD: &str = "idToken.aud";
    match present(claims, "aud") {
        None | Some(Value::String(_)) => Ok(()),
        Some(Value::Array(all)) => {
            match all.iter().find(|one| !one.is_string() && !one.is_null()) {
                None => Ok(()),
                Some(other) => Err(wrong_type(other, FIELD, "string")),
            }
        }
        Some(other) => Err(wrong_type(other, FIELD, "[]string")),
    }
}

/// Checks a number of seconds, which may be a text.
fn time(claims: &Value, name: &str, is_optional: bool) -> Result<(), String> {
    match claims.get(name) {
        None | Some(Value::Number(_)) => Ok(()),
        Some(Value::Null) if is_optional => Ok(()),
        Some(Value::Null) => {
            let why = "strconv.ParseFloat: parsing \"\": invalid syntax";
            Err(format!("oidc: failed to unmarshal claims: {why}"))
        }
        Some(Value::String(text)) if seconds_of(text).is_some() => Ok(()),
        Some(Value::String(text)) => {
            let text = quote(&quote(text));
            Err(json(format!("invalid number literal, trying to unmarshal {text} into Number")))
        }
        Some(other) => {
            let found = kind_of(other);
            Err(json(format!("cannot unmarshal {found} into Go value of type json.Number")))
        }
    }
}

/// Checks the names and sources of claims that are elsewhere: each name has a source.
fn distributed(claims: &Value) -> Result<(), String> {
    let sources = match present(claims, "_claim_sources") {
        None => &serde_json::Map::new(),
        Some(Value::Object(sources)) => sources,
        Some(other) => {
            let of = "map[string]oidc.claimSource";
            return Err(json(wrong_type(other, "idToken._claim_sources", of)));
        }
    };
    for source in sources.values().filter(|source| !source.is_null()) {
        if !source.is_object() {
            let field = "idToken._claim_sources";
            return Err(json(wrong_type(source, field, "oidc.claimSource")));
        }
        for name in ["endpoint", "access_token"] {
            text(source, name, &format!("claimSource._claim_sources.{name}")).map_err(json)?;
        }
    }
    let names = match present(claims, "_claim_names") {
        None => return Ok(()),
        Some(Value::Object(names)) => names,
        Some(other) => {
            let why = wrong_type(other, "idToken._claim_names", "map[string]string");
            return Err(json(why));
        }
    };
    for name in names.values() {
        match name {
            Value::Null => return Err("oidc: failed to obtain source from claim name".to_owned()),
            Value::String(source) if source.is_empty() => {
                return Err("oidc: failed to obtain source from claim name".to_owned());
            }
            Value::String(source) if sources.contains_key(source) => {}
            Value::String(_) => return Err("oidc: source does not exist".to_owned()),
            other => return Err(json(wrong_type(other, "idToken._claim_names", "string"))),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check_claim(name: &str, value: Value, want: &str) {
        let mut claims = json!({"sub": "s", "aud": "us", "exp": 1});
        claims[name] = value;
        let got = check(&claims).err().unwrap_or_default();
        let (_, why) = got.split_once("claims: ").unwrap_or(("", &got));
        assert_eq!(why, want, "{claims}");
    }

    /// The texts are those of a kube-apiserver 1.36 for the same claims.
    #[test]
    fn claims_of_wrong_types_are_refused() {
        let no_number = "json: cannot unmarshal array into Go value of type json.Number";
        for name in ["exp", "iat", "nbf"] {
            check_claim(name, json!([]), no_number);
            check_claim(name, json!("5.5"), "");
            check_claim(name, json!(-1e30), "");
        }
        check_claim("iat", json!(null), "strconv.ParseFloat: parsing \"\": invalid syntax");
        check_claim("nbf", json!(null), "");
        let literal = "json: invalid number literal, trying to unmarshal \"\\\"\\\"\" into Number";
        check_claim("iat", json!(""), literal);
        let of = |kind: &str, field: &str| {
            format!("json: cannot unmarshal {kind} into Go struct field {field}")
        };
        check_claim("aud", json!(["us", 1]), &of("number", "idToken.aud of type string"));
        check_claim("aud", json!(["us", null]), "");
        check_claim("sub", json!({}), &of("object", "idToken.sub of type string"));
    }

    #[test]
    fn names_of_distributed_claims_have_sources() {
        let of = |kind: &str, field: &str| {
            format!("json: cannot unmarshal {kind} into Go struct field {field}")
        };
        let names = "idToken._claim_names of type ";
        check_claim(
            "_claim_names",
            json!("x"),
            &of("string", &format!("{names}map[string]string")),
        );
        check_claim("_claim_names", json!({"a": 1}), &of("number", &format!("{names}string")));
        let none = "oidc: failed to obtain source from claim name";
        check_claim("_claim_names", json!({"a": null}), none);
        check_claim("_claim_names", json!({"a": "b"}), "oidc: source does not exist");
        let sources = "idToken._claim_sources of type ";
        let of_sources = |go_type: &str| of("string", &format!("{sources}{go_type}"));
        let all = of_sources("map[string]oidc.claimSource");
        check_claim("_claim_sources", json!("x"), &all);
        check_claim("_claim_sources", json!({"a": "x"}), &of_sources("oidc.claimSource"));
        let endpoint = "claimSource._claim_sources.endpoint of type string";
        check_claim("_claim_sources", json!({"a": {"endpoint": 1}}), &of("number", endpoint));
        check_claim("_claim_sources", json!({"a": {}}), "");
    }
}
