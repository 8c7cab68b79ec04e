//! The `continue` token of paged lists: base64 of `{"v":"meta.k8s.io/v1","rv":7,"start":"a"}`, the
//! format of apiserver `storage/continue.go`.

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use keelson_meta::{Failure, Status, Str, Value, value};

/// Like Go's decoder, ignores trailing bits.
const TEXT: GeneralPurpose =
    GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

const VERSION: &str = "meta.k8s.io/v1";

/// Returns the token for the page that begins after `start`, at a revision, or at the latest
/// revision if `None`.
pub fn encode(revision: Option<u64>, start: &str) -> String {
    let revision = revision.map_or(-1, |revision| i64::try_from(revision).unwrap_or(i64::MAX));
    let start = format!("{start}\u{0}");
    let body = value!({"v": VERSION, "rv": revision, "start": start});
    let mut json = vec![];
    crate::json::write_value(&body, &mut json);
    TEXT.encode(json)
}

/// Returns revision and start key of a token. An invalid token is an error 400 with upstream's
/// message.
pub fn decode(text: &str) -> Result<(Option<u64>, Str), Failure> {
    let fail = |why: String| {
        Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
    };
    let json = TEXT.decode(text).map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _) => at,
            base64::DecodeError::InvalidLastSymbol(at, _) => at,
            // Go names the first byte of the incomplete group.
            base64::DecodeError::InvalidLength(_) => text.len() / 4 * 4,
            base64::DecodeError::InvalidPadding => text.len(),
        };
        fail(format!("illegal base64 data at input byte {at}"))
    })?;
    let parsed = crate::json::parse(&json).map_err(|error| fail(error.to_string()))?;
    let token = parsed.value;
    if token.get("v").and_then(Value::as_str) != Some(VERSION) {
        let version = token.get("v").and_then(Value::as_str).unwrap_or_default();
        return Err(fail(format!("server does not recognize this encoded version {version}")));
    }
    let revision = token.get("rv").and_then(Value::as_int).unwrap_or(0);
    if revision == 0 {
        return Err(fail(format!("incorrect encoded start resourceVersion (version {VERSION})")));
    }
    let start = token.get("start").and_then(Value::as_str).unwrap_or_default();
    if start.is_empty() {
        return Err(fail(format!("encoded start key empty (version {VERSION})")));
    }
    // A token must not leave its own list.
    if start.split('/').any(|part| part == "." || part == "..") {
        return Err(fail(start.trim_end_matches('\u{0}').to_owned()));
    }
    Ok((u64::try_from(revision).ok(), start.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_round_trips() {
        for revision in [Some(7), None] {
            assert_eq!(decode(&encode(revision, "a")).unwrap(), (revision, "a\u{0}".into()));
        }
    }

    #[test]
    fn invalid_tokens_have_upstream_errors() {
        let check = |text: &str, want: &str| {
            let status = decode(text).unwrap_err();
            let prefix = "invalid continue token: continue key is not valid: ";
            assert_eq!(status.message, format!("{prefix}{want}"));
        };
        check("!!!", "illegal base64 data at input byte 0");
        check("false", "illegal base64 data at input byte 4");
        check("e30", "server does not recognize this encoded version ");
        check("bad", "invalid character 'm' looking for beginning of value");
    }
}
