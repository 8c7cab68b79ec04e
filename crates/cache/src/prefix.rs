//! Keys of the store and the prefixes below which they lie.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

/// What is kept for the prefix of a key. No prefix may be a prefix of another.
pub fn by_prefix<'m, T>(map: &'m BTreeMap<Bytes, T>, key: &[u8]) -> Option<&'m T> {
    let up_to_key = (Bound::Unbounded, Bound::Included(key));
    let (prefix, found) = map.range::<[u8], _>(up_to_key).next_back()?;
    key.starts_with(prefix).then_some(found)
}

/// Whether a key begins with a prefix. Of an empty one no byte is looked at: where it is said to be there may be
/// nothing, and vector instructions that look there, if only at no byte, take fifty times as long as they should.
pub fn begins_with(key: &str, prefix: &str) -> bool {
    prefix.is_empty() || key.starts_with(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_the_prefix_that_it_begins_with() {
        let map = ["/r/apps/", "/r/pods/", "/r/secrets/"]
            .map(|prefix| (Bytes::from_static(prefix.as_bytes()), prefix));
        let map = BTreeMap::from(map);
        let check = |key: &str, want: Option<&str>| {
            assert_eq!(by_prefix(&map, key.as_bytes()).copied(), want, "{key}");
        };
        check("/r/pods/", Some("/r/pods/"));
        check("/r/pods/default/a", Some("/r/pods/"));
        check("/r/secrets/zz", Some("/r/secrets/"));
        check("/r/pods", None);
        check("/r/podsx/a", None);
        check("/a", None);
        check("", None);
    }
}
