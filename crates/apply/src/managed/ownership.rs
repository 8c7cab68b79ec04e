//! Removes the fields that a write changes from the other managers, in the version of each manager.

use super::{Manager, Managers, Scope};
use crate::fields::FieldSet;
use crate::typed::{self, Comparison, Form};
use keelson_meta::{GroupVersion, Object, Str};
use keelson_schema::Schema;
use std::collections::HashMap;

/// The fields that changed, in one version.
struct Changes {
    api_version: Str,
    /// Added or modified.
    written: FieldSet,
    removed: FieldSet,
}

impl Changes {
    fn of(api_version: Str, comparison: &Comparison) -> Self {
        let mut written = comparison.modified.clone();
        written.add(comparison.added.clone());
        Changes { api_version, written, removed: comparison.removed.clone() }
    }
}

/// Updates the field sets of all managers for schema changes: a field that became atomic has one
/// owner. Drops the managers of versions that are not served.
pub(crate) fn reconcile_all(scope: &Scope<'_>, managers: &mut Managers, live: &Object) {
    let own = scope.schema.gvk.api_version();
    let mut others: HashMap<Str, Option<Schema>> = HashMap::new();
    managers.list.retain_mut(|manager| {
        if manager.api_version == own {
            manager.change(|fields| typed::reconcile(scope.schema, fields));
            return true;
        }
        let schema = others.entry(manager.api_version.clone()).or_insert_with(|| {
            let version = GroupVersion::parse(&manager.api_version);
            let converted = version.and_then(|version| (scope.convert)(live, &version));
            converted.map(|(schema, _)| schema)
        });
        let Some(schema) = schema else { return false };
        manager.change(|fields| typed::reconcile(schema, fields));
        true
    });
}

/// Compares the old and new object and removes the changed fields from all managers except
/// `except`.
///
/// Unless `is_forced`, a manager that would lose a written field is a conflict. Then no manager
/// changes, and the error lists the managers, sorted, with the fields that each would lose.
pub(crate) fn remove_changed_fields(
    scope: &Scope<'_>,
    managers: &mut Managers,
    objects: (&Object, &Object),
    except: Option<&Manager>,
    is_forced: bool,
) -> Result<Comparison, Vec<(Manager, FieldSet)>> {
    let (old, new) = objects;
    let form = if except.is_some() { Form::Merged } else { Form::Decoded };
    let mut comparison =
        typed::compare(scope.schema, (Form::Decoded, &old.root), (form, &new.root));
    if let Some(filter) = scope.filter {
        comparison.filter(filter);
    }
    let is_excepted = |manager: &Manager| except.is_some_and(|except| except.is_same(manager));
    let own = scope.schema.gvk.api_version();
    let mut versions: Vec<Changes> = vec![];
    for manager in managers.list.iter().filter(|manager| !is_excepted(manager)) {
        let version = &manager.api_version;
        if versions.iter().any(|changes| changes.api_version == *version) {
            continue;
        }
        if *version == own {
            versions.push(Changes::of(version.clone(), &comparison));
        } else {
            versions.extend(changes_in(scope, version, old, form, new));
        }
    }
    let changes_of =
        |manager: &Manager| versions.iter().find(|c| c.api_version == manager.api_version);
    if !is_forced {
        let mut conflicts = vec![];
        for manager in managers.list.iter().filter(|manager| !is_excepted(manager)) {
            let Some(changes) = changes_of(manager) else { continue };
            let lost = manager.fields.intersection(&changes.written);
            if !lost.is_empty() {
                conflicts.push((manager.clone(), lost));
            }
        }
        if !conflicts.is_empty() {
            conflicts.sort_by(|a, b| a.0.compare_identity(&b.0));
            return Err(conflicts);
        }
    }
    managers.list.retain_mut(|manager| {
        if !is_excepted(manager) {
            let Some(changes) = changes_of(manager) else { return false };
            manager.change(|fields| fields.subtract(&changes.written));
            manager.change(|fields| fields.subtract(&changes.removed));
        }
        !manager.fields.is_empty()
    });
    Ok(comparison)
}

/// Compares the objects in another version; `None` when the version is not served.
fn changes_in(
    scope: &Scope<'_>,
    api_version: &Str,
    old: &Object,
    form: Form,
    new: &Object,
) -> Option<Changes> {
    let version = GroupVersion::parse(api_version)?;
    let (schema, old) = (scope.convert)(old, &version)?;
    let (_, new) = (scope.convert)(new, &version)?;
    let mut comparison = typed::compare(&schema, (Form::Decoded, &old.root), (form, &new.root));
    if let Some(filter) = scope.filter {
        comparison.filter(filter);
    }
    Some(Changes::of(api_version.clone(), &comparison))
}
