//! Validation rules of custom resources in CEL (`x-kubernetes-validations`, apiextensions
//! `pkg/apiserver/schema/cel`), compiled with the types that the schema declares.

mod declare;
mod validate;

pub use declare::declared;
pub(crate) use validate::definition as validate_definition;
use validate::environment;

use keelson_cel::{
    Compiled, Declared, EXPRESSION_COST_MAX, Limits, OBJECT_COST_MAX, Shape, Val, Version, adapt,
};
use keelson_meta::{ErrorList, FieldError, Map, Path, Str, Value};
use keelson_schema::json;
use keelson_schema::structural::key_of;
use std::collections::HashMap;
use std::sync::Arc;

/// The rules of the objects of one version of a custom resource.
#[derive(Debug)]
pub struct ObjectRules(Tree);

/// The rules of a value and of what is in it. A value without any has no tree.
#[derive(Debug)]
struct Tree {
    declared: Arc<Declared>,
    rules: Vec<Rule>,
    properties: Vec<(Str, Tree)>,
    items: Option<Box<Tree>>,
    /// Of the members that `properties` does not name.
    additional: Option<Box<Tree>>,
    /// By which the items of a list are found in the list before.
    keys: Vec<Str>,
}

#[derive(Debug)]
struct Rule {
    text: Str,
    message: Str,
    message_expression: Option<Compiled>,
    reason: Str,
    field_path: Str,
    optional_old: bool,
    uses_old: bool,
    program: Result<Compiled, String>,
}

/// What a validation may still spend.
struct Budget(u64);

impl ObjectRules {
    /// The rules of a schema in OpenAPI v3, as JSON. `None`: it has none.
    pub fn read(schema: &[u8]) -> Option<ObjectRules> {
        let parsed = json::parse(schema).ok()?.value;
        let schema = parsed.as_object()?;
        let declared = Arc::new(declare::root(schema));
        Tree::read(schema, &declared, 0).map(ObjectRules)
    }

    /// The faults that the rules find in an object; `old` is what an update changes.
    pub fn validate(&self, obj: &Map, old: Option<&Map>, errors: &mut ErrorList) {
        if errors.iter().any(is_blocking) {
            let why = "some validation rules were not checked because the object was invalid; correct \
                       the existing errors to complete validation";
            errors.push(FieldError::invalid(&Path::new("<nil>"), Value::Null, why));
            return;
        }
        let mut budget = Budget(OBJECT_COST_MAX);
        let (value, old) = (Value::Object(obj.clone()), old.map(|old| Value::Object(old.clone())));
        self.0.check(&value, old.as_ref(), &Path::ROOT, &mut budget, errors);
    }
}

/// Whether a fault is one after which rules would only repeat it.
fn is_blocking(error: &FieldError) -> bool {
    use keelson_meta::Fault::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
    matches!(error.fault, NotSupported | Required | TooLong | TooMany | TypeInvalid)
}

/// A scalar, as messages show it; of lists and objects nothing is shown.
fn shown(value: &Value) -> Option<String> {
    let is_scalar = !matches!(value, Value::Array(_) | Value::Object(_));
    is_scalar.then(|| keelson_meta::status::show(value))
}

/// What a value is called where a rule could not be evaluated.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Int(_) => "integer",
        Value::Float(_) => "number",
        Value::Bool(_) => "boolean",
        _ => "string",
    }
}

impl Tree {
    fn read(schema: &Map, declared: &Arc<Declared>, depth: usize) -> Option<Tree> {
        if depth > keelson_schema::structural::DEPTH_MAX {
            return None;
        }
        let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array);
        let rules = rules.unwrap_or_default().iter().filter_map(Value::as_object);
        let rules: Vec<Rule> = rules.map(|rule| Rule::read(rule, declared)).collect();
        let child = |schema: &Value, declared: &Arc<Declared>| {
            Tree::read(schema.as_object()?, declared, depth + 1)
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        let properties = properties.into_iter().flat_map(Map::iter);
        let properties: Vec<(Str, Tree)> = properties
            .filter_map(|(name, schema)| {
                let declared = declare::property(declared, name)?;
                Some((name.clone(), child(schema, &declared)?))
            })
            .collect();
        let (items, values) = match &declared.shape {
            Shape::List(items, _) => (schema.get("items").and_then(|s| child(s, items)), None),
            Shape::Map(values) => {
                (None, schema.get("additionalProperties").and_then(|s| child(s, values)))
            }
            _ => (None, None),
        };
        let keys = match &declared.shape {
            Shape::List(_, keelson_cel::ListKind::Map(keys)) => keys.clone(),
            _ => vec![],
        };
        let (items, additional) = (items.map(Box::new), values.map(Box::new));
        let is_empty =
            rules.is_empty() && properties.is_empty() && items.is_none() && additional.is_none();
        let declared = declared.clone();
        (!is_empty).then_some(Tree { declared, rules, properties, items, additional, keys })
    }

