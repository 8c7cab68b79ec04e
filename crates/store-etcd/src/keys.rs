//! How keys of the contract and keys of the cluster map: one folder each, the rest is the same.

use bytes::Bytes;
use keelson_store::prefix_end;

/// Rest of the key by whose writing a watch learns how far it has come, where etcd cannot tell (see
/// `watch`). It is shown to nobody.
const MARKER: &[u8] = b"keelson/progress";

/// A folder of the contract and the folder of the cluster that holds it.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    root: Bytes,
    prefix: Bytes,
}

impl Keys {
    pub(crate) fn new(root: Bytes, prefix: Bytes) -> Self {
        Self { root, prefix }
    }

    /// The cluster's key. A key outside of the folder is the caller's fault.
    pub(crate) fn to_cluster(&self, key: &[u8]) -> Bytes {
        let rest = key.strip_prefix(&self.root[..]);
        let rest = rest.expect("the keys of a store lie in the folder that it was opened with");
        [&self.prefix[..], rest].concat().into()
    }

    /// The contract's key; `None` for what the contract does not show.
    pub(crate) fn to_contract(&self, key: &Bytes) -> Option<Bytes> {
        let rest = key.strip_prefix(&self.prefix[..]).filter(|rest| *rest != MARKER)?;
        if self.root == self.prefix {
            return Some(key.clone());
        }
        Some([&self.root[..], rest].concat().into())
    }

    /// The cluster's range for one of the contract (an empty end is none); `None` when it is empty.
    pub(crate) fn range(&self, start: &[u8], end: &[u8]) -> Option<(Bytes, Bytes)> {
        let (first, last) = self.whole();
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

    /// The range of the whole folder in the cluster.
    pub(crate) fn whole(&self) -> (Bytes, Bytes) {
        (self.prefix.clone(), prefix_end(&self.prefix))
    }

    /// The cluster's key for markers of progress.
    pub(crate) fn marker(&self) -> Bytes {
        [&self.prefix[..], MARKER].concat().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(root: &str, prefix: &str) -> Keys {
        Keys::new(root.to_owned().into(), prefix.to_owned().into())
    }

    #[test]
    fn keys_keep_what_follows_the_folder() {
        let keys = keys("/registry/", "/other/");
        let there = keys.to_cluster(b"/registry/pods/a/b");
        assert_eq!(there, "/other/pods/a/b");
        assert_eq!(keys.to_contract(&there).expect("in the folder"), "/registry/pods/a/b");
        assert_eq!(keys.to_contract(&"/registry/pods/a/b".into()), None);
        assert_eq!(keys.to_contract(&keys.marker()), None);
    }

    #[test]
    fn ranges_are_cut_to_the_folder() {
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
