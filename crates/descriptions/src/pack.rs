//! Texts as few bytes: each text once, and an index.

use super::Texts;
use std::collections::HashMap;
use std::fmt::Write;

/// How hard to press; more costs time in each build and gains little.
const LEVEL: u8 = 8;

/// The texts as a raw deflate stream of: all texts, each followed by the byte 1; the byte 2; the
/// index: a line a type, `NAME` and its entries with a space in between, an entry being
/// `MEMBER=PLACE` where the place is that of the text among all texts and the member is empty for
/// the type itself.
pub fn pack(texts: &Texts) -> Vec<u8> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut all = String::new();
    let mut index = String::new();
    for (name, members) in texts {
        index.push_str(name);
        for (member, text) in members {
            let next = places.len();
            let place = *places.entry(text).or_insert(next);
            if place == next {
                all.extend(text.chars().filter(|c| *c > '\u{2}'));
                all.push('\u{1}');
            }
            write!(index, " {member}={place}").expect("a string takes all text");
        }
        index.push('\n');
    }
    all.push('\u{2}');
    all.push_str(&index);
    miniz_oxide::deflate::compress_to_vec(all.as_bytes(), LEVEL)
}
