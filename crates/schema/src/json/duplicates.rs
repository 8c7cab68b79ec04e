//! Decodes JSON with duplicate keys as Go does (sigs.k8s.io/json).
//!
//! Go decodes each value into what is there already: the maps and structs of duplicate fields are
//! merged, and the items of lists too, by their index. Only scalars and values with a decoder of
//! their own are replaced. Strict decoding errors come in the order of the text.

use super::parse::{Reader, SyntaxError};
use crate::types::{Field, Presence, Shape, Struct, Types};
use keelson_meta::status::quote;
use keelson_meta::{Map, Path, Str, Value};
use std::collections::HashSet;

/// Maximum number of strict decoding errors, as upstream has it.
const ERRORS_MAX: usize = 100;
/// Maximum total length of their paths; the path that exceeds it is the last.
const ERROR_BYTES_MAX: usize = 1 << 20;

/// Maximum number of values that are replaced, or have a wrong type, and are checked.
const SUSPECTS_MAX: usize = 100;

/// A parsed text with all its keys.
pub(crate) enum Tree {
    /// A map, in the order of the text.
    Object(Vec<(Str, Tree)>),
    /// A list.
    Array(Vec<Tree>),
    /// Any other value.
    Scalar(Value),
}

/// A text that was decoded to a struct.
pub(crate) struct Merged {
    /// The value, with merged duplicates and without unknown fields.
    pub value: Value,
    /// Documents that each have only one value: those that another one replaced, and those of a
    /// wrong JSON type. Go reports an error about one of them, even if another value follows.
    pub suspects: Vec<Value>,
    /// Strict decoding errors.
    pub errors: Vec<String>,
}

impl Tree {
    /// Parses a whole text.
    pub fn parse(text: &[u8]) -> Result<Tree, SyntaxError> {
        let mut reader = Reader::new(text);
        let tree = read_tree(&mut reader)?;
        reader.end()?;
        Ok(tree)
    }

    /// Returns the paths of duplicate keys, in the order in which Go reports them when it decodes
    /// without a type.
    pub fn duplicate_paths(&self) -> Vec<String> {
        let mut errors = Errors::default();
        errors.untyped(self, &Path::ROOT);
        errors.found.into_iter().map(|(_, path)| path).collect()
    }

    /// Decodes the text to a struct.
    pub fn decode(self, types: &Types, root: &Struct) -> Merged {
        let mut errors = Errors::default();
        if let Tree::Object(members) = &self {
            errors.members(types, root, members, &Path::ROOT);
        }
        let mut merge = Merge { types, suspects: Suspects::default() };
        let value = match self {
            Tree::Object(members) => Value::Object(merge.members(root, vec![members])),
            other => other.into_value(),
        };
        let text = |(kind, path): (&str, String)| format!("{kind} field {}", quote(&path));
        let found = std::mem::take(&mut errors.found).into_iter().map(text).collect();
        // An error of a type with its own decoder ends the decoding, others are kept until then.
        let mut suspects = merge.suspects.documents;
        suspects.append(&mut errors.suspects.documents);
        Merged { value, suspects, errors: found }
    }

    fn into_value(self) -> Value {
        match self {
            Tree::Scalar(value) => value,
            Tree::Array(items) => Value::Array(items.into_iter().map(Tree::into_value).collect()),
            Tree::Object(members) => {
                let entries = members.into_iter().map(|(key, tree)| (key, tree.into_value()));
                Value::Object(entries.collect())
            }
        }
    }

    /// Returns a value of the same JSON type.
    fn shallow(&self) -> Value {
        match self {
            Tree::Scalar(value) => value.clone(),
            Tree::Array(_) => Value::Array(vec![]),
            Tree::Object(_) => Value::Object(Map::new()),
        }
    }

    fn is_null(&self) -> bool {
        matches!(self, Tree::Scalar(Value::Null))
    }
}

