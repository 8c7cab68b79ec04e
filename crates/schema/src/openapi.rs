//! The OpenAPI documents of the server: a v3 document per group version with an index, and one v2
//! document.
//!
//! Documents are built on each call and not cached; callers should keep the bytes. Building one
//! takes milliseconds and some megabytes of memory.

mod converted;
mod custom;
mod custom_paths;
mod descriptions;
mod facts;
mod operations;
mod parameters;
mod paths;
mod protobuf;
mod remote;
mod resolved;
mod schemas;
mod static_documents;
mod v2;
mod v3;

use crate::catalogue::{Catalogue, Group, Version};
use crate::json::{self, write_string, write_value};
pub use converted::v3_of_v2;
pub use custom::{CustomResource, CustomVersion};
pub(crate) use descriptions::{Descriptions, UNPACKED_BYTES};
use facts::Facts;
use keelson_meta::{Str, Value};
use operations::{Answer, META, PathItem, discovery_operation, group_tag, path_item};
use paths::Scope;
pub use remote::RemoteSpec;
use schemas::{Dialect, GroupVersions, Schemas, object, reachable};
use sha2::{Digest, Sha512};
use static_documents::STATIC_DOCUMENTS;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::OnceLock;

/// The version in `info`.
const VERSION: &str = "1.36";

/// A content hash of a document; ETags show it in hexadecimal.
pub type DocumentHash = [u8; 64];

/// Builds the documents of the served resources.
pub struct OpenApi<'a> {
    catalogue: &'a Catalogue,
    /// Whether a resource is served, by group, version and name.
    is_served: &'a dyn Fn(&str, &str, &str) -> bool,
    /// The served custom resources.
    custom: &'a [CustomVersion<'a>],
    /// What other servers serve, for the v2 document.
    remote: &'a [&'a RemoteSpec],
}

