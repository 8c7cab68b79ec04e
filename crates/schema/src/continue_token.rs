//! The `continue` token of paged lists: base64 of `{"v":"meta.k8s.io/v1","rv":7,"start":"a"}`, the
//! format of apiserver `storage/continue.go`.

use crate::canonical::json_number_name;
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
    let json = TEXT.decode(text).map_err(|_| {
        // Go names the first character that is none of base64, or the start of an incomplete group.
        let is_other = |byte: u8| !(byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        let at = text.bytes().position(is_other).unwrap_or(text.len() / 4 * 4);
        fail(format!("illegal base64 data at input byte {at}"))
    })?;
    let parsed = crate::json::parse(&json).map_err(|error| fail(error.to_string()))?;
    let Token { version, revision, start } = Token::read(&parsed.value).map_err(fail)?;
    if version != VERSION {
        return Err(fail(format!("server does not recognize this encoded version {version}")));
    }
    if revision == 0 {
        return Err(fail(format!("incorrect encoded start resourceVersion (version {VERSION})")));
    }
    if start.is_empty() {
        return Err(fail(format!("encoded start key empty (version {VERSION})")));
    }
    // A token must not leave its own list.
    if start.split('/').any(|part| part == "." || part == "..") {
        return Err(fail(start.to_owned()));
    }
    Ok((u64::try_from(revision).ok(), start.into()))
}

/// The fields of a token; those that are absent or null are empty or 0.
#[derive(Default)]
struct Token<'a> {
    version: &'a str,
    revision: i64,
    start: &'a str,
}

impl Token<'_> {
    /// Reads a token as Go's `encoding/json` does: names in any case. The error is that of a value
    /// of another type.
    fn read(value: &Value) -> Result<Token<'_>, String> {
        let mut token = Token::default();
        if value.is_null() {
            return Ok(token);
        }
        let Value::Object(fields) = value else {
            let kind = value.type_name();
            return Err(format!(
                "json: cannot unmarshal {kind} into Go value of type storage.continueToken"
            ));
        };
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            let refused = |field: &str, kind: &str, go_type: &str| {
                format!(
                    "json: cannot unmarshal {kind} into Go struct field continueToken.{field} of type {go_type}"
                )
            };
            let text = |field: &str| {
                value.as_str().ok_or_else(|| refused(field, value.type_name(), "string"))
            };
            match name.to_ascii_lowercase().as_str() {
                "v" => token.version = text("v")?,
                "start" => token.start = text("start")?,
                "rv" => {
                    let given = || json_number_name(value);
                    token.revision =
                        value.as_int().ok_or_else(|| refused("rv", &given(), "int64"))?;
                }
                _ => {}
            }
        }
        Ok(token)
    }
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
        check("!alse", "illegal base64 data at input byte 0");
        check("fals!", "illegal base64 data at input byte 4");
        check("fa=", "illegal base64 data at input byte 2");
        check("e30", "server does not recognize this encoded version ");
        check("bnVsbA", "server does not recognize this encoded version ");
        let refused = "json: cannot unmarshal";
        let field = "into Go struct field continueToken";
        check("W10", &format!("{refused} array into Go value of type storage.continueToken"));
        check("eyJ2IjoxfQ", &format!("{refused} number {field}.v of type string"));
        check(
            "eyJ2IjoieCIsInJ2IjoxLjV9",
            &format!("{refused} number 1.5 {field}.rv of type int64"),
        );
        check("bad", "invalid character 'm' looking for beginning of value");
    }
}
