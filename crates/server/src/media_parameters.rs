//! The parameters of a Content-Type, as Go's `mime.ParseMediaType` reads them (RFC 2045, 5.1).

use std::collections::BTreeMap;

/// Returns whether all parameters of a Content-Type can be read.
pub fn are_valid(header: &str) -> bool {
    let mut rest = header.find(';').map_or("", |start| &header[start..]);
    let mut values = BTreeMap::new();
    while !rest.trim().is_empty() {
        let Some((name, value, after)) = parameter(rest) else { return rest.trim() == ";" };
        if values.insert(name.to_ascii_lowercase(), value).is_some_and(|before| before != value) {
            return false;
        }
        rest = after;
    }
    true
}

/// Reads `;name=value`. Returns name, value and the rest.
fn parameter(text: &str) -> Option<(&str, &str, &str)> {
    let text = text.trim_start().strip_prefix(';')?.trim_start();
    let (name, rest) = token(text)?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let (value, rest) = match rest.strip_prefix('"') {
        Some(quoted) => {
            let end = closing_quote(quoted)?;
            (&quoted[..end], &quoted[end + 1..])
        }
        None => token(rest)?,
    };
    Some((name, value, rest))
}

fn token(text: &str) -> Option<(&str, &str)> {
    let is_separator = |c: char| !c.is_ascii_graphic() || "()<>@,;:\\\"/[]?=".contains(c);
    let (token, rest) = text.split_at(text.find(is_separator).unwrap_or(text.len()));
    (!token.is_empty()).then_some((token, rest))
}

/// Returns the position of the quotation mark that ends a quoted value.
fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from kube-apiserver 1.36.3: which headers of a request are not answered by 415.
    #[test]
    fn parameters_are_read_as_by_go() {
        for (header, is_valid) in [
            ("application/json", true),
            ("application/json;", true),
            ("application/json; charset=utf-8", true),
            ("application/json; a=\"b;c\"", true),
            ("application/json ; A=b;a=b", true),
            ("application/json; a*=utf-8''x", true),
            ("application/json;a =b", true),
            ("application/json;a= b", true),
            ("application/json;foo", false),
            ("application/json; charset=utf-8; foo", false),
            ("application/json; a=b; a=c", false),
            ("application/json;;a=b", false),
            ("application/json; =b", false),
            ("application/json; a=", false),
            ("application/json; a=\"", false),
            ("application/json; a=b c", false),
            ("application/json; a=b;;", false),
            ("application/json;  ;", false),
        ] {
            assert_eq!(are_valid(header), is_valid, "{header}");
        }
    }
}
