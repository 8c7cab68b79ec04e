//! Owners after a create, an update, or a patch that is no apply.

use super::{BEFORE_FIRST_APPLY, InvalidEntry, Managers, Operation, Scope, UNOWNED};
use super::{disown, new_manager, reconcile_all};
use crate::fields::equal_values;
use keelson_meta::{Map, Object, Str, Value};

/// Bytes of a manager's name that is made from a user agent.
const NAME_BYTES_MAX: usize = 128;

/// Writes the owners into `new`, which is about to replace `old` (`None`: to be created) on behalf
/// of `manager`. `now` is RFC 3339 to the second.
///
/// A client may replace the entries, or reset them with `[]` or `[{}]`, but not through a
/// subresource. An object that has no owners gets none, and one with list items that lack their keys loses them.
pub fn update(scope: &Scope<'_>, manager: &str, now: &str, old: Option<&Object>, new: &mut Object) {
    let empty = Object::new();
    let live = old.unwrap_or(&empty);
    let mut managers = take_entries(scope, live, new);
    let is_tracked = !managers.is_empty() || live.uid().is_empty();
    if is_tracked && record(scope, &mut managers, manager, now, (live, new)) {
        managers.cap_updates();
        managers.store(new);
    }
}

/// The owners of an object that is applied to for the first time: one owns all that is there.
pub(crate) fn track_before_apply(scope: &Scope<'_>, now: &str, live: &Object) -> Managers {
    let mut managers = Managers::default();
    record(scope, &mut managers, BEFORE_FIRST_APPLY, now, (&Object::new(), live));
    managers
}

/// Gives what changed to `manager` and takes it from the others. False when the owners of the new object
/// cannot be known.
fn record(
    scope: &Scope<'_>,
    managers: &mut Managers,
    manager: &str,
    now: &str,
    (old, new): (&Object, &Object),
) -> bool {
    reconcile_all(scope, managers, old);
    // A forced change has no conflicts.
    let comparison = disown(scope, managers, (old, new), None, true).unwrap_or_default();
    if comparison.is_unkeyed {
        return false;
    }
    let mut own = comparison.modified;
    own.add(comparison.added);
    own.subtract(&UNOWNED);
    if own.is_empty() {
        return true;
    }
    let mut entry = new_manager(scope, manager, Operation::Update);
    if let Some(at) = managers.list.iter().position(|known| known.is_same(&entry)) {
        entry = managers.list.swap_remove(at);
    }
    entry.time = Some(Str::new(now));
    entry.fields.add(own);
    entry.encoded = None;
    managers.list.reserve_exact(1);
    managers.list.push(entry);
    true
}

/// The entries that count, taken out of the new object: its own, when the client may set them and
/// they can be read, else those of the live one.
fn take_entries(scope: &Scope<'_>, live: &Object, new: &mut Object) -> Managers {
    let given = match new.root.get_mut("metadata") {
        Some(Value::Object(metadata)) => metadata.remove("managedFields"),
        _ => None,
    };
    if !scope.subresource.is_empty() {
        return Managers::of(live);
    }
    match given {
        // An empty list is as good as none in a custom resource.
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
        // A set of fields is there when it is empty, too.
        [Value::Object(entry)] => entry
            .iter()
            .all(|(key, value)| value.is_null() || key != "fieldsV1" && value.is_empty()),
        [Value::Null] => true,
        _ => false,
    }
}

/// Whether the entries of an object can be read, which admission must not change.
pub fn validate(object: &Object) -> Result<(), InvalidEntry> {
    Managers::decode(object.array_at(&["metadata", "managedFields"])).map(drop)
}

/// Takes the old times back when the times of owners are all that changed, so that such a write
/// changes nothing.
pub fn keep_times(old: &Object, new: &mut Object) {
    let path = ["metadata", "managedFields"];
    let (old_entries, new_entries) = (old.array_at(&path), new.array_at(&path));
    let is_same_but_for_time = |old: &Value, new: &Value| match (old, new) {
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
        && old_entries.iter().zip(new_entries).all(|(old, new)| is_same_but_for_time(old, new))
        && is_same_but_for_owners(old, new);
    if is_same {
        let entries = old_entries.to_vec();
        new.metadata_mut().insert("managedFields", entries);
    }
}

fn is_same_but_for_owners(old: &Object, new: &Object) -> bool {
    let none = Map::new();
    let (old_metadata, new_metadata) =
        (old.metadata().unwrap_or(&none), new.metadata().unwrap_or(&none));
    is_same_map(old_metadata, new_metadata, "managedFields")
        && is_same_map(&old.root, &new.root, "metadata")
}

/// Whether two maps are equal but for one member.
fn is_same_map(left: &Map, right: &Map, skipped: &str) -> bool {
    let is_same = |key: &str, a: &Value, b: &Value| key == skipped || is_same_in_go(a, b);
    left.iter().all(|(key, value)| is_same(key, value, right.get(key).unwrap_or(&Value::Null)))
        && right
            .iter()
            .all(|(key, value)| left.contains_key(key) || is_same(key, &Value::Null, value))
}

/// Whether two values are equal when an absent list is an empty one, as a nil slice is in Go.
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

/// The name of the owner that a request makes: what it says, else the first word of its user agent.
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
