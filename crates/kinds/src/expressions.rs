//! CEL validation rules of custom resources (`x-kubernetes-validations`, apiextensions
//! `pkg/apiserver/schema/cel`), compiled against the types of the structural schema.

mod declare;
mod validate;

pub use declare::decl_type;
pub use keelson_cel::{ESTIMATED_RULE_COST_MAX, ESTIMATED_SCHEMA_COST_MAX};
pub(crate) use validate::definition as validate_definition;
use validate::environment;
pub use validate::estimated_costs;

use keelson_cel::{
    Compiled, DeclType, EXPRESSION_COST_MAX, EvalError, Limits, OBJECT_COST_MAX, Shape, Val,
    Version, adapt,
};
use keelson_meta::{ErrorList, FieldError, Map, Path, Str, Value};
use keelson_schema::json;
use keelson_schema::structural::{SchemaPart, Structural, list_map_key};
use std::collections::HashMap;
use std::sync::Arc;

/// The compiled rules of one version of a custom resource.
#[derive(Debug)]
pub struct ObjectRules(Tree);

/// The rules of a value and of the values inside it. Only values with rules have a tree.
#[derive(Debug)]
struct Tree {
    decl_type: Arc<DeclType>,
    /// The `type` of its schema as messages show it; empty for a number or string.
    type_name: Str,
    rules: Vec<Rule>,
    properties: Vec<(Str, Tree)>,
    items: Option<Box<Tree>>,
    /// The rules of `additionalProperties`.
    additional: Option<Box<Tree>>,
    /// The list map keys that correlate items with those of the old list.
    keys: Vec<Str>,
}

#[derive(Debug)]
struct Rule {
    text: Str,
    message: Str,
    /// The source and the compiled expression.
    message_expression: Option<(Str, Compiled)>,
    reason: Str,
    field_path: Str,
    optional_old: bool,
    uses_old: bool,
    program: Result<Compiled, String>,
}

/// The stored object of an update, and the schema by which its values are correlated with the new
/// ones.
#[derive(Clone, Copy, Debug)]
pub struct OldObject<'o> {
    /// The whole object.
    pub object: &'o Map,
    /// That of the version in which both are.
    pub schema: &'o Structural,
}

/// What was there before an update, in the place of a value.
#[derive(Clone, Copy, Default)]
struct Before<'o> {
    /// `None`: nothing, or nothing that can be correlated.
    value: Option<&'o Value>,
    schema: Option<SchemaPart<'o>>,
    /// Whether the value, or one around it, is as it was: the rules that it breaks are no errors.
    is_unchanged: bool,
}

impl<'o> Before<'o> {
    /// Returns what was there before `value`.
    fn of(value: &Value, old: Option<&'o Value>, schema: Option<SchemaPart<'o>>) -> Before<'o> {
        let is_same = |(schema, old): (SchemaPart<'_>, _)| schema.is_unchanged(value, old);
        Before { value: old, schema, is_unchanged: schema.zip(old).is_some_and(is_same) }
    }

    fn member(&self, name: &str, value: &Value) -> Before<'o> {
        let old = self.value.and_then(Value::as_object).and_then(|old| old.get(name));
        let schema = self.schema.and_then(|schema| schema.member(name));
        self.within(Before::of(value, old, schema))
    }

    fn item(&self, value: &Value, old: Option<&'o Value>) -> Before<'o> {
        self.within(Before::of(value, old, self.schema.and_then(SchemaPart::item)))
    }

    fn within(&self, inner: Before<'o>) -> Before<'o> {
        Before { is_unchanged: self.is_unchanged || inner.is_unchanged, ..inner }
    }
}

/// What the rules of an object have found so far.
struct Findings<'f> {
    budget: Budget,
    errors: &'f mut ErrorList,
    /// Rules that unchanged values break.
    ratcheted: ErrorList,
}

impl Findings<'_> {
    fn new(errors: &mut ErrorList) -> Findings<'_> {
        let ratcheted = ErrorList::new();
        Findings { budget: Budget(Some(OBJECT_COST_MAX)), errors, ratcheted }
    }
}

