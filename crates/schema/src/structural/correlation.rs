//! [`SchemaPart`]: how a value of a custom resource is compared with the one before an update
//! (apiextensions' validation ratcheting).

use super::validate::OldItems;
use super::{AdditionalProperties, ListType, Node, Structural};
use keelson_meta::Value;

/// A schema within a structural schema.
#[derive(Clone, Copy, Debug)]
pub struct SchemaPart<'s>(&'s Node);

impl Structural {
    /// Returns the schema of the whole object.
    pub fn part(&self) -> SchemaPart<'_> {
        SchemaPart(&self.root)
    }
}

impl<'s> SchemaPart<'s> {
    /// Returns the schema of a member of an object, unless it is one that is only preserved.
    pub fn member(self, name: &str) -> Option<SchemaPart<'s>> {
        self.0.member(name).map(SchemaPart)
    }

    /// Returns the schema of the items of a list.
    pub fn item(self) -> Option<SchemaPart<'s>> {
        self.0.items.as_deref().map(SchemaPart)
    }

    /// Whether an update leaves a value as it was: then rules that it breaks are no errors.
    /// A member that the schema does not name is never the same, and items of a list of type
    /// `map` may change their order.
    pub fn is_unchanged(self, value: &Value, old: &Value) -> bool {
        self.0.is_unchanged(value, old)
    }
}

impl Node {
    fn member(&self, name: &str) -> Option<&Node> {
        self.property(name).or(match &self.additional {
            AdditionalProperties::Schema(node) => Some(node),
            _ => None,
        })
    }

    /// See [`SchemaPart::is_unchanged`].
    pub(super) fn is_unchanged(&self, value: &Value, old: &Value) -> bool {
        match (value, old) {
            (Value::Object(map), Value::Object(old)) => {
                let is_same = |name: &str, value: &Value| {
                    let pair = self.member(name).zip(old.get(name));
                    pair.is_some_and(|(node, old)| node.is_unchanged(value, old))
                };
                map.len() == old.len() && map.iter().all(|(name, value)| is_same(name, value))
            }
            (Value::Array(items), Value::Array(before)) => match (&self.list, &self.items) {
                (ListType::Map(_), Some(node)) => {
                    let found = OldItems::of(&self.list, Some(old.into()));
                    let is_same = |item: &Value| {
                        found.find(item).is_some_and(|old| node.is_unchanged(item, old))
                    };
                    items.len() == before.len() && items.iter().all(is_same)
                }
                _ => items == before,
            },
            _ => value == old,
        }
    }
}
