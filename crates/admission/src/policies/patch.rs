//! [`Change`]: the result of a mutation, and how it is applied (upstream's `mutating/patch`).

use crate::attributes::Api;
use crate::configurations::policy::{Compiled, Mutation};
use keelson_apply::{PatchError as JsonPatchError, json_patch, typed};
use keelson_cel::admission::{Expression, Variables, activation};
use keelson_cel::{CompositedVariables, List, Map as ValMap, OBJECT_COST_MAX, Val, to_json};
use keelson_meta::{Failure, GroupVersionKind, Map, Object, Reason, Status, Value};
use keelson_schema::Schema;

/// Why a mutation failed.
#[derive(Debug)]
pub(super) enum PatchError {
    /// Subject to the failure policy.
    Refused(String),
    /// Returned to the client whatever the failure policy is.
    Status(Failure),
}

impl From<Failure> for PatchError {
    fn from(failure: Failure) -> Self {
        PatchError::Status(failure)
    }
}

/// The result of a mutation's expression.
#[derive(Debug)]
pub(super) enum Change {
    /// A JSON Patch.
    JsonPatch(Value),
    /// An apply configuration.
    ApplyConfiguration(Map),
}

impl PatchError {
    /// A mutation that its policy does not have.
    pub fn gone() -> Result<Change, PatchError> {
        Err(PatchError::Refused("the policy has no such mutation".to_owned()))
    }
}

/// Evaluates the mutation with this number, without waiting for authorizer decisions.
pub(super) fn evaluate(
    compiled: &Compiled,
    at: usize,
    variables: &Variables<'_>,
) -> Result<Change, PatchError> {
    match compiled.mutations.get(at) {
        Some(mutation) => change(mutation, variables, &compiled.variables),
        None => PatchError::gone(),
    }
}

fn change(
    mutation: &Mutation,
    variables: &Variables<'_>,
    computed: &CompositedVariables,
) -> Result<Change, PatchError> {
    let (Mutation::JsonPatch(expression) | Mutation::ApplyConfiguration(expression)) = mutation;
    let activation = activation(variables, computed);
    let mut budget = OBJECT_COST_MAX;
    let rejected = |why: String| PatchError::Refused(why);
    if let Some(error) = Expression::error(expression) {
        return Err(rejected(error.to_owned()));
    }
    let val = expression
        .evaluate(&activation, &mut budget)
        .map_err(|error| rejected(error.to_string()))?
        .map_err(rejected)?;
    match mutation {
        Mutation::JsonPatch(_) => operations(&val).map(Change::JsonPatch).map_err(rejected),
        Mutation::ApplyConfiguration(_) => {
            check_types(&val).map_err(rejected)?;
            let json = to_json(&val).map_err(|error| rejected(error.to_string()))?;
            let Value::Object(map) = json else {
                return Err(rejected(
                    "unsupported return type from ApplyConfiguration expression".into(),
                ));
            };
            Ok(Change::ApplyConfiguration(map))
        }
    }
}

/// Converts a list of `JSONPatch` to JSON.
fn operations(val: &Val<'_>) -> Result<Value, String> {
    const NO_LIST: &str = "type mismatch: JSONPatchType.expression should evaluate to array";
    let Val::List(list) = val else { return Err(NO_LIST.to_owned()) };
    let mut out = vec![];
    for item in list.iter() {
        out.push(operation(&item.map_err(|error| error.to_string())?)?);
    }
    Ok(Value::Array(out))
}

fn operation(val: &Val<'_>) -> Result<Value, String> {
    const NO_JSON: &str =
        "JSONPath valueExpression evaluated to a type that could not marshal to JSON";
    let Val::Map(ValMap::Owned(fields)) = val else {
        return Err(
            "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch"
                .to_owned(),
        );
    };
    let mut out = Map::new();
    out.insert("op", "");
    out.insert("path", "");
    for (name, value) in fields.entries() {
        let Some(name) = name.as_str() else { continue };
        if name == "value" {
            check_types(value)?;
        }
        let json = to_json(value).map_err(|error| format!("{NO_JSON}: {error}"))?;
        if name != "from" || !json.is_empty() {
            out.insert(name, json);
        }
    }
    Ok(Value::Object(out))
}

/// Checks that the type names of nested objects match their paths: `Object.spec` at `spec` of an
/// `Object`.
fn check_types(val: &Val<'_>) -> Result<(), String> {
    let Some(name) = type_name(val) else { return Ok(()) };
    let mut errors = vec![];
    check_at(val, name, &mut errors);
    match errors.is_empty() {
        true => Ok(()),
        false => Err(format!("type mismatch: {}", errors.join("\n"))),
    }
}

fn type_name<'v>(val: &'v Val<'_>) -> Option<&'v str> {
    match val {
        Val::Map(ValMap::Owned(map)) => map.type_name(),
        _ => None,
    }
}

fn check_at(val: &Val<'_>, path: &str, errors: &mut Vec<String>) {
    match val {
        Val::Map(ValMap::Owned(map)) => {
            let Some(name) = map.type_name() else {
                return map.entries().iter().for_each(|(_, value)| check_at(value, path, errors));
            };
            if name != path {
                errors.push(format!(
                    "unexpected type name \"{name}\", expected \"{path}\", which matches field name path from \
                     root Object type"
                ));
            }
            for (field, value) in map.entries() {
                let field = field.as_str().unwrap_or_default();
                check_at(value, &format!("{path}.{field}"), errors);
            }
        }
        Val::List(list @ (List::Owned(_) | List::Concat(_))) => {
            list.iter().flatten().for_each(|item| check_at(&item, path, errors));
        }
        Val::Optional(Some(inner)) => check_at(inner, path, errors),
        _ => {}
    }
}

