//! Validation of `x-kubernetes-validations` in a definition: they compile, give what they should, and do not
//! cost too much by what the schema declares (apiextensions `pkg/apis/apiextensions/validation`).

use super::{Budget, Tree, declare};
use keelson_cel::{
    Compiled, Declared, ESTIMATED_RULE_COST_MAX, ESTIMATED_SCHEMA_COST_MAX, Environment, ListKind,
    OBJECT_COST_MAX, Shape, Type, Version,
};
use keelson_kinds::definitions::{is_sound, schemas};
use keelson_meta::{ErrorList, FieldError, Map, Object, Path, Str, Value, value};
use keelson_schema::structural::DEPTH_MAX;
use std::collections::HashSet;
use std::sync::Arc;

/// Members of a schema in which rules are.
const RULES: &str = "x-kubernetes-validations";
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// The faults of the rules of a definition; those that `old` has may use all that was ever released.
pub(crate) fn definition(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut stored = HashSet::new();
    for (schema, _) in old.map(schemas).unwrap_or_default() {
        texts(schema, 0, &mut stored);
    }
    for (schema, field) in schemas(new) {
        words_of(schema, &field, 0, &mut errors);
        // Of a schema that is refused, rules might only be said to be wrong because of that.
        if !is_sound(schema) {
            continue;
        }
        let declared = Arc::new(declare::root(schema));
        let mut walk = Walk { stored: &stored, costs: vec![], errors: &mut errors };
        walk.schema(schema, &declared, &Place { field: &field, times: 1, apart: None }, 0);
        walk.total(&field);
    }
    errors
}

/// The texts of all rules of a schema.
fn texts(schema: &Map, depth: usize, out: &mut HashSet<Str>) {
    if depth > DEPTH_MAX {
        return;
    }
    let rules = schema.get(RULES).and_then(Value::as_array).unwrap_or_default();
    for name in ["rule", "messageExpression"] {
        out.extend(rules.iter().filter_map(|rule| rule.str_at(&[name])).map(Str::new));
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let members = properties.into_iter().flat_map(Map::iter).map(|(_, member)| member);
    let others = ["items", "additionalProperties"].into_iter().filter_map(|name| schema.get(name));
    for inner in members.chain(others).filter_map(Value::as_object) {
        texts(inner, depth + 1, out);
    }
}

/// Where a schema stands.
struct Place<'p> {
    field: &'p str,
    /// How often its rules are evaluated for one object, at most.
    times: u64,
    /// The list above whose items are not found again in the object before.
    apart: Option<&'p str>,
}

struct Walk<'w> {
    stored: &'w HashSet<Str>,
    /// What each rule may cost, with its field.
    costs: Vec<(String, u64)>,
    errors: &'w mut ErrorList,
}

fn at(field: String, error: FieldError) -> FieldError {
    FieldError { field, ..error }
}

/// `2.5x`, as messages say by how much a limit is exceeded.
fn factor(cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    if factor > 100.0 { "more than 100x".to_owned() } else { format!("{factor:.1}x") }
}

