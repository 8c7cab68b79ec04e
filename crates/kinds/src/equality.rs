//! Compares two versions of an object as Go compares the decoded structs: an absent list or map
//! equals an empty one, an absent scalar that is not a pointer equals zero, and a pointer to an
//! empty struct differs from nil.

use keelson_meta::{Map, Object, Value};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::{Field, Presence, Schema, Shape, Struct, Types};

/// The names in the catalogue of the Go types that rules compare.
pub(crate) mod go {
    pub const CLAIM_SPEC: &str = "io.k8s.api.core.v1.PersistentVolumeClaimSpec";
    pub const CONTAINER: &str = "io.k8s.api.core.v1.Container";
    pub const EPHEMERAL_CONTAINER: &str = "io.k8s.api.core.v1.EphemeralContainer";
    pub const JOB_SPEC: &str = "io.k8s.api.batch.v1.JobSpec";
    pub const DAEMON_SET_SPEC: &str = "io.k8s.api.apps.v1.DaemonSetSpec";
    pub const POD_SPEC: &str = "io.k8s.api.core.v1.PodSpec";
    pub const RESOURCE_CLAIM_SPEC: &str = "io.k8s.api.resource.v1.ResourceClaimSpec";
    pub const RESOURCE_CLAIM_TEMPLATE_SPEC: &str =
        "io.k8s.api.resource.v1.ResourceClaimTemplateSpec";
    pub const STATEFUL_SET_SPEC: &str = "io.k8s.api.apps.v1.StatefulSetSpec";
    pub const VOLUME_ATTACHMENT_SPEC: &str = "io.k8s.api.storage.v1.VolumeAttachmentSpec";
    pub const VOLUME_SPEC: &str = "io.k8s.api.core.v1.PersistentVolumeSpec";
}

static NULL: Value = Value::Null;

/// How an empty list or map compares with an absent one.
#[derive(Clone, Copy, PartialEq)]
enum Empty {
    /// Equal, as in `equality.Semantic.DeepEqual`.
    EqualsAbsent,
    /// Not equal, as in `reflect.DeepEqual`.
    DiffersFromAbsent,
}

/// Returns whether nothing except metadata and status differs.
pub(crate) fn equal_spec(schema: &Schema, new: &Object, old: &Object) -> bool {
    equal_top_level_fields(schema, Empty::EqualsAbsent, new, old)
}

/// Returns the same as [`equal_spec`], but an empty list or map differs from an absent one.
pub(crate) fn equal_spec_strictly(schema: &Schema, new: &Object, old: &Object) -> bool {
    equal_top_level_fields(schema, Empty::DiffersFromAbsent, new, old)
}

/// Returns whether two values of a named type are equal. Unchanged values, as in most writes, cost
/// one comparison.
pub(crate) fn equal(of: &str, one: &Value, other: &Value) -> bool {
    if one == other {
        return true;
    }
    let Some(schema) = Catalogue::shared().named(of) else { return equal_or_empty(one, other) };
    let one = one.as_object();
    let other = other.as_object();
    equal_struct(&schema.types, Empty::EqualsAbsent, schema.root(), one, other)
}

/// Returns whether two values of a field of a named type are equal.
pub(crate) fn equal_members(of: &str, member: &str, one: &Value, other: &Value) -> bool {
    if one == other {
        return true;
    }
    let Some(schema) = Catalogue::shared().named(of) else { return equal_or_empty(one, other) };
    match schema.root().fields.iter().find(|field| field.name == member) {
        Some(field) => {
            equal_field(&schema.types, Empty::EqualsAbsent, field, Some(one), Some(other))
        }
        None => equal_or_empty(one, other),
    }
}

fn equal_top_level_fields(schema: &Schema, empty: Empty, new: &Object, old: &Object) -> bool {
    let skipped = ["metadata", "status", "kind", "apiVersion"];
    let mut fields = schema.root().fields.iter().filter(|field| !skipped.contains(&&*field.name));
    fields.all(|field| {
        let new = new.get(&field.name);
        let old = old.get(&field.name);
        // Usually nothing has changed, and `==` is cheaper than a comparison by schema.
        new == old || equal_field(&schema.types, empty, field, new, old)
    })
}

fn equal_field(
    types: &Types,
    empty: Empty,
    field: &Field,
    one: Option<&Value>,
    other: Option<&Value>,
) -> bool {
    let one = one.unwrap_or(&NULL);
    let other = other.unwrap_or(&NULL);
    let is_pointer = matches!(field.presence, Presence::Pointer | Presence::AlwaysNull);
    equal_value(types, empty, &field.shape, is_pointer, one, other)
}

fn equal_value(
    types: &Types,
    empty: Empty,
    shape: &Shape,
    is_pointer: bool,
    one: &Value,
    other: &Value,
) -> bool {
    // Types may be recursive: stop at values that both lack.
    if one.is_null() && other.is_null() {
        return true;
    }
    match shape {
        Shape::List(_) | Shape::Map(_)
            if empty == Empty::DiffersFromAbsent && one.is_null() != other.is_null() =>
        {
            false
        }
        Shape::Struct(id) => {
            if is_pointer && one.is_null() != other.is_null() {
                return false;
            }
            equal_struct(types, empty, types.get(*id), one.as_object(), other.as_object())
        }
        Shape::List(list) => {
            let one = items(one);
            let other = items(other);
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(a, b)| equal_value(types, empty, &list.item, false, a, b))
        }
        Shape::Map(map) => {
            let entries = |value: &Value| value.as_object().map_or(0, Map::len);
            entries(one) == entries(other)
                && one.as_object().into_iter().flat_map(Map::iter).all(|(key, value)| {
                    let is_equal =
                        |other| equal_value(types, empty, &map.value, false, value, other);
                    other.get(key).is_some_and(is_equal)
                })
        }
        _ if one == other => true,
        _ => !is_pointer && is_zero(one) && is_zero(other),
    }
}

