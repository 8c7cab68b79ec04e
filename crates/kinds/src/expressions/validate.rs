//! Validates `x-kubernetes-validations` in a definition: rules must compile, have the right type,
//! and stay within the CEL cost limits by estimate (apiextensions
//! `pkg/apis/apiextensions/validation`).

use super::{Before, Findings, Tree, declare};
use crate::definitions::{
    invalid_schema_fields, is_structural, rule_errors_index, schema_errors_index, schemas,
    validate_defaults,
};
use keelson_cel::{
    Compiled, DeclType, ESTIMATED_RULE_COST_MAX, ESTIMATED_SCHEMA_COST_MAX, Environment, Type,
    Version,
};
use keelson_meta::{ErrorList, FieldError, Map, Object, Path, Str, Value, value};
use keelson_schema::structural::DEPTH_MAX;
use std::collections::HashSet;
use std::sync::Arc;

/// The field of a schema that holds its rules.
const RULES: &str = "x-kubernetes-validations";
/// Rules that are listed when the total cost exceeds the limit.
const COSTLY_RULES_MAX: usize = 4;
/// Validates the rules of a definition and inserts their errors among the other errors. Rules that
/// `old` has may use every released CEL library.
pub(crate) fn definition(new: &Object, old: Option<&Object>, found: &mut ErrorList) {
    let is_sound = found.is_empty();
    let mut stored = HashSet::new();
    for (_, schema, _) in old.map(schemas).unwrap_or_default() {
        texts(schema, 0, &mut stored);
    }
    for (_, schema, field) in schemas(new) {
        let mut rules = HashSet::new();
        texts(schema, 0, &mut rules);
        if rules.is_empty() || !(is_sound || is_structural(schema)) {
            continue;
        }
        let invalid_defaults =
            if is_sound { ErrorList::new() } else { validate_defaults(schema, &field) };
        let position = Position::root(&field);
        let mut walk = Defaults { invalid: &invalid_defaults, errors: ErrorList::new() };
        walk.schema(schema, &field, 0);
        if !walk.errors.is_empty() || !invalid_defaults.is_empty() {
            let last = found.iter().rposition(|error| invalid_defaults.iter().any(|e| e == error));
            let index = last.map_or_else(|| schema_errors_index(found, &field), |last| last + 1);
            found.insert(index, walk.errors);
            continue;
        }
        let mut errors = ErrorList::new();
        let invalid_fields =
            if is_sound { HashSet::new() } else { invalid_schema_fields(schema, &field) };
        let mut walk =
            Walk { stored: &stored, invalid: invalid_fields, costs: vec![], errors: &mut errors };
        walk.schema(schema, &position, 0);
        walk.total(&field);
        found.insert(rule_errors_index(found, &field), errors);
    }
}

/// Returns the estimated costs of the rules of a definition, with their paths as in error messages,
/// a schema after the other. Rules that do not compile have none.
pub fn estimated_costs(definition: &Object) -> Vec<(String, u64)> {
    let stored = HashSet::new();
    let mut all = vec![];
    let mut errors = ErrorList::new();
    for (_, schema, field) in schemas(definition) {
        let position = Position::root(&field);
        let invalid = invalid_schema_fields(schema, &field);
        let mut walk = Walk { stored: &stored, invalid, costs: vec![], errors: &mut errors };
        walk.schema(schema, &position, 0);
        all.append(&mut walk.costs);
    }
    all
}

/// Validates defaults against the rules of their schemas.
struct Defaults<'w> {
    /// The other errors of defaults.
    invalid: &'w ErrorList,
    errors: ErrorList,
}

impl Defaults<'_> {
    fn schema(&mut self, schema: &Map, field: &str, depth: usize) {
        if depth > DEPTH_MAX {
            return;
        }
        if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
            self.default(schema, default, field, depth);
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, member) in properties.into_iter().flat_map(Map::iter) {
            if let Some(member) = member.as_object() {
                self.schema(member, &format!("{field}.properties[{name}]"), depth + 1);
            }
        }
        if let Some(items) = schema.get("items").and_then(Value::as_object) {
            self.schema(items, &format!("{field}.items"), depth + 1);
        }
    }

    fn default(&mut self, schema: &Map, default: &Value, field: &str, depth: usize) {
        let decl_type = match depth {
            0 => Some(declare::root(schema)),
            _ => declare::own(schema, false).map(|(decl_type, _)| decl_type),
        };
        let decl_type = decl_type.map(Arc::new);
        let tree = decl_type.and_then(|decl_type| Tree::read(schema, &decl_type, depth));
        let Some(tree) = tree else { return };
        let field = format!("{field}.default");
        let is_invalid = self.invalid.iter().any(|error| {
            let rest = error.field.strip_prefix(&*field);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        });
        if !is_invalid {
            let mut findings = Findings::new(&mut self.errors);
            tree.check(default, &Before::default(), &Path::new(&field), &mut findings);
        }
    }
}

