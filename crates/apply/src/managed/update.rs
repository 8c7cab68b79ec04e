//! Updates `managedFields` after a create, an update, or a patch other than apply.

use super::{BEFORE_FIRST_APPLY, InvalidEntry, Managers, Operation, Scope, UNMANAGED};
use super::{new_manager, reconcile_all, remove_changed_fields};
use crate::fields::equal_values;
use crate::typed;
use keelson_meta::{Map, Object, Str, Value};

/// Bytes of a manager name that is derived from the user agent.
const NAME_BYTES_MAX: usize = 128;

/// Updates the `managedFields` of `new`, which `manager` creates (`old` is `None`) or writes over
/// `old`. `now` is RFC 3339 with seconds.
///
/// A client may replace the entries, or reset them with `[]` or `[{}]`, except through a
/// subresource. A stored object without entries stays without. An object loses its entries when an
/// item of a keyed list lacks its keys, and a custom resource when the old or the new object has a
/// value of another type than its schema, or cannot be compared in the version of a manager.
pub fn update(scope: &Scope<'_>, manager: &str, now: &str, old: Option<&Object>, new: &mut Object) {
    let empty = Object::new();
    let live = old.unwrap_or(&empty);
    let mut managers = take_entries(scope, live, new);
    let is_tracked = !managers.is_empty() || live.uid().is_empty();
    if is_tracked && record_update(scope, &mut managers, manager, now, live, new) {
        managers.cap_updates();
        managers.store(new);
    }
}

/// Returns the managers of an object without entries before its first apply: [`BEFORE_FIRST_APPLY`]
/// owns all fields.
pub(crate) fn track_before_apply(scope: &Scope<'_>, now: &str, live: &Object) -> Managers {
    let mut managers = Managers::default();
    record_update(scope, &mut managers, BEFORE_FIRST_APPLY, now, &Object::new(), live);
    managers
}

/// Moves the changed fields to `manager` from all others. Returns false when the fields of the new
/// object cannot be tracked: it has list items without keys, values of another type, or cannot be
/// compared in the version of a manager.
fn record_update(
    scope: &Scope<'_>,
    managers: &mut Managers,
    manager: &str,
    now: &str,
    old: &Object,
    new: &Object,
) -> bool {
    let has_types = |obj: &Object| typed::has_types(scope.schema, &obj.root);
    if scope.schema.types.is_custom_resource() && !(has_types(old) && has_types(new)) {
        return false;
    }
    if reconcile_all(scope, managers, old).is_err() {
        return false;
    }
    // A forced change has no conflicts.
    let Ok(comparison) = remove_changed_fields(scope, managers, (old, new), None, true) else {
        return false;
    };
    if comparison.is_unkeyed {
        return false;
    }
    let mut own = comparison.modified;
    own.add(comparison.added);
    own.subtract(&UNMANAGED);
    if own.is_empty() {
        return true;
    }
    let mut entry = new_manager(scope, manager, Operation::Update);
    if let Some(at) = managers.list.iter().position(|other| other.is_same(&entry)) {
        entry = managers.list.swap_remove(at);
    }
    entry.time = Some(Str::new(now));
    entry.fields.add(own);
    entry.encoded = None;
    managers.list.reserve_exact(1);
    managers.list.push(entry);
    true
}

/// Removes `managedFields` from the new object and decodes them. Falls back to those of the live
/// object when the client may not set them or they are invalid.
fn take_entries(scope: &Scope<'_>, live: &Object, new: &mut Object) -> Managers {
    let sent = match new.root.get_mut("metadata") {
        Some(Value::Object(metadata)) => metadata.remove("managedFields"),
        _ => None,
    };
    if !scope.subresource.is_empty() {
        return Managers::of(live);
    }
    match sent {
        // In a custom resource, an empty list counts as absent.
        Some(Value::Array(entries))
            if entries.is_empty() && scope.schema.types.is_custom_resource() =>
        {
            Managers::of(live)
        }
        Some(Value::Array(entries)) if is_reset(&entries) => Managers::default(),
        Some(Value::Array(entries)) => {
            Managers::decode(&entries).unwrap_or_else(|_| Managers::of(live))
        }
        _ => Managers::of(live),
    }
}

fn is_reset(entries: &[Value]) -> bool {
    match entries {
        [] => true,
        // An entry with an empty field set is not a reset.
        [Value::Object(entry)] => entry
            .iter()
            .all(|(key, value)| value.is_null() || key != "fieldsV1" && value.is_empty()),
        [Value::Null] => true,
        _ => false,
    }
}

/// Checks that the `managedFields` of an object decode. Called after admission, which may have
/// broken them.
pub fn validate(object: &Object) -> Result<(), InvalidEntry> {
    Managers::decode(object.array_at(&["metadata", "managedFields"])).map(drop)
}

/// Restores the old times in `managedFields` when nothing but these times changed, so that the
/// write is a no-op.
pub fn restore_times(old: &Object, new: &mut Object) {
    let path = ["metadata", "managedFields"];
    let old_entries = old.array_at(&path);
    let new_entries = new.array_at(&path);
    let is_same_except_time = |old: &Value, new: &Value| match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let rest = |map: &Map| map.len() - usize::from(map.contains_key("time"));
            rest(old) == rest(new)
                && old.iter().all(|(key, value)| key == "time" || new.get(key) == Some(value))
        }
        _ => false,
    };
    let is_same = !new_entries.is_empty()
        && old_entries.len() == new_entries.len()
        && old_entries != new_entries
        && old_entries.iter().zip(new_entries).all(|(old, new)| is_same_except_time(old, new))
        && is_same_except_managed_fields(old, new);
    if is_same {
        let entries = old_entries.to_vec();
        new.metadata_mut().insert("managedFields", entries);
    }
}

fn is_same_except_managed_fields(old: &Object, new: &Object) -> bool {
    let empty = Map::new();
    let old_metadata = old.metadata().unwrap_or(&empty);
    let new_metadata = new.metadata().unwrap_or(&empty);
    is_same_map(old_metadata, new_metadata, "managedFields")
        && is_same_map(&old.root, &new.root, "metadata")
}

/// Returns whether two maps are equal except for one member.
fn is_same_map(left: &Map, right: &Map, skipped: &str) -> bool {
    let is_same = |key: &str, a: &Value, b: &Value| key == skipped || is_same_in_go(a, b);
    left.iter().all(|(key, value)| is_same(key, value, right.get(key).unwrap_or(&Value::Null)))
        && right
            .iter()
            .all(|(key, value)| left.contains_key(key) || is_same(key, &Value::Null, value))
}

/// Returns whether two values are equal in Go, where a nil slice equals an empty one.
fn is_same_in_go(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Null, Value::Array(items)) | (Value::Array(items), Value::Null) => items.is_empty(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(x, y)| is_same_in_go(x, y))
        }
        (Value::Object(a), Value::Object(b)) => is_same_map(a, b, ""),
        _ => equal_values(left, right),
    }
}

/// Returns the manager name of a request: its `fieldManager`, else its user agent up to the first
/// `/`.
pub fn manager_name(field_manager: &str, user_agent: &str) -> String {
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let mut name = String::new();
    for c in user_agent.split('/').next().unwrap_or_default().chars() {
        if c.is_control() {
            continue;
        }
        if name.len() + c.len_utf8() > NAME_BYTES_MAX {
            break;
        }
        name.push(c);
    }
    name
}
