//! Values that are kept as text: [`Value::Raw`].

use super::parse::parse;
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

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn what_is_kept_as_text_is_read_wherever_it_stands() {
        let raw = Value::Raw(r#"{"f:a":{}}"#.into());
        let all = value!({"a": [(raw.clone())], "b": 1});
        assert_eq!(expanded(all), value!({"a": [{"f:a": {}}], "b": 1}));
    }
}
