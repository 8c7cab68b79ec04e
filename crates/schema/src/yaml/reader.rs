//! Parses a YAML document: resolves anchors, aliases and merge keys, with limits on their
//! expansion.

use super::{ParsedYaml, YamlError, scalar};
use crate::json::DEPTH_MAX;
use keelson_meta::{Map, Str, Value};
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};
use std::collections::{HashMap, HashSet};

/// Number of nodes that aliases may always add, and size of a document up to which all nodes may
/// come from aliases.
const ALIASED_NODES_FREE: usize = 100;
const NODES_FREE: usize = 1_000;
/// Up to this number of nodes, nearly all may come from aliases; from [`NODES_LARGE`] on, only a
/// tenth. In between the allowed share decreases linearly, as upstream's does.
const NODES_SMALL: usize = 400_000;
const NODES_LARGE: usize = 4_000_000;

/// Maximum length of text that aliases may add. kube-apiserver has no such limit and allocates that
/// much for each alias.
const ALIASED_BYTES_MAX: usize = 3 << 20;

/// Parses the first document of a text.
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
    // The rest of the document must be well-formed.
    reader.next()?;
    expand(&mut value, &reader.shared);
    Ok(ParsedYaml { value, duplicates: reader.duplicates })
}

/// Returns the anchors that have an alias; only these are kept.
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

/// Replaces placeholders by the shared values.
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
    /// Offset of the last event, in characters.
    at: usize,
    aliased_anchors: HashSet<usize>,
    anchors: HashMap<usize, Node>,
    /// Lists and maps with an alias. The document contains their indices as [`Value::Raw`], which
    /// YAML does not produce, so that nothing is copied before the total size is known.
    shared: Vec<Value>,
    duplicates: Vec<(usize, String)>,
    written: usize,
    aliased: usize,
    aliased_bytes: usize,
    depth: usize,
}

/// A value and the size of a copy of it.
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
                // The parser reports unknown anchors; one that is missing here is still being
                // parsed.
                let known = self.anchors.get(&anchor).cloned();
                let node = known.ok_or_else(|| YamlError::SelfReference(self.alias_name()))?;
                self.count_copy(&node)?;
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

    /// Counts a copy of a node.
    fn count_copy(&mut self, node: &Node) -> Result<(), YamlError> {
        self.aliased += node.nodes;
        self.aliased_bytes = self.aliased_bytes.saturating_add(node.bytes);
        if self.has_excessive_aliasing() { Err(YamlError::Aliases) } else { Ok(()) }
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

    /// Returns the name of the last alias.
    fn alias_name(&self) -> String {
        let name = self.text.chars().skip(self.at + 1);
        name.take_while(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    }

    fn has_excessive_aliasing(&self) -> bool {
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
                    // A value with an anchor is copied here; aliases are already counted.
                    let nodes = 2 * self.shared_at(place).map_or(0, length);
                    self.count_copy(&Node { nodes, ..Node::default() })?;
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
        let map = if merged.is_empty() { map } else { merge_maps(map, merged) };
        Ok(Node { value: Value::Object(map), nodes: 0, bytes, depth })
    }

    fn shared_at(&self, place: &str) -> Option<&Value> {
        self.shared.get(place.parse::<usize>().ok()?)
    }

    /// Collects the maps that the value of a `<<` key merges.
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

/// Returns the number of items or entries.
fn length(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    }
}

/// Adds entries of other maps whose keys are missing; the first map with a key wins.
fn merge_maps(map: Map, others: Vec<Map>) -> Map {
    let mut seen: HashSet<Str> = map.iter().map(|(key, _)| key.clone()).collect();
    let mut entries: Vec<(Str, Value)> = map.into_iter().collect();
    for (key, value) in others.into_iter().flatten() {
        if seen.insert(key.clone()) {
            entries.push((key, value));
        }
    }
    Map::from_distinct(entries)
}

/// Returns a key as text, as JSON requires.
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
    // Upstream counts lines from 0 in parser errors and from 1 in scanner errors, and omits the
    // first line.
    let line = match error.marker().line() {
        0 | 1 => 0,
        line if words.starts_with("did not find expected") => line - 1,
        line => line,
    };
    YamlError::Syntax(line, words.to_owned())
}
