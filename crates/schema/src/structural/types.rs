//! Converts a structural schema to a [`Schema`].

use super::{AdditionalProperties, LazyStructural, ListType, Node, Structural, Type};
use crate::catalogue::Catalogue;
use crate::types::{
    Field, ListKind, ListShape, MapShape, Presence, Schema, Shape, SharedTypes, Struct, StructId,
    Types,
};
use keelson_meta::{GroupVersionKind, Str};
use std::sync::Arc;

impl Structural {
    /// Returns the schema by which objects of this kind are decoded, pruned, defaulted, merged and
    /// applied.
    pub fn schema(&self, gvk: GroupVersionKind) -> Schema {
        let types = self.types(&gvk.kind).into();
        Schema { gvk, types, root: Catalogue::shared().first_after_object_meta() }
    }

    /// Same as [`Structural::schema`], created on first use.
    pub fn lazy_schema(
        gvk: GroupVersionKind,
        structural: impl FnOnce() -> Arc<LazyStructural> + Send + Sync + 'static,
    ) -> Schema {
        let name = gvk.kind.clone();
        let types = SharedTypes::lazy(move || structural().types(&name));
        Schema { gvk, types, root: Catalogue::shared().first_after_object_meta() }
    }

    /// The root is the first struct after those of ObjectMeta.
    fn types(&self, kind: &str) -> Types {
        Catalogue::shared().types_with_object_meta(|meta, first| {
            let structs = vec![Struct::default()];
            let mut builder = StructBuilder {
                structs,
                first,
                meta,
                inside_preserve_unknown: self.root.preserve_unknown,
            };
            builder.structs[0] = builder.resource(&self.root, kind, Presence::Always);
            builder.structs
        })
    }
}

/// Builds the structs of a schema.
struct StructBuilder {
    structs: Vec<Struct>,
    first: StructId,
    meta: StructId,
    /// Whether an enclosing schema preserves unknown fields.
    inside_preserve_unknown: bool,
}

impl StructBuilder {
    fn add(&mut self, new: Struct) -> StructId {
        let place = u32::try_from(self.structs.len()).unwrap_or(u32::MAX);
        self.structs.push(new);
        StructId(self.first.0 + place)
    }

    /// Builds the struct of a whole object; kind and metadata are the standard ones.
    fn resource(&mut self, node: &Node, name: &str, metadata_presence: Presence) -> Struct {
        let own =
            |(name, _): &&(Str, Node)| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
        let metadata = Field::new("metadata", Shape::Struct(self.meta));
        let mut fields = vec![
            Field::new("kind", Shape::String),
            Field::new("apiVersion", Shape::String),
            Field { presence: metadata_presence, ..metadata },
        ];
        fields.extend(node.properties.iter().filter(own).map(|named| self.field(named)));
        let is_open =
            node.preserve_unknown || !matches!(node.additional, AdditionalProperties::None);
        self.finish(Struct::new(name, fields).of_custom_resource(is_open, false))
    }

    fn field(&mut self, member: &(Str, Node)) -> Field {
        let (name, node) = member;
        let shape = self.shape(node);
        Field {
            nullable: node.nullable,
            untyped: node.kind.is_none() && !node.int_or_string,
            required: false,
            default: node.default.clone(),
            ..Field::new(name.clone(), shape)
        }
    }

    fn finish(&self, mut new: Struct) -> Struct {
        new.inside_preserve_unknown = self.inside_preserve_unknown;
        new
    }

    fn shape(&mut self, node: &Node) -> Shape {
        let around = self.inside_preserve_unknown;
        self.inside_preserve_unknown |= node.preserve_unknown;
        let shape = self.shape_within(node);
        self.inside_preserve_unknown = around;
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
                    item: self.item_shape(node, items),
                    kind: match &node.list {
                        ListType::Atomic => ListKind::Atomic,
                        ListType::Set => ListKind::Set,
                        ListType::Map(keys) => ListKind::Map(keys.clone()),
                    },
                    patch_merge: false,
                    patch_merge_key: None,
                    default: items.default_of_null(),
                })),
                None => Shape::Json,
            },
            Some(Type::String) if node.validation.as_ref().is_some_and(|it| it.is_formatted) => {
                Shape::Formatted
            }
            Some(Type::String) => Shape::String,
            Some(Type::Boolean) => Shape::Bool,
            Some(Type::Integer) => Shape::Int64,
            Some(Type::Number) => Shape::Number,
            None => Shape::Json,
        }
    }

    /// Returns the shape of the items of a list. One that preserves unknown fields does so in its
    /// items.
    fn item_shape(&mut self, list: &Node, items: &Node) -> Shape {
        if !list.preserve_unknown {
            return self.shape(items);
        }
        self.shape(&Node { preserve_unknown: true, ..items.clone() })
    }

    fn object(&mut self, node: &Node) -> Shape {
        let holds_anything = node.properties.is_empty() && node.preserve_unknown;
        match &node.additional {
            AdditionalProperties::Schema(values) => {
                let value = self.shape(values);
                let default = values.default_of_null();
                let nullable = values.nullable || default.is_some();
                Shape::Map(Box::new(MapShape { value, nullable, default, atomic: node.atomic }))
            }
            AdditionalProperties::None if holds_anything && !node.atomic => Shape::Json,
            AdditionalProperties::None if !holds_anything => {
                let fields = node.properties.iter().map(|named| self.field(named)).collect();
                let new = Struct::new("object", fields);
                let new = self.finish(new.of_custom_resource(node.preserve_unknown, node.atomic));
                Shape::Struct(self.add(new))
            }
            AdditionalProperties::None
            | AdditionalProperties::Any
            | AdditionalProperties::Forbidden => {
                let value = Shape::Json;
                let nullable = true;
                let default = None;
                Shape::Map(Box::new(MapShape { value, nullable, default, atomic: node.atomic }))
            }
        }
    }

    /// Builds the struct of an embedded resource; its metadata is pruned like that of every object.
    fn embedded(&mut self, node: &Node) -> StructId {
        // It may be absent, unlike that of the object itself.
        let new = self.resource(node, "object", Presence::Pointer);
        self.add(new)
    }
}
