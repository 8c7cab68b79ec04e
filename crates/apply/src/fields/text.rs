//! The text of a FieldsV1 tree: written, and read as far as it is what is written here.

use super::key::{parse_plain, write_element};
use super::{Element, FieldSet, Node};
use keelson_meta::Str;
use keelson_meta::room::Kept;
use keelson_schema::json;

/// Bytes that a thread keeps to write the next text in.
const SCRATCH_BYTES_MAX: usize = 64 << 10;
/// Nodes for which a thread keeps room to read the next text.
const ROOM_MAX: usize = 256;

thread_local! {
    /// Where texts, and their keys, are written: how long one is shows only then.
    static SCRATCH: Kept<(Vec<u8>, Vec<u8>)> = const { Kept::new(SCRATCH_BYTES_MAX) };
    /// Room for the nodes at hand.
    static ROOM: Kept<Vec<Node>> = const { Kept::new(ROOM_MAX) };
}

/// The text of a set.
pub(super) fn write(set: &FieldSet) -> Str {
    let (mut out, mut key) = Kept::take(&SCRATCH);
    write_below(set, false, &mut key, &mut out);
    // Always UTF-8: texts were written. `from_utf8_lossy` looks at each byte, this at a word.
    let lossy = |_| Str::new(String::from_utf8_lossy(&out));
    let text = std::str::from_utf8(&out).map_or_else(lossy, Str::new);
    Kept::give_back(&SCRATCH, (out, key));
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

/// The set of a text that is to the letter what [`write`] makes of it; `None` says nothing: the text
/// must be read as a tree.
pub(super) fn read(text: &str) -> Option<FieldSet> {
    let mut reader = Reader { rest: text, key: String::new(), nodes: Kept::take(&ROOM) };
    let set = reader.set().filter(|_| reader.rest.is_empty()).map(|(set, _)| set);
    Kept::give_back(&ROOM, reader.nodes);
    set
}

struct Reader<'t> {
    rest: &'t str,
    /// A key without its escapes.
    key: String,
    /// Nodes of the sets at hand, those of the innermost last.
    nodes: Vec<Node>,
}

impl Reader<'_> {
    fn skip(&mut self, text: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    /// The paths below a node, and whether the node itself is a member.
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

    /// A key and its colon.
    fn element(&mut self) -> Option<Element> {
        let body = self.rest.strip_prefix('"')?;
        let (mut end, mut has_quotes) = (0, false);
        loop {
            match body.as_bytes().get(end)? {
                b'"' => break,
                b'\\' if body.as_bytes().get(end + 1) == Some(&b'"') => {
                    (end, has_quotes) = (end + 2, true);
                }
                // What is escaped, or should be: U+2028 begins with the last one.
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
