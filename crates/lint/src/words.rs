//! The words of names such as `podSelector`.

/// Splits a name where a capital begins a word: `podIPs` has `pod` and `IPs`, `HTTPGet` has `HTTP`
/// and `Get`.
pub fn split(name: &str) -> Vec<&str> {
    let chars: Vec<(usize, char)> = name.char_indices().collect();
    let mut words = vec![];
    let mut start = 0;
    for (i, (at, c)) in chars.iter().enumerate().skip(1) {
        let before = chars[i - 1].1;
        let after = chars.get(i + 1).map(|(_, c)| *c);
        let is_plural_end =
            after == Some('s') && chars.get(i + 2).is_none_or(|(_, c)| c.is_uppercase());
        let begins_word = c.is_uppercase()
            && (!before.is_uppercase()
                || (after.is_some_and(char::is_lowercase) && !is_plural_end));
        if begins_word {
            words.push(&name[start..*at]);
            start = *at;
        }
    }
    if start < name.len() {
        words.push(&name[start..]);
    }
    words
}

/// Returns the last word of a name in lower case.
pub fn last(name: &str) -> String {
    split(name).last().copied().unwrap_or_default().to_lowercase()
}

/// Returns whether text has a word, whatever its case.
pub fn has_word(text: &str, word: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    words.any(|known| known.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capital_begins_a_word() {
        let check = |name: &str, want: &[&str]| assert_eq!(split(name), want, "{name}");
        check("", &[]);
        check("name", &["name"]);
        check("podSelector", &["pod", "Selector"]);
        check("podIPs", &["pod", "IPs"]);
        check("podIPsAllowed", &["pod", "IPs", "Allowed"]);
        check("HTTPGet", &["HTTP", "Get"]);
        check("clientId", &["client", "Id"]);
        check("v1Beta2", &["v1", "Beta2"]);
        check("üÄb", &["ü", "Äb"]);
    }
}
