//! JSON Web Tokens in their compact form: `HEADER.CLAIMS.SIGNATURE` (RFC 7515, 7519).

use super::keys::{SigningKey, VerifyingKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
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
    let header = BASE64URL.decode(header).ok();
    let header = header.and_then(|json| serde_json::from_slice::<Value>(&json).ok());
    let id = header.as_ref().and_then(|header| header.get("kid")?.as_str());
    id.unwrap_or_default().to_owned()
}

/// Returns whether a header has critical extensions (RFC 7515 `crit`, RFC 7797 `b64`); none are
/// supported.
pub fn is_extended(header: &Value) -> bool {
    header.get("crit").is_some() || header.get("b64").is_some_and(|b64| b64 != true)
}

/// Returns whether one of the keys signed the token, with the algorithm of that key.
pub fn is_signed(token: &str, keys: &[VerifyingKey]) -> bool {
    let Some((message, signature)) = token.rsplit_once('.') else { return false };
    let Some((header, _)) = message.split_once('.') else { return false };
    let decoded = (BASE64URL.decode(header), BASE64URL.decode(signature));
    let (Ok(header), Ok(signature)) = decoded else { return false };
    let Ok(header) = serde_json::from_slice::<Value>(&header) else { return false };
    if is_extended(&header) {
        return false;
    }
    let text = |name: &str| header.get(name).and_then(Value::as_str).unwrap_or_default();
    let (id, algorithm) = (text("kid"), text("alg"));
    let is_known = keys.iter().any(|key| key.id == id);
    let mut candidates =
        keys.iter().filter(|key| key.algorithm.name() == algorithm && (!is_known || key.id == id));
    candidates.any(|key| key.verifies(message.as_bytes(), &signature))
}
