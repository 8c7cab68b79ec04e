//! Owner references that stand twice (apiserver `handlers/create.go`).

use keelson_meta::{Object, Str, Value};

/// Drops owner references that equal an earlier one; the warning about it.
pub(crate) fn dedup(obj: &mut Object) -> Vec<Str> {
    if obj.array_at(&["metadata", "ownerReferences"]).len() < 2 {
        return vec![];
    }
    let Some(Value::Array(references)) = obj.metadata_mut().get_mut("ownerReferences") else {
        return vec![];
    };
    let mut kept: Vec<Value> = Vec::with_capacity(references.len());
    let mut dropped: Vec<Str> = vec![];
    for reference in references.drain(..) {
        if kept.contains(&reference) {
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
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in \
         1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate \
         UID(s) observed: {}",
        dropped.join(", ")
    ))]
}
