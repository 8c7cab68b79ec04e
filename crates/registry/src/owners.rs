//! Who owns which field: `metadata.managedFields`, kept by the apply crate's rules.

use crate::kind::Target;
use crate::options::WriteOptions;
use crate::strategy::StatusMetadata;
use crate::verbs::Part;
use keelson_apply::apply::{self, Request};
use keelson_apply::fields::{FieldSet, Filter};
use keelson_apply::managed::{self, Scope};
use keelson_meta::{Failure, GroupVersion, Object, Timestamp, Value};
use keelson_schema::Schema;

/// Calls `work` with the endpoint that a write came through.
fn scoped<T>(target: &Target, part: Part, work: impl FnOnce(&Scope<'_>) -> T) -> T {
    let excluded = excluded(target, part);
    let filter = (!excluded.is_empty()).then(|| Filter::Exclude(FieldSet::of_fields(&excluded)));
    let convert = |obj: &Object, version: &GroupVersion| -> Option<(Schema, Object)> {
        let from = target.schema();
        let to =
            target.kind.versions.iter().find(|schema| schema.gvk.group_version() == *version)?;
        Some((to.clone(), target.kind.convert(obj.clone(), from, to)))
    };
    work(&Scope {
        schema: target.schema(),
        subresource: part.name(),
        filter: filter.as_ref(),
        convert: &convert,
    })
}

/// The fields that a write through this part cannot change, and that nobody owns through it.
fn excluded(target: &Target, part: Part) -> Vec<&'static [&'static str]> {
    match part {
        Part::Main if target.kind.has_status && !target.kind.strategy.status_on_create => {
            vec![&["status"]]
        }
        Part::Status => match target.kind.strategy.status_metadata {
            StatusMetadata::Free => vec![&["spec"]],
            StatusMetadata::KeepLabels => vec![&["spec"], &["metadata", "labels"]],
            StatusMetadata::Keep => vec![&["spec"], &["metadata"]],
        },
        Part::Main | Part::Other(_) => vec![],
    }
}

/// Notes the owner of all fields of an object that is made.
pub(crate) fn created(target: &Target, obj: &mut Object, manager: &str, now: Timestamp) {
    let now = now.to_string();
    scoped(target, Part::Main, |scope| managed::update(scope, manager, &now, None, obj));
}

/// Notes the owner of the fields that an update changed.
pub(crate) fn updated(
    target: &Target,
    part: Part,
    old: &Object,
    new: &mut Object,
    options: &WriteOptions,
    now: Timestamp,
) {
    let (manager, now) = (&options.field_manager, now.to_string());
    scoped(target, part, |scope| managed::update(scope, manager, &now, Some(old), new));
}

/// Leaves times as they were when nothing but the times of owners changed.
pub(crate) fn keep_times(old: &Object, new: &mut Object) {
    managed::keep_times(old, new);
}

/// Server-side apply.
pub(crate) fn apply(
    target: &Target,
    part: Part,
    live: Option<&Object>,
    config: &Value,
    options: &WriteOptions,
    now: Timestamp,
) -> Result<Object, Failure> {
    let now = now.to_string();
    let request = Request { manager: &options.field_manager, force: options.force, now: &now };
    let live = live.cloned().unwrap_or_default();
    let applied = scoped(target, part, |scope| apply::apply(scope, &request, live, config))?;
    Ok(applied.object)
}
