//! Finds the end of maps that are kept as text.

use super::{DEPTH_MAX, unescaped_length};

/// Returns the length of the map at the start of a text. It must contain only maps, no white space,
/// and no escapes in keys except for quotes and backslashes; otherwise returns `None`. `depth` is
/// the number of enclosing levels.
pub(super) fn maps_length(text: &[u8], depth: usize) -> Option<usize> {
    let mut at = 0;
    let mut levels = 0;
    loop {
        if text.get(at) != Some(&b'{') || depth + levels >= DEPTH_MAX {
            return None;
        }
        (at, levels) = (at + 1, levels + 1);
        if text.get(at) == Some(&b'}') {
            loop {
                (at, levels) = (at + 1, levels - 1);
                if levels == 0 {
                    return Some(at);
                }
                match text.get(at)? {
                    b'}' => {}
                    b',' => break,
                    _ => return None,
                }
            }
            at += 1;
        }
        at += key_length(text.get(at..)?)?;
    }
}

/// Returns the length of a key with its quotes and colon.
fn key_length(text: &[u8]) -> Option<usize> {
    if text.first() != Some(&b'"') {
        return None;
    }
    let mut at = 1;
    loop {
        at += unescaped_length(text.get(at..)?);
        match (text.get(at)?, text.get(at + 1)?) {
            (b'"', b':') => return Some(at + 2),
            (b'\\', b'"' | b'\\') => at += 2,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_compact_maps_of_maps_have_a_length() {
        for text in
            [r#"{}"#, r#"{"f:a":{}}"#, r#"{"a":{".":{},"k:{\"n\":\"x\\\"}":{"b":{}}},"é":{}}"#]
        {
            assert_eq!(maps_length(format!("{text},").as_bytes(), 0), Some(text.len()), "{text}");
            for cut in 0..text.len() {
                assert_eq!(maps_length(&text.as_bytes()[..cut], 0), None, "{text} {cut}");
            }
        }
        for text in [
            "",
            "[]",
            "1",
            "{1}",
            "{ }",
            r#"{"a":1}"#,
            r#"{"a":{},}"#,
            r#"{"a":{}"b":{}}"#,
            r#"{"a" :{}}"#,
            r#"{"a":{"b":[]}}"#,
            r#"{"\n":{}}"#,
            "{\"\n\":{}}",
            r#"{"a"}"#,
        ] {
            assert_eq!(maps_length(text.as_bytes(), 0), None, "{text}");
        }
    }

    #[test]
    fn maps_beyond_the_depth_limit_have_no_length() {
        let deep = format!("{}{}{}", r#"{"a":"#.repeat(9), "{}", "}".repeat(9));
        assert_eq!(maps_length(deep.as_bytes(), DEPTH_MAX - 10), Some(deep.len()));
        assert_eq!(maps_length(deep.as_bytes(), DEPTH_MAX - 9), None);
    }
}
