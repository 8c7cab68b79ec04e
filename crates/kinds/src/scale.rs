//! The `scale` subresource: autoscaling/v1 Scale of built-in kinds and custom resources.

use keelson_meta::selector::Selector;
use keelson_meta::{ErrorList, FieldError, GroupVersionKind, Map, Object, Path, Str, Value};
use keelson_schema::go_fmt;

/// The path of the replicas in a Scale and in every built-in kind that has one.
pub const REPLICAS: &[&str] = &["spec", "replicas"];

/// The paths of the scale fields in a custom resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// `specReplicasPath`.
    pub spec_replicas: Vec<Str>,
    /// `statusReplicasPath`.
    pub status_replicas: Vec<Str>,
    /// `labelSelectorPath`; empty when the scale has no selector.
    pub selector: Vec<Str>,
}

impl ScalePaths {
    /// Parses `subresources.scale` of a CustomResourceDefinition.
    pub fn read(scale: &Value) -> ScalePaths {
        let path = |name: &str| path_members(scale.str_at(&[name]).unwrap_or_default());
        ScalePaths {
            spec_replicas: path("specReplicasPath"),
            status_replicas: path("statusReplicasPath"),
            selector: path("labelSelectorPath"),
        }
    }
}

/// Splits a simple JSONPath such as `.spec.replicas` into its fields.
pub fn path_members(path: &str) -> Vec<Str> {
    path.split('.').filter(|member| !member.is_empty()).map(Str::new).collect()
}

/// Borrows the fields of a path.
pub fn members(path: &[Str]) -> Vec<&str> {
    path.iter().map(Str::as_str).collect()
}

/// Sets a value at a path. Creates missing objects along it.
pub fn set_at(object: &mut Object, path: &[&str], value: i64) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut map = &mut object.root;
    for parent in parents {
        if map.get(parent).and_then(Value::as_object).is_none() {
            map.insert(Str::new(*parent), Map::new());
        }
        let Some(inner) = map.get_mut(parent).and_then(Value::as_object_mut) else { return };
        map = inner;
    }
    map.insert(Str::new(*last), value);
}

/// Returns the kind of the `scale` subresource: autoscaling/v1 Scale.
pub fn scale_kind() -> GroupVersionKind {
    GroupVersionKind::new("autoscaling", "v1", "Scale")
}

/// Returns the Scale of a custom resource. Unset replicas are 0.
pub fn custom(paths: &ScalePaths, obj: &Object) -> Object {
    let replicas = obj.int_at(&members(&paths.spec_replicas)).unwrap_or(0);
    let mut status = Map::new();
    let now = obj.int_at(&members(&paths.status_replicas));
    status.insert("replicas", now.unwrap_or(0));
    let selector = obj.str_at(&members(&paths.selector));
    if !paths.selector.is_empty() && !selector.is_empty() {
        status.insert("selector", selector);
    }
    scale(obj, replicas, status)
}

/// Returns the Scale of an object of a built-in kind.
pub fn built_in(obj: &Object) -> Object {
    let mut status = Map::new();
    status.insert("replicas", obj.int_at(&["status", "replicas"]).unwrap_or(0));
    let text = selector_text(obj);
    if !text.is_empty() {
        status.insert("selector", text);
    }
    scale(obj, obj.int_at(REPLICAS).unwrap_or(0), status)
}

fn scale(obj: &Object, replicas: i64, status: Map) -> Object {
    let mut metadata = Map::new();
    for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = obj.metadata().and_then(|m| m.get(name)) {
            metadata.insert(name, value.clone());
        }
    }
    let mut spec = Map::new();
    spec.insert("replicas", replicas);
    let mut scale = Object::new();
    scale.set_gvk(&scale_kind());
    scale.root.insert("metadata", metadata);
    scale.root.insert("spec", spec);
    scale.root.insert("status", status);
    scale
}

