//! The strategy of custom resources. Their definitions add schemas and CEL rules.

use crate::strategy::{Generation, StatusMetadata, Strategy};
use keelson_meta::{Object, Str};

/// Returns the strategy of a custom resource. `has_status`: whether a version has the `status`
/// subresource.
pub fn strategy(has_status: bool) -> Strategy {
    Strategy {
        generation: Generation::OnChange { status_counts: !has_status },
        unconditional_update: false,
        standard_finalizers: false,
        status_metadata: StatusMetadata::KeepAll,
        warnings: finalizer_warnings,
        ..Strategy::GENERIC
    }
}

/// Warns of new finalizers without a domain, which may collide with those of other writers.
fn finalizer_warnings(new: &Object, old: Option<&Object>) -> Vec<Str> {
    const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    let before: Vec<&str> = old.into_iter().flat_map(Object::finalizers).collect();
    let is_common = |name: &&str| !name.contains('/') && !STANDARD.contains(name);
    let mut names: Vec<&str> = new.finalizers().filter(is_common).collect();
    names.retain(|name| !before.contains(name));
    names.sort_unstable();
    names.dedup();
    let warning = |name: &str| {
        let path = if name.contains('.') { " including a path (/)" } else { "" };
        Str::from(format!(
            "metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name{path} to avoid \
             accidental conflicts with other finalizer writers"
        ))
    };
    names.into_iter().map(warning).collect()
}
