//! The kinds of `storagemigration.k8s.io`: StorageVersionMigrations (feature gate
//! `StorageVersionMigrator`).

use crate::check::Field;
use crate::conditions;
use crate::equality::equal_or_empty;
use crate::row::Row;
use crate::strategy::{Check, StatusMetadata, Strategy};
use keelson_meta::object_meta::IMMUTABLE;
use keelson_meta::{ErrorList, Object, Value, names, value};

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[Row {
    resource: "storageversionmigrations",
    strategy: migration(Strategy {
        unconditional_update: false,
        status_metadata: StatusMetadata::Keep,
        update_checks: &[Check::Metadata, Check::Rules, Check::MetadataChange, Check::Change],
        ..Strategy::GENERIC
    }),
    ..Row::PLAIN
}];

/// The resources of `internal.apiserver.k8s.io`.
pub(crate) const INTERNAL_ROWS: &[Row] = &[Row {
    resource: "storageversions",
    strategy: Strategy { unconditional_update: false, ..Strategy::GENERIC },
    ..Row::PLAIN
}];

/// StorageVersionMigrations.
pub(super) const fn migration(base: Strategy) -> Strategy {
    Strategy {
        validate: |new, _| validate(new),
        validate_change: |new, old| {
            let mut errors = ErrorList::new();
            let spec = Field::of(new, "spec");
            if !equal_or_empty(
                spec.value,
                old.and_then(|old| old.get("spec")).unwrap_or(&Value::Null),
            ) {
                // The message shows the Go struct.
                let resource = spec.field("resource");
                let group = resource.str("group");
                let name = resource.str("resource");
                let shown = value!({"Resource": {"group": (group), "resource": (name)}});
                spec.invalid_as(&mut errors, shown, IMMUTABLE);
            }
            errors
        },
        validate_status,
        ..base
    }
}

fn validate(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let resource = spec.field("resource");
    let name = resource.field("resource");
    let group = resource.field("group");
    if name.not_empty(&mut errors, "resource is required to be set") {
        name.rule(&mut errors, names::is_dns1035_label);
    }
    group.rule_if_set(&mut errors, names::is_dns1123_subdomain);
    errors
}

fn validate_status(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = Field::of(new, "status");
    let list = status.field("conditions");
    conditions::validate(&list, &mut errors);
    let version = status.field("resourceVersion");
    let before = old.and_then(|old| old.at(&["status", "resourceVersion"])?.as_str());
    let text = version.text();
    let is_number = text == "0" || !text.starts_with('0') && text.parse::<u64>().is_ok();
    if !text.is_empty() && !is_number {
        version.invalid(&mut errors, &format!("resource version is not well formed: {text}"));
    }
    if before.is_some_and(|before| !before.is_empty() && before != text) {
        version.invalid(&mut errors, IMMUTABLE);
    }
    let is_true =
        |kind: &str| list.items().any(|at| at.str("type") == kind && at.str("status") == "True");
    if is_true("Succeeded") && is_true("Failed") {
        let words = "Both success and failed conditions cannot be true at the same time";
        list.invalid(&mut errors, words);
    }
    let stored = old.map_or(&[][..], |old| old.array_at(&["status", "conditions"]));
    for (kind, words) in [
        ("Succeeded", "Success condition cannot be set to false once it is true"),
        ("Failed", "Failed condition cannot be set to false once it is true"),
    ] {
        let was = stored.iter().any(|condition| {
            let text = |name| condition.str_at(&[name]);
            text("type") == Some(kind) && text("status") == Some("True")
        });
        if was && !is_true(kind) {
            list.invalid(&mut errors, words);
        }
    }
    errors
}
