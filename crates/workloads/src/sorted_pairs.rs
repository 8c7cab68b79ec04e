//! Sorted pairs: labels and their like.

use keelson_meta::{Object, Str};

/// Returns the labels of an object, sorted by key.
pub fn labels_of(object: &Object) -> Vec<(Str, Str)> {
    let mut labels: Vec<(Str, Str)> =
        object.meta_map("labels").map(|(key, text)| (Str::new(key), Str::new(text))).collect();
    labels.sort_unstable();
    labels
}

/// Returns the value of a key in sorted pairs.
pub fn find<'a>(pairs: &'a [(Str, Str)], key: &str) -> Option<&'a str> {
    let place = pairs.binary_search_by(|(known, _)| known.as_str().cmp(key)).ok()?;
    Some(&pairs[place].1)
}
