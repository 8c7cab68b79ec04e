//! JSON texts that are stored unparsed.

use std::borrow::Cow;

/// Formats JSON as Go does: without white space between values and with Go's HTML escapes. The
/// order of members and the form of numbers do not change. `text` must be valid JSON.
pub fn compact(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let mut at = 0;
    let mut written = 0;
    let mut in_string = false;
    while let Some(byte) = bytes.get(at) {
        let (length, instead) = match byte {
            b' ' | b'\t' | b'\n' | b'\r' if !in_string => (1, ""),
            b'<' => (1, "\\u003c"),
            b'>' => (1, "\\u003e"),
            b'&' => (1, "\\u0026"),
            0xe2 if bytes[at..].starts_with("\u{2028}".as_bytes()) => (3, "\\u2028"),
            0xe2 if bytes[at..].starts_with("\u{2029}".as_bytes()) => (3, "\\u2029"),
            b'\\' => {
                at += 2;
                continue;
            }
            byte => {
                in_string ^= *byte == b'"';
                at += 1;
                continue;
            }
        };
        out.push_str(&text[written..at]);
        out.push_str(instead);
        at += length;
        written = at;
    }
    if written == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[written..]);
    Cow::Owned(out)
}

/// Returns the number of objects in a JSON text.
pub fn count_objects(text: &str) -> usize {
    count_outside_strings(text.as_bytes(), |byte| byte == b'{')
}

/// Returns a number that the values of a JSON text do not exceed: an opening bracket or a comma
/// precedes each but the outermost.
pub fn values_bound(text: &[u8]) -> usize {
    1 + count_outside_strings(text, |byte| matches!(byte, b'{' | b'[' | b','))
}

fn count_outside_strings(text: &[u8], is_counted: impl Fn(u8) -> bool) -> usize {
    let mut count = 0;
    let mut in_string = false;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => in_string = !in_string,
            byte if !in_string && is_counted(*byte) => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_white_space_and_go_escapes_change() {
        for (text, written) in [
            (r#"{"b":1,"a":[1.0,1e3,"a b"]}"#, r#"{"b":1,"a":[1.0,1e3,"a b"]}"#),
            (" {\"b\" : 1 ,\n\t\"a\":[ 2.0 ]\r}", r#"{"b":1,"a":[2.0]}"#),
            (r#"{"a\" ": "\\" }"#, r#"{"a\" ":"\\"}"#),
            (r#"["<&>","\u0041\/"]"#, r#"["\u003c\u0026\u003e","\u0041\/"]"#),
            ("\"\u{2028}\u{2029}\u{2027}é\"", "\"\\u2028\\u2029\u{2027}é\""),
            ("", ""),
        ] {
            assert_eq!(compact(text), written, "{text}");
            assert!(matches!(compact(written), Cow::Borrowed(_)), "{written}");
        }
    }

    #[test]
    fn braces_and_commas_in_strings_are_not_counted() {
        assert_eq!(count_objects(r#"{"a":[{},{"{":"\"{"}],"b":"{"}"#), 3);
        assert_eq!(values_bound(br#"{"a":[{},{",":"\","}],"b":"[","c":[1,2]}"#), 10);
        assert_eq!(values_bound(b"1"), 1);
    }
}
