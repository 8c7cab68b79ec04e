//! Values that are kept as text: [`Value::Raw`].

use super::parse::{DEPTH_MAX, parse, plain_length};
use keelson_meta::Value;

/// The value with all that is kept as text read.
pub fn expanded(mut value: Value) -> Value {
    expand(&mut value);
    value
}

fn expand(value: &mut Value) {
    match value {
        Value::Raw(text) => {
            let parsed = parse(text.as_bytes()).map(|parsed| parsed.value);
            *value = parsed.expect("what is kept as text was JSON when it was taken");
        }
        Value::Array(items) => items.iter_mut().for_each(expand),
        Value::Object(map) => map.iter_mut().for_each(|(_, item)| expand(item)),
        _ => {}
    }
}

/// Bytes of the map with which a text begins, when it holds nothing but maps, white space stands nowhere
/// and its keys have no escapes but those of quotes and backslashes. `depth`: levels around it.
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

/// Bytes of a key with its quotes and its colon.
fn key_length(text: &[u8]) -> Option<usize> {
    if text.first() != Some(&b'"') {
        return None;
    }
    let mut at = 1;
    loop {
        at += plain_length(text.get(at..)?);
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
    use keelson_meta::value;

    #[test]
    fn only_compact_maps_of_maps_are_taken_as_text() {
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
    fn maps_that_are_too_deep_are_not_taken() {
        let deep = format!("{}{}{}", r#"{"a":"#.repeat(9), "{}", "}".repeat(9));
        assert_eq!(maps_length(deep.as_bytes(), DEPTH_MAX - 10), Some(deep.len()));
        assert_eq!(maps_length(deep.as_bytes(), DEPTH_MAX - 9), None);
    }

    #[test]
    fn what_is_kept_as_text_is_read_wherever_it_stands() {
        let raw = Value::Raw(r#"{"f:a":{}}"#.into());
        let all = value!({"a": [(raw.clone())], "b": 1});
        assert_eq!(expanded(all), value!({"a": [{"f:a": {}}], "b": 1}));
    }
}
