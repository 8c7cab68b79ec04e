//! The documents of a text of manifests.

/// Splits a text into documents, each with the number of lines before it, as kubectl does: at lines
/// that have only `---` and perhaps a comment, and between JSON objects.
pub fn documents(text: &[u8]) -> Vec<(u32, &[u8])> {
    if let Some(objects) = json_objects(text) {
        return objects;
    }
    let mut documents = vec![];
    let mut start = 0;
    let mut first_line = 0;
    let mut at = 0;
    let mut line = 0_u32;
    while at < text.len() {
        let end = text[at..]
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(text.len(), |end| at + end + 1);
        if is_separator(&text[at..end]) {
            documents.push((first_line, &text[start..at]));
            (start, first_line) = (end, line + 1);
        }
        line += 1;
        at = end;
    }
    documents.push((first_line, &text[start..]));
    documents
}

fn is_separator(line: &[u8]) -> bool {
    line.strip_prefix(b"---").is_some_and(|rest| {
        let rest = rest.trim_ascii();
        rest.is_empty() || rest.starts_with(b"#")
    })
}

/// Returns the objects of a text that is JSON, one after the other; `None` if it is something else.
fn json_objects(text: &[u8]) -> Option<Vec<(u32, &[u8])>> {
    if !text.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    let mut stream =
        serde_json::Deserializer::from_slice(text).into_iter::<serde::de::IgnoredAny>();
    let mut objects = vec![];
    let mut start = 0;
    let mut line = 0_u32;
    while let Some(object) = stream.next() {
        object.ok()?;
        let end = stream.byte_offset();
        objects.push((line, &text[start..end]));
        line += u32::try_from(text[start..end].iter().filter(|byte| **byte == b'\n').count())
            .unwrap_or(u32::MAX);
        start = end;
    }
    Some(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, want: &[(u32, &str)]) {
        let found: Vec<(u32, &str)> = documents(text.as_bytes())
            .iter()
            .map(|(line, text)| (*line, std::str::from_utf8(text).expect("the text is UTF-8")))
            .collect();
        assert_eq!(found, want);
    }

    #[test]
    fn documents_are_split_where_kubectl_splits_them() {
        check("a: 1\n", &[(0, "a: 1\n")]);
        check("a: 1\n---\nb: 2\n--- # c\nc: 3", &[(0, "a: 1\n"), (2, "b: 2\n"), (4, "c: 3")]);
        check("---\na: |\n  ---\n", &[(0, ""), (1, "a: |\n  ---\n")]);
        check("--- a\n", &[(0, "--- a\n")]);
        check("{\"a\":1}\n{\"b\":\n2}", &[(0, "{\"a\":1}"), (0, "\n{\"b\":\n2}")]);
        check("{a: 1}\n", &[(0, "{a: 1}\n")]);
    }
}
