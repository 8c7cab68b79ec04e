//! Checks that the CEL expressions of webhooks and policies compile and have the right type.

use crate::check::Field;
use keelson_cel::Version;
use keelson_cel::admission::{Compiler, Purpose};
use keelson_meta::{ErrorList, FieldError, Value};
use std::collections::HashSet;

/// Start of an error message that is reported as internal, not as an invalid value.
const INSTANTIATION: &str = "program instantiation failed";

/// Compiles the expressions of a webhook or policy. Unchanged expressions may use every released
/// CEL library, new ones only those that the previous Kubernetes version supports too.
pub(super) struct Expressions<'o> {
    compiler: Compiler,
    /// The texts of the expressions before an update.
    old: HashSet<&'o str>,
}

impl<'o> Expressions<'o> {
    /// Creates a compiler for the match conditions of a webhook. `old` is the webhook before an
    /// update.
    pub fn of_webhook(old: Option<&'o Value>) -> Expressions<'o> {
        Expressions { compiler: Compiler::webhook(Version::NEW_EXPRESSIONS), old: texts(old) }
    }

    /// Creates a compiler for a ValidatingAdmissionPolicy. `old` is its spec before an update.
    pub fn of_validating(spec: &Field<'_, '_>, old: Option<&'o Value>) -> Expressions<'o> {
        let compiler = Compiler::policy(Version::NEW_EXPRESSIONS, spec.has("paramKind"));
        // Without variables, `variables` is not declared either.
        let compiler = match spec.field("variables").array().is_empty() {
            true => compiler.without_variables(),
            false => compiler,
        };
        Expressions { compiler, old: texts(old) }
    }

    /// Creates a compiler for a MutatingAdmissionPolicy, where `variables` is always declared.
    pub fn of_mutating(spec: &Field<'_, '_>, old: Option<&'o Value>) -> Expressions<'o> {
        let compiler = Compiler::policy(Version::NEW_EXPRESSIONS, spec.has("paramKind"));
        Expressions { compiler, old: texts(old) }
    }

    /// Checks the expression of a match condition, which cannot use variables.
    pub fn match_condition(&self, at: &Field<'_, '_>, errors: &mut ErrorList) {
        let compiler = self.compiler.without_variables();
        let is_old = self.old.contains(at.text());
        let text = Value::from(at.text().trim());
        let trimmed = Field { value: &text, path: at.path };
        check(&compiler, &trimmed, Purpose::Condition, is_old, errors);
    }

    /// Checks an expression of the spec. Those of audit annotations and mutations are trimmed
    /// first.
    pub fn check(&self, at: &Field<'_, '_>, purpose: Purpose, errors: &mut ErrorList) {
        check(&self.compiler, at, purpose, self.old.contains(at.text()), errors);
    }

    /// Checks a variable and declares it for the expressions that are checked later.
    pub fn variable(&mut self, name: &str, at: &Field<'_, '_>, errors: &mut ErrorList) {
        if let Err(why) = &self.compiler.variable(name, at.text()).program {
            report(at, at.text(), why, errors);
        }
    }
}

/// Collects all strings in the lists of a webhook or of the spec of a policy.
fn texts(spec: Option<&Value>) -> HashSet<&str> {
    let mut out = HashSet::new();
    for list in ["matchConditions", "validations", "auditAnnotations", "mutations"] {
        let items = spec.map(|spec| spec.array_at(&[list])).unwrap_or_default();
        items.iter().for_each(|item| collect(item, &mut out));
    }
    out
}

/// Collects the strings of an item and of the maps in it.
fn collect<'o>(item: &'o Value, out: &mut HashSet<&'o str>) {
    match item {
        Value::String(text) => {
            out.insert(text);
        }
        Value::Object(map) => map.iter().for_each(|(_, value)| collect(value, out)),
        _ => {}
    }
}

fn check(
    compiler: &Compiler,
    at: &Field<'_, '_>,
    purpose: Purpose,
    is_old: bool,
    errors: &mut ErrorList,
) {
    let text = match purpose {
        Purpose::Audit | Purpose::JsonPatch | Purpose::ApplyConfiguration => at.text().trim(),
        _ => at.text(),
    };
    let compiled = match is_old {
        true => compiler.at_version(Version::STORED_EXPRESSIONS).compile(text, purpose),
        false => compiler.compile(text, purpose),
    };
    let Err(why) = compiled else { return };
    // Errors of mutations show the trimmed text.
    let shown = if purpose == Purpose::Audit { at.text() } else { text };
    report(at, shown, &why, errors);
}

fn report(at: &Field<'_, '_>, shown: &str, why: &str, errors: &mut ErrorList) {
    if why.starts_with(INSTANTIATION) {
        return errors.push(FieldError::internal(&at.path, why));
    }
    at.invalid_as(errors, shown, why);
}
