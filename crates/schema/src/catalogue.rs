//! The built-in types and resources: tables of facts, read on first use.
//!
//! The tables are written by `cargo xtask catalogue` and kept in `catalogue/*.txt`. Reading those of what
//! a server speaks takes a few milliseconds and is done once; the result never changes and is shared. The
//! table of the other types that Kubernetes knows is read when somebody asks for one of them.

mod resources;
mod types;

use crate::types::{Schema, Shape, SharedTypes, Struct, StructId, Types};
use keelson_meta::{Feature, GroupVersionKind, GroupVersionResource, Str};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

const TYPES: &str = include_str!("../catalogue/types.txt");
const UNSERVED: &str = include_str!("../catalogue/unserved.txt");
const RESOURCES: &str = include_str!("../catalogue/resources.txt");

/// The text of the tables that documents are made of, for hashing.
pub(crate) const TABLES: [&str; 2] = [TYPES, RESOURCES];

/// An API group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// `apps`; empty for the core group.
    pub name: Str,
    /// In the order of discovery: the preferred one first.
    pub versions: Vec<Version>,
}

/// A version of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// `v1`.
    pub name: Str,
    /// Served unless switched off.
    pub default_on: bool,
    /// In the order of discovery: by name.
    pub resources: Vec<Resource>,
}

/// A resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// `deployments`.
    pub name: Str,
    /// What it speaks.
    pub kind: GroupVersionKind,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// `deployment`.
    pub singular: Str,
    /// `deploy`.
    pub short_names: Vec<Str>,
    /// `all`.
    pub categories: Vec<Str>,
    /// `get`, `list`, ...
    pub verbs: Vec<Str>,
    /// Served with its version unless switched off.
    pub default_on: bool,
    /// Not served without this feature.
    pub gate: Option<Feature>,
    /// By name.
    pub subresources: Vec<Subresource>,
}

impl Resource {
    /// Whether the resource has a verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }
}

/// A subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// `scale`.
    pub name: Str,
    /// What it speaks.
    pub kind: GroupVersionKind,
    /// `get`, `patch`, ...
    pub verbs: Vec<Str>,
}

impl Subresource {
    /// Whether the subresource has a verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }
}

/// All facts about the built-in types and resources.
#[derive(Debug)]
pub struct Catalogue {
    /// Every struct of what a server speaks.
    pub types: SharedTypes,
    /// In the order of discovery, the core group first.
    pub groups: Vec<Group>,
    served: Kinds,
    /// Every kind that Kubernetes knows; read on first use.
    all: OnceLock<(SharedTypes, Kinds)>,
}

/// Which kinds are of which types.
#[derive(Debug)]
struct Kinds {
    kinds: HashMap<GroupVersionKind, StructId>,
    /// Kinds that belong to every group version, for instance DeleteOptions and WatchEvent.
    everywhere: HashMap<Str, StructId>,
}

impl Kinds {
    fn find(&self, gvk: &GroupVersionKind) -> Option<StructId> {
        self.kinds.get(gvk).or_else(|| self.everywhere.get(&gvk.kind)).copied()
    }
}

impl Catalogue {
    /// The facts, read on first use.
    pub fn shared() -> &'static Arc<Catalogue> {
        static SHARED: OnceLock<Arc<Catalogue>> = OnceLock::new();
        SHARED.get_or_init(|| Arc::new(Catalogue::read()))
    }

    /// Reads the tables. They are part of the program, so a fault in them is a fault of ours.
    fn read() -> Catalogue {
        let (types, served) = read(&[TYPES]);
        Catalogue { types, served, all: OnceLock::new(), groups: resources::read(RESOURCES) }
    }

    /// The group of this name.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// A version of a group.
    pub fn version(&self, group: &str, version: &str) -> Option<&Version> {
        self.group(group)?.versions.iter().find(|v| v.name == version)
    }

    /// A resource.
    pub fn resource(&self, gvr: &GroupVersionResource) -> Option<&Resource> {
        let version = self.version(&gvr.group, &gvr.version)?;
        version.resources.iter().find(|resource| resource.name == gvr.resource)
    }

    /// The type of a kind that a server speaks; DeleteOptions and the like are found in every served group
    /// version.
    pub fn schema(&self, gvk: &GroupVersionKind) -> Option<Schema> {
        let root = self.served.find(gvk)?;
        Some(Schema { gvk: gvk.clone(), types: self.types.clone(), root })
    }

    /// The type of any kind that Kubernetes knows: what [`Catalogue::schema`] finds, kinds of versions that
    /// no server has any more, and what only travels in queries and between components.
    pub fn schema_of_any(&self, gvk: &GroupVersionKind) -> Option<Schema> {
        self.schema(gvk).or_else(|| {
            let (types, kinds) = self.all();
            let root = kinds.find(gvk)?;
            Some(Schema { gvk: gvk.clone(), types: types.clone(), root })
        })
    }

    /// Whether a kind of this name and version is known, served or not.
    pub fn is_known(&self, gvk: &GroupVersionKind) -> bool {
        let is_of = |kinds: &Kinds| {
            kinds.kinds.contains_key(gvk)
                || (kinds.everywhere.contains_key(&gvk.kind)
                    && self.version(&gvk.group, &gvk.version).is_some())
        };
        is_of(&self.served) || is_of(&self.all().1)
    }

    /// Every struct, of kinds that a server speaks and of the others.
    #[cfg(test)]
    pub(crate) fn all_types(&self) -> &Types {
        &self.all().0
    }

    fn all(&self) -> &(SharedTypes, Kinds) {
        self.all.get_or_init(|| read(&[TYPES, UNSERVED]))
    }

    /// The types of a kind that is not built in: ObjectMeta and what belongs to it, and then the structs that
    /// `more` makes, which is given the id of ObjectMeta and that of the first of its own structs.
    pub fn types_beside_meta(&self, more: impl FnOnce(StructId, StructId) -> Vec<Struct>) -> Types {
        let mut structs: Vec<Struct> = OBJECT_META
            .iter()
            .filter_map(|name| self.types.find(name).map(|id| self.types.get(id).clone()))
            .collect();
        let places = OBJECT_META.iter().zip(0..);
        let places = places.filter_map(|(name, new)| Some((self.types.find(name)?, StructId(new))));
        let places: HashMap<StructId, StructId> = places.collect();
        for field in structs.iter_mut().flat_map(|structure| &mut structure.fields) {
            move_references(&mut field.shape, &places);
        }
        let first = StructId(u32::try_from(structs.len()).unwrap_or(u32::MAX));
        structs.extend(more(StructId(0), first));
        Types::new(structs)
    }

    /// The first struct that [`types_beside_meta`](Self::types_beside_meta) adds.
    pub fn first_beside_meta(&self) -> StructId {
        let of_meta = OBJECT_META.iter().filter(|name| self.types.find(name).is_some()).count();
        StructId(u32::try_from(of_meta).unwrap_or(u32::MAX))
    }

    /// A struct by its full name, as a schema of no kind.
    pub fn named(&self, name: &str) -> Option<Schema> {
        let root = self.types.find(name)?;
        Some(Schema { gvk: GroupVersionKind::default(), types: self.types.clone(), root })
    }

    /// Every kind that a server speaks, in no order.
    pub fn kinds(&self) -> impl Iterator<Item = (&GroupVersionKind, StructId)> {
        self.served.kinds.iter().map(|(gvk, id)| (gvk, *id))
    }

    /// Every kind that [`Catalogue::schema_of_any`] finds, in no order, but for those that belong to every
    /// group version.
    pub fn all_kinds(&self) -> impl Iterator<Item = &GroupVersionKind> {
        self.all().1.kinds.keys()
    }
}