/// Collects the expressions of all rules of a schema.
fn texts(schema: &Map, depth: usize, out: &mut HashSet<Str>) {
    if depth > DEPTH_MAX {
        return;
    }
    let rules = rules_of(schema);
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

fn rules_of(schema: &Map) -> &[Value] {
    schema.get(RULES).and_then(Value::as_array).unwrap_or_default()
}

/// The position of a schema.
struct Position<'p> {
    field: &'p str,
    is_root: bool,
    /// How often its rules run for one object at most, by the sizes of the enclosing lists and
    /// maps; `None` when one of these is unbounded.
    times: Option<u64>,
    /// The enclosing list whose items cannot be correlated with the old object.
    uncorrelatable_in: Option<&'p str>,
    /// Whether a schema around it has rules.
    is_in_rules: bool,
    /// Whether a schema around it has no type of CEL, so that it has none either: upstream makes
    /// the types from the outermost schema with rules on.
    is_typeless: bool,
}

impl<'p> Position<'p> {
    fn root(field: &'p str) -> Self {
        Position {
            field,
            is_root: true,
            times: Some(1),
            uncorrelatable_in: None,
            is_in_rules: false,
            is_typeless: false,
        }
    }
}

struct Walk<'w> {
    stored: &'w HashSet<Str>,
    /// The paths of invalid schemas and of the schemas around them. CEL errors there may only be a
    /// consequence.
    invalid: HashSet<String>,
    /// The estimated cost of each rule, with its path.
    costs: Vec<(String, u64)>,
    errors: &'w mut ErrorList,
}

fn at(field: String, error: FieldError) -> FieldError {
    FieldError { field, ..error }
}

fn cost_of(compiled: &Compiled, position: &Position<'_>) -> u64 {
    compiled.cost.max.saturating_mul(position.times.unwrap_or(u64::MAX))
}

/// Formats by what factor a limit is exceeded: `2.5x`.
fn factor(cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    match factor {
        _ if factor > 100.0 => "more than 100x".to_owned(),
        // Rounded to one digit, it would look as if the limit were not exceeded.
        _ if factor < 1.5 => format!("{factor:.6}x"),
        _ => format!("{factor:.1}x"),
    }
}

