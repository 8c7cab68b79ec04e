//! `managedFields` of the scale subresource: the managers of the replicas field, whose path differs
//! between the resource and its Scale.

use super::{InvalidEntry, Manager, Managers};
use crate::fields::{Element, FieldSet};
use keelson_meta::{Str, Value};

/// The version of Scale objects.
const SCALE_VERSION: &str = "autoscaling/v1";

/// The path of the replicas field in each version of a resource.
#[derive(Clone, Copy, Debug)]
pub struct ReplicasPaths<'a> {
    /// The version of the request.
    pub api_version: &'a str,
    /// For each served version: the path, or `None` when the version has no scale subresource.
    pub versions: &'a [(&'a str, Option<&'a [&'a str]>)],
}

impl ReplicasPaths<'_> {
    /// Returns the path in a version; the outer `None` means that the version is not served.
    fn find(&self, api_version: &str) -> Option<Option<Vec<Element>>> {
        let (_, path) = self.versions.iter().find(|(version, _)| *version == api_version)?;
        Some(path.map(|path| path.iter().map(|name| Element::field(name)).collect()))
    }
}

/// Returns the `managedFields` of the Scale of a resource with these entries.
pub fn to_scale(entries: &[Value], paths: &ReplicasPaths<'_>) -> Result<Vec<Value>, InvalidEntry> {
    let mut managers = Managers::decode(entries)?;
    managers.list.retain_mut(|manager| {
        let Some(Some(path)) = paths.find(&manager.api_version) else { return false };
        let is_owner = manager.fields.contains(&path);
        if is_owner {
            set_fields(manager, SCALE_VERSION, scale_fields());
        }
        is_owner
    });
    Ok(managers.encode())
}

/// Returns the `managedFields` of a resource after a write of its Scale. The replicas field gets
/// the managers of the Scale's `spec.replicas`.
pub fn to_resource(
    entries: &[Value],
    scale_entries: &[Value],
    paths: &ReplicasPaths<'_>,
) -> Result<Vec<Value>, InvalidEntry> {
    let before = Managers::decode(entries)?;
    let scales = Managers::decode(scale_entries)?;
    let places = scales.places();
    let mut scales: Vec<Option<Manager>> = scales.list.into_iter().map(Some).collect();
    let mut after = Managers::default();
    for mut manager in before.list {
        let Some(path) = paths.find(&manager.api_version) else { continue };
        if let Some(path) = path.filter(|path| manager.fields.contains(path)) {
            match places.get(&manager.identity()).and_then(|at| scales[*at].take()) {
                // The identity of an applier has no version: it still owns the field.
                Some(_) => {}
                None => {
                    let mut replicas = FieldSet::new();
                    replicas.insert(&path);
                    manager.change(|fields| fields.subtract(&replicas));
                }
            }
        }
        if !manager.fields.is_empty() {
            after.list.push(manager);
        }
    }
    let Some(Some(path)) = paths.find(paths.api_version) else { return Ok(after.encode()) };
    let replicas_in_scale = [Element::field("spec"), Element::field("replicas")];
    for mut scale in scales.into_iter().flatten() {
        if !scale.fields.contains(&replicas_in_scale) {
            continue;
        }
        // Upstream keeps only the time of an entry of the same manager in the resource; there is
        // none here.
        scale.time = None;
        let mut replicas = FieldSet::new();
        replicas.insert(&path);
        set_fields(&mut scale, paths.api_version, replicas);
        after.list.push(scale);
    }
    Ok(after.encode())
}

fn scale_fields() -> FieldSet {
    FieldSet::of_fields(&[&["spec", "replicas"]])
}

fn set_fields(manager: &mut Manager, api_version: &str, fields: FieldSet) {
    manager.api_version = Str::new(api_version);
    manager.fields = fields;
    manager.encoded = None;
}
