//! [`Rule`], [`Finding`], and the [`Report`] that a rule fills.

use crate::definition::{Definition, Field, Version};
use std::fmt;

/// How binding a rule is, by the words of the document that states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// MAY, or a recommendation without one of these words.
    Advice,
    /// SHOULD.
    Warning,
    /// MUST.
    Error,
}

impl Severity {
    /// Returns the word for it: `error`, `warning` or `advice`.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Advice => "advice",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A convention. Its id never changes.
pub struct Rule {
    /// `duration-string`.
    pub id: &'static str,
    /// How binding it is.
    pub severity: Severity,
    /// The document and its section: `API conventions, "Units"`.
    pub section: &'static str,
    /// What the rule wants, in one sentence.
    pub summary: &'static str,
    /// Why, and what to do.
    pub advice: &'static str,
    pub(crate) check: Check,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

/// What a rule looks at.
#[derive(Clone, Copy)]
pub(crate) enum Check {
    /// The whole definition.
    Definition(fn(&Definition<'_>, &mut Report)),
    /// Each version.
    Version(fn(&Version<'_>, &mut Report)),
    /// Each field of each version, except those of built-in types that the schema embeds.
    Field(fn(&Version<'_>, &Field<'_>, &mut Report)),
}

/// A place where a definition breaks a rule.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule.
    pub rule: &'static Rule,
    /// The place in the definition: `spec.versions[0].schema.openAPIV3Schema.properties[spec]`.
    pub path: String,
    /// The field of the defined objects: `spec.items[*].name`; empty if the finding is not about
    /// one.
    pub field: String,
    /// What is wrong.
    pub message: String,
    /// The version with the finding; `None` if it is about the whole definition.
    pub version: Option<String>,
    /// Other versions with the same finding.
    pub also_in: Vec<String>,
    /// Number of other fields with the same finding, in other places where the same schema stands.
    pub repeats: usize,
    /// Equal for findings that are one: see [`crate::lint`].
    pub(crate) key: (String, u64),
}

/// Collects the findings of a rule.
pub(crate) struct Report {
    rule: &'static Rule,
    pub findings: Vec<Finding>,
}

impl Report {
    pub fn new(rule: &'static Rule) -> Report {
        Report { rule, findings: vec![] }
    }

    /// Adds a finding about a field. `member` is the member of its schema that is wrong, or empty.
    pub fn field(
        &mut self,
        version: &Version<'_>,
        field: &Field<'_>,
        member: &str,
        message: impl Into<String>,
    ) {
        let path = match member {
            "" => field.path.clone(),
            member => format!("{}.{member}", field.path),
        };
        let message = message.into();
        // The top of an object is never the same as another part of it.
        let key = match version.parent(field) {
            Some(parent) if parent.depth > 1 => {
                (format!("{} {:?} {message}", field.name, field.role), parent.fingerprint())
            }
            _ => (format!("{} {message}", field.field), 0),
        };
        self.findings.push(Finding {
            rule: self.rule,
            path,
            field: field.field.clone(),
            message,
            version: Some(version.name.to_owned()),
            also_in: vec![],
            repeats: 0,
            key,
        });
    }

    /// Adds a finding about a version.
    pub fn version(
        &mut self,
        version: &Version<'_>,
        path: impl Into<String>,
        message: impl Into<String>,
    ) {
        let version = Some(version.name.to_owned());
        self.add(path.into(), version, message.into());
    }

    /// Adds a finding about the definition.
    pub fn definition(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.add(path.into(), None, message.into());
    }

    fn add(&mut self, path: String, version: Option<String>, message: String) {
        self.findings.push(Finding {
            rule: self.rule,
            key: (message.clone(), 0),
            path,
            field: String::new(),
            message,
            version,
            also_in: vec![],
            repeats: 0,
        });
    }
}
