//! Versions, and what is lost between them.

use super::CHANGES_COMPATIBILITY;
use crate::definition::{Definition, Version};
use crate::finding::{Check, Report, Rule, Severity};
use keelson_meta::Value;
use std::collections::HashSet;

pub static NAME: Rule = Rule {
    id: "version-name",
    severity: Severity::Warning,
    section: "API changes, \"Alpha, Beta, and Stable Versions\"",
    summary: "A version is called v1, v1beta1 or v1alpha1.",
    advice: "Other names sort after all of these, so that clients prefer an older version, and tell nothing about \
             stability.",
    check: Check::Version(name),
};

pub static LOST_FIELDS: Rule = Rule {
    id: "version-loses-fields",
    severity: Severity::Warning,
    section: CHANGES_COMPATIBILITY,
    summary: "Objects survive the way from each version to each other one and back.",
    advice: "With the strategy None, fields that the storage version does not have are dropped when an object is \
             stored, and those that only it has when an object is written in the other version. Add the fields to \
             both versions, or convert by a webhook.",
    check: Check::Definition(lost_fields),
};

/// Fields that a message names.
const SHOWN_FIELDS_MAX: usize = 3;

fn name(version: &Version<'_>, report: &mut Report) {
    if !version.name.is_empty() && !is_kubernetes_like(version.name) {
        let message = format!("the version {:?} is not like v1, v1beta1 or v1alpha1", version.name);
        report.version(version, format!("{}.name", version.path), message);
    }
}

/// Whether a version is like `v1`, `v2beta1` or `v1alpha3`.
fn is_kubernetes_like(name: &str) -> bool {
    let is_number =
        |text: &str| text.starts_with(|c: char| ('1'..='9').contains(&c)) && is_digits(text);
    let Some(rest) = name.strip_prefix('v') else { return false };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, stage) = rest.split_at(end);
    let minor = stage.strip_prefix("alpha").or_else(|| stage.strip_prefix("beta"));
    is_number(major) && (stage.is_empty() || minor.is_some_and(is_number))
}

fn is_digits(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit())
}

fn lost_fields(definition: &Definition<'_>, report: &mut Report) {
    let strategy = definition.text(&["spec", "conversion", "strategy"]);
    let Some(storage) = definition.versions.iter().find(|version| version.is_storage) else {
        return;
    };
    if !matches!(strategy, "" | "None") || keeps_unknown(storage) {
        return;
    }
    for version in &definition.versions {
        if version.is_storage
            || !version.is_served
            || keeps_unknown(version)
            || version.fields.is_empty()
        {
            continue;
        }
        let lost = missing(version, storage);
        let hidden = missing(storage, version);
        let path = format!("{}.schema", version.path);
        if !lost.is_empty() {
            let message =
                format!("the storage version {} does not have {}", storage.name, shown(&lost));
            report.version(version, path, message);
        } else if !hidden.is_empty() {
            let message =
                format!("does not have {} of the storage version {}", shown(&hidden), storage.name);
            report.version(version, path, message);
        }
    }
}

fn keeps_unknown(version: &Version<'_>) -> bool {
    let keeps = |value: Option<&Value>| value.and_then(Value::as_bool) == Some(true);
    let mut top = version.fields.iter().take_while(|field| field.depth == 0);
    top.any(|root| keeps(root.schema.get("x-kubernetes-preserve-unknown-fields")))
}

/// Returns the outermost fields of a version that another does not have.
fn missing<'v>(of: &'v Version<'_>, other: &Version<'_>) -> Vec<&'v str> {
    let known: HashSet<&str> = other.fields.iter().map(|field| field.field.as_str()).collect();
    // Whatever is below a map or a field that keeps unknown ones survives.
    let free: Vec<&str> = other
        .fields
        .iter()
        .filter(|field| field.is("x-kubernetes-preserve-unknown-fields"))
        .map(|field| field.field.as_str())
        .collect();
    let is_missing = |field: &str| {
        let is_free = |prefix: &&str| {
            field.strip_prefix(*prefix).is_some_and(|rest| rest.starts_with(['.', '[', '{']))
        };
        !known.contains(field) && !free.iter().any(is_free)
    };
    // The metadata of each version is the same, whatever its schema says.
    let of_author = of.fields.iter().filter(|field| !field.field.starts_with("metadata"));
    let outermost = of_author.filter(|field| {
        let parent = field.parent.and_then(|parent| of.fields.get(parent));
        is_missing(&field.field) && !parent.is_some_and(|parent| is_missing(&parent.field))
    });
    outermost.map(|field| field.field.as_str()).collect()
}

fn shown(fields: &[&str]) -> String {
    match fields.len() {
        ..=SHOWN_FIELDS_MAX => fields.join(", "),
        count => {
            let first = fields[..SHOWN_FIELDS_MAX].join(", ");
            format!("{first} and {} more fields", count - SHOWN_FIELDS_MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_named_as_kubernetes_names_its_own() {
        for (name, want) in [
            ("v1", true),
            ("v10beta2", true),
            ("v1alpha1", true),
            ("v1alpha", false),
            ("v0", false),
            ("v1beta0", false),
            ("v1gamma1", false),
            ("1", false),
            ("stable", false),
        ] {
            assert_eq!(is_kubernetes_like(name), want, "{name}");
        }
    }
}
