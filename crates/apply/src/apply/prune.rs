//! Removes from a merged object the fields that the applier no longer sets.

use crate::fields::FieldSet;
use crate::managed::{Managers, Scope, UNMANAGED};
use crate::typed::{self, Form};
use keelson_meta::{Map, Object, Str};
use keelson_schema::Schema;

/// Removes the fields of `last` that no manager owns any more. `last` is the applier's previous
/// field set, in version `version`. A removed list item takes its unowned fields, such as defaults,
/// with it.
pub(super) fn prune(
    scope: &Scope<'_>,
    managers: &Managers,
    merged: &mut Object,
    version: &Str,
    last: FieldSet,
) -> Result<(), String> {
    let is_one_version = *version == scope.schema.gvk.api_version()
        && managers.iter().all(|manager| manager.api_version == *version);
    if !is_one_version {
        return prune_across_versions(scope, managers, merged, version, last);
    }
    let owned_now = managers.owned_at(version);
    if last.is_subset(&owned_now) {
        return Ok(());
    }
    let schema = scope.schema;
    let last = typed::with_named_fields(schema, last);
    // Removing `last` alone would remove too much: whole items, with the fields of other managers.
    let left = typed::field_set_without(schema, Form::Written, &merged.root, &last);
    let unowned = fields_outside(schema, &merged.root, left, with_unmanaged(owned_now));
    let rest = typed::field_set_without(schema, Form::Written, &merged.root, &unowned);
    let removed = fields_outside(schema, &merged.root, rest, FieldSet::new()).intersection(&last);
    typed::remove(schema, &mut merged.root, &removed);
    Ok(())
}

/// Adds the fields that no apply can remove: name, version and the metadata that the server writes.
fn with_unmanaged(mut owned: FieldSet) -> FieldSet {
    owned.add(UNMANAGED.clone());
    owned
}

/// Returns the fields of an object that are in neither set.
fn fields_outside(schema: &Schema, object: &Map, left: FieldSet, owned: FieldSet) -> FieldSet {
    let mut all = typed::with_named_fields(schema, typed::field_set(schema, Form::Written, object));
    all.subtract(&typed::with_named_fields(schema, left));
    all.subtract(&typed::with_named_fields(schema, owned));
    all
}

/// Prunes when the managers use more than one version: the fields of each manager are restored in
/// its own version (structured-merge-diff `Updater.prune`).
fn prune_across_versions(
    scope: &Scope<'_>,
    managers: &Managers,
    merged: &mut Object,
    version: &Str,
    last: FieldSet,
) -> Result<(), String> {
    let base = to_version(scope, merged, version)
        .map_err(|why| format!("failed to convert merged object to last applied version: {why}"))?;
    let Some((schema, base)) = base else { return Ok(()) };
    let last = typed::with_named_fields(&schema, last);
    let mut pruned = base.clone();
    typed::remove(&schema, &mut pruned.root, &last);
    let mut versions = managers.versions();
    // Start with the version of the last set: the pruned object may not convert to other versions.
    versions.sort_by_key(|other| other != version);
    for other in versions {
        let convert = |object: &Object, which: &str| {
            to_version(scope, object, &other).map_err(|why| {
                format!(
                    "failed add back owned items: failed to convert {which} object at version \
                     {other}: {why}"
                )
            })
        };
        let Some((schema, mut whole)) = convert(&base, "merged")? else { continue };
        let Some((_, part)) = convert(&pruned, "pruned")? else { continue };
        let left = typed::field_set(&schema, Form::Written, &part.root);
        let owned = with_unmanaged(managers.owned_at(&other));
        let unowned = fields_outside(&schema, &whole.root, left, owned);
        typed::remove(&schema, &mut whole.root, &unowned);
        pruned = whole;
    }
    let dangling = to_version(scope, &pruned, version)
        .map_err(|why| format!("failed add back dangling items: {why}"))?;
    let Some((_, rest)) = dangling else { return Ok(()) };
    let rest = typed::field_set(&schema, Form::Written, &rest.root);
    let removed = fields_outside(&schema, &base.root, rest, FieldSet::new()).intersection(&last);
    let mut result = base;
    typed::remove(&schema, &mut result.root, &removed);
    if let Some((_, result)) = to_version(scope, &result, &scope.schema.gvk.api_version())? {
        *merged = result;
    }
    Ok(())
}

/// Returns the object in a version, with the schema of that version.
fn to_version(
    scope: &Scope<'_>,
    object: &Object,
    version: &Str,
) -> Result<Option<(Schema, Object)>, String> {
    if object.api_version() == version && scope.schema.gvk.api_version() == *version {
        return Ok(Some((scope.schema.clone(), object.clone())));
    }
    scope.convert_to(object, version)
}
