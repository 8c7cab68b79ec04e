//! Keys of the store and the prefixes below which they lie.

use bytes::Bytes;
use std::collections::HashMap;

/// What is kept for prefixes of keys. Each ends with a slash, has at most [`SLASHES_MAX`] of them, and is no prefix
/// of another.
pub type PrefixMap<T> = HashMap<Bytes, T, foldhash::fast::RandomState>;

/// Slashes of a prefix: those of `/registry/GROUP/RESOURCE/`.
const SLASHES_MAX: usize = 4;

/// What is kept for the prefix of a key.
pub fn by_prefix<'m, T>(map: &'m PrefixMap<T>, key: &[u8]) -> Option<&'m T> {
    let slashes = key.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.take(SLASHES_MAX).find_map(|(at, _)| map.get(&key[..=at]))
}

/// The prefix of the keys of a custom resource, `/registry/GROUP/RESOURCE/`, when a key is one of those: their
/// groups have a dot, which the places of built-in resources beside them have not.
pub fn custom_prefix<'k>(root: &[u8], key: &'k [u8]) -> Option<&'k [u8]> {
    let rest = key.strip_prefix(root)?;
    let group = rest.iter().position(|byte| *byte == b'/')?;
    let resource = rest[group + 1..].iter().position(|byte| *byte == b'/')?;
    let is_custom = rest[..group].contains(&b'.') && resource > 0;
    is_custom.then(|| &key[..root.len() + group + 1 + resource + 1])
}

/// Whether a key begins with a prefix. Of an empty one no byte is looked at: where it is said to be there may be
/// nothing, and vector instructions that look there, if only at no byte, take fifty times as long as they should.
pub fn begins_with(key: &[u8], prefix: &[u8]) -> bool {
    prefix.is_empty() || key.starts_with(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_custom_resources_begin_with_group_and_resource() {
        let check = |key: &str, want: Option<&str>| {
            let found = custom_prefix(b"/registry/", key.as_bytes());
            assert_eq!(found, want.map(str::as_bytes), "{key}");
        };
        check("/registry/example.com/widgets/ns/a", Some("/registry/example.com/widgets/"));
        check("/registry/example.com/widgets/", Some("/registry/example.com/widgets/"));
        check("/registry/example.com/widgets", None);
        check("/registry/example.com//a", None);
        check("/registry/pods/ns.x/a", None);
        check("/registry/example.com", None);
        check("/other/example.com/widgets/a", None);
    }

    #[test]
    fn a_key_belongs_to_the_prefix_that_it_begins_with() {
        let map = ["/r/apps/", "/r/pods/", "/r/services/endpoints/", "/r/services/specs/"]
            .map(|prefix| (Bytes::from_static(prefix.as_bytes()), prefix));
        let map = PrefixMap::from_iter(map);
        let check = |key: &str, want: Option<&str>| {
            assert_eq!(by_prefix(&map, key.as_bytes()).copied(), want, "{key}");
        };
        check("/r/pods/", Some("/r/pods/"));
        check("/r/pods/default/a", Some("/r/pods/"));
        check("/r/services/specs/a/b/c", Some("/r/services/specs/"));
        check("/r/services/a/b", None);
        check("/r/pods", None);
        check("/r/podsx/a", None);
        check("/a", None);
        check("", None);
    }
}
