//! Removes the fields that a write changes from the other managers, in the version of each manager.

use super::{Manager, Managers, Scope};
use crate::fields::FieldSet;
use crate::typed::{self, Comparison, Form};
use keelson_meta::{Object, Str};
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
/// owner. Drops the managers of versions that do not exist.
pub(crate) fn reconcile_all(
    scope: &Scope<'_>,
    managers: &mut Managers,
    live: &Object,
) -> Result<(), String> {
    let own = scope.schema.gvk.api_version();
    let mut others: HashMap<Str, Option<Schema>> = HashMap::new();
    for manager in &managers.list {
        let version = &manager.api_version;
        if *version != own && !others.contains_key(version) {
            let converted = scope.convert_to(live, version)?;
            others.insert(version.clone(), converted.map(|(schema, _)| schema));
        }
    }
    managers.list.retain_mut(|manager| {
        if manager.api_version == own {
            manager.change(|fields| typed::reconcile(scope.schema, fields));
            return true;
        }
        let Some(Some(schema)) = others.get(&manager.api_version) else { return false };
        manager.change(|fields| typed::reconcile(schema, fields));
        true
    });
    Ok(())
}

/// Why a change of owners is refused.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Managers would lose fields; these.
    Conflicts(Vec<(Manager, FieldSet)>),
    /// An object cannot be compared in the version of a manager.
    Version(String),
}

/// Compares the old and new object and removes the changed fields from all managers except
/// `except`.
///
/// Unless `is_forced`, a manager that would lose a written field is a conflict. Then no manager
/// changes, and the error lists the managers, sorted, with the fields that each would lose.
/// (structured-merge-diff `Updater.update`.)
pub(crate) fn remove_changed_fields(
    scope: &Scope<'_>,
    managers: &mut Managers,
    objects: (&Object, &Object),
    except: Option<&Manager>,
    is_forced: bool,
) -> Result<Comparison, Refused> {
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
            let changes = changes_in(scope, version, old, form, new);
            versions.extend(changes.map_err(Refused::Version)?);
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
            return Err(Refused::Conflicts(conflicts));
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

/// Compares the objects in another version; `None` when there is no such version.
fn changes_in(
    scope: &Scope<'_>,
    api_version: &Str,
    old: &Object,
    form: Form,
    new: &Object,
) -> Result<Option<Changes>, String> {
    let convert = |object: &Object, which: &str| {
        let converted = scope.convert_to(object, api_version);
        converted.map_err(|why| format!("failed to convert {which} object: {why}"))
    };
    let Some((schema, old)) = convert(old, "old")? else { return Ok(None) };
    let Some((_, new)) = convert(new, "new")? else { return Ok(None) };
    let mut comparison = typed::compare(&schema, (Form::Decoded, &old.root), (form, &new.root));
    if let Some(filter) = scope.filter {
        comparison.filter(filter);
    }
    Ok(Some(Changes::of(api_version.clone(), &comparison)))
}