fn read_tree(reader: &mut Reader<'_>) -> Result<Tree, SyntaxError> {
    match reader.peek()? {
        b'{' => {
            let mut members = vec![];
            reader.begin()?;
            while !reader.take_end(b'}') {
                let key = reader.string()?;
                take(reader, b':')?;
                members.push((key, read_tree(reader)?));
                take_comma(reader, b'}')?;
            }
            Ok(Tree::Object(members))
        }
        b'[' => {
            let mut items = vec![];
            reader.begin()?;
            while !reader.take_end(b']') {
                items.push(read_tree(reader)?);
                take_comma(reader, b']')?;
            }
            Ok(Tree::Array(items))
        }
        _ => reader.value(&Path::ROOT).map(Tree::Scalar),
    }
}

fn take(reader: &mut Reader<'_>, byte: u8) -> Result<(), SyntaxError> {
    if reader.peek()? != byte {
        return reader.unexpected("after object key");
    }
    reader.at += 1;
    Ok(())
}

fn take_comma(reader: &mut Reader<'_>, close: u8) -> Result<(), SyntaxError> {
    match reader.peek()? {
        b',' => reader.at += 1,
        byte if byte == close => {}
        _ => return reader.unexpected("after array element"),
    }
    Ok(())
}

/// Strict decoding errors, in the order of the text, each once.
#[derive(Default)]
struct Errors {
    /// What is wrong with a field, and its path.
    found: Vec<(&'static str, String)>,
    seen: HashSet<(&'static str, String)>,
    bytes: usize,
    /// Values of a wrong JSON type.
    suspects: Suspects,
}

impl Errors {
    fn report(&mut self, kind: &'static str, path: &Path<'_>) {
        if self.found.len() >= ERRORS_MAX || self.bytes >= ERROR_BYTES_MAX {
            return;
        }
        let error = (kind, path.to_string());
        self.bytes += error.1.len();
        if self.seen.insert(error.clone()) {
            self.found.push(error);
        }
    }

    fn untyped(&mut self, tree: &Tree, path: &Path<'_>) {
        match tree {
            Tree::Scalar(_) => {}
            Tree::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.untyped(item, &path.index(at));
                }
            }
            Tree::Object(members) => {
                let mut seen: HashSet<&str> = HashSet::new();
                for (key, member) in members {
                    let path = path.field(key);
                    if !seen.insert(key) {
                        self.report("duplicate", &path);
                    }
                    self.untyped(member, &path);
                }
            }
        }
    }

    fn members(
        &mut self,
        types: &Types,
        struct_type: &Struct,
        members: &[(Str, Tree)],
        path: &Path<'_>,
    ) {
        let mut seen: HashSet<&str> = HashSet::new();
        for (key, member) in members {
            let path = path.field(key);
            let is_new = seen.insert(key);
            match struct_type.field(key) {
                Some(field) => {
                    if !is_new {
                        self.report("duplicate", &path);
                    }
                    self.suspects.steps.push(Some(field.name.clone()));
                    self.typed(types, &field.shape, member, &path);
                    self.suspects.steps.pop();
                }
                None if is_new => self.report("unknown", &path),
                None => {}
            }
        }
    }

    fn typed(&mut self, types: &Types, shape: &Shape, tree: &Tree, path: &Path<'_>) {
        match (shape, tree) {
            (Shape::Struct(id), Tree::Object(members)) => {
                self.members(types, types.get(*id), members, path);
            }
            (Shape::List(list), Tree::Array(items)) => {
                self.suspects.steps.push(None);
                for (at, item) in items.iter().enumerate() {
                    self.typed(types, &list.item, item, &path.index(at));
                }
                self.suspects.steps.pop();
            }
            (Shape::Map(map), Tree::Object(members)) => {
                let mut seen: HashSet<&str> = HashSet::new();
                for (key, member) in members {
                    let path = path.field(key);
                    if !seen.insert(key) {
                        self.report("duplicate", &path);
                    }
                    self.suspects.steps.push(Some(key.clone()));
                    self.typed(types, &map.value, member, &path);
                    self.suspects.steps.pop();
                }
            }
            // Types with a decoder of their own report nothing.
            (shape, tree) if is_misfit(shape, tree) => self.suspects.add(tree.shallow()),
            _ => {}
        }
    }
}