    fn check(
        &self,
        value: &Value,
        old: Option<&Value>,
        path: &Path<'_>,
        budget: &mut Budget,
        errors: &mut ErrorList,
    ) {
        if value.is_null() {
            return;
        }
        for rule in &self.rules {
            if let Some(fault) = rule.check(&self.declared, value, old, path, budget) {
                errors.push(fault);
            }
        }
        match value {
            Value::Object(map) => {
                let old = old.and_then(Value::as_object);
                let old = |name: &str| old.and_then(|old| old.get(name));
                for (name, tree) in &self.properties {
                    if let Some(value) = map.get(name) {
                        tree.check(value, old(name), &path.field(name), budget, errors);
                    }
                }
                if let Some(tree) = &self.additional {
                    for (name, value) in map.iter() {
                        tree.check(value, old(name), &path.key(name), budget, errors);
                    }
                }
            }
            Value::Array(items) => {
                let Some(tree) = &self.items else { return };
                let before = old.and_then(Value::as_array).filter(|_| !self.keys.is_empty());
                let before = before.unwrap_or_default().iter();
                let before = before.filter_map(|item| Some((key_of(&self.keys, item)?, item)));
                let before: HashMap<Vec<u8>, &Value> = before.collect();
                for (i, item) in items.iter().enumerate() {
                    let old = key_of(&self.keys, item).and_then(|key| before.get(&key).copied());
                    tree.check(item, old, &path.index(i), budget, errors);
                }
            }
            _ => {}
        }
    }
}

impl Rule {
    fn read(rule: &Map, declared: &Arc<Declared>) -> Rule {
        let text = |name: &str| match rule.get(name) {
            Some(Value::String(text)) => text.clone(),
            _ => Str::default(),
        };
        let optional_old = rule.get("optionalOldSelf") == Some(&true.into());
        let env = environment(Version::STORED_EXPRESSIONS, declared, optional_old);
        let (source, message) = (text("rule"), text("messageExpression"));
        let compile = |text: &str| env.compile(text).map_err(|error| error.to_string());
        Rule {
            program: compile(&source),
            message_expression: Some(message)
                .filter(|text| !text.is_empty())
                .and_then(|text| compile(&text).ok()),
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
        declared: &Declared,
        value: &Value,
        old: Option<&Value>,
        path: &Path<'_>,
        budget: &mut Budget,
    ) -> Option<FieldError> {
        // A rule about a change says nothing of what is new; one about a value says nothing new of what
        // did not change.
        let is_skipped = match (self.uses_old, old) {
            (true, None) => !self.optional_old,
            (false, Some(old)) => old == value,
            _ => false,
        };
        if is_skipped || budget.0 == 0 {
            return None;
        }
        let adapted = |value| adapt(value, Some(declared)).ok();
        let before = match old {
            Some(old) if self.optional_old => Some(Val::Optional(adapted(old).map(Arc::new))),
            Some(old) => adapted(old),
            None => self.optional_old.then_some(Val::Optional(None)),
        };
        let variables = [adapted(value), before];
        let failed = match &self.program {
            Err(error) => Some(format!("rule compile error: {error}")),
            Ok(compiled) => {
                let limits =
                    Limits { cost_max: EXPRESSION_COST_MAX.min(budget.0), interrupted: None };
                let outcome = compiled.program.evaluate(&variables, &limits);
                budget.0 = budget.0.saturating_sub(outcome.cost);
                match outcome.result {
                    Ok(Val::Bool(true)) => return None,
                    Ok(Val::Bool(false)) => None,
                    Ok(_) => Some("rule did not give a boolean".to_owned()),
                    Err(error) => Some(format!("{error} evaluating rule: {}", self.words())),
                }
            }
        };
        let is_false = failed.is_none();
        let why = failed.unwrap_or_else(|| self.told(&variables, budget));
        let mut error = self.error(path, value, is_false, &why);
        if !is_false {
            let is_whole = matches!(value, Value::Int(_));
            let is_number = is_whole && matches!(declared.shape, Shape::Double);
            let name = if is_number { "number" } else { type_name(value) };
            error.shown = Some(format!("\"{name}\""));
        }
        Some(error)
    }

    /// What is said of a rule that does not hold.
    fn words(&self) -> String {
        match self.message.trim() {
            "" => format!("failed rule: {}", self.text.trim()),
            message => message.to_owned(),
        }
    }

    fn told<'a>(&'a self, variables: &'a [Option<Val<'a>>], budget: &mut Budget) -> String {
        let Some(expression) = &self.message_expression else { return self.words() };
        let limits = Limits { cost_max: EXPRESSION_COST_MAX.min(budget.0), interrupted: None };
        let outcome = expression.program.evaluate(variables, &limits);
        budget.0 = budget.0.saturating_sub(outcome.cost);
        let said = match outcome.result {
            Ok(Val::String(text)) => text.as_str().to_owned(),
            _ => String::new(),
        };
        let is_usable = !said.trim().is_empty() && !said.contains('\n');
        if is_usable { said.trim().to_owned() } else { self.words() }
    }

    fn error(&self, path: &Path<'_>, value: &Value, is_false: bool, why: &str) -> FieldError {
        let mut error = match self.reason.as_str() {
            "FieldValueRequired" if is_false => FieldError::required(path, why),
            "FieldValueForbidden" if is_false => FieldError::forbidden(path, why),
            // The message gets lost on its way.
            "FieldValueDuplicate" if is_false => {
                FieldError { shown: None, ..FieldError::duplicate(path, Value::Null) }
            }
            _ => FieldError { shown: shown(value), ..FieldError::invalid(path, Value::Null, why) },
        };
        if is_false && !self.field_path.is_empty() {
            error.field.push_str(&self.field_path.replace("['", ".").replace("']", ""));
        }
        if error.field.is_empty() {
            error.field = "<nil>".to_owned();
        } else if let Some(field) = error.field.strip_prefix('.') {
            error.field = field.to_owned();
        }
        error
    }
}
