//! Limits the `Update` entries of `managedFields`: the oldest are merged into one entry per
//! version.

use super::{ANCIENT_MANAGER, Manager, Managers, Operation, UPDATE_MANAGERS_MAX};
use keelson_meta::Str;

impl Managers {
    /// Merges the oldest `Update` entries until at most [`UPDATE_MANAGERS_MAX`] are left.
    pub(super) fn cap_updates(&mut self) {
        // `Update` entries come after the others.
        let is_update = |manager: &Manager| manager.operation == Operation::Update;
        let count = self.list.iter().filter(|manager| is_update(manager)).count();
        if count <= UPDATE_MANAGERS_MAX && self.list.is_sorted_by_key(is_update) {
            return;
        }
        let mut updates: Vec<Manager> = vec![];
        let mut others: Vec<Manager> = vec![];
        for manager in self.list.drain(..) {
            if is_update(&manager) { updates.push(manager) } else { others.push(manager) }
        }
        if updates.len() > UPDATE_MANAGERS_MAX {
            updates
                .sort_by(|a, b| a.time_key().cmp(b.time_key()).then_with(|| a.compare_identity(b)));
            updates = merge_oldest(updates);
        }
        others.append(&mut updates);
        self.list = others;
    }
}

/// Merges entries of the same version, oldest first. A version with a single entry keeps it
/// unchanged.
fn merge_oldest(sorted: Vec<Manager>) -> Vec<Manager> {
    let mut left = sorted.len();
    let mut merged: Vec<Manager> = Vec::with_capacity(left);
    let mut first_of_version: Vec<(Str, usize)> = vec![];
    for manager in sorted {
        if left <= UPDATE_MANAGERS_MAX {
            merged.push(manager);
            continue;
        }
        match first_of_version.iter().find(|(version, _)| *version == manager.api_version) {
            Some((_, at)) => {
                let bucket = &mut merged[*at];
                bucket.name = Str::new_static(ANCIENT_MANAGER);
                bucket.subresource = Str::default();
                bucket.time = manager.time;
                bucket.fields.add(manager.fields);
                bucket.encoded = None;
                left -= 1;
            }
            None => {
                first_of_version.push((manager.api_version.clone(), merged.len()));
                merged.push(manager);
            }
        }
    }
    merge_ancient(merged)
}

/// Merges the new entries of [`ANCIENT_MANAGER`] with those that the object had before.
fn merge_ancient(managers: Vec<Manager>) -> Vec<Manager> {
    let mut merged: Vec<Manager> = Vec::with_capacity(managers.len());
    for manager in managers {
        match merged.iter_mut().find(|entry| entry.is_same(&manager)) {
            Some(entry) => {
                entry.fields.add(manager.fields);
                entry.time = manager.time.max(entry.time.take());
                entry.encoded = None;
            }
            None => merged.push(manager),
        }
    }
    merged
}
