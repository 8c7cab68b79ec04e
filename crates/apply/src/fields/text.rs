//! Writes the text of a FieldsV1 tree, and reads the canonical text without building a JSON value.

use super::key::{parse_plain, write_element};
use super::{Element, FieldSet, Node};
use keelson_meta::Str;
use keelson_meta::scratch::Scratch;
use keelson_schema::json;

/// Bytes of the write buffers that a thread keeps for the next text.
const WRITE_BYTES_MAX: usize = 64 << 10;
/// Nodes for which a thread keeps capacity to read the next text.
const READ_NODES_MAX: usize = 256;

thread_local! {
    /// Buffers for a text and for one key of it. The length of a text is not known before it is
    /// written.
    static WRITE_BUFFERS: Scratch<(Vec<u8>, Vec<u8>)> = const { Scratch::new(WRITE_BYTES_MAX) };
    /// Buffer for the nodes of the levels being read.
    static READ_NODES: Scratch<Vec<Node>> = const { Scratch::new(READ_NODES_MAX) };
}

/// Writes the text of a set.
pub(super) fn write(set: &FieldSet) -> Str {
    let (mut out, mut key) = Scratch::take(&WRITE_BUFFERS);
    write_below(set, false, &mut key, &mut out);
    // The bytes are always UTF-8. `from_utf8` checks a word at a time, `from_utf8_lossy` a byte.
    let lossy = |_| Str::new(String::from_utf8_lossy(&out));
    let text = std::str::from_utf8(&out).map_or_else(lossy, Str::new);
    Scratch::put_back(&WRITE_BUFFERS, (out, key));
    text
}

fn write_below(set: &FieldSet, with_self: bool, key: &mut Vec<u8>, out: &mut Vec<u8>) {
    out.push(b'{');
    if with_self {
        out.extend_from_slice(b"\".\":{}");
    }
    for (i, node) in set.nodes.iter().enumerate() {
        if with_self || i > 0 {
            out.push(b',');
        }
        key.clear();
        write_element(&node.element, key);
        json::write_utf8(key, out);
        out.push(b':');
        if node.children.is_empty() {
            out.extend_from_slice(b"{}");
        } else {
            write_below(&node.children, node.is_member, key, out);
        }
    }
    out.push(b'}');
}

/// Reads a canonical text: one that [`write`] would write for its set. `None` means only that the
/// text must be decoded as a JSON tree.
pub(super) fn read(text: &str) -> Option<FieldSet> {
    let mut reader = Reader { rest: text, key: String::new(), nodes: Scratch::take(&READ_NODES) };
    let set = reader.set().filter(|_| reader.rest.is_empty()).map(|(set, _)| set);
    Scratch::put_back(&READ_NODES, reader.nodes);
    set
}

struct Reader<'t> {
    rest: &'t str,
    /// Buffer for a key without its escapes.
    key: String,
    /// The nodes of the open levels, innermost last.
    nodes: Vec<Node>,
}

impl Reader<'_> {
    fn skip(&mut self, text: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    /// Reads the paths below a node, and whether the node itself is a member.
    fn set(&mut self) -> Option<(FieldSet, bool)> {
        self.skip("{")?;
        if self.skip("}").is_some() {
            return Some((FieldSet::new(), true));
        }
        let is_member = self.skip("\".\":{},").is_some();
        let start = self.nodes.len();
        loop {
            let element = self.element()?;
            if self.nodes[start..].last().is_some_and(|last| last.element >= element) {
                return None;
            }
            let (children, is_member) = self.set()?;
            self.nodes.push(Node { element, is_member, children });
            if self.skip(",").is_none() {
                break;
            }
        }
        self.skip("}")?;
        Some((FieldSet { nodes: self.nodes.split_off(start).into() }, is_member))
    }

    /// Reads a key and its colon.
    fn element(&mut self) -> Option<Element> {
        let body = self.rest.strip_prefix('"')?;
        let mut end = 0;
        let mut has_quotes = false;
        loop {
            match body.as_bytes().get(end)? {
                b'"' => break,
                b'\\' if body.as_bytes().get(end + 1) == Some(&b'"') => {
                    (end, has_quotes) = (end + 2, true);
                }
                // Characters that are or should be escaped; 0xe2 is the first byte of U+2028.
                0..b' ' | b'\\' | b'<' | b'>' | b'&' | 0xe2 => return None,
                _ => end += 1,
            }
        }
        self.rest = body[end + 1..].strip_prefix(':')?;
        if !has_quotes {
            return parse_plain(&body[..end]);
        }
        self.key.clear();
        self.key.extend(body[..end].split('\\'));
        parse_plain(&self.key)
    }
}
