//! The kinds of the catalogue that a server with given flags serves.

use crate::attached::Attached;
use crate::kind::{Kind, Source};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use keelson_kinds::facts;
use keelson_meta::{Features, GroupVersionKind, GroupVersionResource, Str};
use keelson_schema::catalogue::{Catalogue, Group, Resource, Version};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Returns the built-in kinds of a server with these flags, without a server.
pub fn built_in_kinds(runtime_config: &[(String, bool)], features: Features) -> Vec<Arc<Kind>> {
    let served = Served { runtime_config, features, allows_privileged: true };
    let kinds = built_in(Catalogue::shared(), served, |_, _| Attached::default());
    kinds.into_values().collect()
}

/// Returns the version in which kube-apiserver stores a kind. It does not depend on the served
/// versions.
pub fn stored_gvk(catalogue: &Catalogue, kind: &Kind) -> GroupVersionKind {
    let group = &kind.gvr.group;
    let resource = &kind.gvr.resource;
    let of = |version: &str| GroupVersionKind::new(group.clone(), version, kind.name().clone());
    if *group != kind.storage.gvk.group {
        return kind.storage.gvk.clone();
    }
    if let Some(version) = facts::stored_version(group, resource) {
        return of(version);
    }
    let versions = catalogue.group(group).into_iter().flat_map(|group| &group.versions);
    let has = |resources: &[Resource]| resources.iter().any(|known| known.name == *resource);
    let first = versions.into_iter().find(|version| has(&version.resources));
    first.map_or_else(|| kind.storage.gvk.clone(), |version| of(&version.name))
}

/// Returns the `storageVersionHash` of legacy discovery (apiserver
/// `discovery/storageversionhash.go`). Clients only compare it.
pub fn storage_version_hash(catalogue: &Catalogue, kind: &Kind) -> String {
    let gvk = stored_gvk(catalogue, kind);
    let text = format!("{}/{}/{}", gvk.group, gvk.version, gvk.kind);
    let digest = Sha256::digest(text.as_bytes());
    STANDARD.encode(&digest[..8])
}

/// Returns the built-in kinds that store objects, by group and resource. `attach` returns what is
/// kept beside the kind of a group and resource.
pub fn built_in(
    catalogue: &Arc<Catalogue>,
    served: Served<'_>,
    attach: impl Fn(&str, &str) -> Attached,
) -> HashMap<(Str, Str), Arc<Kind>> {
    let mut kinds: HashMap<(Str, Str), Arc<Kind>> = HashMap::new();
    for group in &catalogue.groups {
        let mut names: Vec<&Str> = vec![];
        for version in &group.versions {
            for resource in version.resources.iter().filter(|r| keeps_objects(&r.verbs)) {
                if !names.contains(&&resource.name) {
                    names.push(&resource.name);
                }
            }
        }
        for name in names {
            if let Some(mut kind) = kind_of(catalogue, group, name, served) {
                kind.attached = attach(&group.name, name);
                kinds.insert((group.name.clone(), name.clone()), Arc::new(kind));
            }
        }
    }
    kinds
}

/// Whether a resource stores objects: it can be listed and created, unlike reviews.
fn keeps_objects(verbs: &[Str]) -> bool {
    verbs.iter().any(|verb| verb == "list") && verbs.iter().any(|verb| verb == "create")
}

fn kind_of(
    catalogue: &Arc<Catalogue>,
    group: &Group,
    name: &Str,
    served: Served<'_>,
) -> Option<Kind> {
    let mut versions = vec![];
    let mut namespaced = false;
    let mut has_status = false;
    for version in &group.versions {
        let Some(resource) = version.resources.iter().find(|r| &r.name == name) else {
            continue;
        };
        if !served.has(&group.name, version, resource) {
            continue;
        }
        namespaced = resource.namespaced;
        has_status |= resource.subresources.iter().any(|sub| sub.name == "status");
        versions.extend(catalogue.schema(&resource.kind));
    }
    if versions.is_empty() {
        return None;
    }
    let storage = storage_schema(catalogue, group, name)?;
    let gvr =
        GroupVersionResource::new(group.name.clone(), storage.gvk.version.clone(), name.clone());
    Some(Kind {
        prefix: prefix(&group.name, name),
        strategy: keelson_kinds::strategy(&group.name, name, served.features)
            .allow_privileged(served.allows_privileged),
        gvr,
        list_kind: Str::from(format!("{}List", storage.gvk.kind)),
        source: Source::BuiltIn,
        generation: 0,
        foreign_through: AtomicU64::new(0),
        definition: None,
        is_terminating: AtomicBool::new(false),
        checks: vec![],
        all_versions: vec![],
        has_conversion_webhook: false,
        attached: Attached::default(),
        storage,
        versions,
        namespaced,
        has_status,
    })
}

/// The flags that decide which resources are served.
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    /// `--runtime-config`.
    pub runtime_config: &'a [(String, bool)],
    /// `--feature-gates`.
    pub features: Features,
    /// `--allow-privileged`.
    pub allows_privileged: bool,
}

impl Served<'_> {
    /// Whether a resource is served: its feature gate is on, and its version is enabled by the last
    /// matching entry of `--runtime-config` or by default.
    pub fn has(self, group: &str, version: &Version, resource: &Resource) -> bool {
        let default_on = version.default_on && resource.default_on;
        resource.gate.is_none_or(|feature| self.features.is_on(feature))
            && self.has_version(group, &version.name, default_on)
    }

    fn has_version(self, group: &str, version: &str, default_on: bool) -> bool {
        let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let level = |key: &str| match key {
            "api/all" => true,
            "api/alpha" => version.contains("alpha"),
            "api/beta" => version.contains("beta"),
            "api/ga" => !version.contains("alpha") && !version.contains("beta"),
            _ => false,
        };
        let exact = self.runtime_config.iter().rev().find(|(key, _)| *key == name);
        let wide = self.runtime_config.iter().rev().find(|(key, _)| level(key));
        exact.or(wide).map_or(default_on, |(_, on)| *on)
    }
}

/// Returns the schema of the version in which our records are stored. It does not depend on the
/// served versions: both Event resources share one version; any other resource uses its first
/// version that is enabled by default, else its first version.
fn storage_schema(
    catalogue: &Catalogue,
    group: &Group,
    name: &Str,
) -> Option<keelson_schema::Schema> {
    if let Some(shared) = facts::shared_storage_kind(&group.name, name) {
        return catalogue.schema(&shared);
    }
    let versions = || {
        group.versions.iter().filter_map(|version| {
            version.resources.iter().find(|r| &r.name == name).map(|resource| (version, resource))
        })
    };
    let on = versions().find(|(version, resource)| version.default_on && resource.default_on);
    let (_, resource) = on.or_else(|| versions().next())?;
    catalogue.schema(&resource.kind)
}

fn prefix(group: &str, name: &str) -> Bytes {
    Bytes::from(format!("/registry/{}/", facts::storage_prefix(group, name)))
}
