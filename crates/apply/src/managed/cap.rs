//! Keeps the number of owners by Update small: the oldest are folded into one per version.

use super::{ANCIENT_MANAGER, Manager, Managers, Operation, UPDATE_MANAGERS_MAX};
use keelson_meta::Str;

impl Managers {
    /// Folds the oldest owners by Update together until at most [`UPDATE_MANAGERS_MAX`] are left.
    pub(super) fn cap_updates(&mut self) {
        // Owners by Update stand behind the others.
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
            updates = fold_oldest(updates);
        }
        others.append(&mut updates);
        self.list = others;
    }
}

/// The first owner of a version stays as it is until a second one comes; then both are one bucket,
/// which takes in the following ones.
fn fold_oldest(sorted: Vec<Manager>) -> Vec<Manager> {
    let mut left = sorted.len();
    let mut kept: Vec<Manager> = Vec::with_capacity(left);
    let mut firsts: Vec<(Str, usize)> = vec![];
    for manager in sorted {
        if left <= UPDATE_MANAGERS_MAX {
            kept.push(manager);
            continue;
        }
        match firsts.iter().find(|(version, _)| *version == manager.api_version) {
            Some((_, at)) => {
                let bucket = &mut kept[*at];
                bucket.name = Str::new_static(ANCIENT_MANAGER);
                bucket.subresource = Str::default();
                bucket.time = manager.time;
                bucket.fields.add(manager.fields);
                bucket.encoded = None;
                left -= 1;
            }
            None => {
                firsts.push((manager.api_version.clone(), kept.len()));
                kept.push(manager);
            }
        }
    }
    merge_buckets(kept)
}

/// An earlier bucket of the same version is the same owner.
fn merge_buckets(managers: Vec<Manager>) -> Vec<Manager> {
    let mut merged: Vec<Manager> = Vec::with_capacity(managers.len());
    for manager in managers {
        match merged.iter_mut().find(|known| known.is_same(&manager)) {
            Some(known) => {
                known.fields.add(manager.fields);
                known.time = manager.time.max(known.time.take());
                known.encoded = None;
            }
            None => merged.push(manager),
        }
    }
    merged
}
