//! The expressions of webhooks and policies: they compile, and have the type that they should.

use crate::check::At;
use keelson_cel::Version;
use keelson_cel::admission::{Compiler, Purpose};
use keelson_meta::{ErrorList, FieldError, Value};
use std::collections::HashSet;

/// Words of an error that is not the expression's fault alone.
const INSTANTIATION: &str = "program instantiation failed";

/// Checks the expressions of a webhook or policy. Those that it had before an update may use all that was
/// ever released, new ones only what the version before this one understands too.
pub(super) struct Expressions<'o> {
    compiler: Compiler,
    /// Texts of the expressions before an update.
    old: HashSet<&'o str>,
}

impl<'o> Expressions<'o> {
    /// For the match conditions of a webhook; `old` is the webhook before an update.
    pub fn of_webhook(old: Option<&'o Value>) -> Expressions<'o> {
        Expressions { compiler: Compiler::webhook(Version::NEW_EXPRESSIONS), old: texts(old) }
    }

    /// For a validating policy; `old` is its spec before an update.
    pub fn of_validating(spec: &At<'_, '_>, old: Option<&'o Value>) -> Expressions<'o> {
        let compiler = Compiler::policy(Version::NEW_EXPRESSIONS, spec.has("paramKind"));
        // Without variables there is no `variables` either.
        let compiler = match spec.field("variables").array().is_empty() {
            true => compiler.without_variables(),
            false => compiler,
        };
        Expressions { compiler, old: texts(old) }
    }

    /// For a mutating policy, where `variables` is always there.
    pub fn of_mutating(spec: &At<'_, '_>, old: Option<&'o Value>) -> Expressions<'o> {
        let compiler = Compiler::policy(Version::NEW_EXPRESSIONS, spec.has("paramKind"));
        Expressions { compiler, old: texts(old) }
    }

    /// Checks the match conditions' expression at `at`, which sees no variables.
    pub fn match_condition(&self, at: &At<'_, '_>, errors: &mut ErrorList) {
        let compiler = self.compiler.without_variables();
        let is_old = self.old.contains(at.text());
        let text = Value::from(at.text().trim());
        let trimmed = At { value: &text, path: at.path };
        check(&compiler, &trimmed, Purpose::Condition, is_old, errors);
    }

    /// Checks an expression of the spec. What audit annotations and mutations say is
    /// read without blanks around it.
    pub fn check(&self, at: &At<'_, '_>, purpose: Purpose, errors: &mut ErrorList) {
        check(&self.compiler, at, purpose, self.old.contains(at.text()), errors);
    }

    /// Checks a variable, which the expressions that are checked after this can read.
    pub fn variable(&mut self, name: &str, at: &At<'_, '_>, errors: &mut ErrorList) {
        if let Err(why) = &self.compiler.variable(name, at.text()).program {
            report(at, at.text(), why, errors);
        }
    }
}

/// All texts in the lists of a webhook, or of the spec of a policy.
fn texts(spec: Option<&Value>) -> HashSet<&str> {
    let mut out = HashSet::new();
    for list in ["matchConditions", "validations", "auditAnnotations", "mutations"] {
        let items = spec.map(|spec| spec.array_at(&[list])).unwrap_or_default();
        items.iter().for_each(|item| collect(item, &mut out));
    }
    out
}

/// The texts of an item, and of the maps in it.
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
    at: &At<'_, '_>,
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
    // Of mutations the blanks are not shown either.
    let shown = if purpose == Purpose::Audit { at.text() } else { text };
    report(at, shown, &why, errors);
}

fn report(at: &At<'_, '_>, shown: &str, why: &str, errors: &mut ErrorList) {
    if why.starts_with(INSTANTIATION) {
        return errors.push(FieldError::internal(&at.path, why));
    }
    at.invalid_as(errors, shown, why);
}
