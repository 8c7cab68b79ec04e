//! Events of the core group and of `events.k8s.io`, which are stored in one form. Only the latter
//! is validated strictly.

use super::check::Field;
use crate::row::Row;
use crate::strategy::{Check, GarbageCollection, SelectableField, Strategy};
use keelson_meta::{ErrorList, Object, Path, Value, names};

/// The selectable fields of events of both groups.
pub(crate) const FIELDS: &[SelectableField] = &[
    SelectableField::new(
        "involvedObject.kind",
        &[&["involvedObject", "kind"], &["regarding", "kind"]],
    ),
    SelectableField::new(
        "involvedObject.namespace",
        &[&["involvedObject", "namespace"], &["regarding", "namespace"]],
    ),
    SelectableField::new(
        "involvedObject.name",
        &[&["involvedObject", "name"], &["regarding", "name"]],
    ),
    SelectableField::new(
        "involvedObject.uid",
        &[&["involvedObject", "uid"], &["regarding", "uid"]],
    ),
    SelectableField::new(
        "involvedObject.apiVersion",
        &[&["involvedObject", "apiVersion"], &["regarding", "apiVersion"]],
    ),
    SelectableField::new(
        "involvedObject.resourceVersion",
        &[&["involvedObject", "resourceVersion"], &["regarding", "resourceVersion"]],
    ),
    SelectableField::new(
        "involvedObject.fieldPath",
        &[&["involvedObject", "fieldPath"], &["regarding", "fieldPath"]],
    ),
    SelectableField::new("regarding.kind", &[&["involvedObject", "kind"]]),
    SelectableField::new("regarding.namespace", &[&["involvedObject", "namespace"]]),
    SelectableField::new("regarding.name", &[&["involvedObject", "name"]]),
    SelectableField::new("regarding.uid", &[&["involvedObject", "uid"]]),
    SelectableField::new("regarding.apiVersion", &[&["involvedObject", "apiVersion"]]),
    SelectableField::new("regarding.resourceVersion", &[&["involvedObject", "resourceVersion"]]),
    SelectableField::new("regarding.fieldPath", &[&["involvedObject", "fieldPath"]]),
    SelectableField::new("reportingController", &[&["reportingComponent"]]),
    SelectableField::new("reason", &[&["reason"]]),
    SelectableField::new(
        "reportingComponent",
        &[&["reportingComponent"], &["reportingController"]],
    ),
    SelectableField::new("source", &[&["source", "component"], &["reportingComponent"]]),
    SelectableField::new("type", &[&["type"]]),
];

/// Events of both groups are the same stored objects, with all fields; selectors know those of a
/// group.
pub(crate) const NOT_OF_CORE: &[&str] = &["regarding.", "reportingController"];
const NOT_OF_NEW: &[&str] = &["involvedObject.", "reportingComponent", "source"];

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[Row {
    resource: "events",
    strategy: events(Strategy {
        create_on_update: true,
        create_checks: &[Check::Rules, Check::Metadata, Check::Change],
        update_checks: &[Check::Rules, Check::MetadataChange, Check::Change],
        expires: true,
        garbage_collection: GarbageCollection::Unsupported,
        fields: FIELDS,
        not_selectable: NOT_OF_NEW,
        ..Strategy::GENERIC
    }),
    stored_as: Some(("", "v1", "Event")),
    ..Row::PLAIN
}];

const TEXT_BYTES_MAX: usize = 128;
const NOTE_BYTES_MAX: usize = 1024;

/// Events of the core group.
pub(super) const fn core(base: Strategy) -> Strategy {
    Strategy { validate: |new, _| common(new), ..base }
}

/// Events of `events.k8s.io`.
pub(super) const fn events(base: Strategy) -> Strategy {
    Strategy { validate: |new, _| common(new), validate_change: strict, ..base }
}

/// Validates what the events of both APIs have in common.
fn common(event: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let involved = Field::of(event, "involvedObject");
    let namespace = involved.field("namespace");
    let own = event.namespace();
    let dated = event.get("eventTime").is_some_and(|time| !time.is_null());
    let elsewhere = match (dated, namespace.text()) {
        (false, "") => !matches!(own, "" | "default"),
        (false, text) => text != own,
        (true, "") => !matches!(own, "default" | "kube-system"),
        (true, _) => false,
    };
    if elsewhere {
        let shown = namespace.text();
        namespace.invalid_as(&mut errors, shown, "does not match event.namespace");
    }
    if dated {
        reporter(event, &mut errors);
    }
    errors
}

fn reporter(event: &Object, errors: &mut ErrorList) {
    // The core API calls it reportingComponent; the errors of both APIs use the newer name.
    let controller = Field::new(event.get("reportingComponent"), Path::new("reportingController"));
    controller.not_empty(errors, "");
    controller.rule(errors, names::is_qualified_name);
    for name in ["reportingInstance", "action", "reason"] {
        let at = Field::of(event, name);
        at.not_empty(errors, "");
        if at.text().len() > TEXT_BYTES_MAX {
            at.invalid_as(errors, "", &format!("can have at most {TEXT_BYTES_MAX} characters"));
        }
    }
    let note = Field::of(event, "message");
    if note.text().len() > NOTE_BYTES_MAX {
        note.invalid_as(errors, "", &format!("can have at most {NOTE_BYTES_MAX} characters"));
    }
}

/// Validates the additional rules of `events.k8s.io`.
fn strict(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    match old {
        None => strict_create(new, &mut errors),
        Some(old) => strict_update(new, old, &mut errors),
    }
    errors
}

fn strict_create(event: &Object, errors: &mut ErrorList) {
    series(event, errors);
    let time = Field::of(event, "eventTime");
    if !time.is_set() {
        time.required(errors, "");
    }
    let kind = Field::of(event, "type");
    if !matches!(kind.text(), "Normal" | "Warning") {
        kind.invalid_as(errors, "", &format!("has invalid value: {}", kind.text()));
    }
    for name in ["firstTimestamp", "lastTimestamp", "count", "source"] {
        let at = Field::of(event, name);
        if !at.value.is_empty() {
            at.invalid_as(errors, "", "needs to be unset");
        }
    }
}

fn series(event: &Object, errors: &mut ErrorList) {
    let at = Field::of(event, "series");
    if !at.is_set() {
        return;
    }
    if at.int("count").unwrap_or(0) < 2 {
        at.field("count").invalid_as(errors, "", "should be at least 2");
    }
    if !at.has("lastObservedTime") {
        at.field("lastObservedTime").required(errors, "");
    }
}

fn strict_update(new: &Object, old: &Object, errors: &mut ErrorList) {
    // Upstream compares the reason twice.
    const FIXED: &[&str] = &[
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "reason",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingComponent",
        "reportingInstance",
    ];
    let value = |obj: &Object, name: &str| obj.get(name).cloned().unwrap_or_default();
    if value(new, "series") != value(old, "series") {
        series(new, errors);
    }
    for name in FIXED {
        let shown = if *name == "reportingComponent" { "reportingController" } else { name };
        let at = Field::new(new.get(name), Path::new(shown));
        let stored = value(old, name);
        if !(at.value.is_empty() && Value::is_empty(&stored)) {
            let is_pointer = ["related", "eventTime"].contains(name) || name.ends_with("Timestamp");
            if is_pointer {
                at.unchanged(errors, &stored);
            } else {
                at.unchanged_value(errors, &stored);
            }
        }
    }
}
