//! Checks JSON syntax without building a value. Accepts exactly what [`super::parse`] accepts.

use super::parse::{Reader, SyntaxError};

/// Checks the syntax and depth of a text, which must be an object. Allocates only for strings with
/// escapes.
pub fn check_object(text: &[u8]) -> Result<(), SyntaxError> {
    let mut reader = Reader::new(text);
    if reader.peek()? != b'{' {
        return reader.unexpected("looking for beginning of object");
    }
    value(&mut reader)?;
    reader.end()
}

fn value(reader: &mut Reader<'_>) -> Result<(), SyntaxError> {
    match reader.peek()? {
        b'{' => {
            reader.begin()?;
            members(reader)?;
            reader.depth -= 1;
            Ok(())
        }
        b'[' => {
            reader.begin()?;
            items(reader)?;
            reader.depth -= 1;
            Ok(())
        }
        b'"' => string(reader).map(drop),
        // Literals and numbers do not allocate.
        _ => reader.value(&keelson_meta::Path::ROOT).map(drop),
    }
}

/// Reads a string; returns its text if it has no escapes.
fn string<'t>(reader: &mut Reader<'t>) -> Result<Option<&'t str>, SyntaxError> {
    match reader.unescaped_string() {
        Some(text) => Ok(Some(text)),
        None => reader.escaped_or_invalid_string().map(|_| None),
    }
}

fn members(reader: &mut Reader<'_>) -> Result<(), SyntaxError> {
    if reader.peek()? == b'}' {
        reader.at += 1;
        return Ok(());
    }
    loop {
        if reader.peek()? != b'"' {
            return reader.unexpected("looking for beginning of object key string");
        }
        let key = string(reader)?;
        if reader.peek()? != b':' {
            return reader.unexpected("after object key");
        }
        reader.at += 1;
        // Field sets are maps of maps, for which there is a fast path.
        let is_fields = key == Some("fieldsV1") && reader.peek()? == b'{';
        if !is_fields || reader.map_of_maps().is_none() {
            value(reader)?;
        }
        match reader.peek()? {
            b',' => reader.at += 1,
            b'}' => {
                reader.at += 1;
                return Ok(());
            }
            _ => return reader.unexpected("after object key:value pair"),
        }
    }
}

fn items(reader: &mut Reader<'_>) -> Result<(), SyntaxError> {
    if reader.peek()? == b']' {
        reader.at += 1;
        return Ok(());
    }
    loop {
        value(reader)?;
        match reader.peek()? {
            b',' => reader.at += 1,
            b']' => {
                reader.at += 1;
                return Ok(());
            }
            _ => return reader.unexpected("after array element"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::check_object;
    use keelson_meta::Value;

    #[test]
    fn check_accepts_what_parse_accepts_as_an_object() {
        let deep = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        let texts = [
            "{}",
            r#"{"a":1,"b":[{"c":"d"},null,true,-1.5e3],"f":{"g":{},"h":{"i":{}}}}"#,
            r#"{"a":"\u00e9\"","\n":"x"} "#,
            r#"{"a":{"b":{"c":1}}}"#,
            r#"{"fieldsV1":{"f:a":{"f:b":{}}}}"#,
            r#"{"fieldsV1":{"f:a":{"f:b":1}}}"#,
            r#"{"fieldsV1":{"f:a":{"f:b":}}}"#,
            r#"{"fieldsV1":1}"#,
            "",
            "[]",
            "1",
            "{",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a":[1,]}"#,
            r#"{"a":[1}"#,
            r#"{"a":"b}"#,
            r#"{"a":"\x"}"#,
            r#"{"a":tru}"#,
            r#"{"a":01}"#,
            r#"{"a":1}x"#,
            "{\"a\":\"\n\"}",
            &deep(250),
            &deep(251),
            &format!("{{\"a\":{}{}}}", "[".repeat(249), "]".repeat(249)),
            &format!("{{\"a\":{}{}}}", "[".repeat(250), "]".repeat(250)),
        ];
        for text in texts {
            let parsed = parse(text.as_bytes());
            let wanted = parsed.is_ok_and(|parsed| matches!(parsed.value, Value::Object(_)));
            assert_eq!(check_object(text.as_bytes()).is_ok(), wanted, "{text}");
        }
    }
}
