//! Maps from the key prefix of a resource to its state.

use bytes::Bytes;
use std::collections::HashMap;

/// Values by key prefix. Each prefix ends with a slash, has at most [`SLASHES_MAX`] slashes, and is
/// no prefix of another.
pub type PrefixMap<T> = HashMap<Bytes, T, foldhash::fast::RandomState>;

/// Slashes in a prefix, as in `/registry/GROUP/RESOURCE/`.
const SLASHES_MAX: usize = 4;

/// Returns the value for the prefix of `key`.
pub fn get_by_prefix<'m, T>(map: &'m PrefixMap<T>, key: &[u8]) -> Option<&'m T> {
    let slashes = key.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.take(SLASHES_MAX).find_map(|(at, _)| map.get(&key[..=at]))
}

/// Returns the prefix `/registry/GROUP/RESOURCE/` when `key` belongs to a custom resource. Their
/// groups contain a dot; the second segment of a built-in resource's key does not.
pub fn custom_prefix<'k>(root: &[u8], key: &'k [u8]) -> Option<&'k [u8]> {
    let rest = key.strip_prefix(root)?;
    let group = rest.iter().position(|byte| *byte == b'/')?;
    let resource = rest[group + 1..].iter().position(|byte| *byte == b'/')?;
    let is_custom = rest[..group].contains(&b'.') && resource > 0;
    is_custom.then(|| &key[..root.len() + group + 1 + resource + 1])
}

/// Returns whether `key` starts with `prefix`. Comparing empty slices would call memcmp on an
/// unmapped address, which costs about fifty times as much; skip it.
#[inline]
pub fn starts_with(key: &[u8], prefix: &[u8]) -> bool {
    prefix.is_empty() || key.starts_with(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_custom_resources_begin_with_group_and_resource() {
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
    fn keys_map_to_their_prefix() {
        let map = ["/r/apps/", "/r/pods/", "/r/services/endpoints/", "/r/services/specs/"]
            .map(|prefix| (Bytes::from_static(prefix.as_bytes()), prefix));
        let map = PrefixMap::from_iter(map);
        let check = |key: &str, want: Option<&str>| {
            assert_eq!(get_by_prefix(&map, key.as_bytes()).copied(), want, "{key}");
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
