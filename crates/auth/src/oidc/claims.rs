//! Maps the claims of a verified token to a user, with kube-apiserver's error texts.

use super::config::{JwtConfig, Mapping};
use super::expressions::{Expression, Rules};
use crate::json::to_value;
use keelson_meta::status::quote;
use keelson_meta::{Map, Str, User};
use serde_json::Value;

/// Returns the user of a token whose signature was verified, or the error.
pub(super) fn user(config: &JwtConfig, rules: &Rules, claims: &Value) -> Result<User, String> {
    let mappings = &config.claim_mappings;
    check_distributed(claims, &mappings.groups.claim)?;
    let object = to_value(claims);
    let name = username(&mappings.username, rules.username.as_ref(), claims, &object)?;
    if name.is_empty() {
        return Err("oidc: the username is empty".to_owned());
    }
    let user = User {
        name: name.into(),
        groups: groups(&mappings.groups, rules.groups.as_ref(), claims, &object)?.into(),
        uid: uid(&mappings.uid.claim, rules.uid.as_ref(), claims, &object)?.into(),
        extra: extra(&rules.extra, &object)?,
    };
    check_required(config, claims)?;
    let failed = |why| format!("oidc: error evaluating claim validation expression: {why}");
    check_rules(&rules.claims, &object).map_err(failed)?;
    if !rules.user.is_empty() {
        let failed = |why| format!("oidc: error evaluating user info validation rule: {why}");
        check_rules(&rules.user, &user_value(&user)).map_err(failed)?;
    }
    Ok(user)
}

/// Distributed claims are not fetched: ignoring them would change the user's groups.
fn check_distributed(claims: &Value, groups: &str) -> Result<(), String> {
    let is_elsewhere = !groups.is_empty()
        && claims.get(groups).is_none()
        && claims.get("_claim_names").is_some_and(|names| names.get(groups).is_some());
    match is_elsewhere {
        true => Err("oidc: could not expand distributed claims: not supported".to_owned()),
        false => Ok(()),
    }
}

fn username(
    mapping: &Mapping,
    expression: Option<&Expression>,
    claims: &Value,
    object: &keelson_meta::Value,
) -> Result<String, String> {
    if let Some(expression) = expression {
        let failed = |why| format!("oidc: error evaluating username claim expression: {why}");
        let name = expression.text(object).map_err(failed)?;
        let not_text = || failed("username claim expression must return a string".to_owned());
        return name.ok_or_else(not_text);
    }
    let claim = &mapping.claim;
    let name = text_claim(claims, claim)
        .map_err(|why| format!("oidc: parse username claims {}: {why}", quote(claim)))?;
    if claim == "email" {
        match claims.get("email_verified") {
            None | Some(Value::Bool(true)) => {}
            Some(Value::Bool(false)) => return Err("oidc: email not verified".to_owned()),
            Some(other) => {
                let why = wrong_type(other, "bool");
                return Err(format!("oidc: parse 'email_verified' claim: {why}"));
            }
        }
    }
    Ok(mapping.prefix.clone().unwrap_or_default() + name)
}

fn groups(
    mapping: &Mapping,
    expression: Option<&Expression>,
    claims: &Value,
    object: &keelson_meta::Value,
) -> Result<Vec<Str>, String> {
    if let Some(expression) = expression {
        let failed = |why| format!("oidc: error evaluating group claim expression: {why}");
        let groups = expression.texts(object).map_err(failed)?;
        return Ok(groups.into_iter().map(Str::from).collect());
    }
    let claim = &mapping.claim;
    let Some(value) = claims.get(claim).filter(|_| !claim.is_empty()) else { return Ok(vec![]) };
    let prefix = mapping.prefix.as_deref().unwrap_or_default();
    let group = |value: &Value| {
        let text = value.as_str().ok_or_else(|| {
            let why = wrong_type(value, "string");
            format!("oidc: parse groups claim {}: {why}", quote(claim))
        })?;
        Ok(Str::from(format!("{prefix}{text}")))
    };
    match value {
        Value::Null => Ok(vec![]),
        Value::Array(groups) if groups.iter().all(Value::is_string) => {
            groups.iter().map(group).collect()
        }
        one => Ok(vec![group(one)?]),
    }
}