/// Values that may have a wrong type.
#[derive(Default)]
struct Suspects {
    /// From the root to the current value: names of fields and keys, and `None` for an item.
    steps: Vec<Option<Str>>,
    documents: Vec<Value>,
}

impl Suspects {
    /// Keeps a value in a document of its own.
    fn add(&mut self, value: Value) {
        if self.documents.len() >= SUSPECTS_MAX {
            return;
        }
        let document = self.steps.iter().rev().fold(value, |value, step| match step {
            Some(name) => Value::Object(Map::from_distinct(vec![(name.clone(), value)])),
            None => Value::Array(vec![value]),
        });
        self.documents.push(document);
    }
}

/// Merges the values of duplicate fields.
struct Merge<'t> {
    types: &'t Types,
    /// Values with a decoder of their own that a later one replaces.
    suspects: Suspects,
}

impl Merge<'_> {
    /// Merges the occurrences of a struct.
    fn members(&mut self, struct_type: &Struct, occurrences: Vec<Vec<(Str, Tree)>>) -> Map {
        let mut places: Vec<Option<usize>> = vec![None; struct_type.fields.len()];
        let mut fields: Vec<(&Field, Vec<Tree>)> = vec![];
        for (key, tree) in occurrences.into_iter().flatten() {
            let Some(at) = struct_type.position(&key) else { continue };
            let place = *places[at].get_or_insert_with(|| {
                fields.push((&struct_type.fields[at], vec![]));
                fields.len() - 1
            });
            fields[place].1.push(tree);
        }
        let mut entries = Vec::with_capacity(fields.len());
        for (field, trees) in fields {
            self.suspects.steps.push(Some(field.name.clone()));
            let is_pointer = matches!(field.presence, Presence::Pointer | Presence::AlwaysNull);
            entries.push((field.name.clone(), self.value(&field.shape, is_pointer, trees)));
            self.suspects.steps.pop();
        }
        Map::from_distinct(entries)
    }

    /// Merges the occurrences of a value.
    fn value(&mut self, shape: &Shape, is_pointer: bool, occurrences: Vec<Tree>) -> Value {
        let keeps = !is_pointer && is_kept_by_null(shape);
        let mut trees = vec![];
        for tree in occurrences {
            match tree.is_null() {
                true if keeps => {}
                // Go keeps the last number beside the last text, and a null chooses the number.
                true if matches!(shape, Shape::IntOrString) && !is_pointer => {
                    let is_number = |tree: &&Tree| matches!(tree, Tree::Scalar(Value::Int(_)));
                    let number = trees.iter().rev().find(is_number).map(Tree::shallow);
                    if !trees.is_empty() {
                        trees.push(Tree::Scalar(number.unwrap_or(Value::Int(0))));
                    }
                }
                true => trees.clear(),
                false => trees.push(tree),
            }
        }
        // Others are reported as a wrong type.
        if trees.iter().any(|tree| !is_misfit(shape, tree)) {
            trees.retain(|tree| !is_misfit(shape, tree));
        }
        match shape {
            Shape::Struct(id) if trees.iter().all(|tree| matches!(tree, Tree::Object(_))) => {
                let objects: Vec<_> = trees.into_iter().filter_map(object).collect();
                if objects.is_empty() {
                    return Value::Null;
                }
                Value::Object(self.members(self.types.get(*id), objects))
            }
            Shape::Map(map) if trees.iter().all(|tree| matches!(tree, Tree::Object(_))) => {
                let objects: Vec<_> = trees.into_iter().filter_map(object).collect();
                if objects.is_empty() {
                    return Value::Null;
                }
                self.entries(&map.value, objects)
            }
            Shape::List(list) if trees.iter().all(|tree| matches!(tree, Tree::Array(_))) => {
                let arrays: Vec<_> = trees.into_iter().filter_map(array).collect();
                if arrays.is_empty() { Value::Null } else { self.items(&list.item, arrays) }
            }
            _ => {
                let last = trees.pop();
                if has_own_decoder(shape) {
                    trees.into_iter().for_each(|tree| self.suspects.add(tree.into_value()));
                }
                last.map_or(Value::Null, Tree::into_value)
            }
        }
    }

    /// Merges the occurrences of a map, whose values are not merged.
    fn entries(&mut self, shape: &Shape, occurrences: Vec<Vec<(Str, Tree)>>) -> Value {
        let mut entries: Vec<(Str, Value)> = vec![];
        for (key, tree) in occurrences.into_iter().flatten() {
            self.suspects.steps.push(Some(key.clone()));
            entries.push((key, self.value(shape, false, vec![tree])));
            self.suspects.steps.pop();
        }
        let mut replaced = vec![];
        let mut seen: HashSet<&str> = HashSet::new();
        for (key, value) in entries.iter().rev() {
            let is_replaced = !seen.insert(key) && has_own_decoder(shape);
            if is_replaced && replaced.len() < SUSPECTS_MAX {
                replaced.push((key.clone(), value.clone()));
            }
        }
        for (key, value) in replaced.into_iter().rev() {
            self.suspects.steps.push(Some(key));
            self.suspects.add(value);
            self.suspects.steps.pop();
        }
        Value::Object(Map::from_entries(entries, |_| ()))
    }

    /// Merges the occurrences of a list. Go keeps the items after the end of a shorter list, and
    /// merges later ones into them; an empty list is a new one.
    fn items(&mut self, shape: &Shape, occurrences: Vec<Vec<Tree>>) -> Value {
        let mut kept: Vec<Vec<Tree>> = vec![];
        let mut length = 0;
        for items in occurrences {
            length = items.len();
            if length == 0 {
                kept.clear();
            }
            for (at, item) in items.into_iter().enumerate() {
                match kept.get_mut(at) {
                    Some(trees) => trees.push(item),
                    None => kept.push(vec![item]),
                }
            }
        }
        kept.truncate(length);
        self.suspects.steps.push(None);
        let items = kept.into_iter().map(|trees| self.value(shape, false, trees)).collect();
        self.suspects.steps.pop();
        Value::Array(items)
    }
}

