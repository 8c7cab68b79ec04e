//! Ranges of keys as etcd's requests give them.

use bytes::Bytes;
use keelson_store::{Range, Revision, key_after};

/// The keys from `start` on and before `end`; an empty `end` means no end, as in the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interval {
    pub start: Bytes,
    pub end: Bytes,
}

impl Interval {
    /// Reads `key` and `range_end` of a request: an empty end means one key, a zero byte no end.
    pub(crate) fn new(key: &Bytes, range_end: &Bytes) -> Self {
        let end = match &range_end[..] {
            b"" => key_after(key),
            b"\0" => Bytes::new(),
            _ => range_end.clone(),
        };
        Self { start: key.clone(), end }
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && (self.end.is_empty() || key < &self.end[..])
    }

    /// Returns whether it has at most one key.
    pub(crate) fn is_single(&self) -> bool {
        self.end.strip_suffix(b"\0").is_some_and(|key| key == self.start)
    }

    /// Returns the range to read from the store.
    pub(crate) fn range(&self, limit: usize, at: Option<Revision>) -> Range {
        Range { start: self.start.clone(), end: self.end.clone(), limit, at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_request_has_three_meanings() {
        let check = |end: &'static str, keys: [bool; 4]| {
            let interval = Interval::new(&"b".into(), &end.into());
            let found = ["a", "b", "b\0", "z"].map(|key| interval.contains(key.as_bytes()));
            assert_eq!(found, keys, "{end:?}");
            assert_eq!(interval.is_single(), end.is_empty());
        };
        check("", [false, true, false, false]);
        check("\0", [false, true, true, true]);
        check("c", [false, true, true, false]);
        check("a", [false, false, false, false]);
    }
}