impl Walk<'_> {
    fn schema(&mut self, schema: &Map, declared: &Arc<Declared>, place: &Place<'_>, depth: usize) {
        if depth > DEPTH_MAX {
            return;
        }
        let rules = schema.get(RULES).and_then(Value::as_array).unwrap_or_default();
        for (i, rule) in rules.iter().filter_map(Value::as_object).enumerate() {
            let field = format!("{}.{RULES}[{i}]", place.field);
            self.rule(rule, declared, &Place { field: &field, ..*place });
        }
        self.default(schema, declared, place, depth);
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, member) in properties.into_iter().flat_map(Map::iter) {
            let field = format!("{}.properties[{name}]", place.field);
            if let (Some(member), Some(declared)) =
                (member.as_object(), declare::property(declared, name))
            {
                self.schema(member, &declared, &Place { field: &field, ..*place }, depth + 1);
            }
        }
        let (name, inner, is_apart) = match &declared.shape {
            Shape::List(items, kind) => ("items", items, !matches!(kind, ListKind::Map(_))),
            Shape::Map(values) => ("additionalProperties", values, false),
            _ => return,
        };
        let Some(member) = schema.get(name).and_then(Value::as_object) else { return };
        let field = format!("{}.{name}", place.field);
        let apart = if is_apart { place.apart.or(Some(place.field)) } else { place.apart };
        let times = place.times.saturating_mul(declared.size_max.max(1));
        self.schema(member, inner, &Place { field: &field, times, apart }, depth + 1);
    }

    /// A default must hold to the rules of its own schema.
    fn default(&mut self, schema: &Map, declared: &Arc<Declared>, place: &Place<'_>, depth: usize) {
        let Some(default) = schema.get("default").filter(|default| !default.is_null()) else {
            return;
        };
        let Some(tree) = Tree::read(schema, declared, depth) else { return };
        let (field, mut faults) = (format!("{}.default", place.field), ErrorList::new());
        let mut budget = Budget(OBJECT_COST_MAX);
        tree.check(default, None, &Path::new(&field), &mut budget, &mut faults);
        // Rules that do not compile are told where they stand.
        if self.errors.is_empty() {
            self.errors.extend(faults);
        }
    }

    fn rule(&mut self, rule: &Map, declared: &Arc<Declared>, place: &Place<'_>) {
        let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
        let field = |name: &str| format!("{}.{name}", place.field);
        let source = text("rule");
        if source.trim().is_empty() {
            return;
        }
        let optional_old = rule.get("optionalOldSelf").and_then(Value::as_bool);
        let compiled = self.compile(source, declared, optional_old == Some(true));
        let uses_old = compiled.is_ok() && source.contains("oldSelf");
        match compiled {
            Err(why) => self.errors.push(at(field("rule"), invalid(rule, &why))),
            Ok(compiled) if *compiled.program.result_type() != Type::Bool => {
                let why = "cel expression must evaluate to a bool";
                self.errors.push(at(field("rule"), invalid(rule, why)));
            }
            Ok(compiled) => self.cost(field("rule"), compiled.cost.max.saturating_mul(place.times)),
        }
        if let (true, Some(list)) = (uses_old && optional_old != Some(true), place.apart) {
            let why = format!(
                "oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
            );
            self.errors.push(at(field("rule"), FieldError::invalid(&Path::ROOT, source, &why)));
        }
        if let (Some(optional), false) = (optional_old, uses_old) {
            let why = "may not be set if oldSelf is not used in rule";
            let error = FieldError::invalid(&Path::ROOT, optional, why);
            self.errors.push(at(field("optionalOldSelf"), error));
        }
        let message = text("messageExpression");
        if !message.is_empty() {
            match self.compile(message, declared, optional_old == Some(true)) {
                Err(why) => {
                    let why = format!("messageExpression {why}");
                    self.errors.push(at(field("messageExpression"), invalid(rule, &why)));
                }
                Ok(compiled) if *compiled.program.result_type() != Type::String => {
                    let why = "messageExpression must evaluate to a string";
                    self.errors.push(at(field("messageExpression"), invalid(rule, why)));
                }
                Ok(compiled) => {
                    let cost = compiled.cost.max.saturating_mul(place.times);
                    self.cost(field("messageExpression"), cost);
                }
            }
        }
    }

    fn compile(
        &self,
        text: &str,
        declared: &Arc<Declared>,
        optional_old: bool,
    ) -> Result<Compiled, String> {
        let is_stored = self.stored.contains(text);
        let version =
            if is_stored { Version::STORED_EXPRESSIONS } else { Version::NEW_EXPRESSIONS };
        let env = environment(version, declared, optional_old);
        env.compile(text).map_err(|error| error.to_string())
    }

    fn cost(&mut self, field: String, cost: u64) {
        if cost > ESTIMATED_RULE_COST_MAX {
            let why = format!(
                "estimated rule cost exceeds budget by factor of {} (try simplifying the rule, or adding \
                 maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)",
                factor(cost, ESTIMATED_RULE_COST_MAX)
            );
            self.errors.push(at(field.clone(), FieldError::forbidden(&Path::ROOT, &why)));
        }
        self.costs.push((field, cost));
    }

    /// What all rules of a schema cost together.
    fn total(&mut self, field: &str) {
        let total = self.costs.iter().fold(0, |sum: u64, (_, cost)| sum.saturating_add(*cost));
        if total <= ESTIMATED_SCHEMA_COST_MAX {
            return;
        }
        // The rules that cost most are named.
        for (field, cost) in std::mem::take(&mut self.costs) {
            if cost >= ESTIMATED_SCHEMA_COST_MAX / 100 {
                let why = "contributed to estimated rule cost total exceeding cost limit for entire \
                           OpenAPIv3 schema";
                self.errors.push(at(field, FieldError::forbidden(&Path::ROOT, why)));
            }
        }
        let why = format!(
            "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget \
             by factor of {} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength \
             where arrays, maps, and strings are declared)",
            factor(total, ESTIMATED_SCHEMA_COST_MAX)
        );
        self.errors.push(at(field.to_owned(), FieldError::forbidden(&Path::ROOT, &why)));
    }
}