/// Why a value fails a rule.
enum Breach {
    Violated(FieldError),
    /// The rule, or its message, cannot be evaluated: this is always an error.
    NotEvaluated(FieldError),
}

/// The remaining CEL cost of the rules of an object. `None`: it is used up, and no further rule
/// runs.
struct Budget(Option<u64>);

impl Budget {
    /// Evaluates an expression. `None`: it exceeded the remaining cost.
    fn evaluate<'a>(
        &mut self,
        expression: &'a Compiled,
        variables: &'a [Option<Val<'a>>],
    ) -> Option<Result<Val<'a>, EvalError>> {
        let left = self.0?;
        let limits = Limits { cost_max: EXPRESSION_COST_MAX.min(left) };
        let outcome = expression.program.evaluate(variables, &limits);
        self.0 = left.checked_sub(outcome.cost);
        self.0.map(|_| outcome.result)
    }
}

impl ObjectRules {
    /// Compiles the rules of an OpenAPI v3 schema in JSON. `None`: it has none.
    pub fn read(schema: &[u8]) -> Option<ObjectRules> {
        let parsed = json::parse(schema).ok()?.value;
        let schema = parsed.as_object()?;
        let decl_type = Arc::new(declare::root(schema));
        Tree::read(schema, &decl_type, 0).map(ObjectRules)
    }

    /// Runs the rules on an object and appends their errors. Returns those of values that an update
    /// leaves as they were, which are warnings.
    pub fn validate(
        &self,
        obj: &Map,
        old: Option<OldObject<'_>>,
        errors: &mut ErrorList,
    ) -> ErrorList {
        if errors.iter().any(is_blocking) {
            let why = "some validation rules were not checked because the object was invalid; correct \
                       the existing errors to complete validation";
            errors.push(FieldError::invalid(&Path::new("<nil>"), Value::Null, why));
            return ErrorList::new();
        }
        let mut findings = Findings::new(errors);
        let value = Value::Object(obj.clone());
        let schema = old.map(|old| old.schema.part());
        let old = old.map(|old| Value::Object(old.object.clone()));
        let before = Before::of(&value, old.as_ref(), schema);
        self.0.check(&value, &before, &Path::ROOT, &mut findings);
        findings.ratcheted
    }
}

/// Returns whether an error of the schema makes rules pointless, because they would fail for the
/// same reason.
fn is_blocking(error: &FieldError) -> bool {
    use keelson_meta::ErrorType::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
    matches!(error.error_type, NotSupported | Required | TooLong | TooMany | TypeInvalid)
}

/// Formats a scalar for messages; `None` for lists and objects.
fn scalar_text(value: &Value) -> Option<String> {
    let is_scalar = !matches!(value, Value::Array(_) | Value::Object(_));
    is_scalar.then(|| keelson_meta::status::show(value))
}

fn rule_text(rule: &Map) -> &str {
    rule.get("rule").and_then(Value::as_str).unwrap_or_default()
}

impl Tree {
    fn read(schema: &Map, decl_type: &Arc<DeclType>, depth: usize) -> Option<Tree> {
        if depth > keelson_schema::structural::DEPTH_MAX {
            return None;
        }
        let rules: Vec<Rule> = schema
            .get("x-kubernetes-validations")
            .and_then(Value::as_array)
            .unwrap_or_default()
            .iter()
            .filter_map(Value::as_object)
            // No stored definition has one without text: only defaults are checked with it.
            .filter(|rule| !rule_text(rule).trim().is_empty())
            .map(|rule| Rule::read(rule, decl_type))
            .collect();
        let child = |schema: &Value, decl_type: &Arc<DeclType>| {
            Tree::read(schema.as_object()?, decl_type, depth + 1)
        };
        let properties: Vec<(Str, Tree)> = schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(Map::iter)
            .filter_map(|(name, schema)| {
                let decl_type = declare::property(decl_type, name)?;
                Some((name.clone(), child(schema, &decl_type)?))
            })
            .collect();
        let (items, values) = match &decl_type.shape {
            Shape::List(items, _) => (schema.get("items").and_then(|s| child(s, items)), None),
            Shape::Map(values) => {
                (None, schema.get("additionalProperties").and_then(|s| child(s, values)))
            }
            _ => (None, None),
        };
        let keys = match &decl_type.shape {
            Shape::List(_, keelson_cel::ListKind::Map(keys)) => keys.clone(),
            _ => vec![],
        };
        let items = items.map(Box::new);
        let additional = values.map(Box::new);
        let is_empty =
            rules.is_empty() && properties.is_empty() && items.is_none() && additional.is_none();
        let type_name = schema.get("type").and_then(Value::as_str).unwrap_or_default().into();
        let decl_type = decl_type.clone();
        let tree = Tree { decl_type, type_name, rules, properties, items, additional, keys };
        (!is_empty).then_some(tree)
    }

