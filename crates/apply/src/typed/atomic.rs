//! Finds what has one owner as a whole: an apply configuration of a mutating policy may not set it.

use super::Kind;
use keelson_meta::{Map, Value};
use keelson_schema::{ListKind, Schema, Shape, Types};

/// The paths of the atomic lists, maps and structs that a configuration sets: `.spec.selector`.
pub fn atomics(schema: &Schema, config: &Map) -> Vec<String> {
    let mut walk = Walk { types: &schema.types, found: vec![] };
    let root = schema.root();
    for (name, value) in config.iter() {
        if let Some(field) = root.field(name) {
            walk.value(Kind::of_field(walk.types, field), value, &format!(".{name}"));
        }
    }
    walk.found
}

struct Walk<'t> {
    types: &'t Types,
    found: Vec<String>,
}

impl<'t> Walk<'t> {
    fn value(&mut self, kind: Kind<'t>, value: &Value, path: &str) {
        let types = self.types;
        match (kind, value) {
            (Kind::Atomic(shape), Value::Object(map)) => {
                self.found.push(path.to_owned());
                if let Shape::Struct(id) = shape {
                    self.fields(types.get(*id), map, path);
                }
            }
            (Kind::Atomic(shape), Value::Array(items)) => {
                self.found.push(path.to_owned());
                if let Shape::List(list) = shape {
                    self.items(&list.item, items, path);
                }
            }
            (Kind::Struct(of), Value::Object(map)) => self.fields(of, map, path),
            (Kind::List(list), Value::Array(items)) if list.kind != ListKind::Atomic => {
                self.items(&list.item, items, path);
            }
            _ => {}
        }
    }

    fn fields(&mut self, of: &'t keelson_schema::Struct, map: &Map, path: &str) {
        for (name, value) in map.iter() {
            if let Some(field) = of.field(name) {
                self.value(Kind::of_field(self.types, field), value, &format!("{path}.{name}"));
            }
        }
    }

    fn items(&mut self, item: &'t Shape, items: &[Value], path: &str) {
        for (at, value) in items.iter().enumerate() {
            self.value(Kind::of(self.types, item), value, &format!("{path}[{at}]"));
        }
    }
}