fn uid(
    claim: &str,
    expression: Option<&Expression>,
    claims: &Value,
    object: &keelson_meta::Value,
) -> Result<String, String> {
    if let Some(expression) = expression {
        let failed = |why| format!("oidc: error evaluating uid claim expression: {why}");
        let uid = expression.text(object).map_err(failed)?;
        let not_text = || failed("uid claim expression must return a string".to_owned());
        return uid.ok_or_else(not_text);
    }
    if claim.is_empty() {
        return Ok(String::new());
    }
    let uid = text_claim(claims, claim);
    uid.map(str::to_owned).map_err(|why| format!("oidc: parse uid claim {}: {why}", quote(claim)))
}

fn extra(
    expressions: &[(String, Expression)],
    object: &keelson_meta::Value,
) -> Result<Vec<(Str, Vec<Str>)>, String> {
    let mut extra = vec![];
    for (key, expression) in expressions {
        let values = expression.texts(object).map_err(|why| {
            format!("oidc: error evaluating extra claim expression: {}: {why}", expression.text)
        })?;
        if !values.is_empty() {
            extra.push((Str::from(key), values.into_iter().map(Str::from).collect()));
        }
    }
    Ok(extra)
}

fn check_required(config: &JwtConfig, claims: &Value) -> Result<(), String> {
    for rule in config.claim_validation_rules.iter().filter(|rule| !rule.claim.is_empty()) {
        let claim = &rule.claim;
        if claims.get(claim).is_none() {
            return Err(format!("oidc: required claim {claim} not present in ID token"));
        }
        let value =
            text_claim(claims, claim).map_err(|why| format!("oidc: parse claim {claim}: {why}"))?;
        if value != rule.required_value {
            let wanted = &rule.required_value;
            return Err(format!(
                "oidc: required claim {claim} value does not match. Got = {value}, want = {wanted}"
            ));
        }
    }
    Ok(())
}

fn check_rules(
    rules: &[(Expression, String)],
    subject: &keelson_meta::Value,
) -> Result<(), String> {
    let mut errors = vec![];
    // Evaluates all first: an error takes precedence over a false rule.
    for (rule, message) in rules {
        match rule.truth(subject)? {
            Some(true) => {}
            Some(false) => {
                errors.push(format!("validation expression '{}' failed: {message}", rule.text));
            }
            None => return Err("validation expression must return a boolean".to_owned()),
        }
    }
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

fn text_claim<'c>(claims: &'c Value, claim: &str) -> Result<&'c str, String> {
    match claims.get(claim) {
        None => Err("claim not present".to_owned()),
        Some(value) => value.as_str().ok_or_else(|| wrong_type(value, "string")),
    }
}

fn wrong_type(value: &Value, wanted: &str) -> String {
    let found = crate::json::kind_of(value);
    format!("json: cannot unmarshal {found} into Go value of type {wanted}")
}

/// Returns a user as expressions see it.
fn user_value(user: &User) -> keelson_meta::Value {
    let texts = |texts: &[Str]| -> Vec<keelson_meta::Value> {
        texts.iter().cloned().map(keelson_meta::Value::String).collect()
    };
    let mut map = Map::new();
    map.insert("username", user.name.clone());
    map.insert("uid", user.uid.clone());
    map.insert("groups", texts(&user.groups));
    let extra = user
        .extra
        .iter()
        .map(|(key, values)| (key.clone(), keelson_meta::Value::Array(texts(values))));
    map.insert("extra", extra.collect::<Map>());
    map.into()
}
