//! FieldsV1: a set as the JSON tree that `managedFields` holds, to the letter as upstream orders
//! it.

use super::key::{DecodeError, parse_element, parse_plain};
use super::{FieldSet, Node, text};
use keelson_meta::{Map, Value};
use keelson_schema::json;

impl FieldSet {
    /// Reads a FieldsV1 tree. Elements of kinds that we do not know are dropped, as upstream does.
    pub fn decode(tree: &Value) -> Result<FieldSet, DecodeError> {
        Self::decode_marked(tree).map(|(set, _)| set)
    }

    /// The set, and whether the tree is to the letter what [`FieldSet::encode`] would write.
    pub(crate) fn decode_marked(tree: &Value) -> Result<(FieldSet, bool), DecodeError> {
        match tree {
            Value::Raw(text) => match text::read(text) {
                Some(set) => Ok((set, true)),
                None => Self::decode_marked(&json::parse_raw(tree.clone())),
            },
            Value::Object(map) => Ok((decode(map)?.0, false)),
            Value::Null => Ok((FieldSet::new(), false)),
            other => Err(DecodeError(format!("expected a map, got {}", other.type_name()))),
        }
    }

    /// The FieldsV1 tree, as text.
    pub fn encode(&self) -> Value {
        Value::Raw(text::write(self))
    }
}

/// The paths below a node, and whether the node itself is a member.
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