impl<'a> OpenApi<'a> {
    /// Creates documents of the catalogue resources for which `is_served` returns true; its
    /// arguments are group, version and name. A group version without a served resource has no
    /// document.
    pub fn new(
        catalogue: &'a Catalogue,
        is_served: &'a dyn Fn(&str, &str, &str) -> bool,
    ) -> OpenApi<'a> {
        OpenApi { catalogue, is_served, custom: &[], remote: &[] }
    }

    /// Adds the documents of resources that are not in the catalogue.
    #[must_use]
    pub fn with_custom(self, custom: &'a [CustomVersion<'a>]) -> OpenApi<'a> {
        OpenApi { custom, ..self }
    }

    /// Adds what other servers serve to the v2 document.
    #[must_use]
    pub fn with_remote(self, remote: &'a [&'a RemoteSpec]) -> OpenApi<'a> {
        OpenApi { remote, ..self }
    }

    /// Returns the paths of all v3 documents, sorted: `api/v1`, `apis`, `apis/apps`,
    /// `apis/apps/v1`, `version`, ...
    pub fn v3_paths(&self) -> Vec<String> {
        let mut out: Vec<String> =
            STATIC_DOCUMENTS.iter().map(|fixed| fixed.document.to_owned()).collect();
        for group in &self.catalogue.groups {
            let root = group_root(&group.name);
            let mut versions = group.versions.iter().filter(|v| self.serves(group, v)).peekable();
            if versions.peek().is_some() {
                out.push(root.clone());
            }
            out.extend(versions.map(|version| format!("{root}/{}", version.name)));
        }
        for version in self.custom {
            out.push(version.document());
            out.push(group_root(version.group));
        }
        out.sort();
        out.dedup();
        out
    }

    /// Returns the paths and hashes of v3 documents, sorted by path. `includes_group` selects
    /// groups; it receives `None` for documents that belong to no group.
    pub fn v3_hashes(
        &self,
        includes_group: impl Fn(Option<&str>) -> bool,
    ) -> Vec<(String, DocumentHash)> {
        let custom: HashMap<String, &CustomVersion<'_>> =
            self.custom.iter().map(|custom| (custom.document(), custom)).collect();
        let mut paths = self.v3_paths();
        paths.retain(|path| includes_group(group_of_document(path)));
        let hashes = paths.into_iter().map(|path| {
            let hash = self.hash(&path, custom.get(&path).copied().into_iter());
            (path, hash)
        });
        hashes.collect()
    }

    /// Returns the index at `/openapi/v3`, as JSON.
    pub fn v3_index<'h>(
        documents: impl IntoIterator<Item = (&'h String, &'h DocumentHash)>,
    ) -> Vec<u8> {
        let mut out = b"{\"paths\":{".to_vec();
        for (i, (path, hash)) in documents.into_iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            write_string(path, &mut out);
            let url = format!("/openapi/v3/{path}?hash={}", hex(hash));
            out.extend_from_slice(b":{\"serverRelativeURL\":");
            write_string(&url, &mut out);
            out.push(b'}');
        }
        out.extend_from_slice(b"}}");
        out
    }

    /// Adds documents of other servers to the index: paths with their URLs. Paths that are there
    /// are kept.
    pub fn v3_index_with(
        index: &[u8],
        documents: impl IntoIterator<Item = (String, String)>,
    ) -> Vec<u8> {
        let mut index = json::parse(index).map(|parsed| parsed.value).unwrap_or_default();
        if let Some(paths) = index.as_object_mut().map(|index| index.object_at("paths")) {
            for (path, url) in documents {
                let url = || object([("serverRelativeURL", text(url))]);
                paths.entry_or(&path, url);
            }
            paths.sort();
        }
        let mut out = vec![];
        write_value(&index, &mut out);
        out
    }

    /// Returns the hash of a text, in the format of [`v3_hash`](Self::v3_hash).
    pub fn hash_of(text: &[u8]) -> String {
        hex(&Sha512::digest(text))
    }

    /// Returns the hash of the v3 document at `path`: 128 upper-case hexadecimal digits that change
    /// whenever the document changes. Does not build the document.
    pub fn v3_hash(&self, path: &str) -> String {
        hex(&self.hash(path, self.custom.iter().filter(|custom| custom.is_at(path))))
    }

    /// Returns the hash of a document with these versions of custom resources.
    fn hash<'v>(
        &self,
        path: &str,
        custom: impl Iterator<Item = &'v CustomVersion<'v>>,
    ) -> DocumentHash {
        let mut hash = Sha512::new();
        hash.update(static_inputs_digest());
        hash.update(path);
        if let Some((group, version)) = self.find(path) {
            for resource in self.resources(group, version) {
                hash.update([0]);
                hash.update(&resource.name);
            }
        }
        for custom in custom {
            for resource in &custom.resources {
                let facts = resource.facts;
                hash.update([1]);
                hash.update(format!("{} {} {}", facts.name, facts.kind, resource.list_kind));
                hash.update([u8::from(facts.namespaced), facts.subresources.len() as u8]);
                match &resource.schema_id {
                    Some(id) => hash.update(id),
                    None => hash.update((*resource.schema).as_ref()),
                }
                hash.update(resource.selectable.join(","));
            }
        }
        hash.finalize().into()
    }

    /// Returns the v3 document at a path of [`v3_paths`](Self::v3_paths), as JSON.
    pub fn v3_document(&self, path: &str) -> Option<Vec<u8>> {
        let facts = Facts::read();
        let custom = self.custom.iter().find(|custom| custom.is_at(path));
        let (mut items, group_versions) = match self.find(path) {
            Some((group, version)) => {
                let group_version = (group.name.as_str(), version.name.as_str());
                let resources = self.resources(group, version);
                let items = Scope::paths(
                    self.catalogue,
                    &facts,
                    &group.name,
                    &version.name,
                    resources,
                    None,
                );
                (items, GroupVersions::Of(group_version))
            }
            None => match custom {
                Some(_) => (vec![], GroupVersions::CustomResources),
                None => (vec![self.static_or_group_path(path)?], GroupVersions::Of(("", "v1"))),
            },
        };
        if let Some(custom) = custom {
            items.extend(custom.paths(self.catalogue, &facts));
            items.sort_by(|a, b| a.path.cmp(&b.path));
        }
        let descriptions = Descriptions::read();
        let schemas =
            Schemas::new(self.catalogue, &facts, &descriptions, Dialect::V3, group_versions);
        let names = match custom {
            Some(_) => self.reachable(&items),
            None => reachable(&self.catalogue.types, type_names(&items)),
        };
        let own = custom.map(CustomVersion::types).unwrap_or_default();
        // kube-apiserver builds documents that contain only custom resources differently.
        let is_custom = custom.is_some() && self.find(path).is_none();
        let mut out = b"{\"openapi\":\"3.0.0\",\"info\":".to_vec();
        write_value(&if is_custom { custom_info() } else { info() }, &mut out);
        out.extend_from_slice(b",\"paths\":");
        let paths = items.iter().map(|item| (item.path.as_str(), v3::path_item(item)));
        write_members(paths, &mut out);
        out.extend_from_slice(b",\"components\":{");
        if !names.is_empty() {
            out.extend_from_slice(b"\"schemas\":");
            let schemas = names.iter().map(|name| {
                let own = own.get(name).map(|own| own.schema(Dialect::V3));
                (name.as_str(), own.unwrap_or_else(|| schemas.definition(name)))
            });
            write_members(schemas, &mut out);
        }
        if !is_custom {
            if !names.is_empty() {
                out.push(b',');
            }
            out.extend_from_slice(b"\"securitySchemes\":");
            write_value(&security(), &mut out);
        }
        out.extend_from_slice(b"}}");
        Some(out)
    }

    /// Returns the v2 document, as JSON.
    pub fn v2_document(&self) -> Vec<u8> {
        let mut out = b"{\"swagger\":\"2.0\",\"info\":".to_vec();
        write_value(&info(), &mut out);
        self.v2_parts(|part, members| {
            out.push(b',');
            write_string(part, &mut out);
            out.push(b':');
            write_members(members, &mut out);
        });
        out.extend_from_slice(b",\"securityDefinitions\":");
        write_value(&security(), &mut out);
        out.extend_from_slice(b",\"security\":[{\"BearerToken\":[]}]}");
        out
    }

    /// Returns the v2 document as protobuf (`openapi.v2.Document`), served as
    /// `application/com.github.proto-openapi.spec.v2.v1.0+protobuf`.
    pub fn v2_document_protobuf(&self) -> Vec<u8> {
        let mut out = vec![];
        protobuf::write_bytes(protobuf::SWAGGER, b"2.0", &mut out);
        protobuf::write_message(protobuf::INFO, &protobuf::INFO_MESSAGE, &info(), &mut out);
        self.v2_parts(|part, members| {
            let number = match part {
                "paths" => protobuf::PATHS,
                "parameters" => protobuf::PARAMETERS,
                _ => protobuf::DEFINITIONS,
            };
            let mut content = vec![];
            for (name, value) in members {
                let (at, of) = match number {
                    protobuf::PATHS => (2, &protobuf::PATH_ITEM),
                    protobuf::PARAMETERS => (1, protobuf::parameter_message(&value)),
                    _ => (1, &protobuf::SCHEMA),
                };
                protobuf::write_named(at, name, of, &value, &mut content);
            }
            protobuf::write_bytes(number, &content, &mut out);
        });
        protobuf::write_security("BearerToken", &security(), &mut out);
        out
    }

    /// Calls `take` with the name and the members of each large part of the v2 document.
    fn v2_parts(&self, mut take: impl FnMut(&'static str, &mut dyn Iterator<Item = Member<'_>>)) {
        let facts = Facts::read();
        let items = self.all_paths(&facts);
        let shared = v2::shared_parameters(&items);
        let descriptions = Descriptions::read();
        let schemas =
            Schemas::new(self.catalogue, &facts, &descriptions, Dialect::V2, GroupVersions::All);
        let names = self.reachable(&items);
        let custom: BTreeMap<Str, _> = self.custom.iter().flat_map(CustomVersion::types).collect();
        let definition = |name: &Str| {
            let custom = custom.get(name).map(|own| own.schema(Dialect::V2));
            custom.unwrap_or_else(|| schemas.definition(name))
        };
        let remote = remote::merge(self.remote, |part, name| match part {
            "paths" => items.iter().any(|item| item.path == name).then_some(Value::Null),
            "parameters" => {
                let found = shared.iter().find(|(key, _)| *key == name);
                found.map(|(_, parameter)| parameter.clone())
            }
            _ => names.get(name).map(definition),
        });
        let own = items.iter().map(|item| (item.path.as_str(), v2::path_item(item)));
        take("paths", &mut sorted_with(own, &remote.paths));
        drop(items);
        take("parameters", &mut sorted_with(shared.into_iter(), &remote.parameters));
        let own = names.iter().map(|name| (name.as_str(), definition(name)));
        take("definitions", &mut sorted_with(own, &remote.definitions));
    }

    /// Returns the paths of all documents, sorted.
    fn all_paths(&self, facts: &Facts) -> Vec<PathItem> {
        let mut out = vec![];
        let custom_groups: HashSet<&str> = self.custom.iter().map(|custom| custom.group).collect();
        for document in self.v3_paths() {
            match self.find(&document) {
                Some((group, version)) => {
                    let resources = self.resources(group, version);
                    let of_version = Scope::paths(
                        self.catalogue,
                        facts,
                        &group.name,
                        &version.name,
                        resources,
                        None,
                    );
                    out.extend(of_version);
                }
                // The v2 document omits groups that contain only custom resources.
                None if self.is_custom_group(&document, &custom_groups) => {}
                None => out.extend(self.static_or_group_path(&document)),
            }
        }
        for custom in self.custom {
            out.extend(custom.paths(self.catalogue, facts));
        }
        out.sort_by(|a, b| a.path.cmp(&b.path));
        out
    }

    /// Returns the types that paths refer to, directly or not. Every custom resource refers to the
    /// metadata types.
    fn reachable(&self, items: &[PathItem]) -> BTreeSet<Str> {
        let mut roots = type_names(items);
        if !self.custom.is_empty() {
            roots.extend(["ObjectMeta", "ListMeta"].map(|name| Str::from(format!("{META}{name}"))));
        }
        reachable(&self.catalogue.types, roots)
    }

    /// Returns the served group version of a document's path.
    fn find(&self, path: &str) -> Option<(&'a Group, &'a Version)> {
        let (group, version) = match path.split_once('/')? {
            ("api", version) => ("", version),
            ("apis", rest) => rest.split_once('/')?,
            _ => return None,
        };
        let group = self.catalogue.group(group)?;
        let version = group.versions.iter().find(|v| v.name == version)?;
        self.serves(group, version).then_some((group, version))
    }

    fn resources(
        &self,
        group: &'a Group,
        version: &'a Version,
    ) -> impl Iterator<Item = &'a crate::catalogue::Resource> {
        let is_served = self.is_served;
        let served = move |name: &str| is_served(&group.name, &version.name, name);
        version.resources.iter().filter(move |resource| served(&resource.name))
    }

    fn serves(&self, group: &'a Group, version: &'a Version) -> bool {
        self.resources(group, version).next().is_some()
    }

    /// Whether a document belongs to a group without served catalogue resources.
    fn is_custom_group(&self, document: &str, custom_groups: &HashSet<&str>) -> bool {
        let Some(name) = document.strip_prefix("apis/") else { return false };
        let of_catalogue = self.catalogue.group(name);
        let is_served = of_catalogue
            .is_some_and(|group| group.versions.iter().any(|version| self.serves(group, version)));
        custom_groups.contains(name) && !is_served
    }

    /// Returns the path of a document that belongs to no group version.
    fn static_or_group_path(&self, document: &str) -> Option<PathItem> {
        if let Some(fixed) = STATIC_DOCUMENTS.iter().find(|fixed| fixed.document == document) {
            return Some(fixed.path_item());
        }
        let name = if document == "api" { "" } else { document.strip_prefix("apis/")? };
        let is_custom = self.custom.iter().any(|custom| custom.group == name);
        let group = self.catalogue.group(name);
        let is_served = |group: &'a Group| group.versions.iter().any(|v| self.serves(group, v));
        if !is_custom && !group.is_some_and(is_served) {
            return None;
        }
        let title = operations::group_title(name);
        let operation = match name {
            "" => discovery_operation(
                "getCoreAPIVersions".to_owned(),
                "Lists the versions of the core group.",
                group_tag(name),
                "APIVersions",
            ),
            _ => discovery_operation(
                format!("get{title}APIGroup"),
                "Lists the versions of the group.",
                group_tag(name),
                "APIGroup",
            ),
        };
        Some(path_item(format!("/{document}/"), vec![], vec![operation]))
    }
}

