//! Optional and required fields, defaults and null.

use super::CONVENTIONS_OPTIONAL;
use crate::definition::{Field, Role, Version};
use crate::finding::{Check, Report, Rule, Severity};

pub static REQUIRED_DEFAULT: Rule = Rule {
    id: "required-with-default",
    severity: Severity::Warning,
    section: CONVENTIONS_OPTIONAL,
    summary: "A field with a default is optional.",
    advice: "The default is set before the object is validated, so `required` never refuses anything, but clients that \
             read the schema ask for the field. Remove it from `required`, or remove the default.",
    check: Check::Field(required_default),
};

pub static SPEC: Rule = Rule {
    id: "spec-not-required",
    severity: Severity::Warning,
    section: CONVENTIONS_OPTIONAL,
    summary: "A spec with required fields is required itself.",
    advice: "Without a spec, the required fields in it are not missed: `kubectl create` accepts an object that has \
             only a name. Add `spec` to `required` of the root.",
    check: Check::Version(spec),
};

pub static NULLABLE: Rule = Rule {
    id: "nullable",
    severity: Severity::Advice,
    section: CONVENTIONS_OPTIONAL,
    summary: "A field that is not set is absent, not null.",
    advice: "Make the field optional and remove `nullable`: null as a second form of nothing must be handled by each \
             client, and is lost in others.",
    check: Check::Field(nullable),
};

fn required_default(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    if field.role != Role::Member || !field.is_required || !field.has("default") {
        return;
    }
    // Keys of lists must be required or have a default; upstream's own ports have both.
    let list = version.parent(field).and_then(|item| version.parent(item));
    let is_key = list.is_some_and(|list| {
        list.list("x-kubernetes-list-map-keys").iter().any(|key| key.as_str() == Some(field.name))
    });
    if !is_key {
        report.field(version, field, "default", "the field is required and has a default");
    }
}

fn spec(version: &Version<'_>, report: &mut Report) {
    let Some(root) = version.root() else { return };
    let Some(spec) = version.find("spec") else { return };
    let has_default = spec.has("default") || root.has("default");
    if let (Some(first), false, false) =
        (spec.list("required").first(), root.requires("spec"), has_default)
    {
        let name = first.as_str().unwrap_or_default();
        let message = format!(
            "spec is optional, so an object without it passes although spec.{name} is required"
        );
        report.field(version, spec, "required", message);
    }
}

fn nullable(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    if field.is("nullable") && field.role == Role::Member {
        report.field(version, field, "nullable", "null is a second way not to set the field");
    }
}
