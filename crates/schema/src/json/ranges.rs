//! Finds byte ranges of values in JSON that this crate has written: valid and without white space.

use std::ops::Range;

/// Returns the range of the value at a path of member names. Names with escapes are not found.
pub fn value_range(text: &[u8], path: &[&str]) -> Option<Range<usize>> {
    let mut found = 0..text.len();
    for name in path {
        found = member(text, found.start, name)?;
    }
    Some(found)
}

/// Returns the ranges of the items of a list that begins at `start`.
pub fn item_ranges(text: &[u8], start: usize) -> Vec<Range<usize>> {
    let mut out = vec![];
    let mut at = start;
    if text.get(at) != Some(&b'[') || text.get(at + 1) == Some(&b']') {
        return out;
    }
    while matches!(text.get(at), Some(b'[' | b',')) {
        let Some(end) = value_end(text, at + 1) else { return vec![] };
        out.push(at + 1..end);
        at = end;
    }
    out
}

/// Returns the range of a member's value in the object that begins at `start`.
fn member(text: &[u8], start: usize, name: &str) -> Option<Range<usize>> {
    let mut at = start;
    if text.get(at) != Some(&b'{') {
        return None;
    }
    while matches!(text.get(at), Some(b'{' | b',')) {
        let key_end = value_end(text, at + 1)?;
        let key = text.get(at + 1..key_end)?;
        if text.get(key_end) != Some(&b':') {
            return None;
        }
        let end = value_end(text, key_end + 1)?;
        if key.strip_prefix(b"\"")?.strip_suffix(b"\"")? == name.as_bytes() {
            return Some(key_end + 1..end);
        }
        at = end;
    }
    None
}

/// Returns the end of the value that begins at `start`.
fn value_end(text: &[u8], start: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = start;
    loop {
        match text.get(at)? {
            b'"' => at = string_end(text, at)?,
            b'{' | b'[' => (at, depth) = (at + 1, depth + 1),
            b'}' | b']' => (at, depth) = (at + 1, depth.checked_sub(1)?),
            // A number or literal; within an object or list, a separator.
            _ if depth == 0 => {
                let rest = text[at..].iter().position(|byte| matches!(byte, b',' | b'}' | b']'));
                return Some(rest.map_or(text.len(), |length| at + length));
            }
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Returns the end of the string that begins at `start`.
fn string_end(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        match text[at] {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_path() {
        let text = br#"{"a":{"x":"}\"","b":[1,{"c":"]"},[],"d"],"e":null},"f":-1.5,"g":{}}"#;
        let check = |path: &[&str], want: Option<&str>| {
            let found = value_range(text, path).map(|place| &text[place]);
            assert_eq!(found, want.map(str::as_bytes), "{path:?}");
        };
        check(&["a", "x"], Some(r#""}\"""#));
        check(&["a", "e"], Some("null"));
        check(&["f"], Some("-1.5"));
        check(&["g"], Some("{}"));
        check(&["g", "h"], None);
        check(&["f", "h"], None);
        check(&["x"], None);
        let list = value_range(text, &["a", "b"]).expect("a list");
        let items: Vec<_> =
            item_ranges(text, list.start).into_iter().map(|item| &text[item]).collect();
        assert_eq!(items, [&b"1"[..], br#"{"c":"]"}"#, b"[]", br#""d""#]);
        assert!(item_ranges(b"[]", 0).is_empty());
    }

    #[test]
    fn truncated_json_has_no_ranges() {
        let text = br#"{"a":{"x":"}\"","b":[1,{"c":"]"}]},"f":1}"#;
        for cut in 0..text.len() {
            assert_eq!(value_range(&text[..cut], &["g"]), None);
            item_ranges(&text[..cut], 22.min(cut));
        }
    }
}
