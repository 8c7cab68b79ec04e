//! The engine's types of a structural schema.

use super::{Additional, LazyStructural, ListType, Node, Structural, Type};
use crate::catalogue::Catalogue;
use crate::types::{
    Field, ListKind, ListShape, MapShape, Presence, Schema, Shape, SharedTypes, Struct, StructId,
    Types,
};
use keelson_meta::{GroupVersionKind, Str};
use std::sync::Arc;

impl Structural {
    /// The type by which objects of this kind are decoded, pruned, given defaults, merged and applied.
    pub fn schema(&self, gvk: GroupVersionKind) -> Schema {
        let types = self.types(&gvk.kind).into();
        Schema { gvk, types, root: Catalogue::shared().first_beside_meta() }
    }

    /// The same, made when it is first asked for.
    pub fn lazy_schema(
        gvk: GroupVersionKind,
        structural: impl FnOnce() -> Arc<LazyStructural> + Send + Sync + 'static,
    ) -> Schema {
        let name = gvk.kind.clone();
        let types = SharedTypes::lazy(move || structural().types(&name));
        Schema { gvk, types, root: Catalogue::shared().first_beside_meta() }
    }

    /// The root is the first one beside those of metadata.
    fn types(&self, kind: &str) -> Types {
        Catalogue::shared().types_beside_meta(|meta, first| {
            let structs = vec![Struct::default()];
            let mut made = Made { structs, first, meta, within_open: self.root.preserve };
            made.structs[0] = made.resource(&self.root, kind);
            made.structs
        })
    }
}

/// The structs that were made so far.
struct Made {
    structs: Vec<Struct>,
    first: StructId,
    meta: StructId,
    /// Whether a schema around the one at hand keeps members that it does not name.
    within_open: bool,
}

impl Made {
    fn add(&mut self, made: Struct) -> StructId {
        let place = u32::try_from(self.structs.len()).unwrap_or(u32::MAX);
        self.structs.push(made);
        StructId(self.first.0 + place)
    }

    /// A whole object: kind and metadata are those of every object.
    fn resource(&mut self, node: &Node, name: &str) -> Struct {
        let own =
            |(name, _): &&(Str, Node)| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
        let metadata = Field::new("metadata", Shape::Struct(self.meta));
        let mut fields = vec![
            Field::new("kind", Shape::String),
            Field::new("apiVersion", Shape::String),
            Field { presence: Presence::Always, ..metadata },
        ];
        fields.extend(node.properties.iter().filter(own).map(|named| self.field(named)));
        let is_open = node.preserve || !matches!(node.additional, Additional::None);
        self.made(Struct::new(name, fields).of_custom_resource(is_open, false))
    }

    fn field(&mut self, (name, node): &(Str, Node)) -> Field {
        let shape = self.shape(node);
        let required = false;
        let default = node.default.clone();
        Field { nullable: node.nullable, required, default, ..Field::new(name.clone(), shape) }
    }

    fn made(&self, mut made: Struct) -> Struct {
        made.within_open = self.within_open;
        made
    }

    fn shape(&mut self, node: &Node) -> Shape {
        let around = self.within_open;
        self.within_open |= node.preserve;
        let shape = self.shape_within(node);
        self.within_open = around;
        shape
    }

    fn shape_within(&mut self, node: &Node) -> Shape {
        if node.int_or_string {
            return Shape::IntOrString;
        }
        match node.kind {
            _ if node.embedded => Shape::Struct(self.embedded(node)),
            Some(Type::Object) => self.object(node),
            Some(Type::Array) => match &node.items {
                Some(items) => Shape::List(Box::new(ListShape {
                    item: self.shape(items),
                    kind: match &node.list {
                        ListType::Atomic => ListKind::Atomic,
                        ListType::Set => ListKind::Set,
                        ListType::Map(keys) => ListKind::Map(keys.clone()),
                    },
                    patch_merge: false,
                    patch_merge_key: None,
                })),
                None => Shape::Json,
            },
            Some(Type::String) if node.checks.as_ref().is_some_and(|it| it.is_formatted) => {
                Shape::Formatted
            }
            Some(Type::String) => Shape::String,
            Some(Type::Boolean) => Shape::Bool,
            Some(Type::Integer) => Shape::Int64,
            Some(Type::Number) => Shape::Double,
            None => Shape::Json,
        }
    }

    fn object(&mut self, node: &Node) -> Shape {
        match &node.additional {
            Additional::Of(values) => {
                let value = self.shape(values);
                let nullable = values.nullable;
                Shape::Map(Box::new(MapShape { value, nullable, atomic: node.atomic }))
            }
            Additional::Any | Additional::Forbidden => {
                let (value, nullable) = (Shape::Json, true);
                Shape::Map(Box::new(MapShape { value, nullable, atomic: node.atomic }))
            }
            Additional::None if node.properties.is_empty() && node.preserve => Shape::Json,
            Additional::None => {
                let fields = node.properties.iter().map(|named| self.field(named)).collect();
                let made = Struct::new("object", fields);
                let made = self.made(made.of_custom_resource(node.preserve, node.atomic));
                Shape::Struct(self.add(made))
            }
        }
    }

    /// A resource within a resource: its metadata is pruned as that of every object.
    fn embedded(&mut self, node: &Node) -> StructId {
        let made = self.resource(node, "object");
        self.add(made)
    }
}
