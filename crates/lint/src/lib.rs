//! Finds what in a CustomResourceDefinition breaks the conventions of the Kubernetes API, and what
//! the API server would refuse of it: a definition in, findings out. No IO, no clock.
//!
//! The conventions are those of the Kubernetes project's documents `api-conventions.md` (cited as
//! "API conventions") and `api_changes.md` ("API changes"), with the severity of their words: MUST
//! is an error, SHOULD a warning, and everything else advice.

mod builtin_types;
mod definition;
mod finding;
mod rules;
mod words;

pub use finding::{Finding, Rule, Severity};
pub use rules::RULES;

use definition::Definition;
use finding::{Check, Report};
use keelson_meta::Value;
use std::collections::{BTreeSet, HashMap};

/// The kind of the objects that can be linted.
pub const KIND: &str = "CustomResourceDefinition";
/// The group of the kind.
pub const GROUP: &str = "apiextensions.k8s.io";

/// Returns the findings of a definition, in the order of its fields. `definition` is the object as
/// its file has it, before any default.
///
/// The same finding in several versions is reported once, for the storage version if it has it, and
/// so is the same finding in several places where the same schema stands: [`Finding::also_in`] and
/// [`Finding::repeats`].
pub fn lint(definition: &Value) -> Vec<Finding> {
    let definition = Definition::read(definition);
    if !rules::is_served_version(&definition) {
        // Its schemas stand elsewhere, and the server does not accept it anyway.
        return run(&rules::REFUSED, &definition);
    }
    RULES.iter().flat_map(|rule| run(rule, &definition)).collect()
}

fn run(rule: &'static Rule, definition: &Definition<'_>) -> Vec<Finding> {
    let mut report = Report::new(rule);
    match rule.check {
        Check::Definition(check) => check(definition, &mut report),
        Check::Version(check) => {
            definition.versions.iter().for_each(|version| check(version, &mut report));
        }
        Check::Field(check) => {
            for version in &definition.versions {
                let fields = version.fields.iter().filter(|field| !field.is_builtin);
                fields.for_each(|field| check(version, field, &mut report));
            }
        }
    }
    merged(report.findings)
}

/// Returns the rule with this id.
pub fn rule(id: &str) -> Option<&'static Rule> {
    RULES.iter().copied().find(|rule| rule.id == id)
}

/// Merges findings that are one: the same in several versions, or in several places with the same
/// schema.
fn merged(findings: Vec<Finding>) -> Vec<Finding> {
    let mut merged: Vec<Merged> = vec![];
    let mut known: HashMap<(String, u64), usize> = HashMap::new();
    for finding in findings {
        match known.get(&finding.key) {
            Some(at) => merged[*at].add(finding),
            None => {
                known.insert(finding.key.clone(), merged.len());
                merged.push(Merged { finding, fields: BTreeSet::new() });
            }
        }
    }
    let finish = |merged: Merged| Finding { repeats: merged.fields.len(), ..merged.finding };
    merged.into_iter().map(finish).collect()
}

/// A finding, and the other fields that have it.
struct Merged {
    finding: Finding,
    fields: BTreeSet<String>,
}

impl Merged {
    fn add(&mut self, other: Finding) {
        if other.field != self.finding.field {
            self.fields.insert(other.field);
        }
        if other.version != self.finding.version
            && let Some(version) = other.version
            && !self.finding.also_in.contains(&version)
        {
            self.finding.also_in.push(version);
        }
    }
}
