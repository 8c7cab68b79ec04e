//! Discovery: which groups, versions and resources there are, in the legacy form (a document a level)
//! and the aggregated one.

use crate::handler::App;
use keelson_meta::{Map, Str, Value, value};
use keelson_registry::api_table::{ApiGroup, ApiVersion, Endpoint};
use keelson_schema::catalogue::Resource;

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

fn legacy_group(group: &ApiGroup, typed: bool) -> Value {
    let entry = |version: &ApiVersion| {
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
    out.insert("versions", group.versions.iter().map(entry).collect::<Vec<_>>());
    if let Some(first) = group.versions.first() {
        out.insert("preferredVersion", entry(first));
    }
    Value::Object(out)
}

/// `/apis`.
pub(crate) fn groups(app: &App) -> Value {
    let api = app.registry.api();
    let groups = api.groups().filter(|group| !group.name.is_empty());
    let groups: Vec<Value> = groups.map(|group| legacy_group(group, false)).collect();
    value!({"kind": "APIGroupList", "apiVersion": "v1", "groups": (groups)})
}

/// `/apis/GROUP`.
pub(crate) fn group(app: &App, name: &str) -> Option<Value> {
    let api = app.registry.api();
    let group = api.group(name).filter(|group| !group.name.is_empty())?;
    Some(legacy_group(group, true))
}

/// `/api/v1` and `/apis/GROUP/VERSION`.
pub(crate) fn group_version_resources(app: &App, group: &str, version: &str) -> Option<Value> {
    let api = app.registry.api();
    let group = api.group(group)?;
    let version = group.version(version)?;
    let mut out = vec![];
    for endpoint in version.endpoints() {
        let resource = &endpoint.facts;
        out.push(legacy_resource(app, group, version, endpoint));
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
    app: &App,
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
    let hash = endpoint.kind.as_ref().map(|kind| app.registry.storage_version_hash(kind));
    if let Some(hash) = hash {
        entry.insert("storageVersionHash", hash);
    }
    Value::Object(entry)
}

/// `/api` and `/apis` in aggregated form: everything in one document.
pub(crate) fn aggregated(app: &App, core: bool) -> Value {
    let api = app.registry.api();
    let groups = api.groups().filter(|group| group.name.is_empty() == core);
    let items: Vec<Value> = groups.map(aggregated_group).collect();
    value!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": (items)
    })
}

fn aggregated_group(group: &ApiGroup) -> Value {
    let mut metadata = Map::new();
    if !group.name.is_empty() {
        metadata.insert("name", group.name.clone());
    }
    let version = |version: &ApiVersion| {
        let resources = version.endpoints().map(|endpoint| aggregated_resource(&endpoint.facts));
        let resources: Vec<Value> = resources.collect();
        value!({
            "version": (version.name.clone()), "resources": (resources), "freshness": "Current"
        })
    };
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    value!({"metadata": (metadata), "versions": (versions)})
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
