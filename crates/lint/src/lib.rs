//! Finds what in a CustomResourceDefinition breaks the conventions of the Kubernetes API, and what the API server
//! would refuse of it: a definition in, findings out. No IO, no clock.
//!
//! The conventions are those of the Kubernetes project's documents `api-conventions.md` (cited as "API conventions")
//! and `api_changes.md` ("API changes"), with the severity of their words: MUST is an error, SHOULD a warning, and
//! everything else advice.

mod builtin_types;
mod definition;
mod finding;
mod rules;
mod words;

pub use finding::{Finding, Rule, Severity};
pub use rules::RULES;

use definition::Definition;
use finding::Report;
use keelson_meta::Value;
use std::collections::HashMap;

/// The kind of the objects that can be linted.
pub const KIND: &str = "CustomResourceDefinition";
/// The group of the kind.
pub const GROUP: &str = "apiextensions.k8s.io";

/// Returns the findings of a definition, in the order of its fields. `definition` is the object as its file has it,
/// before any default.
///
/// The same finding in several versions is reported once, for the storage version if it has it:
/// [`Finding::also_in`] names the others.
pub fn lint(definition: &Value) -> Vec<Finding> {
    let definition = Definition::read(definition);
    let mut findings = vec![];
    for rule in RULES.iter().copied() {
        let mut report = Report::new(rule);
        match rule.check {
            finding::Check::Definition(check) => check(&definition, &mut report),
            finding::Check::Version(check) => {
                definition.versions.iter().for_each(|version| check(version, &mut report));
            }
            finding::Check::Field(check) => {
                for version in &definition.versions {
                    let fields = version.fields.iter().filter(|field| !field.is_builtin);
                    fields.for_each(|field| check(version, field, &mut report));
                }
            }
        }
        findings.extend(merged(report.findings));
    }
    findings
}

/// Returns the rule with this id.
pub fn rule(id: &str) -> Option<&'static Rule> {
    RULES.iter().copied().find(|rule| rule.id == id)
}

/// Merges the same finding in several versions into the first of them.
fn merged(findings: Vec<Finding>) -> Vec<Finding> {
    let mut merged: Vec<Finding> = vec![];
    let mut known: HashMap<(String, String), usize> = HashMap::new();
    for finding in findings {
        let key = (finding.field.clone(), finding.message.clone());
        match known.get(&key) {
            Some(at) if merged[*at].version != finding.version => {
                let also = finding.version.into_iter().filter(|version| {
                    Some(version) != merged[*at].version.as_ref()
                        && !merged[*at].also_in.contains(version)
                });
                let also: Vec<String> = also.collect();
                merged[*at].also_in.extend(also);
            }
            Some(_) => {}
            None => {
                known.insert(key, merged.len());
                merged.push(finding);
            }
        }
    }
    merged
}
