//! The FieldsV1 encoding of a [`FieldSet`]: the JSON tree of a `managedFields` entry, byte for byte
//! as upstream writes it.

use super::key::{DecodeError, parse_element, parse_plain};
use super::{FieldSet, Node, text};
use keelson_meta::{Map, Value};
use keelson_schema::json;

impl FieldSet {
    /// Decodes a FieldsV1 tree. Like upstream, drops elements with an unknown prefix.
    pub fn decode(tree: &Value) -> Result<FieldSet, DecodeError> {
        Self::decode_canonical(tree).map(|(set, _)| set)
    }

    /// Decodes a FieldsV1 tree. Also returns whether the tree is canonical: the bytes that
    /// [`FieldSet::encode`] writes for the set.
    pub(crate) fn decode_canonical(tree: &Value) -> Result<(FieldSet, bool), DecodeError> {
        match tree {
            Value::Raw(text) => match text::read(text) {
                Some(set) => Ok((set, true)),
                None => Self::decode_canonical(&json::parse_raw(tree.clone())),
            },
            Value::Object(map) => Ok((decode(map)?.0, false)),
            Value::Null => Ok((FieldSet::new(), false)),
            other => Err(DecodeError(format!("expected a map, got {}", other.type_name()))),
        }
    }

    /// Encodes the set as the text of a FieldsV1 tree.
    pub fn encode(&self) -> Value {
        Value::Raw(text::write(self))
    }
}

/// Decodes the paths below a node, and whether the node itself is a member.
fn decode(map: &Map) -> Result<(FieldSet, bool), DecodeError> {
    let mut is_member = false;
    let mut nodes: Vec<Node> = Vec::with_capacity(map.len());
    for (key, tree) in map.iter() {
        if key == "." {
            is_member = true;
            continue;
        }
        let plain = parse_plain(key).map(Some);
        let Some(element) = plain.map_or_else(|| parse_element(key), Ok)? else { continue };
        let (children, is_member) = match tree {
            Value::Object(map) => decode(map)?,
            _ => (FieldSet::new(), true),
        };
        nodes.push(Node { element, is_member, children });
    }
    let children = FieldSet::from_nodes(nodes);
    is_member |= children.is_empty();
    Ok((children, is_member))
}
