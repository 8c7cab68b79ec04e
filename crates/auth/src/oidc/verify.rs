//! Verifies tokens of an issuer: times, audience, algorithm, signature. The texts are those of go-oidc.

use super::keys::{JoseAlgorithm, KeySet};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use keelson_meta::Timestamp;
use keelson_meta::status::quote;
use serde_json::Value;

/// Clocks may differ by this much where a token begins.
const NOT_BEFORE_LEEWAY_SECONDS: i64 = 60;

/// The issuer that a token names, which is not verified. Google names itself in two ways.
pub(super) fn issuer(claims: &Value) -> &str {
    match claims.get("iss").and_then(Value::as_str).unwrap_or_default() {
        "accounts.google.com" => "https://accounts.google.com",
        issuer => issuer,
    }
}

/// When a token ends, in seconds since 1970.
pub(super) fn expiry(claims: &Value) -> Option<i64> {
    seconds(claims.get("exp")?)
}

fn seconds(value: &Value) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "far times saturate")]
    value.as_i64().or_else(|| value.as_f64().map(|number| number as i64))
}

/// Checks for whom and when a token counts.
pub(super) fn check_claims(
    claims: &Value,
    audiences: &[String],
    now: Timestamp,
) -> Result<(), String> {
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
    // A token that does not say when it ends has ended.
    let expires = expiry(claims).unwrap_or_default();
    if expires < now.seconds {
        let expires = Timestamp::new(expires, 0).text();
        return Err(format!("oidc: token is expired (Token Expiry: {expires})"));
    }
    match claims.get("nbf").filter(|value| !value.is_null()) {
        None => Ok(()),
        Some(begin) => match seconds(begin) {
            Some(begin) if begin <= now.seconds + NOT_BEFORE_LEEWAY_SECONDS => Ok(()),
            Some(begin) => {
                let (now, begin) = (now.text(), Timestamp::new(begin, 0).text());
                Err(format!("oidc: current time {now} before the nbf (not before) time: {begin}"))
            }
            None => Err("oidc: malformed jwt: nbf is no time".to_owned()),
        },
    }
}

/// A token as it was signed.
pub(super) struct Signed<'t> {
    message: &'t [u8],
    signature: Vec<u8>,
    algorithm: JoseAlgorithm,
    key_id: String,
}

impl<'t> Signed<'t> {
    /// Reads header and signature; the algorithm must be one of these.
    pub fn read(token: &'t str, algorithms: &[JoseAlgorithm]) -> Result<Signed<'t>, String> {
        let malformed = || "oidc: malformed jwt: not a compact signature".to_owned();
        let (message, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
        let (header, _) = message.split_once('.').ok_or_else(malformed)?;
        let header = BASE64URL.decode(header).map_err(|_| malformed())?;
        let header: Value = serde_json::from_slice(&header).map_err(|_| malformed())?;
        let signature = BASE64URL.decode(signature).map_err(|_| malformed())?;
        // Extensions that must be understood are not.
        if header.get("crit").is_some() {
            return Err("oidc: malformed jwt: unsupported crit header".to_owned());
        }
        let text = |name: &str| header.get(name).and_then(Value::as_str).unwrap_or_default();
        let named = text("alg");
        let Some(algorithm) = algorithms.iter().find(|one| one.name() == named) else {
            let names: Vec<String> = algorithms.iter().map(|one| quote(one.name())).collect();
            let (names, named) = (names.join(" "), quote(named));
            return Err(format!(
                "oidc: id token signed with unsupported algorithm, expected [{names}] got {named}"
            ));
        };
        let (algorithm, key_id) = (*algorithm, text("kid").to_owned());
        Ok(Signed { message: message.as_bytes(), signature, algorithm, key_id })
    }

    /// Whether one of the keys signed it.
    pub fn is_signed(&self, keys: &KeySet) -> bool {
        keys.verifies(&self.key_id, self.algorithm, self.message, &self.signature)
    }
}