/// ObjectMeta and the structs in it.
const OBJECT_META: [&str; 3] = [
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry",
];

/// Makes a shape refer to structs at other places.
fn move_references(shape: &mut Shape, places: &HashMap<StructId, StructId>) {
    match shape {
        Shape::Struct(id) | Shape::SchemaOr(_, id) => *id = *places.get(id).unwrap_or(id),
        Shape::List(list) => move_references(&mut list.item, places),
        Shape::Map(map) => move_references(&mut map.value, places),
        _ => {}
    }
}

fn read(texts: &[&'static str]) -> (SharedTypes, Kinds) {
    let read = types::read(texts);
    let kinds = Kinds { kinds: read.kinds, everywhere: read.everywhere };
    (Types::new(read.structs).into(), kinds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ListKind, Presence, Shape};

    fn field(kind: &str, name: &str) -> crate::Field {
        let catalogue = Catalogue::shared();
        let id = catalogue.types.find(kind).unwrap_or_else(|| panic!("no {kind}"));
        catalogue.types.get(id).field(name).unwrap_or_else(|| panic!("no {name}")).clone()
    }

    #[test]
    fn all_types_and_resources_are_there() {
        let catalogue = Catalogue::shared();
        let on = catalogue.groups.iter().flat_map(|g| &g.versions).filter(|v| v.default_on);
        let resources = on.flat_map(|v| &v.resources).filter(|r| r.default_on).count();
        assert_eq!((catalogue.types.iter().count(), resources), (763, 68));
        assert_eq!(catalogue.all().0.iter().count(), 1144);
    }

    #[test]
    fn members_keep_the_order_tags_and_merge_rules_of_the_facts() {
        let ports = field("io.k8s.api.core.v1.Container", "ports");
        let Shape::List(list) = &ports.shape else { panic!("{ports:?}") };
        let keys: Box<[Str]> = Box::new(["containerPort".into(), "protocol".into()]);
        assert_eq!(list.kind, ListKind::Map(keys));
        assert_eq!(list.patch_merge_key.as_deref(), Some("containerPort"));
        assert_eq!((ports.tag.as_slice(), ports.presence), (&[6][..], Presence::OmitEmpty));
        let secret = field("io.k8s.api.core.v1.Volume", "secret");
        assert_eq!(secret.tag.as_slice(), [2, 6]);
        let protocol = field("io.k8s.api.core.v1.ContainerPort", "protocol");
        assert_eq!(protocol.default.as_deref(), Some(&keelson_meta::Value::from("TCP")));
    }

    #[test]
    fn kinds_are_found_by_group_version_and_kind() {
        let catalogue = Catalogue::shared();
        let find = |group: &str, version: &str, kind: &str| {
            let schema = catalogue.schema(&GroupVersionKind::new(group, version, kind));
            schema.map(|s| s.root().name.to_string())
        };
        assert_eq!(find("", "v1", "Pod").as_deref(), Some("io.k8s.api.core.v1.Pod"));
        let options = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
        assert_eq!(find("apps", "v1", "DeleteOptions").as_deref(), Some(options));
        assert_eq!(find("apps", "v1", "Pod"), None);
        let old = GroupVersionKind::new("apps", "v1beta1", "Deployment");
        assert!(catalogue.schema(&old).is_none() && catalogue.is_known(&old));
        let schema = catalogue.schema_of_any(&old).expect("an old kind");
        assert_eq!(schema.root().name, "io.k8s.api.apps.v1beta1.Deployment");
    }
}