/// Whether a null leaves what is there. It resets maps and lists, and types with a decoder of their
/// own.
fn is_kept_by_null(shape: &Shape) -> bool {
    use Shape::{Bool, Double, Formatted, Int32, Int64, String, Struct};
    matches!(shape, String | Formatted | Bool | Int32 | Int64 | Double | Struct(_))
}

/// Whether values of a shape have a decoder of their own, whose errors end the decoding.
fn has_own_decoder(shape: &Shape) -> bool {
    let is_collection = matches!(shape, Shape::Struct(_) | Shape::Map(_) | Shape::List(_));
    !is_collection && !is_kept_by_null(shape)
}

/// Whether the decoder of a shape, which is not a decoder of its own, rejects the JSON type of a
/// value.
fn is_misfit(shape: &Shape, tree: &Tree) -> bool {
    match (shape, tree) {
        (_, Tree::Scalar(Value::Null)) => false,
        (Shape::Struct(_) | Shape::Map(_), tree) => !matches!(tree, Tree::Object(_)),
        (Shape::List(_), tree) => !matches!(tree, Tree::Array(_)),
        (Shape::String | Shape::Formatted, tree) => !matches!(tree, Tree::Scalar(Value::String(_))),
        (Shape::Bool, tree) => !matches!(tree, Tree::Scalar(Value::Bool(_))),
        (Shape::Int32, Tree::Scalar(Value::Int(number))) => i32::try_from(*number).is_err(),
        (Shape::Int32 | Shape::Int64, tree) => !matches!(tree, Tree::Scalar(Value::Int(_))),
        (Shape::Double | Shape::Number, tree) => {
            !matches!(tree, Tree::Scalar(Value::Int(_) | Value::Float(_)))
        }
        _ => false,
    }
}

fn object(tree: Tree) -> Option<Vec<(Str, Tree)>> {
    match tree {
        Tree::Object(members) => Some(members),
        _ => None,
    }
}

