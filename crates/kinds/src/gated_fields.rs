//! Fields behind feature gates. While its gate is off, a field is dropped from writes unless the
//! stored object already uses it.

use crate::gates;
use keelson_meta::{Feature, Map, Object, Value};

/// A path in an object; `*` stands for every item of a list or entry of a map.
type FieldPath = &'static [&'static str];

/// The fields of one feature gate.
#[derive(Clone, Copy, Debug)]
pub struct GatedField {
    pub(crate) feature: Feature,
    /// From the root of [`GatedFields`].
    pub(crate) paths: &'static [FieldPath],
    /// Whether to remove a parent that becomes empty too.
    pub(crate) with_empty_parent: bool,
}

/// The gated fields below one path of an object.
#[derive(Clone, Copy, Debug)]
pub struct GatedFields {
    pub(crate) root: FieldPath,
    pub(crate) fields: &'static [GatedField],
}

/// Returns the fields at these paths, which are behind one feature gate.
pub(crate) const fn gate(feature: Feature, paths: &'static [FieldPath]) -> GatedField {
    GatedField { feature, paths, with_empty_parent: false }
}

/// Drops the fields whose gate is off, unless the stored object uses one of the gate's fields.
pub(crate) fn drop_disabled(fields: &[GatedFields], new: &mut Object, old: Option<&Object>) {
    for GatedFields { root, fields } in fields {
        for field in *fields {
            if gates::is_on(field.feature) {
                continue;
            }
            let before = old.and_then(|old| old.at(root));
            if before.is_some_and(|old| field.paths.iter().any(|path| has(old, path))) {
                continue;
            }
            if let Some(at) = find(&mut new.root, root) {
                for path in field.paths {
                    remove(at, path, field.with_empty_parent);
                }
            }
        }
    }
}

fn find<'m>(map: &'m mut Map, path: &[&str]) -> Option<&'m mut Map> {
    let Some((name, rest)) = path.split_first() else { return Some(map) };
    find(map.get_mut(name)?.as_object_mut()?, rest)
}

/// Returns whether there is a value at a path.
fn has(value: &Value, path: &[&str]) -> bool {
    match path.split_first() {
        None => !value.is_null(),
        Some((&"*", rest)) => match value {
            Value::Array(items) => items.iter().any(|item| has(item, rest)),
            Value::Object(map) => map.iter().any(|(_, value)| has(value, rest)),
            _ => false,
        },
        Some((name, rest)) => value.get(name).is_some_and(|value| has(value, rest)),
    }
}

/// Removes the value at a path. Returns whether there was one.
fn remove(map: &mut Map, path: &[&str], with_empty_parent: bool) -> bool {
    let [name, rest @ ..] = path else { return false };
    if rest.is_empty() {
        return map.remove(name).is_some();
    }
    let Some(value) = map.get_mut(name) else { return false };
    let removed = match (value, rest) {
        (Value::Array(items), ["*", rest @ ..]) => {
            let maps = items.iter_mut().filter_map(Value::as_object_mut);
            maps.fold(false, |any, map| remove(map, rest, with_empty_parent) | any)
        }
        (Value::Object(map), ["*", rest @ ..]) => {
            let maps = map.iter_mut().filter_map(|(_, value)| value.as_object_mut());
            maps.fold(false, |any, map| remove(map, rest, with_empty_parent) | any)
        }
        (Value::Object(map), rest) => remove(map, rest, with_empty_parent),
        _ => false,
    };
    if removed && with_empty_parent && rest.len() == 1 && map.get(name).is_some_and(Value::is_empty)
    {
        map.remove(name);
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy;
    use keelson_meta::{Features, value};

    #[track_caller]
    fn check(of: (&str, &str), features: Features, new: Value, old: Option<Value>, want: Value) {
        let object = |value| Object::from_value(value).expect("a map");
        let mut new = object(new);
        let old = old.map(object);
        let gates = gates::Gates { features, allows_privileged: true };
        gates::within(gates, || {
            drop_disabled(strategy(of.0, of.1, features).gated, &mut new, old.as_ref());
        });
        assert_eq!(Value::Object(new.root), want);
    }

    #[test]
    fn fields_without_their_gate_are_dropped_unless_the_stored_object_uses_them() {
        let pod =
            |stop: Value| value!({"spec": {"containers": [{"name": "a", "lifecycle": (stop)}]}});
        let signal = value!({"stopSignal": "SIGTERM"});
        let both = value!({"stopSignal": "SIGTERM", "preStop": {}});
        let without = value!({"spec": {"containers": [{"name": "a"}]}});
        let off = Features::default();
        let pods = ("", "pods");
        let on = off.with(Feature::ContainerStopSignals, true);
        check(pods, off, pod(signal.clone()), None, without.clone());
        check(pods, off, pod(both.clone()), None, pod(value!({"preStop": {}})));
        check(pods, off, pod(signal.clone()), Some(without.clone()), without.clone());
        check(pods, off, pod(signal.clone()), Some(pod(both)), pod(signal.clone()));
        check(pods, on, pod(signal.clone()), None, pod(signal));
        let class = value!({"spec": {"extendedResourceName": "example.com/a"}});
        let classes = ("resource.k8s.io", "deviceclasses");
        check(classes, off, class.clone(), None, class.clone());
        let off = off.with(Feature::DRAExtendedResource, false);
        check(classes, off, class.clone(), None, value!({"spec": {}}));
        check(classes, off, class.clone(), Some(class.clone()), class);
    }
}
