//! What producers of the API table define: resources that are added, changed and removed while the
//! server runs.

use crate::api_table::{Endpoint, Source};
use crate::attached::Attached;
use crate::cel_rules::CelRules;
use crate::kind::{Kind, VersionChecks};
use crate::schema_text::SchemaText;
use bytes::Bytes;
use keelson_kinds::scale::{ScalePaths, scale_kind};
use keelson_meta::{GroupVersionKind, GroupVersionResource, Str};
use keelson_schema::Schema;
use keelson_schema::catalogue::{Resource, Subresource, SubresourceClass};
use keelson_schema::structural::LazyStructural;
use keelson_schema::tables::CustomColumns;
use keelson_store::Revision;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The definition of a resource that a producer adds to the API table.
#[derive(Clone, Debug)]
pub struct Definition {
    /// API group. It must contain a dot, because custom and built-in resources share a key space.
    pub group: Str,
    /// `widgets`.
    pub resource: Str,
    /// `widget`.
    pub singular: Str,
    /// `Widget`.
    pub kind: Str,
    /// `WidgetList`.
    pub list_kind: Str,
    /// `wd`.
    pub short_names: Vec<Str>,
    /// `all`.
    pub categories: Vec<Str>,
    /// Whether the resource is namespaced.
    pub namespaced: bool,
    /// All versions, including those that are not served.
    pub versions: Vec<DefinedVersion>,
    /// The version in which objects are stored.
    pub storage_version: Str,
    /// All records that are newer than this revision were written with this definition; `None`: the
    /// current revision. Older records are decoded and encoded again when they are read, which
    /// costs more than sending them as they are.
    pub since: Option<Revision>,
    /// Uid and generation of the CustomResourceDefinition, if there is one.
    pub definition: Option<(Str, i64)>,
}

/// A version of a [`Definition`].
#[derive(Clone, Debug)]
pub struct DefinedVersion {
    /// `v1`.
    pub name: Str,
    /// Whether the version is served.
    pub is_served: bool,
    /// The schema of its objects.
    pub schema: Schema,
    /// The structural schema that validates objects.
    pub structural: Option<Arc<LazyStructural>>,
    /// Whether there is a `status` subresource.
    pub has_status: bool,
    /// The columns of tables (`additionalPrinterColumns`).
    pub columns: Arc<CustomColumns>,
    /// The selectable fields, each as the names on its path.
    pub selectable: Vec<Vec<Str>>,
    /// The paths of the `scale` subresource, if it is enabled.
    pub scale: Option<Arc<ScalePaths>>,
    /// The Warning of a deprecated version.
    pub deprecation: Option<Str>,
    /// The OpenAPI v3 schema.
    pub openapi: SchemaText,
}

/// Why a resource cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServeError {
    /// The group has no dot, so its keys could collide with those of built-in resources.
    Group,
    /// The resource is in the catalogue.
    BuiltIn,
    /// No version has the name of the storage version.
    Storage,
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServeError::Group => "the group has no dot",
            ServeError::BuiltIn => "the resource is built in",
            ServeError::Storage => "there is no version by the name of the storage version",
        })
    }
}

impl std::error::Error for ServeError {}

const VERBS: [&str; 8] =
    ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const PART_VERBS: [&str; 3] = ["get", "patch", "update"];

/// Returns the key prefix of a custom resource in the store.
pub fn custom_prefix(group: &str, resource: &str) -> Bytes {
    Bytes::from(format!("/registry/{group}/{resource}/"))
}

fn words(words: &[&'static str]) -> Vec<Str> {
    words.iter().map(|word| Str::new_static(word)).collect()
}

impl DefinedVersion {
    fn checks(&self) -> Option<VersionChecks> {
        let version = self.name.clone();
        let structural = self.structural.clone()?;
        let rules = Arc::new(CelRules::new(self.openapi.clone()));
        Some(VersionChecks {
            version,
            structural,
            rules,
            columns: self.columns.clone(),
            scale: self.scale.clone(),
            selectable: self.selectable.clone(),
        })
    }
}

impl Definition {
    /// Returns the kind of the resource. `generation` is the number of the change of the API table;
    /// records up to `foreign_through` may have been written with another definition.
    pub fn kind(&self, generation: u64, foreign_through: Revision) -> Result<Kind, ServeError> {
        let storage = self
            .versions
            .iter()
            .find(|version| version.name == self.storage_version)
            .ok_or(ServeError::Storage)?
            .schema
            .clone();
        let served = self.versions.iter().filter(|version| version.is_served);
        let has_status = self.versions.iter().any(|version| version.has_status);
        let group = &self.group;
        let resource = &self.resource;
        Ok(Kind {
            gvr: GroupVersionResource::new(
                group.clone(),
                self.storage_version.clone(),
                resource.clone(),
            ),
            versions: served.map(|version| version.schema.clone()).collect(),
            storage,
            namespaced: self.namespaced,
            strategy: keelson_kinds::custom::strategy(has_status),
            prefix: self.prefix(),
            has_status,
            list_kind: self.list_kind.clone(),
            source: Source::Custom,
            generation,
            foreign_through: AtomicU64::new(foreign_through.0),
            definition: self.definition.clone(),
            is_terminating: AtomicBool::new(false),
            checks: self.versions.iter().filter_map(DefinedVersion::checks).collect(),
            all_versions: self.versions.iter().map(|version| version.schema.clone()).collect(),
            has_conversion_webhook: false,
            attached: Attached::default(),
        })
    }

    /// Returns the endpoints of the served versions.
    pub fn endpoints(&self, kind: &Arc<Kind>) -> Vec<(Str, Arc<Endpoint>)> {
        let served = self.versions.iter().filter(|version| version.is_served);
        let endpoint = |version: &DefinedVersion| Endpoint {
            facts: Cow::Owned(self.facts(version)),
            kind: Some(kind.clone()),
            source: Source::Custom,
            deprecation: version.deprecation.clone(),
            openapi: version.openapi.clone(),
        };
        served.map(|version| (version.name.clone(), Arc::new(endpoint(version)))).collect()
    }

    /// Returns the key prefix of its objects in the store.
    pub fn prefix(&self) -> Bytes {
        custom_prefix(&self.group, &self.resource)
    }

    fn facts(&self, version: &DefinedVersion) -> Resource {
        let kind =
            GroupVersionKind::new(self.group.clone(), version.name.clone(), self.kind.clone());
        let status = version.has_status.then(|| Subresource {
            name: Str::new_static("status"),
            kind: kind.clone(),
            verbs: words(&PART_VERBS),
            class: SubresourceClass::Status,
        });
        let scale = version.scale.as_ref().map(|_| Subresource {
            name: Str::new_static("scale"),
            kind: scale_kind(),
            verbs: words(&PART_VERBS),
            class: SubresourceClass::Scale,
        });
        Resource {
            name: self.resource.clone(),
            kind,
            namespaced: self.namespaced,
            singular: self.singular.clone(),
            short_names: self.short_names.clone(),
            categories: self.categories.clone(),
            verbs: words(&VERBS),
            default_on: true,
            gate: None,
            subresources: status.into_iter().chain(scale).collect(),
        }
    }
}
