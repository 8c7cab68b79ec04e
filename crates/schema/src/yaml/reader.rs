//! A YAML document as a value: anchors, aliases and merge keys, bounded in what they make of few words.

use super::{ParsedYaml, YamlError, scalar};
use crate::json::DEPTH_MAX;
use keelson_meta::{Map, Str, Value};
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};
use std::collections::{HashMap, HashSet};

/// Nodes that aliases may add to any document, and nodes of a document that may come from anywhere.
const ALIASED_NODES_FREE: usize = 100;
const NODES_FREE: usize = 1_000;
/// Nodes up to which nearly all of a document may come from aliases, and nodes from which on only a
/// tenth may; between the two the share falls in a line. As in upstream's reader.
const NODES_SMALL: usize = 400_000;
const NODES_LARGE: usize = 4_000_000;

/// Bytes of text that aliases may stand for. A kube-apiserver has no such limit; it takes up that much
/// memory for each of them.
const ALIASED_BYTES_MAX: usize = 3 << 20;

/// Reads the first document of a text.
pub(super) fn scan(text: &str) -> Result<ParsedYaml, YamlError> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        text,
        at: 0,
        aliased_anchors: aliased_anchors(text),
        anchors: HashMap::new(),
        shared: vec![],
        duplicates: vec![],
        written: 0,
        aliased: 0,
        aliased_bytes: 0,
        depth: 0,
    };
    loop {
        match reader.next()?.0 {
            Event::StreamEnd => return Ok(ParsedYaml::default()),
            Event::DocumentStart(_) => break,
            _ => {}
        }
    }
    let (event, _) = reader.next()?;
    if matches!(event, Event::DocumentEnd | Event::StreamEnd) {
        return Ok(ParsedYaml::default());
    }
    let mut value = reader.node(event)?.value;
    // What follows on the same document must still be well-formed.
    reader.next()?;
    expand(&mut value, &reader.shared);
    Ok(ParsedYaml { value, duplicates: reader.duplicates })
}

/// The anchors that any alias of a text means; others need not be kept.
fn aliased_anchors(text: &str) -> HashSet<usize> {
    let mut aliased = HashSet::new();
    if text.contains('&') && text.contains('*') {
        let mut parser = Parser::new_from_str(text);
        while let Some(Ok((event, _))) = parser.next_event() {
            match event {
                Event::Alias(anchor) => drop(aliased.insert(anchor)),
                Event::StreamEnd | Event::DocumentEnd => break,
                _ => {}
            }
        }
    }
    aliased
}

/// Puts shared values in the places that stand for them.
fn expand(value: &mut Value, shared: &[Value]) {
    match value {
        Value::Raw(place) => {
            let found = place.parse().ok().and_then(|place: usize| shared.get(place));
            *value = found.cloned().unwrap_or_default();
            expand(value, shared);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| expand(item, shared)),
        Value::Object(map) => map.iter_mut().for_each(|(_, item)| expand(item, shared)),
        _ => {}
    }
}

struct Reader<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    text: &'a str,
    /// The character at which the last event began.
    at: usize,
    aliased_anchors: HashSet<usize>,
    anchors: HashMap<usize, Node>,
    /// Lists and maps that aliases mean. In the document their places stand for them, as
    /// [`Value::Raw`], which YAML has not: so none is copied before it is known how much all copies are.
    shared: Vec<Value>,
    duplicates: Vec<(usize, String)>,
    written: usize,
    aliased: usize,
    aliased_bytes: usize,
    depth: usize,
}

