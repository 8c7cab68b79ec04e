//! Verifies tokens of an issuer: times, audience, algorithm, signature. Texts are those of go-oidc.

use super::claim_types::{self, seconds};
use super::keys::{JoseAlgorithm, KeySet};
use crate::service_account::{header_fault, is_extended};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use keelson_meta::Timestamp;
use keelson_meta::status::quote;
use serde_json::Value;

/// Allowed clock difference for `nbf`.
const NOT_BEFORE_LEEWAY_SECONDS: i64 = 60;

/// Returns the unverified issuer of a token. Google uses two forms of its issuer.
pub(super) fn issuer(claims: &Value) -> &str {
    match claims.get("iss").and_then(Value::as_str).unwrap_or_default() {
        "accounts.google.com" => "https://accounts.google.com",
        issuer => issuer,
    }
}

/// Returns `exp`, in seconds since 1970.
pub(super) fn expiry(claims: &Value) -> Option<i64> {
    seconds(claims.get("exp")?)
}

/// Checks issuer, audience and times.
pub(super) fn check_claims(
    claims: &Value,
    audiences: &[String],
    now: Timestamp,
) -> Result<(), String> {
    claim_types::check(claims)?;
    let claimed: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => vec![],
    };
    if !audiences.iter().any(|audience| claimed.contains(&audience.as_str())) {
        let claimed: Vec<String> = claimed.iter().map(|one| quote(one)).collect();
        let claimed = format!("[{}]", claimed.join(" "));
        return Err(match audiences {
            [one] => format!("oidc: expected audience {} got {claimed}", quote(one)),
            several => {
                let mut several: Vec<String> = several.iter().map(|one| quote(one)).collect();
                several.sort_unstable();
                format!("oidc: expected audience in [{}] got {claimed}", several.join(" "))
            }
        });
    }
    // A token without an expiry has expired.
    let expires = expiry(claims).unwrap_or(GO_ZERO_SECONDS);
    if expires < now.seconds {
        let expires = go_time(Timestamp::new(expires, 0));
        return Err(format!("oidc: token is expired (Token Expiry: {expires})"));
    }
    match claims.get("nbf").filter(|value| !value.is_null()) {
        None => Ok(()),
        Some(begin) => match seconds(begin) {
            Some(begin) if begin <= now.seconds + NOT_BEFORE_LEEWAY_SECONDS => Ok(()),
            Some(begin) => {
                let now = go_time(now);
                let begin = go_time(Timestamp::new(begin, 0));
                Err(format!("oidc: current time {now} before the nbf (not before) time: {begin}"))
            }
            None => Err("oidc: malformed jwt: nbf is no time".to_owned()),
        },
    }
}

/// The first second of year 1: Go's zero time.
const GO_ZERO_SECONDS: i64 = -62_135_596_800;

/// Formats a time as Go does: `2026-01-31 10:00:00 +0000 UTC`.
fn go_time(time: Timestamp) -> String {
    time.text().replacen('T', " ", 1).replacen('Z', " +0000 UTC", 1)
}

/// A signed token.
pub(super) struct Signed<'t> {
    message: &'t [u8],
    signature: Vec<u8>,
    algorithm: JoseAlgorithm,
    key_id: String,
    /// Whether its header has critical extensions; none are supported.
    is_extended: bool,
}

impl<'t> Signed<'t> {
    /// Parses header and signature; the algorithm must be one of `algorithms`.
    pub fn read(token: &'t str, algorithms: &[JoseAlgorithm]) -> Result<Signed<'t>, String> {
        let malformed = || "oidc: malformed jwt: not a compact signature".to_owned();
        let (message, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
        let (header, _) = message.split_once('.').ok_or_else(malformed)?;
        let header = BASE64URL.decode(header).map_err(|_| malformed())?;
        let header: Value = serde_json::from_slice(&header).map_err(|_| malformed())?;
        if let Some(fault) = header_fault(&header) {
            return Err(format!("oidc: malformed jwt: {fault}"));
        }
        let signature = BASE64URL.decode(signature).map_err(|error| match error {
            base64::DecodeError::InvalidByte(at, _)
            | base64::DecodeError::InvalidLastSymbol(at, _) => {
                format!("oidc: malformed jwt: illegal base64 data at input byte {at}")
            }
            _ => malformed(),
        })?;
        let is_extended = is_extended(&header);
        let text = |name: &str| header.get(name).and_then(Value::as_str).unwrap_or_default();
        let named = text("alg");
        let Some(algorithm) = algorithms.iter().find(|one| one.name() == named) else {
            let names: Vec<String> = algorithms.iter().map(|one| quote(one.name())).collect();
            let names = names.join(" ");
            let named = quote(named);
            return Err(format!(
                "oidc: id token signed with unsupported algorithm, expected [{names}] got {named}"
            ));
        };
        let algorithm = *algorithm;
        let key_id = text("kid").to_owned();
        Ok(Signed { message: message.as_bytes(), signature, algorithm, key_id, is_extended })
    }

    /// Returns whether one of the keys signed the token.
    pub fn is_signed(&self, keys: &KeySet) -> bool {
        !self.is_extended
            && keys.verifies(&self.key_id, self.algorithm, self.message, &self.signature)
    }
}
