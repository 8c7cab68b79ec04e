//! [`ApiTable`]: the groups, versions and resources that are served. The table is an immutable
//! snapshot behind an atomic pointer; a request looks up its [`Endpoint`] once and keeps it.
//!
//! Its producers are the catalogue of built-in resources, read here, and whoever adds a
//! [`Definition`](crate::producer::Definition) while the server runs.

use crate::kind::Kind;
pub use crate::kind::Source;
use crate::schema_text::SchemaText;
use bytes::Bytes;
use keelson_meta::{GroupVersionKind, Str, Value};
use keelson_records::{HasSortKey, SortKey, Tree};
use keelson_schema::Schema;
use keelson_schema::catalogue::{Catalogue, Group, Resource, Version};
use keelson_schema::openapi::RemoteSpec;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

/// All served groups in the order of discovery: built-in groups in the order of the catalogue, then
/// the others by name. A change of one resource costs the same however many there are, because the
/// new table shares the rest with the old one.
#[derive(Debug, Default)]
pub struct ApiTable {
    built_in: Vec<Arc<ApiGroup>>,
    /// Indices in `built_in`, by group name.
    places: Arc<HashMap<Str, usize>>,
    custom: Tree<Arc<ApiGroup>>,
}

/// A served group.
#[derive(Clone, Debug)]
pub struct ApiGroup {
    /// `apps`; empty for the core group.
    pub name: Str,
    /// The served versions in the order of discovery, the preferred one first.
    pub versions: Vec<ApiVersion>,
    kinds: Tree<Arc<Kind>>,
}

/// Returns the sort key of a group, resource or kind.
fn name_key(name: &str) -> SortKey<'_> {
    (name.as_bytes(), b"")
}

impl HasSortKey for ApiGroup {
    fn sort_key(&self) -> SortKey<'_> {
        name_key(&self.name)
    }
}

/// A group that APIServices delegate to other servers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemoteGroup {
    /// Its name.
    pub name: Str,
    /// The highest `groupPriorityMinimum` of its versions.
    pub priority: i64,
    /// Its versions, the preferred one first.
    pub versions: Vec<RemoteVersion>,
}

/// A version of a group that another server serves.
#[derive(Clone, Debug)]
pub struct RemoteVersion {
    /// `v1`.
    pub name: Str,
    /// The `versionPriority` of its APIService.
    pub priority: i64,
    /// The server.
    pub server: Arc<RemoteServer>,
    /// Whether requests are passed on to it.
    pub is_available: bool,
    /// What it serves, in the form of aggregated discovery; `None` if it does not say so now.
    pub resources: Option<Arc<Value>>,
    /// Its OpenAPI documents.
    pub documents: Arc<RemoteDocuments>,
}

impl PartialEq for RemoteVersion {
    /// What the server says is compared by its place, because it can be long: it has another when
    /// it changes.
    fn eq(&self, other: &RemoteVersion) -> bool {
        let place = |of: &RemoteVersion| of.resources.as_ref().map(Arc::as_ptr);
        self.name == other.name
            && self.priority == other.priority
            && self.server == other.server
            && self.is_available == other.is_available
            && place(self) == place(other)
            && Arc::ptr_eq(&self.documents, &other.documents)
    }
}

/// What another server's OpenAPI documents say of a group version; empty before they are known, and
/// for servers without such documents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemoteDocuments {
    /// Path and query of the v3 document at that server.
    pub v3_url: Option<Str>,
    /// The v3 document of a server that has v2 only.
    pub converted: Option<ConvertedDocument>,
    /// Its part of the v2 document.
    pub v2: RemoteSpec,
    /// Changes with `v2`.
    pub v2_hash: Str,
}

/// A v3 document that is made of a v2 document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvertedDocument {
    /// JSON.
    pub text: Bytes,
    /// Its hash, in hexadecimal digits.
    pub hash: Str,
}

/// A server that an APIService names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RemoteServer {
    /// The namespace of its service.
    pub namespace: Str,
    /// The name of its service.
    pub service: Str,
    /// The port of its service.
    pub port: u16,
    /// The authorities of its certificate, in PEM; `None`: those of the system.
    pub ca_bundle: Option<Arc<[u8]>>,
    /// Whether its certificate is not verified.
    pub is_insecure: bool,
}

/// A served version of a group.
#[derive(Clone, Debug)]
pub struct ApiVersion {
    /// `v1`.
    pub name: Str,
    /// The resources by name, which is the order of discovery.
    endpoints: Tree<Arc<Endpoint>>,
}