/// Returns the group of the document at a path, `None` if it belongs to no group.
pub fn group_of_document(path: &str) -> Option<&str> {
    match path.strip_prefix("apis/") {
        Some(rest) => rest.split('/').next(),
        None => (path == "api" || path.starts_with("api/")).then_some(""),
    }
}

/// Returns `api` or `apis/apps`.
fn group_root(group: &str) -> String {
    if group.is_empty() { "api".to_owned() } else { format!("apis/{group}") }
}

/// Returns the types in requests and responses of paths.
fn type_names(items: &[PathItem]) -> Vec<Str> {
    let operations = items.iter().flat_map(|item| &item.operations);
    let names = operations.flat_map(|operation| {
        let answer = match &operation.answer {
            Answer::Text => None,
            Answer::Type(name) => Some(name.clone()),
        };
        answer.into_iter().chain(operation.body.as_ref().map(|body| body.type_name.clone()))
    });
    names.collect()
}

fn info() -> Value {
    object([("title", static_text("Kubernetes")), ("version", static_text(VERSION))])
}

fn custom_info() -> Value {
    object([("title", static_text("Kubernetes CRD Swagger")), ("version", static_text("v0.1.0"))])
}

/// The security definitions: bearer tokens.
fn security() -> Value {
    let token = object([
        ("description", static_text("A bearer token.")),
        ("in", static_text("header")),
        ("name", static_text("authorization")),
        ("type", static_text("apiKey")),
    ]);
    object([("BearerToken", token)])
}

