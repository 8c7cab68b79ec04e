//! Values that are kept as JSON text: [`Value::Raw`].

use super::parse::parse;
use keelson_meta::Value;

/// Returns a value with all raw texts in it parsed.
pub fn parse_raw(mut value: Value) -> Value {
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

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn raw_texts_are_parsed_at_any_depth() {
        let raw = Value::Raw(r#"{"f:a":{}}"#.into());
        let all = value!({"a": [(raw.clone())], "b": 1});
        assert_eq!(parse_raw(all), value!({"a": [{"f:a": {}}], "b": 1}));
    }
}