/// Returns the selector of a built-in kind as text.
fn selector_text(obj: &Object) -> String {
    let selector = obj.at(&["spec", "selector"]);
    match selector {
        Some(map) if map.get("matchLabels").is_some() || map.get("matchExpressions").is_some() => {
            Selector::from_object(selector).map(|s| s.to_string()).unwrap_or_default()
        }
        Some(Value::Object(labels)) => {
            let pairs = labels.iter().map(|(k, v)| (k.as_str(), v.as_str().unwrap_or_default()));
            Selector::from_labels(pairs).to_string()
        }
        _ => String::new(),
    }
}

impl ScalePaths {
    /// Validates the scale fields of an object (apiextensions `ValidateScaleSpec`).
    pub fn validate(&self, obj: &Object, errors: &mut ErrorList) {
        for path in [&self.spec_replicas, &self.status_replicas] {
            let field = format!(".{}", path.join("."));
            let field = Path::new(&field);
            match nested(obj, path) {
                Err(why) => errors.push(FieldError::invalid(&field, 0, &why)),
                Ok(None | Some(Value::Int(0..=MAX_REPLICAS))) => {}
                Ok(Some(Value::Int(count))) if *count < 0 => {
                    let why = "should be a non-negative integer";
                    errors.push(FieldError::invalid(&field, *count, why));
                }
                Ok(Some(Value::Int(count))) => {
                    let why = format!("should be less than or equal to {MAX_REPLICAS}");
                    errors.push(FieldError::invalid(&field, *count, &why));
                }
                Ok(Some(other)) => {
                    let why = type_error(path, other, "int64");
                    errors.push(FieldError::invalid(&field, 0, &why));
                }
            }
        }
        if self.selector.is_empty() {
            return;
        }
        let field = format!(".{}", self.selector.join("."));
        let why = match nested(obj, &self.selector) {
            Ok(None | Some(Value::String(_))) => return,
            Ok(Some(other)) => type_error(&self.selector, other, "string"),
            Err(why) => why,
        };
        errors.push(FieldError::invalid(&Path::new(&field), "", &why));
    }
}

const MAX_REPLICAS: i64 = i32::MAX as i64;

/// Returns the value at a path; an error when a value along it is not an object
/// (`unstructured.NestedFieldNoCopy`).
fn nested<'v>(obj: &'v Object, path: &[Str]) -> Result<Option<&'v Value>, String> {
    let Some((first, rest)) = path.split_first() else { return Ok(None) };
    let Some(mut value) = obj.get(first) else { return Ok(None) };
    for (at, member) in rest.iter().enumerate() {
        if value.is_null() {
            return Ok(None);
        }
        let Some(map) = value.as_object() else {
            // The message has the path up to the first field that cannot be looked up.
            return Err(type_error(&path[..at + 2], value, "map[string]interface{}"));
        };
        match map.get(member) {
            Some(inner) => value = inner,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

fn type_error(path: &[Str], value: &Value, wanted: &str) -> String {
    let go_type = match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        _ => "map[string]interface {}",
    };
    let shown = go_fmt::plain(value);
    let path = path.join(".");
    format!(".{path} accessor error: {shown} is of the type {go_type}, expected {wanted}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn a_path_through_a_value_that_is_no_object_is_an_error() {
        let path = ["spec", "worker", "replicas"].map(Str::from);
        let check = |spec: Value, expected: Result<Option<&str>, &str>| {
            let object = Object::from_value(value!({"spec": (spec)})).expect("a map");
            let found = nested(&object, &path).map(|found| found.map(go_fmt::plain));
            let expected = expected.map(|value| value.map(str::to_owned)).map_err(str::to_owned);
            assert_eq!(found.map(|found| found.map(|text| text.to_string())), expected);
        };
        let wanted = "expected map[string]interface{}";
        let in_spec =
            format!(".spec.worker accessor error: [] is of the type []interface {{}}, {wanted}");
        check(value!([]), Err(&in_spec));
        let in_worker =
            format!(".spec.worker.replicas accessor error: x is of the type string, {wanted}");
        check(value!({"worker": "x"}), Err(&in_worker));
        check(value!({"worker": null}), Ok(None));
        check(Value::Null, Ok(None));
        check(value!({"worker": {"replicas": 2}}), Ok(Some("2")));
    }
}
