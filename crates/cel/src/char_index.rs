//! Finds characters of texts by number. `made` is the text itself if the evaluation made it. What
//! was found out about a long text is remembered during the evaluation, so that a loop over its
//! characters takes linear time.

use crate::meter;
use keelson_meta::Str;
use std::cell::RefCell;

/// Texts up to this length are read at each use.
const SHORT_BYTES_MAX: usize = 256;

/// Every so many characters the place in a text is remembered.
const CHARS_PER_MARK: usize = 256;

/// Maximum number of texts that are remembered.
const TEXTS_MAX: usize = 8;

/// A long text.
struct Known {
    address: usize,
    bytes: usize,
    chars: usize,
    /// Byte offsets of each [`CHARS_PER_MARK`]th character; empty if all characters are ASCII.
    marks: Vec<usize>,
    /// Keeps a text that the evaluation made, so that no other text gets its address. Other texts
    /// exist until the end of the evaluation.
    _made: Option<Str>,
}

thread_local! {
    /// The texts of the current evaluation, and which one is replaced next.
    static TEXTS: RefCell<(Vec<Known>, usize)> = const { RefCell::new((Vec::new(), 0)) };
}

/// Forgets all texts, at the start and at the end of an evaluation.
pub(crate) fn forget() {
    TEXTS.take();
}

/// Returns the number of characters.
#[inline]
pub(crate) fn count(content: &str, made: Option<&Str>) -> usize {
    if content.len() <= SHORT_BYTES_MAX {
        return content.chars().count();
    }
    with(content, made, |known| known.chars)
}

/// Returns the byte offset of the character at index `at`; the end of the text is a valid index.
pub(crate) fn offset(content: &str, made: Option<&Str>, at: usize) -> Option<usize> {
    if content.len() <= SHORT_BYTES_MAX {
        return nth(content, at);
    }
    with(content, made, |known| {
        if at > known.chars {
            return None;
        }
        let Some(mark) = known.marks.get(at / CHARS_PER_MARK) else {
            return Some(if known.marks.is_empty() { at } else { known.bytes });
        };
        nth(&content[*mark..], at % CHARS_PER_MARK).map(|rest| mark + rest)
    })
}

/// Returns the number of characters before a byte offset.
pub(crate) fn before(content: &str, made: Option<&Str>, offset: usize) -> usize {
    if content.len() <= SHORT_BYTES_MAX {
        return content[..offset].chars().count();
    }
    with(content, made, |known| {
        let marks = known.marks.partition_point(|mark| *mark <= offset);
        let Some(last) = marks.checked_sub(1) else { return offset };
        last * CHARS_PER_MARK + content[known.marks[last]..offset].chars().count()
    })
}

fn nth(text: &str, at: usize) -> Option<usize> {
    text.char_indices().map(|(place, _)| place).chain([text.len()]).nth(at)
}

fn with<T>(content: &str, made: Option<&Str>, read: impl FnOnce(&Known) -> T) -> T {
    let address = content.as_ptr() as usize;
    let bytes = content.len();
    TEXTS.with_borrow_mut(|(texts, next)| {
        let found = texts.iter().position(|known| known.address == address && known.bytes == bytes);
        let at = found.unwrap_or_else(|| {
            meter::remember();
            let known = Known::new(content, made);
            if texts.len() < TEXTS_MAX {
                texts.push(known);
                return texts.len() - 1;
            }
            let at = *next;
            *next = (at + 1) % TEXTS_MAX;
            texts[at] = known;
            at
        });
        read(&texts[at])
    })
}

impl Known {
    fn new(content: &str, made: Option<&Str>) -> Known {
        // The next work that is counted ends the evaluation if this is too much.
        let _ = meter::read(content.len());
        let chars = content.chars().count();
        let marks = match chars == content.len() {
            true => vec![],
            false => content.char_indices().step_by(CHARS_PER_MARK).map(|(at, _)| at).collect(),
        };
        let address = content.as_ptr() as usize;
        Known { address, bytes: content.len(), chars, marks, _made: made.cloned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_of_long_texts_are_found_as_in_short_ones() {
        let texts = ["a", "é", "日", "aé日𝄞"].map(|part| part.repeat(1200));
        for content in texts.iter().chain([&"ab".repeat(600), &format!("{}é", "a".repeat(511))]) {
            let copy = Str::from(content.as_str());
            for (text, made) in [(content.as_str(), None), (copy.as_str(), Some(&copy))] {
                let chars = content.chars().count();
                assert_eq!(count(text, made), chars);
                for at in (0..chars + 2).step_by(7).chain([0, 255, 256, 257, chars, chars + 1]) {
                    let expected = nth(content, at);
                    assert_eq!(offset(text, made, at), expected, "{at} of {chars}");
                    if let Some(place) = expected {
                        assert_eq!(before(text, made, place), at);
                    }
                }
            }
        }
        forget();
    }
}
