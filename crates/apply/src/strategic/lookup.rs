//! Looks up the patch strategy of a member in the schema. The errors are upstream's.

use crate::PatchError;
use keelson_meta::status::quote;
use keelson_schema::types::SchemaOr;
use keelson_schema::{Schema, Shape, Struct, Types};

/// The Go type of a map that is being merged.
#[derive(Clone, Copy)]
pub(super) enum Context<'t> {
    /// A struct.
    Struct(&'t Types, &'t Struct),
    /// A Go struct with its own JSON encoding, such as `Quantity`: its type name.
    Opaque(&'static str),
    /// Any other type: the name of its Go kind.
    Other(&'static str),
}

/// A member of a struct.
pub(super) struct Member<'t> {
    pub(super) types: &'t Types,
    pub(super) shape: &'t Shape,
    /// Whether a map of the patch replaces the member.
    pub(super) is_replaced: bool,
}

/// How a list is merged.
pub(super) struct ListRules<'t> {
    /// The type of the items.
    pub(super) item: Context<'t>,
    /// Whether the list is merged; else it is replaced.
    pub(super) is_merged: bool,
    /// The merge key of the items; `None` for scalars.
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
            Shape::Double | Shape::Number => Context::Other("float64"),
            Shape::Time | Shape::MicroTime => Context::Opaque("Time"),
            Shape::Duration => Context::Opaque("Duration"),
            Shape::Quantity => Context::Opaque("Quantity"),
            Shape::IntOrString => Context::Opaque("IntOrString"),
        }
    }

    /// Looks up the member `key`. Fails when it is not a field.
    pub(super) fn member(&self, key: &str) -> Result<Member<'t>, PatchError> {
        let missing = |name: &str| {
            PatchError::Internal(format!(
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
            Context::Other(kind) => Err(PatchError::Internal(format!(
                "merging an object in json but data type is not struct, instead is: {kind}"
            ))),
        }
    }

    /// Looks up the list `key`. Fails when it is not a field or not a list.
    pub(super) fn list(&self, key: &str) -> Result<ListRules<'t>, PatchError> {
        let member = self.member(key)?;
        let Shape::List(list) = member.shape else {
            let text = "expected slice or array type, but got: struct";
            return Err(PatchError::Internal(text.to_owned()));
        };
        if matches!(list.item, Shape::List(_)) {
            return Err(PatchError::Internal("unexpected slice of slice".to_owned()));
        }
        Ok(ListRules {
            item: Context::of(member.types, &list.item),
            is_merged: list.patch_merge,
            key: list.patch_merge_key.as_deref().filter(|key| !key.is_empty()),
        })
    }

    /// Returns the name of the Go kind of this type.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Context::Struct(..) | Context::Opaque(_) => "struct",
            Context::Other(kind) => kind,
        }
    }
}
