//! Legacy discovery: one document each for the groups, a group, and a group version.

use keelson_meta::{Feature, Map, Str, Value, value};
use keelson_registry::Registry;
use keelson_resources::api_table::{ApiGroup, ApiVersion, Endpoint, Source};
use keelson_resources::{
    ListedGroup, listed_group, listed_groups, sort_by_services, storage_version_hash,
};

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

pub(crate) fn strings(words: &[Str]) -> Value {
    Value::Array(words.iter().cloned().map(Value::String).collect())
}

/// `/api`.
pub(crate) fn core_versions(address: &str) -> Value {
    value!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    })
}

fn legacy_group(group: &ListedGroup<'_>, typed: bool) -> Value {
    let entry = |version: &Str| {
        let group_version = group_version(group.name, version);
        value!({"groupVersion": (group_version), "version": (version.clone())})
    };
    let mut out = Map::new();
    if typed {
        out.insert("kind", "APIGroup");
        out.insert("apiVersion", "v1");
    }
    out.insert("name", group.name.clone());
    let versions: Vec<Value> = group.versions.iter().map(|version| entry(version.name())).collect();
    let preferred = versions.first().cloned();
    out.insert("versions", versions);
    if let Some(preferred) = preferred {
        out.insert("preferredVersion", preferred);
    }
    Value::Object(out)
}

/// `/apis`.
pub(crate) fn groups(registry: &Registry) -> Value {
    let api = registry.api();
    let remote = registry.remote_groups();
    let mut groups = listed_groups(&api, &remote);
    sort_by_services(&mut groups);
    let groups: Vec<Value> = groups.iter().map(|group| legacy_group(group, false)).collect();
    value!({"kind": "APIGroupList", "apiVersion": "v1", "groups": (groups)})
}

/// `/apis/GROUP`.
pub(crate) fn group(registry: &Registry, name: &str) -> Option<Value> {
    let api = registry.api();
    let remote = registry.remote_groups();
    let group = listed_group(&api, &remote, name).filter(|group| !group.name.is_empty())?;
    Some(legacy_group(&group, true))
}

/// Whether a group version has built-in resources.
pub(crate) fn is_built_in(registry: &Registry, group: &str, version: &str) -> bool {
    let api = registry.api();
    let version = api.group(group).and_then(|group| group.version(version));
    version.is_some_and(|version| version.endpoints().any(|end| end.source == Source::BuiltIn))
}

/// `/api/v1` and `/apis/GROUP/VERSION`.
pub(crate) fn group_version_resources(
    registry: &Registry,
    group: &str,
    version: &str,
) -> Option<Value> {
    let api = registry.api();
    let group = api.group(group)?;
    let version = group.version(version)?;
    let mut out = vec![];
    for endpoint in version.endpoints() {
        let resource = &endpoint.facts;
        out.push(legacy_resource(registry, group, version, endpoint));
        for sub in &resource.subresources {
            let mut entry = Map::new();
            entry.insert("name", format!("{}/{}", resource.name, sub.name));
            entry.insert("singularName", "");
            entry.insert("namespaced", resource.namespaced);
            if sub.kind.group != group.name || sub.kind.version != version.name {
                entry.insert("group", sub.kind.group.clone());
                entry.insert("version", sub.kind.version.clone());
            }
            entry.insert("kind", sub.kind.kind.clone());
            entry.insert("verbs", strings(&sub.verbs));
            out.push(Value::Object(entry));
        }
    }
    let mut list = Map::new();
    list.insert("kind", "APIResourceList");
    if !group.name.is_empty() {
        list.insert("apiVersion", "v1");
    }
    list.insert("groupVersion", group_version(&group.name, &version.name));
    list.insert("resources", out);
    Some(Value::Object(list))
}

fn legacy_resource(
    registry: &Registry,
    group: &ApiGroup,
    version: &ApiVersion,
    endpoint: &Endpoint,
) -> Value {
    let resource = &endpoint.facts;
    let mut entry = Map::new();
    entry.insert("name", resource.name.clone());
    entry.insert("singularName", resource.singular.clone());
    entry.insert("namespaced", resource.namespaced);
    if resource.kind.group != group.name || resource.kind.version != version.name {
        entry.insert("group", resource.kind.group.clone());
        entry.insert("version", resource.kind.version.clone());
    }
    entry.insert("kind", resource.kind.kind.clone());
    entry.insert("verbs", strings(&resource.verbs));
    if !resource.short_names.is_empty() {
        entry.insert("shortNames", strings(&resource.short_names));
    }
    if !resource.categories.is_empty() {
        entry.insert("categories", strings(&resource.categories));
    }
    let is_hashed = registry.options.features.is_on(Feature::StorageVersionHash);
    let kind = endpoint.kind.as_ref().filter(|_| is_hashed);
    let hash = kind.map(|kind| storage_version_hash(&registry.catalogue, kind));
    if let Some(hash) = hash {
        entry.insert("storageVersionHash", hash);
    }
    Value::Object(entry)
}