/// One served resource in one version.
#[derive(Debug)]
pub struct Endpoint {
    /// Name, verbs, scope and subresources.
    pub facts: Cow<'static, Resource>,
    /// The stored kind; `None` for resources that store no objects, such as reviews.
    pub kind: Option<Arc<Kind>>,
    /// Whether the resource is built in or custom.
    pub source: Source,
    /// The Warning that requests to a deprecated version get.
    pub deprecation: Option<Str>,
    /// The OpenAPI v3 schema as JSON, for resources that are not in the catalogue.
    pub openapi: SchemaText,
}

impl HasSortKey for Endpoint {
    fn sort_key(&self) -> SortKey<'_> {
        name_key(&self.facts.name)
    }
}

impl HasSortKey for Kind {
    fn sort_key(&self) -> SortKey<'_> {
        name_key(&self.gvr.resource)
    }
}

impl ApiTable {
    /// Returns the table of the built-in resources that are served.
    pub fn built_in(
        catalogue: &'static Catalogue,
        kinds: &HashMap<(Str, Str), Arc<Kind>>,
        is_served: impl Fn(&Group, &Version, &Resource) -> bool,
    ) -> ApiTable {
        let mut groups = vec![];
        for group in &catalogue.groups {
            let mut versions = vec![];
            for version in &group.versions {
                let served = version.resources.iter().filter(|r| is_served(group, version, r));
                let endpoints: Tree<_> = served
                    .map(|facts| {
                        let kind = kinds.get(&(group.name.clone(), facts.name.clone())).cloned();
                        let deprecation = deprecation(group, version, facts);
                        let source = Source::BuiltIn;
                        let openapi = SchemaText::default();
                        Arc::new(Endpoint {
                            facts: Cow::Borrowed(facts),
                            kind,
                            source,
                            deprecation,
                            openapi,
                        })
                    })
                    .collect();
                if !endpoints.is_empty() {
                    versions.push(ApiVersion { name: version.name.clone(), endpoints });
                }
            }
            let group = ApiGroup::new(group.name.clone(), versions);
            if !group.versions.is_empty() {
                groups.push(Arc::new(group));
            }
        }
        let places =
            groups.iter().enumerate().map(|(place, group)| (group.name.clone(), place)).collect();
        ApiTable { built_in: groups, places: Arc::new(places), custom: Tree::default() }
    }

    /// Returns all groups in the order of discovery.
    pub fn groups(&self) -> impl Iterator<Item = &ApiGroup> {
        self.built_in_groups().chain(self.custom.iter().map(|group| &**group))
    }

    /// Returns the served groups of the catalogue in the order of discovery.
    pub fn built_in_groups(&self) -> impl Iterator<Item = &ApiGroup> {
        self.built_in.iter().map(|group| &**group)
    }

    /// Returns a group.
    pub fn group(&self, name: &str) -> Option<&ApiGroup> {
        match self.places.get(name) {
            Some(place) => self.built_in.get(*place).map(|group| &**group),
            None => self.custom.get(name_key(name)).map(|group| &**group),
        }
    }

    /// Returns a resource in a version.
    pub fn endpoint(&self, group: &str, version: &str, resource: &str) -> Option<&Arc<Endpoint>> {
        self.group(group)?.version(version)?.endpoint(resource)
    }

    /// Returns a resource that stores objects.
    pub fn kind(&self, group: &str, resource: &str) -> Option<&Arc<Kind>> {
        self.group(group)?.kinds.get(name_key(resource))
    }

    /// Returns the resource that stores objects of a kind, served in the version of `kind`.
    pub fn of_kind(&self, kind: &GroupVersionKind) -> Option<&Arc<Kind>> {
        let version = self.group(&kind.group)?.version(&kind.version)?;
        let mut named = version.endpoints().filter(|endpoint| endpoint.facts.kind == *kind);
        named.find_map(|endpoint| endpoint.kind.as_ref())
    }

    /// Returns all resources that store objects.
    pub fn kinds(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.groups().flat_map(|group| group.kinds.iter())
    }

