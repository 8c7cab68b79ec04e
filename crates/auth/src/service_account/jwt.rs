//! JSON Web Tokens in their compact form: `HEADER.CLAIMS.SIGNATURE` (RFC 7515, 7519).

use super::keys::{SigningKey, VerifyingKey};
use crate::json::kind_of;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as BASE64URL};
use keelson_meta::status::quote;
use serde_json::{Value, json};

/// Maximum length of a token.
pub const TOKEN_BYTES_MAX: usize = 32 << 10;

/// Encodes a JSON value as a part of a token.
pub fn part(value: &Value) -> String {
    BASE64URL.encode(value.to_string())
}

/// Signs claims. `None`: the system provides no randomness.
pub fn sign(key: &SigningKey, claims: &Value) -> Option<String> {
    let header = json!({"alg": key.verifying.algorithm.name(), "kid": key.verifying.id});
    let mut token = format!("{}.{}", part(&header), part(claims));
    let signature = key.sign(token.as_bytes())?;
    token.push('.');
    BASE64URL.encode_string(signature, &mut token);
    Some(token)
}

/// Returns the unverified claims; `None` if this is not a JWT.
pub fn unverified_claims(token: &str) -> Option<Value> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(_), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let claims: Value = serde_json::from_slice(&BASE64URL.decode(claims).ok()?).ok()?;
    claims.is_object().then_some(claims)
}

/// Returns the key id in the header; empty if there is none.
pub fn key_id(token: &str) -> String {
    let header = token.split('.').next().unwrap_or_default();
    let header =
        BASE64URL.decode(header).ok().and_then(|json| serde_json::from_slice::<Value>(&json).ok());
    let id = header.as_ref().and_then(|header| header.get("kid")?.as_str());
    id.unwrap_or_default().to_owned()
}

/// Returns whether a header has critical extensions (RFC 7515 `crit`, RFC 7797 `b64`); none are
/// supported.
pub fn is_extended(header: &Value) -> bool {
    header.get("crit").is_some() || header.get("b64").is_some_and(|b64| b64 != true)
}

/// Returns what is wrong with the types of a header, with the texts of go-jose. Keys and
/// certificates in a header are not used, but they must be valid.
pub fn header_fault(header: &Value) -> Option<String> {
    let present = |name: &str| header.get(name).filter(|value| !value.is_null());
    for (name, shown) in [("kid", "key ID"), ("nonce", "nonce"), ("alg", "algorithm")] {
        if let Some(value) = present(name).filter(|value| !value.is_string()) {
            let kind = kind_of(value);
            let text = quote(&value.to_string());
            let why = format!("json: cannot unmarshal {kind} into Go value of type string");
            return Some(format!("failed to unmarshal {shown}: {why}: {text}"));
        }
    }
    if let Some(key) = present("jwk") {
        let known = ["EC", "RSA", "oct", "OKP"];
        let kind = key.get("kty").and_then(Value::as_str).unwrap_or_default();
        if !known.contains(&kind) {
            let text = quote(&key.to_string());
            let why = format!("go-jose/go-jose: unknown json web key type '{kind}'");
            return Some(format!("failed to unmarshal JWK: {why}: {text}"));
        }
    }
    let is_certificate = |one: &Value| {
        let der = one.as_str().and_then(|text| STANDARD.decode(text).ok());
        der.is_some_and(|der| x509_parser::parse_x509_certificate(&der).is_ok())
    };
    let chain = present("x5c")?;
    let is_chain = chain.as_array().is_some_and(|chain| chain.iter().all(is_certificate));
    (!is_chain).then(|| format!("failed to unmarshal x5c header: {}", quote(&chain.to_string())))
}

/// Returns whether one of the keys signed the token, with the algorithm of that key.
pub fn is_signed(token: &str, keys: &[VerifyingKey]) -> bool {
    let Some((message, signature)) = token.rsplit_once('.') else { return false };
    let Some((header, _)) = message.split_once('.') else { return false };
    let decoded = (BASE64URL.decode(header), BASE64URL.decode(signature));
    let (Ok(header), Ok(signature)) = decoded else { return false };
    let Ok(header) = serde_json::from_slice::<Value>(&header) else { return false };
    if is_extended(&header) || header_fault(&header).is_some() {
        return false;
    }
    let text = |name: &str| header.get(name).and_then(Value::as_str).unwrap_or_default();
    let id = text("kid");
    let algorithm = text("alg");
    let is_known = keys.iter().any(|key| key.id == id);
    let mut candidates =
        keys.iter().filter(|key| key.algorithm.name() == algorithm && (!is_known || key.id == id));
    candidates.any(|key| key.verifies(message.as_bytes(), &signature))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_wrong_types_are_refused() {
        let check = |name: &str, value: Value, want: &str| {
            let mut header = json!({"alg": "RS256", "kid": "1"});
            header[name] = value;
            let fault = header_fault(&header).unwrap_or_default();
            assert!(
                fault.starts_with(want) && fault.is_empty() == want.is_empty(),
                "{header} {fault}"
            );
        };
        let text = "json: cannot unmarshal array into Go value of type string: \"[]\"";
        check("kid", json!([]), &format!("failed to unmarshal key ID: {text}"));
        check("nonce", json!([]), &format!("failed to unmarshal nonce: {text}"));
        check("alg", json!([]), "failed to unmarshal algorithm: ");
        let unknown =
            "failed to unmarshal JWK: go-jose/go-jose: unknown json web key type '': \"{}\"";
        check("jwk", json!({}), unknown);
        check("x5c", json!("x"), "failed to unmarshal x5c header: ");
        check("x5c", json!(["x"]), "failed to unmarshal x5c header: ");
        for (name, value) in
            [("kid", json!(null)), ("typ", json!(1)), ("jku", json!(1)), ("x5c", json!([]))]
        {
            check(name, value, "");
        }
    }
}
