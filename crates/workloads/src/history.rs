//! ControllerRevisions: the earlier pod templates of StatefulSets and DaemonSets.

use crate::pod_control::controller_reference;
use crate::template_hash;
use keelson_loops::client::Client;
use keelson_meta::{Failure, Map, Object, Reason, Timestamp, Value, value};
use keelson_registry::{Subresource, Target};
use keelson_resources::Kind;
use keelson_schema::json;
use std::cmp::Ordering;
use std::sync::Arc;

/// The label with the hash of the data.
const HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// Number of bytes of the name of the parent in that of a revision.
const PREFIX_BYTES_MAX: usize = 223;
/// Number of tries to write a revision against other writers.
const UPDATE_TRIES_MAX: usize = 5;

/// Returns the data of a revision: a patch that restores a template, as Go writes it.
pub(crate) fn data_for(template: &Value) -> String {
    let mut template = template.clone();
    if let Some(members) = template.as_object_mut() {
        members.insert("$patch", "replace");
    }
    let patch = value!({"spec": {"template": (template)}}).sorted();
    let mut text = vec![];
    json::write_value(&patch, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// Returns the data of a stored revision.
pub(crate) fn data_of(revision: &Object) -> String {
    match revision.get("data") {
        Some(Value::Raw(text)) => text.to_string(),
        Some(data) => {
            let mut text = vec![];
            json::write_value(&data.clone().sorted(), &mut text);
            String::from_utf8(text).unwrap_or_default()
        }
        None => String::new(),
    }
}

/// Returns the template that a revision restores.
pub(crate) fn template_of(revision: &Object) -> Option<Value> {
    let data = json::parse(data_of(revision).as_bytes()).ok()?.value;
    let mut template = data.at(&["spec", "template"])?.clone();
    let members = template.as_object_mut()?;
    members.remove("$patch");
    // Earlier versions of Kubernetes wrote an absent time.
    members.object_at("metadata").retain(|_, value| !value.is_null());
    Some(template)
}

/// Returns the number of a revision.
pub(crate) fn number(revision: &Object) -> i64 {
    revision.int_at(&["revision"]).unwrap_or(0)
}

/// Compares by number, then by age and name.
pub(crate) fn by_number(one: &Object, other: &Object) -> Ordering {
    let created = |object: &Object| Timestamp::parse(object.creation_timestamp()).ok();
    number(one)
        .cmp(&number(other))
        .then_with(|| created(one).cmp(&created(other)))
        .then_with(|| one.name().cmp(other.name()))
}

/// Returns the name of a revision.
fn name(parent: &str, hash: &str) -> String {
    let prefix = parent.get(..PREFIX_BYTES_MAX).unwrap_or(parent);
    format!("{prefix}-{hash}")
}

/// Returns a revision with the present template of an object.
pub(crate) fn new_revision(parent: &Object, number: i64, collisions: i64) -> Object {
    let template = parent.at(&["spec", "template"]).cloned().unwrap_or_default();
    let data = data_for(&template);
    let hash = template_hash::of_data(data.as_bytes(), collisions);
    let mut labels = template
        .at(&["metadata", "labels"])
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    labels.insert(HASH_LABEL, hash.as_str());
    revision(parent, &name(parent.name(), &hash), labels, data, number)
}

/// Returns a revision of an object with this name and these labels.
pub(crate) fn revision(
    parent: &Object,
    name: &str,
    labels: Map,
    data: String,
    number: i64,
) -> Object {
    let metadata = value!({
        "name": name, "namespace": (parent.namespace()), "labels": (labels),
        "ownerReferences": [(controller_reference(parent))]
    });
    let mut revision = Object::new();
    revision.root.insert("metadata", metadata);
    if let Some(annotations) = parent.at(&["metadata", "annotations"]) {
        revision.metadata_mut().insert("annotations", annotations.clone());
    }
    revision.root.insert("data", Value::Raw(data.into()));
    revision.root.insert("revision", number);
    revision
}

/// Stores a revision. While its name is taken by other data, the number of collisions grows and the
/// name changes.
pub(crate) async fn create(
    client: &Client,
    kind: &Arc<Kind>,
    parent: &Object,
    mut revision: Object,
    collisions: &mut i64,
) -> Result<Object, Failure> {
    let data = data_of(&revision);
    loop {
        let hash = template_hash::of_data(data.as_bytes(), *collisions);
        revision.set_meta("name", &name(parent.name(), &hash));
        let target = Target::of(kind, parent.namespace(), revision.name());
        match client.create(&target, revision.clone()).await {
            Err(error) if error.reason == Reason::AlreadyExists => {
                let existing = client.get(&target).await?.ok_or(error)?;
                if data_of(&existing) == data {
                    return Ok(existing);
                }
                *collisions += 1;
            }
            result => return result,
        }
    }
}

/// Gives a revision another number.
pub(crate) async fn renumber(
    client: &Client,
    kind: &Arc<Kind>,
    mut revision: Object,
    number: i64,
) -> Result<Object, Failure> {
    let target = Target::of(kind, revision.namespace(), revision.name());
    let mut tries = 1;
    loop {
        if self::number(&revision) == number {
            return Ok(revision);
        }
        revision.root.insert("revision", number);
        match client.update(&target, Subresource::None, revision.clone()).await {
            Err(error) if error.code == 409 && tries < UPDATE_TRIES_MAX => {
                tries += 1;
                revision = client.get(&target).await?.ok_or(error)?;
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_a_patch_with_sorted_members() {
        let template = value!({
            "metadata": {"labels": {"b": "<&>", "a": "1"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}
        });
        let data = data_for(&template);
        let wanted = "{\"spec\":{\"template\":{\"$patch\":\"replace\",\"metadata\":{\"labels\":{\
                      \"a\":\"1\",\"b\":\"\\u003c\\u0026\\u003e\"}},\"spec\":{\"containers\":[{\
                      \"image\":\"i\",\"name\":\"c\"}]}}}}";
        assert_eq!(data, wanted);
        let mut parent = Object::new();
        parent.object_mut("spec").insert("template", template.clone());
        let revision = new_revision(&parent, 3, 0);
        assert_eq!((number(&revision), data_of(&revision)), (3, data));
        assert_eq!(template_of(&revision), Some(template));
    }
}
