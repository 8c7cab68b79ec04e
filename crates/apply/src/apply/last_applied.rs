//! The annotation in which client-side `kubectl apply` keeps its configuration.

use crate::fields::FieldSet;
use crate::managed::Scope;
use crate::typed::{self, Form};
use keelson_meta::{Object, Value};
use keelson_schema::json;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Bytes of all annotations of an object, keys and values together.
const ANNOTATION_BYTES_MAX: usize = 256 * 1024;

/// Returns the fields that have the same values in the annotation and in the live object. `kubectl`
/// may take these over without a conflict: client-side apply set them.
pub(super) fn unchanged_fields(scope: &Scope<'_>, live: &Object) -> Option<FieldSet> {
    let text = live.annotation(ANNOTATION).filter(|text| !text.is_empty())?;
    let last = json::parse(text.as_bytes()).ok()?.value;
    let api_version = last.str_at(&["apiVersion"])?;
    if api_version != scope.schema.gvk.api_version() {
        return None;
    }
    typed::validate(scope.schema, &last).ok()?;
    let last = last.as_object()?;
    let mut unchanged = typed::field_set(scope.schema, Form::Written, last);
    let comparison =
        typed::compare(scope.schema, (Form::Written, last), (Form::Decoded, &live.root));
    unchanged.subtract(&comparison.modified);
    unchanged.subtract(&comparison.added);
    unchanged.subtract(&comparison.removed);
    Some(unchanged)
}

/// Writes the applied configuration into the annotation, if the object has one.
pub(super) fn update_annotation(object: &mut Object, config: &Value) {
    if object.annotation(ANNOTATION).is_none_or(str::is_empty) {
        return;
    }
    let mut config = config.clone();
    if let Some(Value::Object(metadata)) =
        config.as_object_mut().and_then(|root| root.get_mut("metadata"))
        && let Some(Value::Object(annotations)) = metadata.get_mut("annotations")
    {
        annotations.remove(ANNOTATION);
    }
    let mut text = vec![];
    json::write_value(&sorted(config), &mut text);
    text.push(b'\n');
    let text = String::from_utf8_lossy(&text).into_owned();
    let annotations = object.metadata_mut().object_at("annotations");
    annotations.insert(ANNOTATION, text);
    let bytes: usize =
        annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > ANNOTATION_BYTES_MAX {
        annotations.remove(ANNOTATION);
    }
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut map: keelson_meta::Map =
                map.into_iter().map(|(key, item)| (key, sorted(item))).collect();
            map.sort();
            Value::Object(map)
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        scalar => scalar,
    }
}