/// What the rules of a schema and of those in it say beside their expressions.
fn words_of(schema: &Map, field: &str, depth: usize, errors: &mut ErrorList) {
    if depth > DEPTH_MAX {
        return;
    }
    let rules = schema.get(RULES).and_then(Value::as_array).unwrap_or_default();
    for (i, rule) in rules.iter().filter_map(Value::as_object).enumerate() {
        words(rule, schema, &format!("{field}.{RULES}[{i}]"), errors);
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, member) in properties.into_iter().flat_map(Map::iter) {
        if let Some(member) = member.as_object() {
            words_of(member, &format!("{field}.properties[{name}]"), depth + 1, errors);
        }
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(name).and_then(Value::as_object) {
            words_of(inner, &format!("{field}.{name}"), depth + 1, errors);
        }
    }
}

/// What a rule says beside its expressions.
fn words(rule: &Map, schema: &Map, place: &str, errors: &mut ErrorList) {
    let field = |name: &str| format!("{place}.{name}");
    let source = rule.get("rule").and_then(Value::as_str).unwrap_or_default();
    if source.trim().is_empty() {
        let error = FieldError::required(&Path::ROOT, "rule is not specified");
        errors.push(at(field("rule"), error));
    }
    if let Some(message) = rule.get("message").and_then(Value::as_str).filter(|m| !m.is_empty()) {
        let why = match message {
            blank if blank.trim().is_empty() => Some("must be non-empty if specified"),
            lines if lines.contains('\n') => Some("must not contain line breaks"),
            _ => None,
        };
        if let Some(why) = why {
            errors.push(at(field("message"), FieldError::invalid(&Path::ROOT, message, why)));
        }
    }
    if let Some(reason) = rule.get("reason").and_then(Value::as_str)
        && !REASONS.contains(&reason)
    {
        let error = FieldError::not_supported(&Path::ROOT, reason, &REASONS);
        errors.push(at(field("reason"), error));
    }
    if let Some(path) = rule.get("fieldPath").and_then(Value::as_str).filter(|p| !p.is_empty())
        && !leads_somewhere(path, schema)
    {
        let error = FieldError::invalid(&Path::ROOT, path, "must be a valid path");
        errors.push(at(field("fieldPath"), error));
    }
}

/// A fault of a rule, which is shown as upstream's internal type.
fn invalid(rule: &Map, why: &str) -> FieldError {
    let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
    let or_null = |name: &str| rule.get(name).cloned().unwrap_or_default();
    let shown = value!({
        "Rule": (text("rule")), "Message": (text("message")),
        "MessageExpression": (text("messageExpression")), "Reason": (or_null("reason")),
        "FieldPath": (text("fieldPath")), "OptionalOldSelf": (or_null("optionalOldSelf"))
    });
    FieldError::invalid(&Path::ROOT, shown, why)
}

/// Whether a path such as `.a.b['c']` leads to a member that the schema has.
fn leads_somewhere(path: &str, schema: &Map) -> bool {
    let Some(plain) = path.strip_prefix('.') else { return false };
    let plain = plain.replace("['", ".").replace("']", "");
    let mut at = Some(schema);
    for name in plain.split('.') {
        let Some(schema) = at else { return false };
        let member = schema.get("properties").and_then(|properties| properties.get(name));
        at = member.or(schema.get("additionalProperties")).and_then(Value::as_object);
    }
    at.is_some()
}

/// The environment in which the rules of a value are compiled.
pub(super) fn environment(
    version: Version,
    declared: &Arc<Declared>,
    optional_old: bool,
) -> Environment {
    let env = Environment::kubernetes(version).with_declared("self", declared.clone());
    match optional_old {
        true => env.with_variable("oldSelf", Type::optional(declared.ty())),
        false => env.with_declared("oldSelf", declared.clone()),
    }
}