impl Walk<'_> {
    fn schema(&mut self, schema: &Map, position: &Position<'_>, depth: usize) {
        if depth > DEPTH_MAX {
            return;
        }
        let is_in_rules = position.is_in_rules || !rules_of(schema).is_empty();
        let is_typeless = position.is_typeless || is_in_rules && !declare::has_type(schema);
        let within = Position { is_in_rules, is_typeless, ..*position };
        // Messages name the outermost list.
        let outermost = position.uncorrelatable_in.or(Some(position.field));
        let map = schema.get("x-kubernetes-map-type").and_then(Value::as_str);
        let is_known = map.is_none_or(|map| matches!(map, "granular" | "atomic"));
        let uncorrelatable_in = if is_known { position.uncorrelatable_in } else { outermost };
        self.repeated(schema, "additionalProperties", &within, position.uncorrelatable_in, depth);
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, member) in properties.into_iter().flat_map(Map::iter) {
            let field = format!("{}.properties[{name}]", position.field);
            if let Some(member) = member.as_object() {
                let position =
                    Position { field: &field, is_root: false, uncorrelatable_in, ..within };
                self.schema(member, &position, depth + 1);
            }
        }
        let is_map = schema.get("x-kubernetes-list-type").and_then(Value::as_str) == Some("map");
        let uncorrelatable_in = if is_map { position.uncorrelatable_in } else { outermost };
        self.repeated(schema, "items", &within, uncorrelatable_in, depth);
        if !self.invalid.contains(position.field) {
            self.rules(schema, position);
        }
    }

    /// Visits the schema of list items or map values.
    fn repeated(
        &mut self,
        schema: &Map,
        name: &str,
        position: &Position<'_>,
        uncorrelatable_in: Option<&str>,
        depth: usize,
    ) {
        let Some(inner) = schema.get(name).and_then(Value::as_object) else { return };
        let count = match schema.get("type").and_then(Value::as_str) {
            Some("object") => schema.get("maxProperties"),
            Some("array") => schema.get("maxItems"),
            _ => None,
        };
        let count = count.and_then(Value::as_int).map(|count| count.max(0) as u64);
        let times = position.times.zip(count).map(|(times, count)| times.saturating_mul(count));
        let field = format!("{}.{name}", position.field);
        self.schema(
            inner,
            &Position { field: &field, is_root: false, times, uncorrelatable_in, ..*position },
            depth + 1,
        );
    }

    fn rules(&mut self, schema: &Map, position: &Position<'_>) {
        let rules = rules_of(schema);
        if rules.is_empty() {
            return;
        }
        let own = declare::own(schema, position.is_root).filter(|_| !position.is_typeless);
        let Some((decl_type, json_bytes_min)) = own else {
            let why = "internal error: failed to construct type information for \
                       x-kubernetes-validations rules: unable to convert structural schema to CEL \
                       declarations";
            let field = format!("{}.{RULES}", position.field);
            return self.errors.push(at(field, FieldError::internal(&Path::ROOT, why)));
        };
        let times = position.times.unwrap_or(declare::count_in_request(json_bytes_min));
        let decl_type = Arc::new(decl_type);
        for (i, rule) in rules.iter().filter_map(Value::as_object).enumerate() {
            let field = format!("{}.{RULES}[{i}]", position.field);
            let position = Position { field: &field, times: Some(times), ..*position };
            self.rule(rule, &decl_type, &position);
        }
    }

    fn rule(&mut self, rule: &Map, decl_type: &Arc<DeclType>, position: &Position<'_>) {
        let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
        let field = |name: &str| format!("{}.{name}", position.field);
        let source = text("rule");
        if source.trim().is_empty() {
            return;
        }
        let optional_old = rule.get("optionalOldSelf").and_then(Value::as_bool);
        let compiled = match self.compile(source, decl_type, optional_old == Some(true)) {
            Err(why) => Err(why),
            Ok(compiled) if *compiled.program.result_type() != Type::Bool => {
                Err("cel expression must evaluate to a bool".to_owned())
            }
            Ok(compiled) => Ok(compiled),
        };
        let uses_old = compiled.is_ok() && source.contains("oldSelf");
        match &compiled {
            Err(why) => self.errors.push(at(field("rule"), invalid(rule, why))),
            Ok(compiled) => {
                self.cost(field("rule"), "rule", cost_of(compiled, position));
                self.message(rule, decl_type, position);
            }
        }
        if let (true, Some(list)) =
            (uses_old && optional_old != Some(true), position.uncorrelatable_in)
        {
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
    }

    /// Validates the message expression of a rule.
    fn message(&mut self, rule: &Map, decl_type: &Arc<DeclType>, position: &Position<'_>) {
        let message = rule.get("messageExpression").and_then(Value::as_str).unwrap_or_default();
        if message.is_empty() {
            return;
        }
        let optional_old = rule.get("optionalOldSelf").and_then(Value::as_bool);
        let field = format!("{}.messageExpression", position.field);
        match self.compile(message, decl_type, optional_old == Some(true)) {
            Err(why) => {
                let why = format!("messageExpression {why}");
                self.errors.push(at(field, invalid(rule, &why)));
            }
            Ok(compiled) if *compiled.program.result_type() != Type::String => {
                let why = "messageExpression must evaluate to a string";
                self.errors.push(at(field, invalid(rule, why)));
            }
            Ok(compiled) => {
                let cost = cost_of(&compiled, position);
                self.cost(field, "messageExpression", cost);
            }
        }
    }

    fn compile(
        &self,
        text: &str,
        decl_type: &Arc<DeclType>,
        optional_old: bool,
    ) -> Result<Compiled, String> {
        let is_stored = self.stored.contains(text);
        let version =
            if is_stored { Version::STORED_EXPRESSIONS } else { Version::NEW_EXPRESSIONS };
        let env = environment(version, decl_type, optional_old);
        env.compile(text).map_err(|error| error.to_string())
    }

    fn cost(&mut self, field: String, what: &str, cost: u64) {
        if cost > ESTIMATED_RULE_COST_MAX {
            let why = format!(
                "estimated {what} cost exceeds budget by factor of {} (try simplifying the rule, or adding \
                 maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)",
                factor(cost, ESTIMATED_RULE_COST_MAX)
            );
            self.errors.push(at(field.clone(), FieldError::forbidden(&Path::ROOT, &why)));
        }
        self.costs.push((field, cost));
    }

    /// Checks the total cost of the rules of a schema.
    fn total(&mut self, field: &str) {
        let total = self.costs.iter().fold(0, |sum: u64, (_, cost)| sum.saturating_add(*cost));
        if total <= ESTIMATED_SCHEMA_COST_MAX {
            return;
        }
        // The message lists the most expensive rules.
        let mut costs = std::mem::take(&mut self.costs);
        costs.retain(|(_, cost)| *cost >= ESTIMATED_SCHEMA_COST_MAX / 100);
        costs.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
        for (field, _) in costs.into_iter().take(COSTLY_RULES_MAX) {
            let why = "contributed to estimated rule cost total exceeding cost limit for entire \
                       OpenAPIv3 schema";
            self.errors.push(at(field, FieldError::forbidden(&Path::ROOT, why)));
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

/// Returns an error of a rule, which is shown as upstream's internal type.
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

/// Creates the CEL environment for the rules of a value.
pub(super) fn environment(
    version: Version,
    decl_type: &Arc<DeclType>,
    optional_old: bool,
) -> Environment {
    let env = Environment::kubernetes(version).with_decl_type("self", decl_type.clone());
    match optional_old {
        true => env.with_variable("oldSelf", Type::optional(decl_type.ty())),
        false => env.with_decl_type("oldSelf", decl_type.clone()),
    }
}