fn equal_struct(
    types: &Types,
    empty: Empty,
    of: &Struct,
    one: Option<&Map>,
    other: Option<&Map>,
) -> bool {
    of.fields.iter().all(|field| {
        let one = one.and_then(|map| map.get(&field.name));
        let other = other.and_then(|map| map.get(&field.name));
        equal_field(types, empty, field, one, other)
    })
}

fn items(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_default()
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) => true,
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// Returns whether two versions of an object are equal except for metadata. Empty lists and maps
/// differ from absent ones. `status_counts` is set where `status` is not a subresource.
pub(crate) fn equal_except_metadata(one: &Object, other: &Object, status_counts: bool) -> bool {
    let is_compared = |key: &str| match key {
        "metadata" | "kind" | "apiVersion" => false,
        "status" => status_counts,
        _ => true,
    };
    let has_same =
        |of: &Object, key: &str, value: &Value| !is_compared(key) || of.get(key) == Some(value);
    one.root.iter().all(|(key, value)| has_same(other, key, value))
        && other.root.iter().all(|(key, value)| has_same(one, key, value))
}

/// Returns whether two values are equal when an absent list, map or struct equals an empty one. Go
/// writes unset structs, which would otherwise count as a change when a client omits them.
pub(crate) fn equal_or_empty(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => equal_or_empty_maps(a, b),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal_or_empty(a, b))
        }
        (Value::Null, value) | (value, Value::Null) => is_deeply_empty(value),
        _ => one == other,
    }
}

/// Returns [`equal_or_empty`] for the members of two maps. Compares shared members once: comparing
/// them from both sides would double the cost at every level.
pub(crate) fn equal_or_empty_maps(one: &Map, other: &Map) -> bool {
    one.iter().all(|(key, value)| equal_or_empty(value, other.get(key).unwrap_or(&Value::Null)))
        && other.iter().all(|(key, value)| one.contains_key(key) || is_deeply_empty(value))
}

/// Returns whether a value is null, or a list or map that holds only such values.
fn is_deeply_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.iter().all(|(_, value)| is_deeply_empty(value)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::{GroupVersionKind, value};
    use keelson_schema::catalogue::Catalogue;

    #[test]
    fn a_pointer_to_an_empty_struct_differs_from_nil() {
        let gvk = |group: &str, kind: &str| GroupVersionKind {
            group: group.into(),
            version: "v1".into(),
            kind: kind.into(),
        };
        let check = |group: &str, kind: &str, one: Value, other: Value, want: bool| {
            let schema = Catalogue::shared().schema(&gvk(group, kind)).expect("a known kind");
            let object = |spec: Value| {
                Object::from_value(value!({"spec": (spec), "status": {"a": 1}})).expect("an object")
            };
            let one = object(one);
            let other = object(other);
            assert_eq!(equal_spec(&schema, &one, &other), want, "{one:?} {other:?}");
        };
        let policy = "networking.k8s.io";
        check(policy, "NetworkPolicy", value!({"podSelector": {}}), value!({}), true);
        check(policy, "NetworkPolicy", value!({"ingress": []}), value!({}), true);
        check(
            policy,
            "NetworkPolicy",
            value!({"ingress": [{"from": [{"podSelector": {}}]}]}),
            value!({"ingress": [{"from": [{}]}]}),
            false,
        );
        let schema = value!({"versions": [{"schema": {"openAPIV3Schema": {"type": "object"}}}]});
        let definitions = "apiextensions.k8s.io";
        check(definitions, "CustomResourceDefinition", schema.clone(), schema, true);
        check("apps", "StatefulSet", value!({"serviceName": ""}), value!({}), true);
        check("apps", "StatefulSet", value!({"replicas": 0}), value!({}), false);
        check("apps", "StatefulSet", value!({"replicas": 1}), value!({"replicas": 1}), true);
    }

    #[test]
    fn empty_values_equal_absent_ones() {
        let check = |one: Value, other: Value, want: bool| {
            assert_eq!(equal_or_empty(&one, &other), want, "{one:?} {other:?}");
            assert_eq!(equal_or_empty(&other, &one), want, "{other:?} {one:?}");
        };
        check(value!({"a": {}, "b": 1}), value!({"b": 1, "c": []}), true);
        check(value!({"a": {"b": {}}}), value!({}), true);
        check(value!({"a": {"b": null}}), value!({"a": {"c": [], "d": {}}}), true);
        check(value!({"a": {"b": {"c": 1}}}), value!({"a": {}}), false);
        check(value!({"a": 0}), value!({}), false);
        check(value!([{"a": 1}]), value!([{"a": 1, "b": {}}]), true);
        check(value!([{"a": 1}]), value!([]), false);
    }

    /// The cost must not double at each level: then this test would never end.
    #[test]
    fn deep_values_are_compared_in_linear_time() {
        let deep = |leaf: i32| {
            (0..200).fold(Value::from(leaf), |value, _| {
                let mut map = Map::new();
                map.insert("properties", value);
                Value::Object(map)
            })
        };
        assert!(equal_or_empty(&deep(1), &deep(1)));
        assert!(!equal_or_empty(&deep(1), &deep(2)));
    }
}
