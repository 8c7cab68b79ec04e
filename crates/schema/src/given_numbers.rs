//! Numbers as a body writes them, for the messages of Go's decoder: it quotes the text of a number
//! that does not fit.

use crate::canonical::json_number_name;
use crate::json;
use keelson_meta::Value;

/// Most numbers of a body that are kept for messages.
const NUMBERS_MAX: usize = 32;

/// The numbers of a body that are not written as this server would write them: `1e18`, `-0.0`.
#[derive(Clone, Debug, Default)]
pub struct GivenNumbers(Vec<GivenNumber>);

#[derive(Clone, Debug)]
struct GivenNumber {
    /// As the number is written in JSON.
    written: String,
    /// As a message names it: `number 1000.0`.
    named: String,
    /// As the body has it.
    given: String,
}

impl GivenNumbers {
    /// Finds the numbers of a JSON text.
    pub fn of(body: &[u8]) -> GivenNumbers {
        let mut found = vec![];
        let mut at = 0;
        while at < body.len() && found.len() < NUMBERS_MAX {
            match body[at] {
                b'"' => at = end_of_string(body, at),
                b'-' | b'0'..=b'9' => {
                    let is_part =
                        |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                    let end = at + body[at..].iter().take_while(|byte| is_part(byte)).count();
                    found.extend(GivenNumber::of(&body[at..end]));
                    at = end;
                }
                _ => at += 1,
            }
        }
        GivenNumbers(found)
    }

    /// Writes the number of an error of Go's decoder as the body has it.
    #[must_use]
    pub fn in_error(&self, mut why: String) -> String {
        for GivenNumber { named, given, .. } in &self.0 {
            let from = format!("{named} into");
            let to = format!("number {given} into");
            if why.contains(&from) {
                why = why.replace(&from, &to);
                break;
            }
        }
        why
    }

    /// Writes the numbers of a JSON text as the body has them.
    #[must_use]
    pub fn in_document(&self, text: String) -> String {
        self.0.iter().fold(text, |text, number| replace_number(&text, number))
    }
}

impl GivenNumber {
    fn of(literal: &[u8]) -> Option<GivenNumber> {
        let value = json::parse(literal).ok()?.value;
        let given = std::str::from_utf8(literal).ok()?.to_owned();
        if !matches!(value, Value::Float(_)) {
            return None;
        }
        let named = json_number_name(&value);
        let mut written = vec![];
        json::write_value(&value, &mut written);
        let written = String::from_utf8(written).ok()?;
        let is_same = written == given && named.ends_with(&format!(" {given}"));
        (!is_same).then_some(GivenNumber { written, named, given })
    }
}

/// Returns the place behind a string that begins at `start`.
fn end_of_string(body: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < body.len() && body[at] != b'"' {
        at += if body[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// Replaces a number where it is a whole value.
fn replace_number(text: &str, number: &GivenNumber) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(&number.written) {
        let before = &rest[..at];
        let after = &rest[at + number.written.len()..];
        out.push_str(before);
        let is_whole = out.ends_with([':', '[', ',']) && after.starts_with([',', ']', '}']);
        out.push_str(if is_whole { &number.given } else { &number.written });
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::GivenNumbers;

    #[test]
    fn messages_have_numbers_as_the_body_has_them() {
        let numbers = GivenNumbers::of(
            br#"{"a 2.50":[1e+18,"1e3\"4e4"],"b":-0.0,"c":9223372036854775808,"d":1000.0}"#,
        );
        for (named, given) in [
            ("1000000000000000000", "1e+18"),
            ("-0.0", "-0.0"),
            ("9223372036854776000", "9223372036854775808"),
            ("1000.0", "1000.0"),
        ] {
            let why = numbers.in_error(format!("cannot unmarshal number {named} into Go value"));
            assert_eq!(why, format!("cannot unmarshal number {given} into Go value"));
        }
        let text = r#"{"a":[1000000000000000000,1000],"b":-0,"e":"1000"}"#.to_owned();
        let want = r#"{"a":[1e+18,1000.0],"b":-0.0,"e":"1000"}"#;
        assert_eq!(numbers.in_document(text), want);
    }
}