    fn check(
        &self,
        value: &Value,
        before: &Before<'_>,
        path: &Path<'_>,
        findings: &mut Findings<'_>,
    ) {
        if value.is_null() {
            return;
        }
        for rule in &self.rules {
            let found = rule.check(self, value, before.value, path, &mut findings.budget);
            match found {
                Some(Breach::Violated(error)) if before.is_unchanged && !rule.uses_old => {
                    findings.ratcheted.push(error);
                }
                Some(Breach::Violated(error) | Breach::NotEvaluated(error)) => {
                    findings.errors.push(error);
                }
                None => {}
            }
        }
        match value {
            Value::Object(map) => {
                for (name, tree) in &self.properties {
                    if let Some(value) = map.get(name) {
                        let before = before.member(name, value);
                        tree.check(value, &before, &path.field(name), findings);
                    }
                }
                if let Some(tree) = &self.additional {
                    for (name, value) in map.iter() {
                        let before = before.member(name, value);
                        tree.check(value, &before, &path.key(name), findings);
                    }
                }
            }
            Value::Array(items) => {
                let Some(tree) = &self.items else { return };
                let old = before
                    .value
                    .and_then(Value::as_array)
                    .filter(|_| !self.keys.is_empty())
                    .unwrap_or_default()
                    .iter();
                let old = old.filter_map(|item| Some((list_map_key(&self.keys, item)?, item)));
                let old: HashMap<Vec<u8>, &Value> = old.collect();
                for (i, item) in items.iter().enumerate() {
                    let found =
                        list_map_key(&self.keys, item).and_then(|key| old.get(&key).copied());
                    tree.check(item, &before.item(item, found), &path.index(i), findings);
                }
            }
            _ => {}
        }
    }
}

impl Rule {
    fn read(rule: &Map, decl_type: &Arc<DeclType>) -> Rule {
        let text = |name: &str| match rule.get(name) {
            Some(Value::String(text)) => text.clone(),
            _ => Str::default(),
        };
        let optional_old = rule.get("optionalOldSelf") == Some(&true.into());
        let env = environment(Version::STORED_EXPRESSIONS, decl_type, optional_old);
        let source = text("rule");
        let message = text("messageExpression");
        let compile = |text: &str| env.compile(text).map_err(|error| error.to_string());
        Rule {
            program: compile(&source),
            message_expression: Some(message)
                .filter(|text| !text.is_empty())
                .and_then(|text| compile(&text).ok().map(|compiled| (text, compiled))),
            uses_old: source.contains("oldSelf"),
            text: source,
            message: text("message"),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old,
        }
    }

