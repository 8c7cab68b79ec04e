//! Restores fields of the stored object that a write may not change.

use crate::strategy::StatusMetadata;
use keelson_meta::{Object, Value};

/// Restores the metadata that the server set at creation, whether or not the client sent it. A uid
/// or deletion that the client did send stays, for validation to reject.
pub fn identity(new: &mut Object, old: &Object) {
    let has = |obj: &Object, name: &str| obj.metadata().is_some_and(|m| m.contains_key(name));
    let always = |new: &Object, name: &str| match name {
        "uid" | "deletionGracePeriodSeconds" => !has(new, name),
        "deletionTimestamp" => has(old, name),
        _ => true,
    };
    for name in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if !always(new, name) {
            continue;
        }
        match old.metadata().and_then(|m| m.get(name)).cloned() {
            Some(value) => new.metadata_mut().insert(name, value),
            None => new.metadata_mut().remove(name),
        };
    }
}

/// Restores a top-level member.
pub fn member(new: &mut Object, old: &Object, member: &str) {
    match old.get(member) {
        Some(value) => new.root.insert(member, value.clone()),
        None => new.root.remove(member),
    };
}

fn all_metadata(new: &mut Object, old: &Object) {
    let owners = new.metadata_mut().remove("managedFields");
    if let Some(metadata) = old.metadata() {
        new.root.insert("metadata", metadata.clone());
    }
    match owners {
        Some(owners) => new.metadata_mut().insert("managedFields", owners),
        None => new.metadata_mut().remove("managedFields"),
    };
}

/// Restores the metadata that a status update may not change.
pub fn metadata(new: &mut Object, old: &Object, rule: StatusMetadata) {
    let kept: &[&str] = match rule {
        StatusMetadata::Free => &[],
        StatusMetadata::KeepLabels => &["labels"],
        StatusMetadata::KeepOwners => &["ownerReferences", "deletionTimestamp"],
        StatusMetadata::KeepUserFields => {
            &["labels", "annotations", "finalizers", "ownerReferences"]
        }
        StatusMetadata::Keep => &[
            "labels",
            "annotations",
            "finalizers",
            "ownerReferences",
            "selfLink",
            "generation",
            "deletionTimestamp",
        ],
        StatusMetadata::KeepAll => return all_metadata(new, old),
    };
    for name in kept {
        match old.metadata().and_then(|m| m.get(name)) {
            Some(value) => {
                let value: Value = value.clone();
                new.metadata_mut().insert(*name, value);
            }
            None => {
                new.metadata_mut().remove(name);
            }
        }
    }
}