/// A member of an object.
type Member<'v> = (&'v str, Value);

/// Returns members that are sorted, with more members, which have other names.
fn sorted_with<'v>(
    own: impl Iterator<Item = Member<'v>>,
    more: &'v BTreeMap<Str, Value>,
) -> impl Iterator<Item = Member<'v>> {
    let mut more = more.iter().map(|(name, value)| (name.as_str(), value.clone())).peekable();
    let mut own = own.peekable();
    std::iter::from_fn(move || {
        let is_more_first = match (own.peek(), more.peek()) {
            (Some((own, _)), Some((more, _))) => more < own,
            (own, _) => own.is_none(),
        };
        if is_more_first { more.next() } else { own.next() }
    })
}

/// Writes a JSON object member by member, so that only one member is in memory at a time.
fn write_members<'v>(members: impl Iterator<Item = Member<'v>>, out: &mut Vec<u8>) {
    out.push(b'{');
    for (i, (name, value)) in members.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_string(name, out);
        out.push(b':');
        write_value(&value, out);
    }
    out.push(b'}');
}

fn static_text(text: &'static str) -> Value {
    Value::String(Str::new_static(text))
}

fn text(text: impl Into<Str>) -> Value {
    Value::String(text.into())
}

/// Returns the hash of all inputs of documents except the served resources.
fn static_inputs_digest() -> &'static DocumentHash {
    static DIGEST: OnceLock<DocumentHash> = OnceLock::new();
    DIGEST.get_or_init(|| {
        let mut hash = Sha512::new();
        hash.update(env!("CARGO_PKG_VERSION"));
        hash.update(VERSION);
        for table in crate::catalogue::TABLES {
            hash.update(table);
        }
        hash.update(facts::TABLE);
        hash.update(descriptions::PACKED);
        hash.finalize().into()
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        write!(out, "{byte:02X}").expect("a string takes all text");
        out
    })
}