    fn check(
        &self,
        of: &Tree,
        value: &Value,
        old: Option<&Value>,
        path: &Path<'_>,
        budget: &mut Budget,
    ) -> Option<Breach> {
        let is_skipped = self.uses_old && old.is_none() && !self.optional_old;
        if is_skipped || budget.0.is_none() {
            return None;
        }
        let adapted = |value| adapt(value, Some(&of.decl_type)).ok();
        let before = match old {
            Some(old) if self.optional_old => Some(Val::Optional(adapted(old).map(Arc::new))),
            Some(old) => adapted(old),
            None => self.optional_old.then_some(Val::Optional(None)),
        };
        let variables = [adapted(value), before];
        let evaluation_error = |path: &Path<'_>, why: &str| {
            let type_name = Some(format!("\"{}\"", of.type_name));
            FieldError { value: type_name, ..FieldError::invalid(path, Value::Null, why) }
        };
        match self.holds(&variables, budget) {
            Ok(true) => None,
            Ok(false) => Some(match self.message(&variables, budget) {
                Ok(why) => Breach::Violated(self.violation(path, value, &why)),
                Err(why) => Breach::NotEvaluated(self.at_field_path(evaluation_error(path, &why))),
            }),
            Err(why) => Some(Breach::NotEvaluated(with_root_name(evaluation_error(path, &why)))),
        }
    }

    /// Returns whether the rule holds; an error when it cannot be evaluated.
    fn holds(&self, variables: &[Option<Val<'_>>], budget: &mut Budget) -> Result<bool, String> {
        let program =
            self.program.as_ref().map_err(|error| format!("rule compile error: {error}"))?;
        let error = match budget.evaluate(program, variables) {
            Some(Ok(Val::Bool(holds))) => return Ok(holds),
            Some(Ok(_)) => return Err("rule did not give a boolean".to_owned()),
            Some(Err(error)) => error,
            None => {
                let why = "validation failed due to running out of cost budget, no further validation \
                           rules will be run";
                return Err(why.to_owned());
            }
        };
        let rule = match self.message.trim() {
            "" => self.text.trim(),
            message => message,
        };
        if error.is_cost_limit() {
            budget.0 = None;
            return Err(format!(
                "'{error}': no further validation rules will be run due to call cost exceeds limit for \
                 rule: {rule}"
            ));
        }
        if error.message().starts_with("no such overload") {
            return Err(format!(
                "'{error}': call arguments did not match a supported operator, function or macro \
                 signature for rule: {rule}"
            ));
        }
        Err(format!("{error} evaluating rule: {rule}"))
    }

    /// Returns the message of a violated rule; an error when its message expression exceeds the
    /// cost.
    fn message(
        &self,
        variables: &[Option<Val<'_>>],
        budget: &mut Budget,
    ) -> Result<String, String> {
        let words = || match self.message.trim() {
            "" => format!("failed rule: {}", self.text.trim()),
            message => message.to_owned(),
        };
        let Some((text, expression)) = &self.message_expression else { return Ok(words()) };
        match budget.evaluate(expression, variables) {
            Some(Ok(Val::String(text))) => {
                let text = text.as_str();
                let is_usable = !text.trim().is_empty() && !text.contains('\n');
                Ok(if is_usable { text.trim().to_owned() } else { words() })
            }
            Some(Err(error)) if error.is_cost_limit() => {
                budget.0 = None;
                Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for \
                     messageExpression: {}",
                    keelson_meta::status::quote(text)
                ))
            }
            Some(_) => Ok(words()),
            None => {
                let why = "messageExpression evaluation failed due to running out of cost budget, no \
                           further validation rules will be run";
                Err(why.to_owned())
            }
        }
    }

    /// Returns the error of a value that violates the rule.
    fn violation(&self, path: &Path<'_>, value: &Value, why: &str) -> FieldError {
        let error = match self.reason.as_str() {
            "FieldValueRequired" => FieldError::required(path, why),
            "FieldValueForbidden" => FieldError::forbidden(path, why),
            // Upstream loses the message of a duplicate.
            "FieldValueDuplicate" => {
                FieldError { value: None, ..FieldError::duplicate(path, Value::Null) }
            }
            _ => FieldError {
                value: scalar_text(value),
                ..FieldError::invalid(path, Value::Null, why)
            },
        };
        self.at_field_path(error)
    }

    /// Moves an error to the `fieldPath` of the rule.
    fn at_field_path(&self, mut error: FieldError) -> FieldError {
        if !self.field_path.is_empty() {
            error.field.push_str(&self.field_path.replace("['", ".").replace("']", ""));
        }
        with_root_name(error)
    }
}

