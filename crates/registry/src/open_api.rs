//! OpenAPI documents of all served resources, built-in and custom.

pub use crate::open_api_index::OpenApiIndex;

use crate::api_table::{ApiGroup, ApiTable, Source};
use crate::open_api_index::CachedIndex;
use crate::registry::Registry;
use keelson_cel::DeclType;
use keelson_meta::{GroupVersionKind, Str};
use keelson_schema::openapi::{
    CustomResource, CustomVersion, DocumentHash, OpenApi, group_of_document,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

impl Registry {
    /// Returns the index of the OpenAPI v3 documents. It is cached; after a change of the API table
    /// only the documents of the changed groups are hashed again.
    pub fn open_api_index(&self) -> OpenApiIndex {
        // The table may be newer than the number. Its newer changes are processed again next time.
        let number = self.api_change();
        let mut cached = self.open_api_index.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = cached.as_ref().filter(|cached| cached.number == number) {
            return cached.index.clone();
        }
        let before = cached
            .take()
            .and_then(|cached| Some((cached.documents, self.api_groups_since(cached.number)?)));
        let documents = match before {
            Some((documents, groups)) => self.hashes_after(documents, &groups),
            None => self.documents(|all| all.v3_hashes(|_| true)).into_iter().collect(),
        };
        let text = OpenApi::v3_index(&documents);
        let index = OpenApiIndex { hash: OpenApi::hash_of(&text), text: text.into() };
        *cached = Some(CachedIndex { number, documents, index: index.clone() });
        index
    }

    /// Returns the hashes of all documents after these groups have changed.
    fn hashes_after(
        &self,
        mut documents: BTreeMap<String, DocumentHash>,
        groups: &BTreeSet<Str>,
    ) -> BTreeMap<String, DocumentHash> {
        documents
            .retain(|path, _| group_of_document(path).is_none_or(|group| !groups.contains(group)));
        for group in groups {
            let of_group = |of: Option<&str>| of == Some(group);
            documents.extend(self.documents_of(group, |found| found.v3_hashes(of_group)));
        }
        documents
    }

    /// Calls `work` with the OpenAPI documents of all resources. The time grows with the custom resources.
    pub fn documents<T>(&self, work: impl FnOnce(&OpenApi) -> T) -> T {
        let api = self.api();
        self.documents_with(&api, custom_versions(api.groups()), work)
    }

    /// Calls `work` with the OpenAPI documents of no group and of one, without other groups' custom resources.
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

    /// Returns the CEL type of a kind, declared by its OpenAPI schema; `name` is its name in
    /// messages. `None`: the kind is not served, or has no schema. Takes milliseconds.
    pub fn decl_type(&self, kind: &GroupVersionKind, name: &str) -> Option<DeclType> {
        let schema = self.documents_of(&kind.group, |documents| documents.resolved(kind))?;
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
                    let (list_kind, selectable) =
                        (&kind.list_kind, kind.selectable_fields(&version.name));
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
