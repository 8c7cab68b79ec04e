//! Finds the atomic values of an apply configuration, which a MutatingAdmissionPolicy may not set.

use super::MergeKind;
use keelson_meta::{Map, Value};
use keelson_schema::{ListKind, Schema, Shape, Types};

/// Returns the paths of the atomic lists, maps and structs that a configuration sets:
/// `.spec.selector`.
pub fn atomic_paths(schema: &Schema, config: &Map) -> Vec<String> {
    let mut walk = Walk { types: &schema.types, paths: vec![] };
    let root = schema.root();
    for (name, value) in config.iter() {
        if let Some(field) = root.field(name) {
            walk.value(MergeKind::of_field(walk.types, field), value, &format!(".{name}"));
        }
    }
    walk.paths
}

struct Walk<'t> {
    types: &'t Types,
    paths: Vec<String>,
}

impl<'t> Walk<'t> {
    fn value(&mut self, kind: MergeKind<'t>, value: &Value, path: &str) {
        let types = self.types;
        match (kind, value) {
            (MergeKind::Atomic(shape), Value::Object(map)) => {
                self.paths.push(path.to_owned());
                if let Shape::Struct(id) = shape {
                    self.fields(types.get(*id), map, path);
                }
            }
            (MergeKind::Atomic(shape), Value::Array(items)) => {
                self.paths.push(path.to_owned());
                if let Shape::List(list) = shape {
                    self.items(&list.item, items, path);
                }
            }
            (MergeKind::Struct(of), Value::Object(map)) => self.fields(of, map, path),
            (MergeKind::List(list), Value::Array(items)) if list.kind != ListKind::Atomic => {
                self.items(&list.item, items, path);
            }
            _ => {}
        }
    }

    fn fields(&mut self, of: &'t keelson_schema::Struct, map: &Map, path: &str) {
        for (name, value) in map.iter() {
            if let Some(field) = of.field(name) {
                self.value(
                    MergeKind::of_field(self.types, field),
                    value,
                    &format!("{path}.{name}"),
                );
            }
        }
    }

    fn items(&mut self, item: &'t Shape, items: &[Value], path: &str) {
        for (at, value) in items.iter().enumerate() {
            self.value(MergeKind::of(self.types, item), value, &format!("{path}[{at}]"));
        }
    }
}
