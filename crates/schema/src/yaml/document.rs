//! The nodes of the first document of a text, in document order.

use super::YamlError;
use super::cursor::Fault;
use super::input::Input;
use super::parser::{EventKind, Parser, Tag};
use super::scanner::{Scanner, Spot, Text};
use std::collections::HashMap;

/// A node, and where it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub kind: NodeKind,
    pub spot: Spot,
}

/// The nodes of a collection follow it; `end` is the index after the last of them. Those of a map
/// are its keys and values in turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum NodeKind {
    Scalar {
        text: Text,
        tag: Tag,
        is_implicit: bool,
    },
    /// The index of the node that the alias stands for, and the name of its anchor.
    Alias {
        target: u32,
        name: Text,
    },
    Sequence {
        end: u32,
    },
    Mapping {
        end: u32,
    },
}

/// A document.
pub(super) struct Document<'a> {
    input: &'a Input<'a>,
    /// Texts that the scanner made.
    made: String,
    /// Empty if there is no document.
    pub nodes: Vec<Node>,
}

impl<'a> Document<'a> {
    /// Reads the first document; the rest of the text is ignored.
    pub fn read(input: &'a Input<'a>) -> Result<Document<'a>, YamlError> {
        let mut parser = Parser::new(Scanner::new(input));
        let mut nodes = vec![];
        if parser.begin_document().map_err(syntax)? {
            nodes = read_nodes(&mut parser)?;
            parser.end_document().map_err(syntax)?;
        }
        Ok(Document { input, made: parser.scanner.into_made(), nodes })
    }

    /// Returns the text that a node refers to.
    pub fn text(&self, text: Text) -> &str {
        let whole = if text.is_made { self.made.as_str() } else { &self.input.text };
        &whole[text.start as usize..(text.start + text.length) as usize]
    }

    /// Returns the index of the node after this one and all that belongs to it.
    pub fn after(&self, at: usize) -> usize {
        match self.nodes[at].kind {
            NodeKind::Sequence { end } | NodeKind::Mapping { end } => end as usize,
            NodeKind::Scalar { .. } | NodeKind::Alias { .. } => at + 1,
        }
    }

    /// Whether a node is the key `<<`, whose value is merged into the map.
    pub fn is_merge(&self, at: usize) -> bool {
        match self.nodes[at].kind {
            NodeKind::Scalar { text, tag, is_implicit } => {
                (is_implicit || tag == Tag::Merge) && self.text(text) == "<<"
            }
            _ => false,
        }
    }
}

fn read_nodes(parser: &mut Parser<'_>) -> Result<Vec<Node>, YamlError> {
    let mut nodes: Vec<Node> = vec![];
    let mut open: Vec<usize> = vec![];
    let mut anchors: HashMap<String, u32> = HashMap::new();
    loop {
        let event = parser.next().map_err(syntax)?;
        let at = index(nodes.len());
        if let Some(name) = event.anchor {
            anchors.insert(parser.scanner.text(name).to_owned(), at);
        }
        let kind = match event.kind {
            EventKind::Scalar { text, tag, is_implicit } => {
                NodeKind::Scalar { text, tag, is_implicit }
            }
            EventKind::Alias(name) => match anchors.get(parser.scanner.text(name)) {
                Some(target) => NodeKind::Alias { target: *target, name },
                None => {
                    return Err(YamlError::UnknownAnchor(parser.scanner.text(name).to_owned()));
                }
            },
            EventKind::SequenceStart | EventKind::MappingStart => {
                open.push(nodes.len());
                let is_sequence = event.kind == EventKind::SequenceStart;
                let end = u32::MAX;
                if is_sequence { NodeKind::Sequence { end } } else { NodeKind::Mapping { end } }
            }
            EventKind::SequenceEnd | EventKind::MappingEnd => {
                if let Some(NodeKind::Sequence { end } | NodeKind::Mapping { end }) =
                    open.pop().map(|start| &mut nodes[start].kind)
                {
                    *end = at;
                }
                if open.is_empty() {
                    return Ok(nodes);
                }
                continue;
            }
        };
        nodes.push(Node { kind, spot: event.spot });
        if open.is_empty() {
            return Ok(nodes);
        }
    }
}

/// Returns an index of a node. Texts have fewer than 4 Gi nodes.
fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

fn syntax(fault: Fault) -> YamlError {
    YamlError::Syntax(fault.line, fault.message)
}
