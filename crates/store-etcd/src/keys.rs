//! Mapping between store keys and etcd keys: they differ in their prefix.

use bytes::Bytes;
use keelson_store::prefix_end;

/// Rest of the key that a watch writes to learn its progress if etcd cannot report it (see
/// `watch`). Reads and watches hide it.
const PROGRESS_KEY: &[u8] = b"keelson/progress";

/// The prefix of store keys and the corresponding prefix of etcd keys.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    root: Bytes,
    prefix: Bytes,
}

impl Keys {
    pub(crate) fn new(root: Bytes, prefix: Bytes) -> Self {
        Self { root, prefix }
    }

    /// Returns the etcd key of a store key. Panics if the key does not begin with `root`.
    pub(crate) fn to_etcd(&self, key: &[u8]) -> Bytes {
        let rest = key
            .strip_prefix(&self.root[..])
            .expect("the keys of a store lie in the folder that it was opened with");
        [&self.prefix[..], rest].concat().into()
    }

    /// Returns the store key of an etcd key, or `None` if it is hidden or does not begin with
    /// `prefix`.
    pub(crate) fn to_store(&self, key: &Bytes) -> Option<Bytes> {
        let rest = key.strip_prefix(&self.prefix[..]).filter(|rest| *rest != PROGRESS_KEY)?;
        if self.root == self.prefix {
            return Some(key.clone());
        }
        Some([&self.root[..], rest].concat().into())
    }

    /// Returns the etcd range of a store range (an empty end means no end), or `None` if it is
    /// empty.
    pub(crate) fn range(&self, start: &[u8], end: &[u8]) -> Option<(Bytes, Bytes)> {
        let (first, last) = self.full_range();
        let first = match start.strip_prefix(&self.root[..]) {
            Some(rest) => [&first[..], rest].concat().into(),
            None if start < &self.root[..] => first,
            None => return None,
        };
        let last = match end.strip_prefix(&self.root[..]) {
            _ if end.is_empty() => last,
            Some(rest) => [&self.prefix[..], rest].concat().into(),
            None if end < &self.root[..] => return None,
            None => last,
        };
        (first < last).then_some((first, last))
    }

    /// Returns the range of all etcd keys of the store.
    pub(crate) fn full_range(&self) -> (Bytes, Bytes) {
        (self.prefix.clone(), prefix_end(&self.prefix))
    }

    /// Returns the etcd key that watches write to learn their progress.
    pub(crate) fn progress_key(&self) -> Bytes {
        [&self.prefix[..], PROGRESS_KEY].concat().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(root: &str, prefix: &str) -> Keys {
        Keys::new(root.to_owned().into(), prefix.to_owned().into())
    }

    #[test]
    fn keys_keep_the_part_after_the_prefix() {
        let keys = keys("/registry/", "/other/");
        let etcd_key = keys.to_etcd(b"/registry/pods/a/b");
        assert_eq!(etcd_key, "/other/pods/a/b");
        assert_eq!(keys.to_store(&etcd_key).expect("in the folder"), "/registry/pods/a/b");
        assert_eq!(keys.to_store(&"/registry/pods/a/b".into()), None);
        assert_eq!(keys.to_store(&keys.progress_key()), None);
    }

    #[test]
    fn ranges_are_limited_to_the_prefix() {
        let keys = keys("/registry/", "/other/");
        let checks = [
            ("/registry/pods/", "/registry/pods0", Some(("/other/pods/", "/other/pods0"))),
            ("/registry/", "", Some(("/other/", "/other0"))),
            ("", "", Some(("/other/", "/other0"))),
            ("/", "/registry/b", Some(("/other/", "/other/b"))),
            ("/registry/b", "/z", Some(("/other/b", "/other0"))),
            ("/registry0", "", None),
            ("/a", "/b", None),
            ("/registry/b", "/registry/a", None),
        ];
        for (start, end, expected) in checks {
            let got = keys.range(start.as_bytes(), end.as_bytes());
            let expected = expected.map(|(start, end)| (start.into(), end.into()));
            assert_eq!(got, expected, "{start}..{end}");
        }
    }
}
