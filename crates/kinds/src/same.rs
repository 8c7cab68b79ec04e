//! Whether two versions of an object say the same, as Go compares the structs that they are read into:
//! an absent list or map is an empty one, an absent scalar that is no pointer is zero, and a pointer to
//! an empty struct is not an absent one.

use keelson_meta::{Map, Object, Value};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::{Field, Presence, Schema, Shape, Struct, Types};

/// Types, by their names in the catalogue, whose values are compared.
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

/// Whether an empty list or map is as good as an absent one.
#[derive(Clone, Copy, PartialEq)]
enum Empty {
    /// As in `equality.Semantic.DeepEqual`.
    IsAbsent,
    /// As in `reflect.DeepEqual`.
    Counts,
}

/// Whether nothing but metadata and status differs.
pub(crate) fn desired(schema: &Schema, new: &Object, old: &Object) -> bool {
    same_desired(schema, Empty::IsAbsent, new, old)
}

/// The same, where an empty list or map is not equal to an absent one.
pub(crate) fn desired_strictly(schema: &Schema, new: &Object, old: &Object) -> bool {
    same_desired(schema, Empty::Counts, new, old)
}

/// Whether two values of a named type are equal. What is not changed, as in most writes, costs one comparison
/// of values.
pub(crate) fn equal(of: &str, one: &Value, other: &Value) -> bool {
    if one == other {
        return true;
    }
    let Some(schema) = Catalogue::shared().named(of) else { return alike(one, other) };
    let (one, other) = (one.as_object(), other.as_object());
    same_struct(&schema.types, Empty::IsAbsent, schema.root(), one, other)
}

/// The same for a member of a named type.
pub(crate) fn equal_members(of: &str, member: &str, one: &Value, other: &Value) -> bool {
    if one == other {
        return true;
    }
    let Some(schema) = Catalogue::shared().named(of) else { return alike(one, other) };
    match schema.root().fields.iter().find(|field| field.name == member) {
        Some(field) => same_member(&schema.types, Empty::IsAbsent, field, Some(one), Some(other)),
        None => alike(one, other),
    }
}

fn same_desired(schema: &Schema, empty: Empty, new: &Object, old: &Object) -> bool {
    let aside = ["metadata", "status", "kind", "apiVersion"];
    let mut fields = schema.root().fields.iter().filter(|field| !aside.contains(&&*field.name));
    fields.all(|field| {
        let (new, old) = (new.get(&field.name), old.get(&field.name));
        // Nearly always nothing has changed, which costs less to see than to compare by the schema.
        new == old || same_member(&schema.types, empty, field, new, old)
    })
}

fn same_member(
    types: &Types,
    empty: Empty,
    field: &Field,
    one: Option<&Value>,
    other: Option<&Value>,
) -> bool {
    let (one, other) = (one.unwrap_or(&NULL), other.unwrap_or(&NULL));
    let is_pointer = matches!(field.presence, Presence::Pointer | Presence::AlwaysNull);
    same(types, empty, &field.shape, is_pointer, one, other)
}

fn same(
    types: &Types,
    empty: Empty,
    shape: &Shape,
    is_pointer: bool,
    one: &Value,
    other: &Value,
) -> bool {
    // Types may hold themselves: what neither has is not looked into.
    if one.is_null() && other.is_null() {
        return true;
    }
    match shape {
        Shape::List(_) | Shape::Map(_)
            if empty == Empty::Counts && one.is_null() != other.is_null() =>
        {
            false
        }
        Shape::Struct(id) => {
            if is_pointer && one.is_null() != other.is_null() {
                return false;
            }
            same_struct(types, empty, types.get(*id), one.as_object(), other.as_object())
        }
        Shape::List(list) => {
            let (one, other) = (items(one), items(other));
            one.len() == other.len()
                && one.iter().zip(other).all(|(a, b)| same(types, empty, &list.item, false, a, b))
        }
        Shape::Map(map) => {
            let entries = |value: &Value| value.as_object().map_or(0, Map::len);
            entries(one) == entries(other)
                && one.as_object().into_iter().flat_map(Map::iter).all(|(key, value)| {
                    let same = |other| same(types, empty, &map.value, false, value, other);
                    other.get(key).is_some_and(same)
                })
        }
        _ if one == other => true,
        _ => !is_pointer && is_zero(one) && is_zero(other),
    }
}

