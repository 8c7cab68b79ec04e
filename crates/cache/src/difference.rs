//! How one text differs from another of which most is the same: two versions of an object.
//!
//! ```text
//! difference = { literal skip copy }      literal = length(varint) bytes
//! ```
//!
//! The old text is made by going through the new one: the literal stands where `skip` bytes of the new text do,
//! and `copy` bytes of that follow. Compression with the new text as dictionary makes less of it, but needs
//! tables that are larger than most objects.

use crate::varint::{read_varint, write_varint};
use memchr::memmem;

/// So many bytes must be the same for two texts to meet again after as much was replaced by as much.
const SAME_BYTES_MIN: usize = 8;
/// And so many where more was replaced by less, or less by more.
const FOUND_BYTES_MIN: usize = 16;
/// How far ahead is looked for them.
const REPLACED_BYTES_MAX: usize = 64;
const WINDOW_BYTES: usize = 2048;
/// How often, for one difference. The rest is taken for different, but for the end.
const LOOKS_MAX: usize = 64;

/// Appends to `out` how `old` differs from `new`.
pub(crate) fn write(old: &[u8], new: &[u8], out: &mut Vec<u8>) {
    let (mut old, mut new, mut looks) = (old, new, LOOKS_MAX);
    let (mut literal, mut skip) = (&old[..0], 0);
    loop {
        let same = same_at_start(old, new);
        write_varint(literal.len(), out);
        out.extend_from_slice(literal);
        write_varint(skip, out);
        write_varint(same, out);
        (old, new) = (&old[same..], &new[same..]);
        if old.is_empty() {
            return;
        }
        let (replaced, by) = meet(old, new, &mut looks).unwrap_or_else(|| {
            let end = same_at_end(old, new);
            (old.len() - end, new.len() - end)
        });
        (literal, old) = old.split_at(replaced);
        (skip, new) = (by, &new[by..]);
    }
}

/// The text that differs so from `new`, appended to `out`; `None` when it is not one that [`write`] made.
pub(crate) fn apply(difference: &[u8], new: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (mut at, mut from) = (0, 0_usize);
    while at < difference.len() {
        let literal = read_varint(difference, &mut at)?;
        out.extend_from_slice(difference.get(at..at.checked_add(literal)?)?);
        at += literal;
        from = from.checked_add(read_varint(difference, &mut at)?)?;
        let end = from.checked_add(read_varint(difference, &mut at)?)?;
        out.extend_from_slice(new.get(from..end)?);
        from = end;
    }
    Some(())
}

/// After how many bytes of each the two are the same again.
fn meet(old: &[u8], new: &[u8], looks: &mut usize) -> Option<(usize, usize)> {
    let is_same = |at: &usize| old[*at..*at + SAME_BYTES_MIN] == new[*at..*at + SAME_BYTES_MIN];
    let end = (old.len().min(new.len()) + 1).saturating_sub(SAME_BYTES_MIN);
    if let Some(at) = (1..end.min(REPLACED_BYTES_MAX)).find(is_same) {
        return Some((at, at));
    }
    let ahead = |text: &[u8]| text.len().min(WINDOW_BYTES);
    let (old, new) = (&old[..ahead(old)], &new[..ahead(new)]);
    for at in 0..*looks {
        *looks -= 1;
        let wanted = at..at + FOUND_BYTES_MIN;
        if let Some(by) = old.get(wanted.clone()).and_then(|wanted| memmem::find(new, wanted)) {
            return Some((at, by));
        }
        if let Some(replaced) = new.get(wanted).and_then(|wanted| memmem::find(old, wanted)) {
            return Some((replaced, at));
        }
    }
    None
}

fn same_at_start(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<16>().0.iter().zip(b.as_chunks::<16>().0);
    let same = 16 * words.take_while(|(a, b)| a == b).count();
    same + a[same..].iter().zip(&b[same..]).take_while(|(a, b)| a == b).count()
}

fn same_at_end(a: &[u8], b: &[u8]) -> usize {
    a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn check(old: &str, new: &str) -> usize {
        let (mut difference, mut made) = (vec![], vec![]);
        write(old.as_bytes(), new.as_bytes(), &mut difference);
        assert_eq!(apply(&difference, new.as_bytes(), &mut made), Some(()), "{old} {new}");
        assert_eq!(String::from_utf8_lossy(&made), old);
        difference.len()
    }

    /// A text of many members, none like another.
    fn members(count: usize) -> String {
        (0..count).map(|n| format!(r#""member-{n}":{{"is":{}}},"#, n * n * 7919)).collect()
    }

    #[test]
    fn what_was_changed_is_all_that_is_kept() {
        let text = members(60);
        assert!(check(&text, &text) <= 5);
        let middle = text.find(r#""member-30""#).unwrap();
        let (front, back) = text.split_at(middle);
        for (old, new, most) in [
            // As much for as much, more for less, less for more, nothing for something and the other way.
            ("2026-11-21T10:00:00Z", "2026-11-21T10:00:07Z", 32),
            ("99", "100", 16),
            ("1000000", "7", 20),
            ("", r#""added":{"a":"b"},"#, 12),
            (r#""removed":{"a":"b"},"#, "", 40),
            ("", &members(9).replace("member", "other"), 12),
        ] {
            let (old, new) = (format!("{front}{old}{back}"), format!("{front}{new}{back}"));
            let size = check(&old, &new);
            assert!(size <= most, "{size} for {most}");
        }
        // Here and there.
        let old = text.replace(r#""is":7919}"#, r#""is":1}"#).replace("member-50", "member-fifty");
        assert!(check(&old, &text) < 60);
        // All of it but the ends.
        let other = members(60).to_uppercase();
        assert!(
            check(&format!("{front}{other}{back}"), &format!("{front}{back}")) < other.len() + 30
        );
    }

    #[test]
    fn any_text_can_be_made_from_any_other() {
        let mut random = Random(5);
        let mut below = |end: usize| random.below(end as u64) as usize;
        for turn in 0..3_000 {
            let letters = [2, 3, 26][turn % 3];
            let mut text = |most: usize| -> String {
                (0..below(most)).map(|_| char::from(b'a' + below(letters) as u8)).collect()
            };
            let (shared, parts) = (text(300), [text(60), text(60), text(20), text(20)]);
            let [a, b, c, d] = &parts;
            let cut = shared.len() / 3;
            let (front, back) = shared.split_at(cut);
            check(&format!("{a}{front}{c}{back}{b}"), &format!("{b}{front}{d}{back}"));
            check(&shared, a);
        }
        check("", "");
        check("", "abc");
        check("abc", "");
    }

    #[test]
    fn what_is_no_difference_makes_nothing() {
        let mut difference = vec![];
        write(b"some text, and more", b"some text", &mut difference);
        for length in 0..difference.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut broken = difference.clone();
                broken[length] = byte;
                let _ = apply(&broken, b"some text", &mut vec![]);
            }
            let _ = apply(&difference[..length], b"some text", &mut vec![]);
        }
        assert_eq!(apply(&difference, b"some", &mut vec![]), None);
    }
}
