//! What of a stored object stays whatever a write of it says.

use crate::strategy::StatusMetadata;
use keelson_meta::{Object, Value};

/// What the server gave an object at its creation stays, whether the client repeats it or not. A
/// client that asks for another uid or for a deletion is told so by the checks that follow.
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

/// A member stays as it was.
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

/// What a write of the status may not change in the metadata stays.
pub fn metadata(new: &mut Object, old: &Object, rule: StatusMetadata) {
    let kept: &[&str] = match rule {
        StatusMetadata::Free => &[],
        StatusMetadata::KeepLabels => &["labels"],
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
