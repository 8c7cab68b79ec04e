//! Reads `types.txt` and `unserved.txt`.

use crate::types::{
    Field, ListKind, ListShape, MapShape, Presence, SchemaOr, Shape, Struct, StructId, TagPath,
};
use foldhash::HashMap;
use keelson_meta::{GroupVersionKind, Str};

/// The content of the tables.
#[derive(Default)]
pub(super) struct Tables {
    pub structs: Vec<Struct>,
    pub kinds: HashMap<GroupVersionKind, StructId>,
    pub every_version: HashMap<Str, StructId>,
}

/// The struct that JSONSchemaPropsOr... shapes refer to.
const SCHEMA_PROPS: (&str, &str) =
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1", "JSONSchemaProps");

/// Reads the tables, which may refer to each other. Their format is guaranteed by the generator, so
/// errors panic.
pub(super) fn read(texts: &[&'static str]) -> Tables {
    let ids = ids(texts);
    let mut out = Tables::default();
    for text in texts {
        read_text(text, &ids, &mut out);
    }
    out
}

fn read_text(text: &'static str, ids: &StructIds, out: &mut Tables) {
    let mut package = "";
    let mut current: Option<StructLines> = None;
    for line in text.lines() {
        let words = line.trim_ascii_start();
        match line.len() - words.len() {
            _ if words.is_empty() || words.starts_with('#') => {}
            0 => {
                out.structs.extend(current.take().map(StructLines::finish));
                match words.split_once(' ') {
                    Some(("package", name)) => package = name,
                    Some(("struct", rest)) => current = Some(StructLines::new(package, rest)),
                    _ => panic!("types.txt: {line:?}"),
                }
            }
            indent => {
                let Some(current) = &mut current else {
                    panic!("types.txt: {line:?} stands below no struct");
                };
                match indent {
                    1 => annotation(out, &mut current.embedded, words),
                    _ => current.fields.push(field(words, package, ids)),
                }
            }
        }
    }
    out.structs.extend(current.map(StructLines::finish));
}

/// The id of each struct by package and name.
type StructIds = HashMap<(&'static str, &'static str), StructId>;

/// Returns the ids of all structs, so that structs can refer to later ones.
fn ids(texts: &[&'static str]) -> StructIds {
    let mut package = "";
    let mut ids = StructIds::default();
    for line in texts.iter().flat_map(|text| text.lines()) {
        if let Some(name) = line.strip_prefix("package ") {
            package = name;
        } else if let Some(rest) = line.strip_prefix("struct ") {
            let name = rest.split(' ').next().unwrap_or(rest);
            let id = u32::try_from(ids.len()).expect("fewer than 2^32 types");
            ids.insert((package, name), StructId(id));
        }
    }
    ids
}

/// The lines of a struct that were read so far.
struct StructLines {
    name: String,
    atomic: bool,
    preserve_unknown: bool,
    fields: Vec<Field>,
    embedded: Vec<TagPath>,
}

impl StructLines {
    fn new(package: &str, rest: &str) -> StructLines {
        let mut words = rest.split(' ');
        let name = words.next().unwrap_or_default();
        let mut lines = StructLines {
            name: [package, ".", name].concat(),
            atomic: false,
            preserve_unknown: false,
            fields: vec![],
            embedded: vec![],
        };
        for word in words {
            match word {
                "atomic" => lines.atomic = true,
                "preserve" => lines.preserve_unknown = true,
                other => panic!("types.txt: {other:?} of struct {name}"),
            }
        }
        lines
    }

    fn finish(self) -> Struct {
        let mut finished = Struct::with_embedded(self.name, self.fields, &self.embedded);
        finished.atomic = self.atomic;
        finished.preserve_unknown = self.preserve_unknown;
        finished
    }
}

/// Reads a line about a struct: its kinds, or a message embedded in it.
fn annotation(out: &mut Tables, embedded: &mut Vec<TagPath>, words: &'static str) {
    let id = StructId(u32::try_from(out.structs.len()).expect("fewer than 2^32 types"));
    let mut words = words.split(' ');
    let what = words.next().unwrap_or_default();
    let first = words.next().unwrap_or_default();
    match what {
        "kind" => {
            let (group, version) = first.split_once('/').expect("group/version");
            let kind = words.next().expect("a kind has a name");
            out.kinds.insert(GroupVersionKind::new(group, version, Str::new_static(kind)), id);
        }
        "everywhere" => {
            out.every_version.insert(Str::new_static(first), id);
        }
        "inline" => embedded.push(tag(first)),
        other => panic!("types.txt: {other:?}"),
    }
}

fn tag(text: &str) -> TagPath {
    if text == "-" {
        return TagPath::new();
    }
    let numbers = text.as_bytes().split(|byte| *byte == b'.');
    numbers.map(number).collect()
}

fn number(digits: &[u8]) -> u32 {
    assert!(digits.iter().all(u8::is_ascii_digit), "types.txt: a tag is a number");
    digits.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'))
}

/// Same as [`str::split_once`], which is slower for short texts.
fn split_once(text: &str, byte: u8) -> Option<(&str, &str)> {
    let at = text.bytes().position(|other| other == byte)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

fn field(line: &'static str, package: &'static str, ids: &StructIds) -> Field {
    let mut words = line.split_ascii_whitespace();
    let name = words.next().unwrap_or_default();
    let tags = tag(words.next().unwrap_or_default());
    let kind = words.next().unwrap_or_default();
    let mut shape = shape(kind, package, ids);
    let mut field = Field::new(Str::new_static(name), Shape::Json);
    field.tag = tags;
    field.presence = Presence::OmitEmpty;
    for word in words {
        match split_once(word, b'=') {
            None => flag(word, &mut field, &mut shape),
            Some(("default", json)) => {
                let parsed = crate::json::parse(json.as_bytes());
                field.default = Some(Box::new(parsed.expect("a default is JSON").value));
            }
            Some(("enum", values)) => {
                field.enumeration = values.split('|').map(Str::new_static).collect();
            }
            Some(("listmap", keys)) => {
                let keys = keys.split(',').map(Str::new_static).collect();
                list_of(&mut shape).kind = ListKind::Map(keys);
            }
            Some(("mergekey", key)) => {
                list_of(&mut shape).patch_merge_key = Some(Str::new_static(key));
            }
            Some((other, _)) => panic!("types.txt: {other:?} of {name}"),
        }
    }
    field.shape = shape;
    field
}

fn flag(word: &str, field: &mut Field, shape: &mut Shape) {
    match word {
        "ptr" => field.presence = Presence::Pointer,
        "always" => field.presence = Presence::Always,
        "null" => field.presence = Presence::AlwaysNull,
        "required" => field.required = true,
        "atomic" => match shape {
            Shape::Map(map) => map.atomic = true,
            Shape::List(list) => list.kind = ListKind::Atomic,
            _ => {}
        },
        "set" => list_of(shape).kind = ListKind::Set,
        "granular" => field.granular = true,
        "retainkeys" => field.retain_keys = true,
        "patchreplace" => field.patch_replace = true,
        "patchmerge" => {
            if let Shape::List(list) = shape {
                list.patch_merge = true;
            }
        }
        other => panic!("types.txt: {other:?} of {}", field.name),
    }
}

fn list_of(shape: &mut Shape) -> &mut ListShape {
    match shape {
        Shape::List(list) => list,
        other => panic!("types.txt: a list flag on {other:?}"),
    }
}

fn shape(text: &'static str, package: &'static str, ids: &StructIds) -> Shape {
    if let Some(item) = text.strip_prefix("[]") {
        let item = shape(item, package, ids);
        return Shape::List(Box::new(ListShape::atomic(item)));
    }
    if let Some(value) = text.strip_prefix("{}") {
        let value = shape(value, package, ids);
        return Shape::Map(Box::new(MapShape {
            value,
            nullable: false,
            default: None,
            atomic: false,
        }));
    }
    let schema = || ids[&SCHEMA_PROPS];
    match text {
        "string" => Shape::String,
        "bool" => Shape::Bool,
        "int32" => Shape::Int32,
        "int64" => Shape::Int64,
        "double" => Shape::Double,
        "bytes" => Shape::Bytes,
        "time" => Shape::Time,
        "microtime" => Shape::MicroTime,
        "duration" => Shape::Duration,
        "quantity" => Shape::Quantity,
        "intorstring" => Shape::IntOrString,
        "json" => Shape::Json,
        "raw" => Shape::RawExtension,
        "fieldsv1" => Shape::FieldsV1,
        "schemaorarray" => Shape::SchemaOr(SchemaOr::Array, schema()),
        "schemaorbool" => Shape::SchemaOr(SchemaOr::Bool, schema()),
        "schemaorstrings" => Shape::SchemaOr(SchemaOr::StringArray, schema()),
        name => {
            // A name of another package has its package before it.
            let at = name.bytes().rposition(|byte| byte == b'.');
            let key = at.map_or((package, name), |at| (&name[..at], &name[at + 1..]));
            Shape::Struct(*ids.get(&key).unwrap_or_else(|| panic!("types.txt: no type {name}")))
        }
    }
}
