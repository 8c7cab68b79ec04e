//! Takes out of a merged object what its applier has given up.

use crate::fields::FieldSet;
use crate::managed::{Managers, Scope, UNOWNED};
use crate::typed::{self, Form};
use keelson_meta::{GroupVersion, Map, Object, Str};
use keelson_schema::Schema;

/// Removes the fields of `last`, the applier's last set in version `version`, that nobody owns now.
/// Fields below them that nobody ever owned, such as defaults, go with the item they are in.
pub(super) fn prune(
    scope: &Scope<'_>,
    managers: &Managers,
    merged: &mut Object,
    version: &Str,
    last: FieldSet,
) {
    let is_one_version = *version == scope.schema.gvk.api_version()
        && managers.iter().all(|manager| manager.api_version == *version);
    if !is_one_version {
        prune_across(scope, managers, merged, version, last);
        return;
    }
    let owned_now = managers.owned_at(version);
    if last.is_within(&owned_now) {
        return;
    }
    let schema = scope.schema;
    let last = typed::with_named_fields(schema, last);
    // Taking the last set out takes out too much: whole items, and what others own in them.
    let left = typed::owned_without(schema, Form::Written, &merged.root, &last);
    let unowned = not_in(schema, &merged.root, left, kept(owned_now));
    let rest = typed::owned_without(schema, Form::Written, &merged.root, &unowned);
    let gone = not_in(schema, &merged.root, rest, FieldSet::new()).intersection(&last);
    typed::remove(schema, &mut merged.root, &gone);
}

/// What is owned, with what no apply can take out: names, versions and what the server writes.
fn kept(mut owned: FieldSet) -> FieldSet {
    owned.add(UNOWNED.clone());
    owned
}

/// The fields of an object that are in neither set.
fn not_in(schema: &Schema, object: &Map, left: FieldSet, owned: FieldSet) -> FieldSet {
    let mut all = typed::with_named_fields(schema, typed::owned(schema, Form::Written, object));
    all.subtract(&typed::with_named_fields(schema, left));
    all.subtract(&typed::with_named_fields(schema, owned));
    all
}

/// The same when owners speak of more than one version: what each owns is put back in its version.
fn prune_across(
    scope: &Scope<'_>,
    managers: &Managers,
    merged: &mut Object,
    version: &Str,
    last: FieldSet,
) {
    let Some((schema, base)) = at(scope, merged, version) else { return };
    let last = typed::with_named_fields(&schema, last);
    let mut pruned = base.clone();
    typed::remove(&schema, &mut pruned.root, &last);
    let mut versions = managers.versions();
    // First the version of the last set: others may not be able to convert what is left of it.
    versions.sort_by_key(|other| other != version);
    for other in versions {
        let (Some((schema, mut whole)), Some((_, part))) =
            (at(scope, &base, &other), at(scope, &pruned, &other))
        else {
            continue;
        };
        let left = typed::owned(&schema, Form::Written, &part.root);
        let unowned = not_in(&schema, &whole.root, left, kept(managers.owned_at(&other)));
        typed::remove(&schema, &mut whole.root, &unowned);
        pruned = whole;
    }
    let Some((_, rest)) = at(scope, &pruned, version) else { return };
    let rest = typed::owned(&schema, Form::Written, &rest.root);
    let gone = not_in(&schema, &base.root, rest, FieldSet::new()).intersection(&last);
    let mut done = base;
    typed::remove(&schema, &mut done.root, &gone);
    if let Some((_, done)) = at(scope, &done, &scope.schema.gvk.api_version()) {
        *merged = done;
    }
}

/// The object in a version, with that version's schema.
fn at(scope: &Scope<'_>, object: &Object, version: &Str) -> Option<(Schema, Object)> {
    if object.api_version() == version && scope.schema.gvk.api_version() == *version {
        return Some((scope.schema.clone(), object.clone()));
    }
    (scope.convert)(object, &GroupVersion::parse(version)?)
}
