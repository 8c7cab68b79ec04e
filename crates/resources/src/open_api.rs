//! OpenAPI documents of all served resources, built-in and custom.

use crate::api_table::{ApiGroup, ApiTable, Source};
use keelson_cel::DeclType;
use keelson_meta::GroupVersionKind;
use keelson_schema::catalogue::Catalogue;
use keelson_schema::openapi::{CustomResource, CustomVersion, OpenApi, RemoteSpec};
use std::sync::Arc;

impl ApiTable {
    /// Calls `work` with the OpenAPI documents of all resources. The time grows with the custom
    /// resources.
    pub fn documents<T>(&self, catalogue: &Arc<Catalogue>, work: impl FnOnce(&OpenApi) -> T) -> T {
        self.documents_with_remote(catalogue, &[], work)
    }

    /// Calls `work` with the OpenAPI documents of no group and of one, without other groups' custom
    /// resources.
    pub fn documents_of<T>(
        &self,
        catalogue: &Arc<Catalogue>,
        group: &str,
        work: impl FnOnce(&OpenApi) -> T,
    ) -> T {
        self.documents_with(catalogue, custom_versions(self.group(group).into_iter()), &[], work)
    }

    /// Calls `work` with the documents of all resources, in which those of other servers are
    /// merged.
    pub fn documents_with_remote<T>(
        &self,
        catalogue: &Arc<Catalogue>,
        remote: &[&RemoteSpec],
        work: impl FnOnce(&OpenApi) -> T,
    ) -> T {
        self.documents_with(catalogue, custom_versions(self.groups()), remote, work)
    }

    fn documents_with<T>(
        &self,
        catalogue: &Arc<Catalogue>,
        custom: Vec<CustomVersion<'_>>,
        remote: &[&RemoteSpec],
        work: impl FnOnce(&OpenApi) -> T,
    ) -> T {
        let is_served =
            |group: &str, version: &str, name: &str| self.endpoint(group, version, name).is_some();
        work(&OpenApi::new(catalogue, &is_served).with_custom(&custom).with_remote(remote))
    }

    /// Returns the CEL type of a kind, declared by its OpenAPI schema; `name` is its name in
    /// messages. `None`: the kind is not served, or has no schema. Takes milliseconds.
    pub fn decl_type(
        &self,
        catalogue: &Arc<Catalogue>,
        kind: &GroupVersionKind,
        name: &str,
    ) -> Option<DeclType> {
        let schema =
            self.documents_of(catalogue, &kind.group, |documents| documents.resolved(kind))?;
        keelson_kinds::expressions::decl_type(schema.as_object()?, name)
    }
}

fn custom_versions<'a>(groups: impl Iterator<Item = &'a ApiGroup>) -> Vec<CustomVersion<'a>> {
    let mut out = vec![];
    for group in groups {
        for version in &group.versions {
            let custom = version.endpoints().filter(|found| found.source == Source::Custom);
            let resources: Vec<_> = custom
                .filter_map(|endpoint| {
                    let kind = endpoint.kind.as_ref()?;
                    let facts = &*endpoint.facts;
                    let schema = Box::new(endpoint.openapi.open());
                    let list_kind = &kind.list_kind;
                    let selectable = kind.selectable_fields(&version.name);
                    // The schemas of a definition change with its generation. Hashing those of a
                    // thousand definitions would take most of a second.
                    let definition = kind.definition.as_ref();
                    let schema_id =
                        definition.map(|(uid, generation)| format!("{uid} {generation}"));
                    Some(CustomResource { facts, list_kind, schema, schema_id, selectable })
                })
                .collect();
            if !resources.is_empty() {
                out.push(CustomVersion { group: &group.name, version: &version.name, resources });
            }
        }
    }
    out
}
