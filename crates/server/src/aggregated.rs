//! Aggregated discovery: all served resources in one document, with an ETag. Its text is cached per
//! group, because clients request it often and a CustomResourceDefinition changes only one group.

use crate::discovery::strings;
use crate::negotiate::Encoding;
use bytes::Bytes;
use keelson_meta::{Failure, GroupVersionKind, Map, Object, Status, Str, Value, value};
use keelson_registry::Registry;
use keelson_resources::api_table::{
    ApiGroup, ApiTable, ApiVersion, RemoteGroup, RemoteVersion, Source,
};
use keelson_resources::{ListedGroup, ListedVersion, listed_groups};
use keelson_schema::catalogue::{Catalogue, Resource};
use keelson_schema::json;
use keelson_schema::openapi::OpenApi;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The document before and after its groups.
const HEAD: &[u8] = br#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":["#;
const TAIL: &[u8] = b"]}";

/// The cached aggregated document of `/api` or `/apis`.
#[derive(Default)]
pub(crate) struct Aggregated(Mutex<Option<CachedDocument>>);

struct CachedDocument {
    /// The number of the API table's last change.
    change: u64,
    remote: Arc<Vec<RemoteGroup>>,
    /// Groups of the API table, as JSON.
    groups: HashMap<Str, Bytes>,
    hash: String,
}

impl fmt::Debug for Aggregated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Aggregated")
    }
}

/// An aggregated document.
pub(crate) struct Document {
    /// JSON.
    pub text: Vec<u8>,
    /// Hash of the text in hexadecimal, used as ETag.
    pub hash: String,
}

impl Aggregated {
    /// Returns the document of the core group, or of all others. If `is_known` returns true for its
    /// hash, the client has the document already, and the text is empty.
    pub fn document(
        &self,
        registry: &Registry,
        core: bool,
        is_known: impl Fn(&str) -> bool,
    ) -> Document {
        // The table may be newer than the change number; then the next call rebuilds once more.
        let change = registry.api_change();
        let api = registry.api();
        let remote = registry.remote_groups();
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let previous = guard.take();
        let is_new = |cached: &CachedDocument| {
            cached.change == change && Arc::ptr_eq(&cached.remote, &remote)
        };
        if let Some(cached) = previous.as_ref().filter(|cached| is_new(cached)) {
            let hash = cached.hash.clone();
            let text = if is_known(&hash) { vec![] } else { cached.text(&api, core) };
            *guard = previous;
            return Document { text, hash };
        }
        let groups = previous.and_then(|cached| {
            let changed = registry.api_groups_since(cached.change)?;
            Some(without(cached.groups, &changed))
        });
        let mut cached = CachedDocument {
            change,
            remote,
            groups: groups.unwrap_or_default(),
            hash: String::new(),
        };
        for group in groups_of(&api, core) {
            cached.groups.entry(group.name.clone()).or_insert_with(|| text_of(&group_value(group)));
        }
        let text = cached.text(&api, core);
        cached.hash = OpenApi::hash_of(&text);
        let hash = cached.hash.clone();
        *guard = Some(cached);
        Document { text, hash }
    }
}

/// Encodes a document, given as JSON, for [`crate::respond::encoded`].
pub(crate) fn encoded(text: Vec<u8>, encoding: Encoding) -> Result<Bytes, Failure> {
    if matches!(encoding, Encoding::Json | Encoding::Yaml) {
        return Ok(text.into());
    }
    let kind = GroupVersionKind::new("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList");
    let schema = Catalogue::shared()
        .schema_or_unserved(&kind)
        .ok_or_else(|| Status::internal("the kind has no schema"))?;
    let list = json::parse(&text).ok().and_then(|parsed| Object::from_value(parsed.value));
    encoding.object(&schema, &list.unwrap_or_default())
}

impl CachedDocument {
    fn text(&self, api: &ApiTable, core: bool) -> Vec<u8> {
        let own = |group: &ApiGroup| match self.groups.get(&group.name) {
            Some(text) => text.clone(),
            None => text_of(&group_value(group)),
        };
        let groups: Vec<Bytes> = match core {
            true => groups_of(api, core).map(own).collect(),
            false => listed_groups(api, &self.remote)
                .iter()
                .map(|group| match group.own {
                    Some(group) => own(group),
                    None => text_of(&listed_value(group)),
                })
                .collect(),
        };
        [HEAD, &groups.join(&b","[..]), TAIL].concat()
    }
}

fn without(mut groups: HashMap<Str, Bytes>, changed: &BTreeSet<Str>) -> HashMap<Str, Bytes> {
    groups.retain(|name, _| !changed.contains(name));
    groups
}

fn text_of(group: &Value) -> Bytes {
    let mut text = vec![];
    json::write_value(group, &mut text);
    text.into()
}

fn groups_of(api: &ApiTable, core: bool) -> impl Iterator<Item = &ApiGroup> {
    api.groups().filter(move |group| group.name.is_empty() == core)
}

/// A group some of whose versions other servers serve.
fn listed_value(group: &ListedGroup<'_>) -> Value {
    let version = |version: &ListedVersion<'_>| match version {
        ListedVersion::Own(version) => own_version(version),
        ListedVersion::Remote(version) => remote_version(version),
    };
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    value!({"metadata": {"name": (group.name.clone())}, "versions": (versions)})
}

/// A version of another server. Without an answer of the server it is stale, and has nothing.
fn remote_version(version: &RemoteVersion) -> Value {
    let mut out = Map::new();
    out.insert("version", version.name.clone());
    let known = version.resources.as_ref().filter(|_| version.is_available);
    if let Some(resources) = known.filter(|resources| !resources.is_empty()) {
        out.insert("resources", (**resources).clone());
    }
    out.insert("freshness", if known.is_some() { "Current" } else { "Stale" });
    Value::Object(out)
}

fn own_version(version: &ApiVersion) -> Value {
    let resources =
        version.endpoints().map(|found| aggregated_resource(&found.facts, found.source));
    let resources: Vec<Value> = resources.collect();
    value!({"version": (version.name.clone()), "resources": (resources), "freshness": "Current"})
}

fn group_value(group: &ApiGroup) -> Value {
    let mut metadata = Map::new();
    if !group.name.is_empty() {
        metadata.insert("name", group.name.clone());
    }
    let versions: Vec<Value> = group.versions.iter().map(own_version).collect();
    value!({"metadata": (metadata), "versions": (versions)})
}

/// A kind in aggregated discovery. A built-in resource leaves out its own group and version.
fn response_kind(kind: &GroupVersionKind, of: &Resource, source: Source) -> Value {
    let own = kind.group == of.kind.group && kind.version == of.kind.version;
    let (group, version) = if own && source == Source::BuiltIn {
        (Str::default(), Str::default())
    } else {
        (kind.group.clone(), kind.version.clone())
    };
    value!({"group": (group), "version": (version), "kind": (kind.kind.clone())})
}

fn aggregated_resource(resource: &Resource, source: Source) -> Value {
    let mut entry = Map::new();
    entry.insert("resource", resource.name.clone());
    entry.insert("responseKind", response_kind(&resource.kind, resource, source));
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
                    "responseKind": (response_kind(&sub.kind, resource, source)),
                    "verbs": (strings(&sub.verbs))
                })
            })
            .collect();
        entry.insert("subresources", subs);
    }
    Value::Object(entry)
}
