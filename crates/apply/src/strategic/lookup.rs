//! What a schema says of a member, with the words of upstream's refusals when it says nothing.

use crate::PatchError;
use keelson_meta::status::quote;
use keelson_schema::types::SchemaOr;
use keelson_schema::{Schema, Shape, Struct, Types};

/// The type of a map under merge.
#[derive(Clone, Copy)]
pub(super) enum Context<'t> {
    /// A struct.
    Struct(&'t Types, &'t Struct),
    /// A type that Go has as a struct but whose JSON members are no fields of it; its name.
    Opaque(&'static str),
    /// Anything else; Go's word for its kind.
    Other(&'static str),
}

/// A member of a struct.
pub(super) struct Member<'t> {
    pub(super) types: &'t Types,
    pub(super) shape: &'t Shape,
    /// Whether a map of the patch takes the place of the member.
    pub(super) is_replaced: bool,
}

/// How a list is merged.
pub(super) struct ListRules<'t> {
    /// The type of an item that is a map.
    pub(super) item: Context<'t>,
    /// Whether the list is merged at all; else it is replaced.
    pub(super) is_merged: bool,
    /// The member that tells items apart; `None` for scalars.
    pub(super) key: Option<&'t str>,
}

impl<'t> Context<'t> {
    pub(super) fn root(schema: &'t Schema) -> Self {
        Context::Struct(&schema.types, schema.root())
    }

    pub(super) fn of(types: &'t Types, shape: &Shape) -> Self {
        match shape {
            Shape::Struct(id) => Context::Struct(types, types.get(*id)),
            Shape::Json => Context::Opaque("JSON"),
            Shape::RawExtension => Context::Opaque("RawExtension"),
            Shape::FieldsV1 => Context::Opaque("FieldsV1"),
            Shape::SchemaOr(SchemaOr::Array, _) => Context::Opaque("JSONSchemaPropsOrArray"),
            Shape::SchemaOr(SchemaOr::Bool, _) => Context::Opaque("JSONSchemaPropsOrBool"),
            Shape::SchemaOr(SchemaOr::StringArray, _) => {
                Context::Opaque("JSONSchemaPropsOrStringArray")
            }
            Shape::Map(_) => Context::Other("map"),
            Shape::List(_) | Shape::Bytes => Context::Other("slice"),
            Shape::String | Shape::Formatted => Context::Other("string"),
            Shape::Bool => Context::Other("bool"),
            Shape::Int32 => Context::Other("int32"),
            Shape::Int64 => Context::Other("int64"),
            Shape::Double => Context::Other("float64"),
            Shape::Time | Shape::MicroTime => Context::Opaque("Time"),
            Shape::Duration => Context::Opaque("Duration"),
            Shape::Quantity => Context::Opaque("Quantity"),
            Shape::IntOrString => Context::Opaque("IntOrString"),
        }
    }

    /// The member `key`, which must be a field.
    pub(super) fn member(&self, key: &str) -> Result<Member<'t>, PatchError> {
        let missing = |name: &str| {
            PatchError::Bare(format!(
                "unable to find api field in struct {name} for the json field {}",
                quote(key)
            ))
        };
        match self {
            Context::Struct(types, of) => match of.field(key) {
                Some(field) => {
                    let is_replaced = field.patch_replace;
                    Ok(Member { types, shape: &field.shape, is_replaced })
                }
                None => Err(missing(of.name.rsplit('.').next().unwrap_or_default())),
            },
            Context::Opaque(name) => Err(missing(name)),
            Context::Other(kind) => Err(PatchError::Bare(format!(
                "merging an object in json but data type is not struct, instead is: {kind}"
            ))),
        }
    }

    /// The member `key`, which must be a field and a list.
    pub(super) fn list(&self, key: &str) -> Result<ListRules<'t>, PatchError> {
        let member = self.member(key)?;
        let Shape::List(list) = member.shape else {
            let text = "expected slice or array type, but got: struct";
            return Err(PatchError::Bare(text.to_owned()));
        };
        if matches!(list.item, Shape::List(_)) {
            return Err(PatchError::Bare("unexpected slice of slice".to_owned()));
        }
        Ok(ListRules {
            item: Context::of(member.types, &list.item),
            is_merged: list.patch_merge,
            key: list.patch_merge_key.as_deref().filter(|key| !key.is_empty()),
        })
    }

    /// Go's word for the kind of this type.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Context::Struct(..) | Context::Opaque(_) => "struct",
            Context::Other(kind) => kind,
        }
    }
}
