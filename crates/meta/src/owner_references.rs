//! Duplicate owner references (apiserver `handlers/create.go`).

use crate::{Object, Str, Value};
use std::collections::HashSet;

/// Up to this number, references are compared pairwise.
const LINEAR_REFERENCES_MAX: usize = 16;

/// Removes owner references that equal an earlier one and returns the warning.
pub fn dedup(obj: &mut Object) -> Vec<Str> {
    dedup_when(obj, "")
}

/// Like [`dedup`], with the warning for references after mutating admission.
pub fn dedup_patched(obj: &mut Object) -> Vec<Str> {
    dedup_when(obj, " after mutating admission happens")
}

fn dedup_when(obj: &mut Object, when: &str) -> Vec<Str> {
    if obj.array_at(&["metadata", "ownerReferences"]).len() < 2 {
        return vec![];
    }
    let Some(Value::Array(references)) = obj.metadata_mut().get_mut("ownerReferences") else {
        return vec![];
    };
    let is_long = references.len() > LINEAR_REFERENCES_MAX;
    let mut seen: HashSet<Key> = HashSet::new();
    let mut kept: Vec<Value> = Vec::with_capacity(references.len());
    let mut dropped: Vec<Str> = vec![];
    for reference in references.drain(..) {
        let is_known =
            if is_long { !seen.insert(key(&reference)) } else { kept.contains(&reference) };
        if is_known {
            dropped.push(reference.str_at(&["uid"]).unwrap_or_default().into());
        } else {
            kept.push(reference);
        }
    }
    *references = kept;
    if dropped.is_empty() {
        return vec![];
    }
    vec![Str::from(format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in \
         1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate \
         UID(s) observed: {}",
        dropped.join(", ")
    ))]
}

/// All fields of a reference, as a hash key.
type Key = ([Str; 4], [Option<bool>; 2]);

fn key(reference: &Value) -> Key {
    let text = |name| match reference.get(name) {
        Some(Value::String(text)) => text.clone(),
        _ => Str::default(),
    };
    let flag = |name| reference.get(name).and_then(Value::as_bool);
    (
        ["apiVersion", "kind", "name", "uid"].map(text),
        ["controller", "blockOwnerDeletion"].map(flag),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    /// Long lists use a hash set, short ones do not.
    #[test]
    fn duplicate_references_are_removed() {
        for count in [4, 40] {
            let reference = |at: usize| {
                let mut one = value!({"apiVersion": "v1", "kind": "Pod", "name": "p"});
                let map = one.as_object_mut().expect("a map");
                map.insert("uid", format!("u{}", at % (count / 2)));
                if at == 0 {
                    map.insert("controller", true);
                }
                one
            };
            let mut obj = Object::new();
            let all: Vec<Value> = (0..count).map(reference).collect();
            obj.metadata_mut().insert("ownerReferences", all);
            let warnings = dedup(&mut obj);
            // The first one and its duplicates differ in `controller`.
            assert_eq!(obj.array_at(&["metadata", "ownerReferences"]).len(), count / 2 + 1);
            let dropped = warnings[0].rsplit(": ").next().map(|uids| uids.split(", ").count());
            assert_eq!(dropped, Some(count / 2 - 1), "{warnings:?}");
        }
    }
}
