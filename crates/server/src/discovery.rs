//! Discovery: which groups, versions and resources there are, in the legacy form (a document a level)
//! and the aggregated one.

use crate::handler::App;
use keelson_meta::{Map, Str, Value, value};
use keelson_schema::catalogue::{Group, Resource, Version};

/// The group versions that are served, in order.
fn served(app: &App) -> impl Iterator<Item = (&Group, Vec<&Version>)> {
    app.registry.catalogue.groups.iter().filter_map(|group| {
        let versions: Vec<&Version> = group
            .versions
            .iter()
            .filter(|version| !resources(app, group, version).is_empty())
            .collect();
        (!versions.is_empty()).then_some((group, versions))
    })
}

/// The resources of a version that are served, in order.
pub(crate) fn resources<'a>(app: &App, group: &Group, version: &'a Version) -> Vec<&'a Resource> {
    let serves = |resource: &&Resource| app.registry.serves(&group.name, &version.name, resource);
    version.resources.iter().filter(serves).collect()
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn strings(words: &[Str]) -> Value {
    Value::Array(words.iter().cloned().map(Value::String).collect())
}

/// `/api`.
pub(crate) fn core_versions(address: &str) -> Value {
    value!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    })
}

fn legacy_group(group: &Group, versions: &[&Version], typed: bool) -> Value {
    let entry = |version: &&Version| {
        value!({
            "groupVersion": (group_version(&group.name, &version.name)),
            "version": (version.name.clone())
        })
    };
    let mut out = Map::new();
    if typed {
        out.insert("kind", "APIGroup");
        out.insert("apiVersion", "v1");
    }
    out.insert("name", group.name.clone());
    out.insert("versions", versions.iter().map(entry).collect::<Vec<_>>());
    if let Some(first) = versions.first() {
        out.insert("preferredVersion", entry(first));
    }
    Value::Object(out)
}

/// `/apis`.
pub(crate) fn groups(app: &App) -> Value {
    let groups: Vec<Value> = served(app)
        .filter(|(group, _)| !group.name.is_empty())
        .map(|(group, versions)| legacy_group(group, &versions, false))
        .collect();
    value!({"kind": "APIGroupList", "apiVersion": "v1", "groups": (groups)})
}

/// `/apis/GROUP`.
pub(crate) fn group(app: &App, name: &str) -> Option<Value> {
    let (group, versions) =
        served(app).find(|(group, _)| group.name == name && !name.is_empty())?;
    Some(legacy_group(group, &versions, true))
}

/// `/api/v1` and `/apis/GROUP/VERSION`.
pub(crate) fn group_version_resources(app: &App, group: &str, version: &str) -> Option<Value> {
    let (group, versions) = served(app).find(|(found, _)| found.name == group)?;
    let version = versions.into_iter().find(|found| found.name == version)?;
    let mut out = vec![];
    for resource in resources(app, group, version) {
        out.push(legacy_resource(app, group, version, resource));
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

fn legacy_resource(app: &App, group: &Group, version: &Version, resource: &Resource) -> Value {
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
    if let Some(hash) = app.registry.storage_version_hash(&group.name, &resource.name) {
        entry.insert("storageVersionHash", hash);
    }
    Value::Object(entry)
}

/// `/api` and `/apis` in aggregated form: everything in one document.
pub(crate) fn aggregated(app: &App, core: bool, beta: bool) -> Value {
    let items: Vec<Value> = served(app)
        .filter(|(group, _)| group.name.is_empty() == core)
        .map(|(group, versions)| {
            let mut metadata = Map::new();
            if !core {
                metadata.insert("name", group.name.clone());
            }
            metadata.insert("creationTimestamp", Value::Null);
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = resources(app, group, version)
                        .into_iter()
                        .map(aggregated_resource)
                        .collect();
                    value!({
                        "version": (version.name.clone()), "resources": (resources),
                        "freshness": "Current"
                    })
                })
                .collect();
            value!({"metadata": (metadata), "versions": (versions)})
        })
        .collect();
    let version = if beta { "apidiscovery.k8s.io/v2beta1" } else { "apidiscovery.k8s.io/v2" };
    value!({
        "kind": "APIGroupDiscoveryList", "apiVersion": version, "metadata": {}, "items": (items)
    })
}

/// A kind in aggregated discovery: one of the same group version is named by its kind alone.
fn response_kind(kind: &keelson_meta::GroupVersionKind, of: &Resource) -> Value {
    let own = kind.group == of.kind.group && kind.version == of.kind.version;
    let (group, version) = if own {
        (Str::default(), Str::default())
    } else {
        (kind.group.clone(), kind.version.clone())
    };
    value!({"group": (group), "version": (version), "kind": (kind.kind.clone())})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut entry = Map::new();
    entry.insert("resource", resource.name.clone());
    entry.insert("responseKind", response_kind(&resource.kind, resource));
    entry.insert("scope", if resource.namespaced { "Namespaced" } else { "Cluster" });
    entry.insert("singularResource", resource.singular.clone());
    entry.insert("verbs", strings(&resource.verbs));
    if !resource.short_names.is_empty() {
        entry.insert("shortNames", strings(&resource.short_names));
    }
    if !resource.categories.is_empty() {
        entry.insert("categories", strings(&resource.categories));
    }
    if !resource.subresources.is_empty() {
        let subs: Vec<Value> = resource
            .subresources
            .iter()
            .map(|sub| {
                value!({
                    "subresource": (sub.name.clone()),
                    "responseKind": (response_kind(&sub.kind, resource)),
                    "verbs": (strings(&sub.verbs))
                })
            })
            .collect();
        entry.insert("subresources", subs);
    }
    Value::Object(entry)
}