/// A value, and what a copy of it takes.
#[derive(Clone, Debug, Default)]
struct Node {
    value: Value,
    nodes: usize,
    bytes: usize,
    /// Levels of nesting; 0 for a scalar.
    depth: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, usize), YamlError> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => {
                self.at = span.start.index();
                Ok((event, span.start.line()))
            }
            Some(Err(error)) => Err(syntax(&error)),
            None => Ok((Event::StreamEnd, 0)),
        }
    }

    fn node(&mut self, event: Event<'a>) -> Result<Node, YamlError> {
        self.written += 1;
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar(&text, style, tag.as_deref());
                let node = Node { value, nodes: 1, bytes: text.len(), depth: 0 };
                if self.aliased_anchors.contains(&anchor) {
                    self.anchors.insert(anchor, node.clone());
                }
                Ok(node)
            }
            Event::Alias(anchor) => {
                // The parser knows every anchor; what is not here yet is still being read.
                let known = self.anchors.get(&anchor).cloned();
                let node = known.ok_or_else(|| YamlError::Itself(self.alias_name()))?;
                self.copied(&node)?;
                if self.depth + node.depth > DEPTH_MAX {
                    return Err(YamlError::Depth);
                }
                Ok(node)
            }
            Event::SequenceStart(anchor, _) => self.nested(anchor, Self::sequence),
            Event::MappingStart(anchor, _) => self.nested(anchor, Self::mapping),
            _ => Ok(Node { nodes: 1, ..Node::default() }),
        }
    }

    /// Accounts for one more copy of a node.
    fn copied(&mut self, node: &Node) -> Result<(), YamlError> {
        self.aliased += node.nodes;
        self.aliased_bytes = self.aliased_bytes.saturating_add(node.bytes);
        if self.is_aliased_too_much() { Err(YamlError::Aliases) } else { Ok(()) }
    }

    fn nested(
        &mut self,
        anchor: usize,
        read: impl FnOnce(&mut Self) -> Result<Node, YamlError>,
    ) -> Result<Node, YamlError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(YamlError::Depth);
        }
        let before = self.written + self.aliased;
        let mut node = read(self)?;
        self.depth -= 1;
        node.depth += 1;
        node.nodes = self.written + self.aliased - before + 1;
        if self.aliased_anchors.contains(&anchor) {
            let place = Value::Raw(self.shared.len().to_string().into());
            self.shared.push(std::mem::replace(&mut node.value, place));
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    /// The name of the alias that was read last.
    fn alias_name(&self) -> String {
        let name = self.text.chars().skip(self.at + 1);
        name.take_while(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    }

    fn is_aliased_too_much(&self) -> bool {
        let nodes = self.written + self.aliased;
        let beyond = nodes.clamp(NODES_SMALL, NODES_LARGE) - NODES_SMALL;
        let share = 0.99 - 0.89 * beyond as f64 / (NODES_LARGE - NODES_SMALL) as f64;
        let is_much = self.aliased > ALIASED_NODES_FREE
            && nodes > NODES_FREE
            && self.aliased as f64 > share * nodes as f64;
        is_much || self.aliased_bytes > ALIASED_BYTES_MAX
    }

    fn sequence(&mut self) -> Result<Node, YamlError> {
        let (mut items, mut bytes, mut depth) = (vec![], 0usize, 0);
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => {
                    return Ok(Node { value: Value::Array(items), nodes: 0, bytes, depth });
                }
                (event, _) => {
                    let item = self.node(event)?;
                    bytes = bytes.saturating_add(item.bytes);
                    depth = depth.max(item.depth);
                    items.push(item.value);
                }
            }
        }
    }

    fn mapping(&mut self) -> Result<Node, YamlError> {
        let mut entries: Vec<(Str, Value)> = vec![];
        let mut merged: Vec<Map> = vec![];
        let mut lines: HashMap<Str, usize> = HashMap::new();
        let (mut bytes, mut depth) = (0usize, 0);
        loop {
            let (event, line) = self.next()?;
            if event == Event::MappingEnd {
                break;
            }
            let is_merge = matches!(&event,
                Event::Scalar(text, ScalarStyle::Plain, _, _) if text == "<<");
            let key = self.node(event)?;
            let text = key_text(key.value)?;
            let (event, _) = self.next()?;
            let is_alias = matches!(event, Event::Alias(_));
            let value = self.node(event)?;
            bytes = bytes.saturating_add(key.bytes).saturating_add(value.bytes);
            depth = depth.max(value.depth);
            if is_merge {
                if let (Value::Raw(place), false) = (&value.value, is_alias) {
                    // What has an anchor stays where it is and is copied; aliases are accounted for.
                    let nodes = 2 * self.shared_at(place).map_or(0, length);
                    self.copied(&Node { nodes, ..Node::default() })?;
                }
                self.merge_sources(value.value, &mut merged);
                continue;
            }
            lines.insert(text.clone(), line);
            entries.push((text, value.value));
        }
        let duplicates = &mut self.duplicates;
        let map = Map::from_entries(entries, |key| {
            duplicates.push((lines.get(key).copied().unwrap_or(0), key.to_string()));
        });
        let map = if merged.is_empty() { map } else { with_merged(map, merged) };
        Ok(Node { value: Value::Object(map), nodes: 0, bytes, depth })
    }

    fn shared_at(&self, place: &str) -> Option<&Value> {
        self.shared.get(place.parse::<usize>().ok()?)
    }

    /// The maps that the value of a `<<` key brings in.
    fn merge_sources(&self, source: Value, maps: &mut Vec<Map>) {
        match source {
            Value::Object(map) => maps.push(map),
            Value::Array(items) => {
                items.into_iter().for_each(|item| self.merge_sources(item, maps));
            }
            Value::Raw(place) => {
                self.merge_sources(self.shared_at(&place).cloned().unwrap_or_default(), maps);
            }
            _ => {}
        }
    }
}

/// Number of items or entries.
fn length(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    }
}

/// The entries of a map, and those of others whose keys it lacks; of the others the first counts.
fn with_merged(map: Map, others: Vec<Map>) -> Map {
    let mut seen: HashSet<Str> = map.iter().map(|(key, _)| key.clone()).collect();
    let mut entries: Vec<(Str, Value)> = map.into_iter().collect();
    for (key, value) in others.into_iter().flatten() {
        if seen.insert(key.clone()) {
            entries.push((key, value));
        }
    }
    Map::from_distinct(entries)
}

/// A key as JSON has it: scalars become text.
fn key_text(key: Value) -> Result<Str, YamlError> {
    match key {
        Value::String(text) => Ok(text),
        Value::Null => Ok(Str::new("null")),
        Value::Bool(flag) => Ok(Str::new(if flag { "true" } else { "false" })),
        Value::Int(number) => Ok(Str::from(number.to_string())),
        Value::Float(number) => Ok(Str::from(number.to_string())),
        Value::Array(_) | Value::Object(_) | Value::Raw(_) => Err(YamlError::Key),
    }
}

fn syntax(error: &ScanError) -> YamlError {
    if error.info().contains("recursion limit") {
        return YamlError::Depth;
    }
    let words = match error.info() {
        "mapping values are not allowed in this context" => {
            "mapping values are not allowed in this context"
        }
        info if info.contains("did not find expected node content")
            || info.contains("while parsing a flow node")
            || info.contains("while parsing a node") =>
        {
            "did not find expected node content"
        }
        info => info,
    };
    // Upstream counts lines from 0 where its parser fails and from 1 where its scanner does, and names
    // none for the first one.
    let line = match error.marker().line() {
        0 | 1 => 0,
        line if words.starts_with("did not find expected") => line - 1,
        line => line,
    };
    YamlError::Syntax(line, words.to_owned())
}