/// Names the root `<nil>`, as upstream does.
fn with_root_name(mut error: FieldError) -> FieldError {
    if error.field.is_empty() {
        error.field = "<nil>".to_owned();
    } else if let Some(field) = error.field.strip_prefix('.') {
        error.field = field.to_owned();
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    fn rules_of(schema: &Value) -> ObjectRules {
        let mut text = vec![];
        json::write_value(schema, &mut text);
        ObjectRules::read(&text).unwrap()
    }

    /// Returns the errors of an object whose field `l` has these rules and `count` numbers.
    fn faults(rules: Value, count: i64) -> Vec<String> {
        let schema = value!({"type": "object", "properties": {
            "l": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": (rules)}}});
        let rules = rules_of(&schema);
        let numbers: Vec<Value> = (0..count).map(Value::Int).collect();
        let object = [(Str::from("l"), Value::Array(numbers))].into_iter().collect();
        let mut errors = ErrorList::new();
        rules.validate(&object, None, &mut errors);
        errors.iter().map(|error| error.to_string()).collect()
    }

    #[track_caller]
    fn check(rule: Value, expected: &str) {
        assert_eq!(faults(value!([(rule)]), 1_000), [format!("l: Invalid value: {expected}")]);
    }

    const COSTLY: &str = "self.all(x, self.all(y, y >= 0))";

    /// The messages are those of kube-apiserver 1.36.
    #[test]
    fn a_rule_that_cannot_be_evaluated_is_reported() {
        let why = "division by zero evaluating rule";
        check(value!({"rule": " 1 / 0 == 1 "}), &format!("\"array\": {why}: 1 / 0 == 1"));
        let rule = value!({"rule": "1 / 0 == 1", "message": " m ", "reason": "FieldValueRequired"});
        check(rule, &format!("\"array\": {why}: m"));
        check(
            value!({"rule": "null <= null"}),
            "\"array\": 'no such overload: _<=_': call arguments did not match a supported operator, \
             function or macro signature for rule: null <= null",
        );
        check(value!({"rule": "false"}), "failed rule: false");
    }

    #[test]
    fn a_rule_that_costs_too_much_is_the_last() {
        let rules = value!([{"rule": (COSTLY)}, {"rule": "false"}]);
        let expected = format!(
            "l: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further \
             validation rules will be run due to call cost exceeds limit for rule: {COSTLY}"
        );
        assert_eq!(faults(rules, 1_000), [expected]);
        let message = format!("{COSTLY} ? 'a' : 'b'");
        let rules = value!([
            {"rule": "false", "reason": "FieldValueForbidden", "messageExpression": (message.clone())},
            {"rule": "false"}
        ]);
        let expected = format!(
            "l: Invalid value: \"array\": no further validation rules will be run due to call cost exceeds \
             limit for messageExpression: \"{message}\""
        );
        assert_eq!(faults(rules, 1_000), [expected]);
    }

    #[test]
    fn the_rules_of_an_object_have_one_budget() {
        let rules: Vec<Value> = (0..50).map(|_| value!({"rule": (COSTLY)})).collect();
        assert_eq!(faults(Value::Array(rules.clone()), 100), Vec::<String>::new());
        let rules = rules.into_iter().chain([value!({"rule": "false"})]).collect();
        let expected = "l: Invalid value: \"array\": validation failed due to running out of cost budget, \
                        no further validation rules will be run";
        assert_eq!(faults(Value::Array(rules), 250), [expected]);
    }

    #[test]
    fn a_number_or_text_has_no_type_in_messages() {
        let rule = value!([{"rule": "1 / 0 == 1"}]);
        let schema = value!({"type": "object", "properties": {
            "q": {"x-kubernetes-int-or-string": true, "x-kubernetes-validations": (rule)}}});
        let rules = rules_of(&schema);
        let mut errors = ErrorList::new();
        let object = [(Str::from("q"), Value::Int(5))].into_iter().collect();
        rules.validate(&object, None, &mut errors);
        let found: Vec<String> = errors.iter().map(|error| error.to_string()).collect();
        let expected =
            "q: Invalid value: \"\": division by zero evaluating rule: 1 / 0 == 1".to_owned();
        assert_eq!(found, [expected]);
    }
}
