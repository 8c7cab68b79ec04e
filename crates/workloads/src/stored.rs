//! Reads of objects by control loops, and writes of their status.

use keelson_loops::client::Client;
use keelson_meta::{Failure, Map, Object, Str, Timestamp, Value};
use keelson_records::Entry;
use keelson_registry::{Registry, Subresource, Target};
use keelson_resources::Kind;
use std::sync::Arc;

/// Namespace and name of an object.
pub(crate) type Name = (Str, Str);

/// Returns namespace and name of a stored object.
pub(crate) fn name_of(entry: &Entry) -> Name {
    (entry.namespace().into(), entry.name().into())
}

/// Returns a stored object with its kind and version.
pub(crate) fn decode(kind: &Kind, entry: &Entry) -> Result<Object, Failure> {
    let mut object = kind.decode(entry)?;
    object.set_gvk(&kind.storage.gvk);
    Ok(object)
}

/// Returns an object of the cache; `None` if there is none.
pub(crate) fn read(
    registry: &Registry,
    kind: &Kind,
    namespace: &str,
    name: &str,
) -> Result<Option<Object>, Failure> {
    let entry = registry.cached(kind, namespace, name);
    entry.map(|entry| decode(kind, &entry)).transpose()
}

/// Returns the status of an object; empty if there is none.
pub(crate) fn status(object: &Object) -> Map {
    object.get("status").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// Writes the status of an object if it differs, and returns the object as it is stored then. After
/// a conflict, the status is written once more over the latest object of the same uid.
pub(crate) async fn write_status(
    client: &Client,
    kind: &Arc<Kind>,
    object: &Object,
    status: Map,
) -> Result<Option<Object>, Failure> {
    if object.get("status").and_then(Value::as_object) == Some(&status) {
        return Ok(Some(object.clone()));
    }
    let target = Target::of(kind, object.namespace(), object.name());
    let with_status = |mut object: Object| {
        object.root.insert("status", status.clone());
        object
    };
    let first = client.update(&target, Subresource::Status, with_status(object.clone())).await;
    let result = match first {
        Err(error) if error.code == 409 => match client.get(&target).await? {
            Some(latest) if latest.uid() == object.uid() => {
                client.update(&target, Subresource::Status, with_status(latest)).await
            }
            _ => return Ok(None),
        },
        result => result,
    };
    match result {
        Ok(mut stored) => {
            stored.set_gvk(&kind.storage.gvk);
            Ok(Some(stored))
        }
        Err(error) if error.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sets a number; a 0 is left out, as Go's `omitempty` does.
pub(crate) fn set_count(status: &mut Map, name: &'static str, count: i64) {
    if count == 0 {
        status.remove(name);
    } else {
        status.insert(name, count);
    }
}

/// Returns the number of items.
pub(crate) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the condition of a type.
pub(crate) fn condition<'s>(status: &'s Map, of: &str) -> Option<&'s Value> {
    let conditions = status.get("conditions").and_then(Value::as_array)?;
    conditions.iter().find(|one| one.str_at(&["type"]) == Some(of))
}

/// Removes the condition of a type.
pub(crate) fn remove_condition(status: &mut Map, of: &str) {
    if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
        conditions.retain(|one| one.str_at(&["type"]) != Some(of));
        if conditions.is_empty() {
            status.remove("conditions");
        }
    }
}

/// Puts a condition at the end, in the place of one of the same type.
pub(crate) fn put_condition(status: &mut Map, condition: Value) {
    let of = condition.str_at(&["type"]).unwrap_or_default().to_owned();
    remove_condition(status, &of);
    let conditions = status.entry_or("conditions", || Value::Array(vec![]));
    if let Value::Array(conditions) = conditions {
        conditions.push(condition);
    }
}

/// Sets a condition of an object in its place, or at the end. The time of a transition stays if the
/// status does.
pub(crate) fn set_condition(object: &mut Object, mut condition: Map, now: Timestamp) {
    let conditions = object.object_mut("status").entry_or("conditions", || Value::Array(vec![]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    let is_it = |one: &Value| one.get("type") == condition.get("type");
    let known = conditions.iter().position(is_it);
    let since = known
        .map(|known| &conditions[known])
        .filter(|known| known.get("status") == condition.get("status"))
        .and_then(|known| known.get("lastTransitionTime").cloned());
    condition.insert("lastTransitionTime", since.unwrap_or_else(|| now.text().into()));
    match known {
        Some(known) => conditions[known] = condition.into(),
        None => conditions.push(condition.into()),
    }
}
