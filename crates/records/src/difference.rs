//! Binary differences between two texts that are mostly equal: two versions of an object.
//!
//! ```text
//! difference = { literal skip copy }      literal = length(varint) bytes
//! ```
//!
//! The old text is rebuilt in one pass over the new text: write the literal, skip `skip` bytes of
//! the new text, then copy `copy` bytes of it. Compression with the new text as dictionary would be
//! smaller, but its tables are larger than most objects.

use crate::varint::{read_varint, write_varint};
use memchr::memmem;

/// After a replacement of equal length, this many equal bytes end a difference.
const ALIGNED_MATCH_BYTES_MIN: usize = 8;
/// After an insertion or a deletion, this many equal bytes end a difference.
const MATCH_BYTES_MIN: usize = 16;
/// How far ahead a replacement of equal length is searched.
const REPLACEMENT_BYTES_MAX: usize = 64;
/// How far ahead a replacement of nearly equal length is searched, and by how much it may differ.
const SHIFTED_BYTES_MAX: usize = 24;
const SHIFT_MAX: usize = 4;
const WINDOW_BYTES: usize = 2048;
/// Maximum number of searches in one difference. The rest counts as different, except for a common
/// suffix.
const SEARCHES_MAX: usize = 64;

/// Appends to `out` the difference of `old` from `new`.
pub(crate) fn write(old: &[u8], new: &[u8], out: &mut Vec<u8>) {
    write_below(old, new, out, usize::MAX);
}

/// Like [`write`], but gives up as soon as `out` is longer than `end`, and returns whether it is
/// whole.
pub(crate) fn write_below(old: &[u8], new: &[u8], out: &mut Vec<u8>, end: usize) -> bool {
    let mut old = old;
    let mut new = new;
    let mut searches = SEARCHES_MAX;
    let mut literal = &old[..0];
    let mut skip = 0;
    loop {
        let same = common_prefix_len(old, new);
        write_varint(literal.len(), out);
        out.extend_from_slice(literal);
        if out.len() > end {
            return false;
        }
        write_varint(skip, out);
        write_varint(same, out);
        (old, new) = (&old[same..], &new[same..]);
        if old.is_empty() {
            return true;
        }
        let (replaced, by) = resynchronize(old, new, &mut searches).unwrap_or_else(|| {
            let end = common_suffix_len(old, new);
            (old.len() - end, new.len() - end)
        });
        (literal, old) = old.split_at(replaced);
        (skip, new) = (by, &new[by..]);
    }
}

/// Rebuilds the old text from `new` and appends it to `out`; `None` when [`write`] did not produce
/// `difference`.
pub(crate) fn apply(difference: &[u8], new: &[u8], out: &mut Vec<u8>) -> Option<()> {
    for_each_piece(difference, new, |piece| out.extend_from_slice(piece))
}

/// Like [`apply`], but passes on the old text piece by piece.
pub(crate) fn for_each_piece(
    difference: &[u8],
    new: &[u8],
    mut pass_on: impl FnMut(&[u8]),
) -> Option<()> {
    let mut at = 0;
    let mut from = 0_usize;
    while at < difference.len() {
        let literal = read_varint(difference, &mut at)?;
        pass_on(difference.get(at..at.checked_add(literal)?)?);
        at += literal;
        from = from.checked_add(read_varint(difference, &mut at)?)?;
        let end = from.checked_add(read_varint(difference, &mut at)?)?;
        pass_on(new.get(from..end)?);
        from = end;
    }
    Some(())
}

/// Returns after how many bytes of each the texts are equal again.
fn resynchronize(old: &[u8], new: &[u8], searches: &mut usize) -> Option<(usize, usize)> {
    let is_same = |at: &usize| {
        old[*at..*at + ALIGNED_MATCH_BYTES_MIN] == new[*at..*at + ALIGNED_MATCH_BYTES_MIN]
    };
    let end = (old.len().min(new.len()) + 1).saturating_sub(ALIGNED_MATCH_BYTES_MIN);
    if let Some(at) = (1..end.min(REPLACEMENT_BYTES_MAX)).find(is_same) {
        return Some((at, at));
    }
    if let Some(found) = shifted(old, new) {
        return Some(found);
    }
    let ahead = |text: &[u8]| text.len().min(WINDOW_BYTES);
    let old = &old[..ahead(old)];
    let new = &new[..ahead(new)];
    for at in 0..*searches {
        *searches -= 1;
        let wanted = at..at + MATCH_BYTES_MIN;
        if let Some(by) = old.get(wanted.clone()).and_then(|wanted| memmem::find(new, wanted)) {
            return Some((at, by));
        }
        if let Some(replaced) = new.get(wanted).and_then(|wanted| memmem::find(old, wanted)) {
            return Some((replaced, at));
        }
    }
    None
}

