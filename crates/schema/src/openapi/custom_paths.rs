//! The paths of custom resources.

use super::custom::CustomVersion;
use super::facts::Facts;
use super::operations::{Operation, PathItem};
use super::parameters;
use super::paths::Scope;
use crate::catalogue::Catalogue;
use keelson_meta::GroupVersionKind;

/// Content types of custom resources.
const MEDIA: &[&str] = &["application/json", "application/yaml"];

/// Content types of patches of custom resources.
const PATCH_MEDIA: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];

impl<'a> CustomVersion<'a> {
    /// Returns the paths of the resources, sorted. Custom resources have no deprecated `/watch/`
    /// paths.
    pub(super) fn paths(&'a self, catalogue: &'a Catalogue, facts: &'a Facts) -> Vec<PathItem> {
        let resources = self.resources.iter().map(|resource| resource.facts);
        let mut items =
            Scope::paths(catalogue, facts, self.group, self.version, resources, Some(self));
        let root = format!("/{}/", self.document());
        let watches = format!("{root}watch/");
        items.retain(|item| item.path != root && !item.path.starts_with(&watches));
        for item in &mut items {
            let kind = self.kind_at(item.path.strip_prefix(&root).unwrap_or_default());
            for operation in &mut item.operations {
                adjust_for_custom_resource(operation, kind);
            }
        }
        items
    }

    /// Returns the kind of the resource in a path such as `namespaces/{namespace}/widgets/{name}`.
    fn kind_at(&self, path: &str) -> Option<&GroupVersionKind> {
        let path = path.strip_prefix("namespaces/{namespace}/").unwrap_or(path);
        let name = path.split('/').next().unwrap_or_default();
        let found = self.resources.iter().find(|resource| resource.facts.name == name);
        found.map(|resource| &resource.facts.kind)
    }
}

/// Adjusts an operation to custom resources.
fn adjust_for_custom_resource(operation: &mut Operation, kind: Option<&GroupVersionKind>) {
    operation.produces = MEDIA;
    operation.consumes = MEDIA;
    if operation.kind.is_some() && kind.is_some() {
        operation.kind = kind.cloned();
    }
    match (operation.action, operation.method) {
        ("deletecollection", _) => {
            operation.parameters = parameters::LIST.to_vec();
            operation.body = None;
        }
        ("get", "get") => {
            let version = parameters::LIST.into_iter().filter(|p| p.name == "resourceVersion");
            operation.parameters.extend(version);
        }
        ("patch", _) => {
            operation.codes = &[200];
            operation.consumes = PATCH_MEDIA;
        }
        _ => {}
    }
}
