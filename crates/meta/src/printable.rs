//! Which characters are printable, as Go's package unicode has it.

/// Returns whether a character is printable, as Go's `unicode.IsPrint`: letters, marks, numbers,
/// punctuation, symbols and the space.
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    // `escape_debug` escapes a combining mark only as the first character, so the probe is not the
    // first.
    let probe = ['a', c].iter().collect::<String>();
    !c.is_whitespace() && probe.escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::is_printable;

    #[test]
    fn what_is_seen_is_printable() {
        for c in [' ', 'a', '~', 'é', '\u{301}', '語', '😀', '\u{fffd}'] {
            assert!(is_printable(c), "{c:?}");
        }
        for c in
            ['\t', '\u{7f}', '\u{a0}', '\u{ad}', '\u{200b}', '\u{2028}', '\u{e000}', '\u{feff}']
        {
            assert!(!is_printable(c), "{c:?}");
        }
    }
}