/// Like [`resynchronize`], for a short text that was replaced by one that is a little longer or
/// shorter, such as a number: without a search.
fn shifted(old: &[u8], new: &[u8]) -> Option<(usize, usize)> {
    let word = |text: &[u8], at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(*text.get(at..)?.first_chunk()?))
    };
    let is_same = |(a, b): (usize, usize)| {
        let in_old = old.get(a..a + MATCH_BYTES_MIN);
        in_old.is_some() && in_old == new.get(b..b + MATCH_BYTES_MIN)
    };
    (0..SHIFTED_BYTES_MAX).find_map(|at| {
        let in_old = word(old, at)?;
        let in_new = word(new, at)?;
        (1..=SHIFT_MAX).find_map(|by| {
            let longer = (word(old, at + by) == Some(in_new)).then_some((at + by, at));
            let shorter = || (word(new, at + by) == Some(in_old)).then_some((at, at + by));
            longer.filter(|at| is_same(*at)).or_else(|| shorter().filter(|at| is_same(*at)))
        })
    })
}

fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<16>().0.iter().zip(b.as_chunks::<16>().0);
    let same = 16 * words.take_while(|(a, b)| a == b).count();
    same + a[same..].iter().zip(&b[same..]).take_while(|(a, b)| a == b).count()
}

fn common_suffix_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn check(old: &str, new: &str) -> usize {
        let mut difference = vec![];
        let mut made = vec![];
        write(old.as_bytes(), new.as_bytes(), &mut difference);
        assert_eq!(apply(&difference, new.as_bytes(), &mut made), Some(()), "{old} {new}");
        assert_eq!(String::from_utf8_lossy(&made), old);
        difference.len()
    }

    /// Returns a text of many members, all different.
    fn members(count: usize) -> String {
        (0..count).map(|n| format!(r#""member-{n}":{{"is":{}}},"#, n * n * 7919)).collect()
    }

    #[test]
    fn a_difference_contains_only_the_change() {
        let text = members(60);
        assert!(check(&text, &text) <= 5);
        let middle = text.find(r#""member-30""#).unwrap();
        let (front, back) = text.split_at(middle);
        for (old, new, most) in [
            // Replacements of equal and unequal length, insertions and deletions.
            ("2026-11-21T10:00:00Z", "2026-11-21T10:00:07Z", 32),
            ("99", "100", 16),
            ("1000000", "7", 20),
            ("", r#""added":{"a":"b"},"#, 12),
            (r#""removed":{"a":"b"},"#, "", 40),
            ("", &members(9).replace("member", "other"), 12),
        ] {
            let old = format!("{front}{old}{back}");
            let new = format!("{front}{new}{back}");
            let size = check(&old, &new);
            assert!(size <= most, "{size} for {most}");
        }
        // Several places.
        let old = text.replace(r#""is":7919}"#, r#""is":1}"#).replace("member-50", "member-fifty");
        assert!(check(&old, &text) < 60);
        // Everything but the ends.
        let other = members(60).to_uppercase();
        assert!(
            check(&format!("{front}{other}{back}"), &format!("{front}{back}")) < other.len() + 30
        );
    }

    #[test]
    fn any_text_has_a_difference_from_any_other() {
        let mut random = Random(5);
        let mut below = |end: usize| random.below(end as u64) as usize;
        for turn in 0..3_000 {
            let letters = [2, 3, 26][turn % 3];
            let mut text = |most: usize| -> String {
                (0..below(most)).map(|_| char::from(b'a' + below(letters) as u8)).collect()
            };
            let shared = text(300);
            let parts = [text(60), text(60), text(20), text(20)];
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
    fn an_invalid_difference_is_not_applied() {
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