fn array(tree: Tree) -> Option<Vec<Tree>> {
    match tree {
        Tree::Array(items) => Some(items),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;
    use keelson_meta::{GroupVersionKind, value};

    fn check(text: &str, want: &Value, errors: &[&str]) {
        let schema = Catalogue::shared()
            .schema(&GroupVersionKind::new("", "v1", "Pod"))
            .expect("Pods are known");
        let tree = Tree::parse(text.as_bytes()).expect("JSON");
        let merged = tree.decode(&schema.types, schema.root());
        assert_eq!(
            (&merged.value, merged.errors),
            (want, errors.iter().map(|e| (*e).to_owned()).collect())
        );
    }

    #[test]
    fn structs_and_maps_are_merged_and_scalars_replaced() {
        check(
            r#"{"metadata":{"name":"a","labels":{"a":"1","b":"2"}},"metadata":{"name":"b","labels":{"b":"3"}},
                "spec":{"hostNetwork":true,"nodeSelector":{"a":"b"},"nodeSelector":null,"hostNetwork":null,
                "securityContext":{"runAsUser":1},"securityContext":null}}"#,
            &value!({"metadata": {"name": "b", "labels": {"a": "1", "b": "3"}},
                "spec": {"hostNetwork": true, "nodeSelector": null, "securityContext": null}}),
            &[
                "duplicate field \"metadata\"",
                "duplicate field \"spec.nodeSelector\"",
                "duplicate field \"spec.hostNetwork\"",
                "duplicate field \"spec.securityContext\"",
            ],
        );
    }

    #[test]
    fn items_of_lists_are_merged_by_index() {
        check(
            r#"{"spec":{"containers":[{"name":"a","image":"i"},{"name":"b","image":"j"}],
                "containers":[{"name":"c"}],"containers":[{"args":["x"]},{"name":"d"}]}}"#,
            &value!({"spec": {"containers":
                [{"name": "c", "image": "i", "args": ["x"]}, {"name": "d", "image": "j"}]}}),
            &["duplicate field \"spec.containers\""],
        );
        check(
            r#"{"spec":{"containers":[{"name":"a"}],"containers":[],"containers":[{"image":"i"}]}}"#,
            &value!({"spec": {"containers": [{"image": "i"}]}}),
            &["duplicate field \"spec.containers\""],
        );
    }

    #[test]
    fn a_null_chooses_the_last_number_of_an_int_or_string() {
        let text = |ports: &str| {
            let probe = format!(r#"{{"livenessProbe":{{"httpGet":{{{ports}}}}}}}"#);
            format!(r#"{{"spec":{{"containers":[{probe}]}}}}"#)
        };
        let want = |port: i64| value!({"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": port}}}]}});
        let errors = ["duplicate field \"spec.containers[0].livenessProbe.httpGet.port\""];
        check(&text(r#""port":80,"port":null"#), &want(80), &errors);
        check(&text(r#""port":80,"port":"http","port":null"#), &want(80), &errors);
        check(&text(r#""port":"http","port":null"#), &want(0), &errors);
    }

    #[test]
    fn errors_come_once_in_the_order_of_the_text() {
        check(
            r#"{"zz":{"a":1,"a":2},"metadata":{"foo":1,"labels":{"a":"1"},"bar":2,"labels":{"a":"2","a":"3"},
                "foo":3},"aa":{},"zz":2}"#,
            &value!({"metadata": {"labels": {"a": "3"}}}),
            &[
                "unknown field \"zz\"",
                "unknown field \"metadata.foo\"",
                "unknown field \"metadata.bar\"",
                "duplicate field \"metadata.labels\"",
                "duplicate field \"metadata.labels.a\"",
                "unknown field \"aa\"",
            ],
        );
    }

    #[test]
    fn values_that_are_replaced_or_misfit_are_kept_for_a_check() {
        let schema = Catalogue::shared()
            .schema(&GroupVersionKind::new("", "v1", "Pod"))
            .expect("Pods are known");
        let text =
            br#"{"spec":{"containers":[{"image":1,"image":"b"}],"nodeSelector":{"a":2,"a":"3"}}}"#;
        let merged = Tree::parse(text).expect("JSON").decode(&schema.types, schema.root());
        assert_eq!(
            merged.suspects,
            [
                value!({"spec": {"containers": [{"image": 1}]}}),
                value!({"spec": {"nodeSelector": {"a": 2}}}),
            ]
        );
    }
}