impl Change {
    /// Applies the change; returns `None` when a `test` operation failed.
    pub fn apply(
        self,
        object: &Object,
        kind: &GroupVersionKind,
        api: &dyn Api,
    ) -> Result<Option<Object>, PatchError> {
        let Some(schema) = api.schema(kind) else {
            let why = format!(
                "Resource kind {}/{}, Kind={} not found. There can be a delay between when \
                 CustomResourceDefinitions are created and when they are available.",
                kind.group, kind.version, kind.kind
            );
            return Err(Status::new(Reason::ServiceUnavailable, why).into());
        };
        let changed = match self {
            Change::JsonPatch(patch) => match patched(&schema, object, &patch)? {
                Some(value) => value,
                None => return Ok(None),
            },
            Change::ApplyConfiguration(config) => {
                let why = |why: String| PatchError::Refused(format!("error applying patch: {why}"));
                Value::Object(merged(&schema, object, config).map_err(why)?)
            }
        };
        let canonical = api.canonicalize(kind, changed).map_err(Status::internal)?;
        Ok(Some(canonical))
    }
}

fn patched(schema: &Schema, object: &Object, patch: &Value) -> Result<Option<Value>, PatchError> {
    let patched = match json_patch::apply(Value::Object(object.root.clone()), patch) {
        Ok(patched) => patched,
        Err(JsonPatchError::TestFailed(_)) => return Ok(None),
        Err(error) => return Err(PatchError::Refused(format!("JSON Patch: {error}"))),
    };
    let decoded = keelson_schema::decode::canonicalize(schema, patched.clone());
    let strict = decoded.map_err(Status::internal)?.strict_errors;
    if !strict.is_empty() {
        let why = format!("strict decoding error: {}", strict.join(", "));
        return Err(Status::internal(why).into());
    }
    Ok(Some(patched))
}

fn merged(schema: &Schema, object: &Object, mut config: Map) -> Result<Map, String> {
    for name in ["apiVersion", "kind"] {
        config.insert(name, object.get(name).cloned().unwrap_or_default());
    }
    let config = Value::Object(config);
    let unfit = |error: &dyn std::fmt::Display| {
        format!("failed to convert patch object to typed object: {error}")
    };
    typed::validate(schema, &config).map_err(|error| unfit(&error))?;
    let Value::Object(config) = config else { return Err("no object".to_owned()) };
    let atomics = typed::atomic_paths(schema, &config);
    if !atomics.is_empty() {
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomics.join(", ")
        ));
    }
    typed::merge(schema, &object.root, &config)
        .map_err(|error| format!("failed to merge patch: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_cel::Version;
    use keelson_cel::admission::{Compiler, Inputs, Purpose};
    use keelson_meta::value;

    fn evaluated(text: &str) -> String {
        let compiler = Compiler::policy(Version::STORED_EXPRESSIONS, false);
        let mutation = match text.starts_with('[') {
            true => Mutation::JsonPatch(Expression::new(&compiler, text, Purpose::JsonPatch)),
            false => Mutation::ApplyConfiguration(Expression::new(
                &compiler,
                text,
                Purpose::ApplyConfiguration,
            )),
        };
        let object = Object::from_value(value!({"data": {"a": "b"}})).expect("a map");
        let inputs = Inputs { object: Some(&object.root), ..Inputs::default() };
        match change(&mutation, &inputs.variables(), &CompositedVariables::new()) {
            Ok(Change::JsonPatch(value)) => keelson_meta::status::show(&value),
            Ok(Change::ApplyConfiguration(map)) => keelson_meta::status::show(&Value::Object(map)),
            Err(PatchError::Refused(why)) => why,
            Err(PatchError::Status(failure)) => failure.message,
        }
    }

    /// The texts are those of kube-apiserver 1.36.
    #[test]
    fn mutations_give_patches_and_configurations() {
        let check = |text: &str, want: &str| assert_eq!(evaluated(text), want, "{text}");
        check("[]", "must evaluate to list(JSONPatch) but got list(dyn)");
        check(
            "[JSONPatch{op: 'add', path: '/data/c', value: object.data.a}]",
            r#"[{"op":"add","path":"/data/c","value":"b"}]"#,
        );
        check("[JSONPatch{op: 'add', from: ''}]", r#"[{"op":"add","path":""}]"#);
        check("Object{data: {'x': 'y'}}", r#"{"data":{"x":"y"}}"#);
        check("Object{metadata: Object.metadata{}}", r#"{"metadata":{}}"#);
        check(
            "Object{spec: Object.spec{a: [Object.spec.b{}]}}",
            "type mismatch: unexpected type name \"Object.spec.b\", expected \"Object.spec.a\", which matches field \
             name path from root Object type",
        );
        check(
            "[JSONPatch{op: 'add', path: '/x', value: Object.data{a: Object.x{}}}]",
            "type mismatch: unexpected type name \"Object.x\", expected \"Object.data.a\", which matches field name \
             path from root Object type",
        );
        check(
            "Object{data: {'x': string(object.none)}}",
            "expression 'Object{data: {'x': string(object.none)}}' resulted in error: no such key: none",
        );
    }
}