    /// Returns the table with the endpoints of one resource replaced; an empty list removes the
    /// resource. The resource must not be in the catalogue.
    pub fn with(
        &self,
        group: &str,
        resource: &str,
        endpoints: Vec<(Str, Arc<Endpoint>)>,
    ) -> ApiTable {
        let place = self.places.get(group).copied();
        let old = self.group(group).cloned();
        let mut changed = old.unwrap_or_else(|| ApiGroup::new(Str::new(group), vec![]));
        // Versions of a built-in group keep the order of the catalogue.
        changed.replace(resource, endpoints, place.is_none());
        let mut built_in = self.built_in.clone();
        let mut custom = self.custom.clone();
        match place {
            // A built-in group stays in the table even when the custom resource was its last.
            Some(place) => built_in[place] = Arc::new(changed),
            None if changed.versions.is_empty() => drop(custom.remove(name_key(group))),
            None => drop(custom.insert(Arc::new(changed))),
        }
        ApiTable { built_in, places: self.places.clone(), custom }
    }
}

impl ApiGroup {
    fn new(name: Str, versions: Vec<ApiVersion>) -> ApiGroup {
        let endpoints = versions.iter().flat_map(ApiVersion::endpoints);
        let kinds = endpoints.filter_map(|endpoint| endpoint.kind.clone()).collect();
        ApiGroup { name, versions, kinds }
    }

    fn replace(&mut self, resource: &str, endpoints: Vec<(Str, Arc<Endpoint>)>, sorted: bool) {
        self.kinds.remove(name_key(resource));
        for version in &mut self.versions {
            version.endpoints.remove(name_key(resource));
        }
        for (version, endpoint) in endpoints {
            if let Some(kind) = &endpoint.kind {
                self.kinds.insert(kind.clone());
            }
            let place =
                self.versions.iter().position(|known| known.name == version).unwrap_or_else(|| {
                    self.versions.push(ApiVersion { name: version, endpoints: Tree::default() });
                    self.versions.len() - 1
                });
            self.versions[place].endpoints.insert(endpoint);
        }
        self.versions.retain(|version| !version.endpoints.is_empty());
        if sorted {
            self.versions.sort_by(|one, other| by_priority(&one.name, &other.name));
        }
    }

    /// Returns a version.
    pub fn version(&self, name: &str) -> Option<&ApiVersion> {
        self.versions.iter().find(|version| version.name == name)
    }
}

impl ApiVersion {
    /// Returns the resources in the order of discovery.
    pub fn endpoints(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        self.endpoints.iter()
    }

    /// Returns a resource.
    pub fn endpoint(&self, name: &str) -> Option<&Arc<Endpoint>> {
        self.endpoints.get(name_key(name))
    }
}

impl Endpoint {
    /// Returns the schema of the objects in this version; `None` for resources that store none.
    pub fn schema(&self) -> Option<&Schema> {
        self.kind.as_ref()?.schema(&self.facts.kind.version)
    }
}

/// Compares versions in the order of discovery (apimachinery
/// `version.CompareKubeAwareVersionStrings`): stable versions first, then beta and alpha, each from
/// the newest to the oldest; other names come last, in alphabetical order.
pub fn by_priority(one: &str, other: &str) -> Ordering {
    match (numbers(one), numbers(other)) {
        (Some(one), Some(other)) => other.cmp(&one),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.cmp(other),
    }
}

/// Parses a version: `v2beta1` is (1, 2, 1), where the first number is the stability (2 stable, 1
/// beta, 0 alpha).
fn numbers(version: &str) -> Option<(u8, u64, u64)> {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        (is_number && !text.starts_with('0')).then(|| text.parse().ok()).flatten()
    };
    let rest = version.strip_prefix('v')?;
    for (stability, word) in [(1, "beta"), (0, "alpha")] {
        if let Some((major, minor)) = rest.split_once(word) {
            return Some((stability, number(major)?, number(minor)?));
        }
    }
    Some((2, number(rest)?, 0))
}

fn deprecation(group: &Group, version: &Version, resource: &Resource) -> Option<Str> {
    let kind = &resource.kind.kind;
    keelson_kinds::facts::deprecation(&group.name, &version.name, &resource.name, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_stand_from_the_most_to_the_least_stable() {
        let mut versions = [
            "v1",
            "foo10",
            "v1beta1",
            "v12alpha1",
            "foo1",
            "v10",
            "v11alpha2",
            "v3beta1",
            "v2",
            "v11beta2",
            "v10beta3",
            "v01",
            "v",
        ];
        versions.sort_by(|one, other| by_priority(one, other));
        let wanted = [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "v1beta1",
            "v12alpha1",
            "v11alpha2",
            "foo1",
            "foo10",
            "v",
            "v01",
        ];
        assert_eq!(versions, wanted);
    }
}