fn same_struct(
    types: &Types,
    empty: Empty,
    of: &Struct,
    one: Option<&Map>,
    other: Option<&Map>,
) -> bool {
    of.fields.iter().all(|field| {
        let one = one.and_then(|map| map.get(&field.name));
        let other = other.and_then(|map| map.get(&field.name));
        same_member(types, empty, field, one, other)
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

/// Whether two versions of an object are equal beside their metadata, empty lists and maps included; `status`
/// only counts where it is no subresource.
pub(crate) fn beside_metadata(one: &Object, other: &Object, status_counts: bool) -> bool {
    let counts = |key: &str| match key {
        "metadata" | "kind" | "apiVersion" => false,
        "status" => status_counts,
        _ => true,
    };
    let is_in = |of: &Object, key: &str, value: &Value| !counts(key) || of.get(key) == Some(value);
    one.root.iter().all(|(key, value)| is_in(other, key, value))
        && other.root.iter().all(|(key, value)| is_in(one, key, value))
}

/// Whether two values say the same: an absent list, map or struct is an empty one. What is written out
/// for a struct that nobody set would otherwise count as a change when a client leaves it out again.
pub(crate) fn alike(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => maps_alike(a, b),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
        }
        (Value::Null, value) | (value, Value::Null) => is_hollow(value),
        _ => one == other,
    }
}

/// [`alike`] for the members of two maps. Looks at what both have once: twice at each level would cost
/// twice as much for every level.
pub(crate) fn maps_alike(one: &Map, other: &Map) -> bool {
    one.iter().all(|(key, value)| alike(value, other.get(key).unwrap_or(&Value::Null)))
        && other.iter().all(|(key, value)| one.contains_key(key) || is_hollow(value))
}

/// Nothing, or nothing but lists and maps that hold nothing.
fn is_hollow(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.iter().all(|(_, value)| is_hollow(value)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::{GroupVersionKind, value};
    use keelson_schema::catalogue::Catalogue;

    #[test]
    fn a_pointer_to_nothing_is_not_an_absent_one() {
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
            let (one, other) = (object(one), object(other));
            assert_eq!(desired(&schema, &one, &other), want, "{one:?} {other:?}");
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
    fn what_holds_nothing_is_like_what_is_absent() {
        let check = |one: Value, other: Value, want: bool| {
            assert_eq!(alike(&one, &other), want, "{one:?} {other:?}");
            assert_eq!(alike(&other, &one), want, "{other:?} {one:?}");
        };
        check(value!({"a": {}, "b": 1}), value!({"b": 1, "c": []}), true);
        check(value!({"a": {"b": {}}}), value!({}), true);
        check(value!({"a": {"b": null}}), value!({"a": {"c": [], "d": {}}}), true);
        check(value!({"a": {"b": {"c": 1}}}), value!({"a": {}}), false);
        check(value!({"a": 0}), value!({}), false);
        check(value!([{"a": 1}]), value!([{"a": 1, "b": {}}]), true);
        check(value!([{"a": 1}]), value!([]), false);
    }

    /// Each level costs as much as the others: with a cost that doubles, this would never end.
    #[test]
    fn deep_values_are_compared_in_time() {
        let deep = |leaf: i32| {
            (0..200).fold(Value::from(leaf), |value, _| {
                let mut map = Map::new();
                map.insert("properties", value);
                Value::Object(map)
            })
        };
        assert!(alike(&deep(1), &deep(1)));
        assert!(!alike(&deep(1), &deep(2)));
    }
}
