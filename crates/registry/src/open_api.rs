//! OpenAPI of what is served, built-in and custom.

use crate::api_table::{ApiGroup, ApiTable, Source};
use crate::registry::Registry;
use keelson_cel::Declared;
use keelson_meta::GroupVersionKind;
use keelson_schema::openapi::{CustomResource, CustomVersion, OpenApi};

impl Registry {
    /// Gives the OpenAPI documents of all that is served to `work`. Takes longer the more custom resources there
    /// are.
    pub fn documents<T>(&self, work: impl FnOnce(&OpenApi) -> T) -> T {
        let api = self.api();
        self.documents_with(&api, custom_versions(api.groups()), work)
    }

    /// Gives the OpenAPI documents of one group to `work`, and those that belong to none. Other groups of custom
    /// resources are left out.
    pub fn documents_of<T>(&self, group: &str, work: impl FnOnce(&OpenApi) -> T) -> T {
        let api = self.api();
        self.documents_with(&api, custom_versions(api.group(group).into_iter()), work)
    }

    fn documents_with<T>(
        &self,
        api: &ApiTable,
        custom: Vec<CustomVersion<'_>>,
        work: impl FnOnce(&OpenApi) -> T,
    ) -> T {
        let is_served =
            |group: &str, version: &str, name: &str| api.endpoint(group, version, name).is_some();
        work(&OpenApi::new(&self.catalogue, &is_served).with_custom(&custom))
    }

    /// The type that CEL sees in objects of a kind, as its OpenAPI schema declares it; `name` is what messages call
    /// it. None: the kind is not served, or its schema says nothing. Takes milliseconds.
    pub fn declared_type(&self, kind: &GroupVersionKind, name: &str) -> Option<Declared> {
        let schema = self.documents_of(&kind.group, |documents| documents.resolved(kind))?;
        keelson_kinds::expressions::declared(schema.as_object()?, name)
    }
}

/// The versions of groups with resources that are not in the catalogue.
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
                    let (list_kind, selectable) =
                        (&kind.list_kind, kind.selectable_fields(&version.name));
                    // A definition's schemas change with its generation; to hash those of a thousand
                    // definitions takes most of a second.
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
