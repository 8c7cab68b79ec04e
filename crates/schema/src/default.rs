//! Applies the defaults of a schema.

use crate::types::{Schema, Shape, Struct, Types};
use keelson_meta::{Growth, Map, Object, Overgrown, Value};

/// Sets the defaults of unset fields in every struct that is present. After an error, only some of
/// them are set: a large default in each of many items, or defaults within defaults, would take any
/// amount of memory.
pub fn fill(schema: &Schema, obj: &mut Object) -> Result<(), Overgrown> {
    members(&schema.types, schema.root(), &mut obj.root, &mut Growth::default())
}

fn members(
    types: &Types,
    struct_type: &Struct,
    map: &mut Map,
    growth: &mut Growth,
) -> Result<(), Overgrown> {
    for field in &struct_type.fields {
        if let Some(default) = &field.default
            && map.get(&field.name).is_none_or(|value| value.is_null() && !field.nullable)
        {
            growth.add_member(&field.name, default)?;
            map.insert(field.name.clone(), Value::clone(default));
        }
    }
    for (key, value) in map.iter_mut() {
        if let Some(field) = struct_type.field(key) {
            walk(types, &field.shape, value, growth)?;
        }
    }
    Ok(())
}

fn walk(
    types: &Types,
    shape: &Shape,
    value: &mut Value,
    growth: &mut Growth,
) -> Result<(), Overgrown> {
    match (shape, value) {
        (Shape::Struct(id), Value::Object(map)) => {
            members(types, types.get(*id), map, growth)?;
        }
        (Shape::List(list), Value::Array(items)) => {
            for item in items.iter_mut() {
                replace_null(list.default.as_deref(), item, growth)?;
            }
            if holds_structs(&list.item) {
                for item in items {
                    walk(types, &list.item, item, growth)?;
                }
            }
        }
        (Shape::Map(shape), Value::Object(map)) => {
            for (_, item) in map.iter_mut() {
                replace_null(shape.default.as_deref(), item, growth)?;
            }
            if holds_structs(&shape.value) {
                for (_, item) in map.iter_mut() {
                    walk(types, &shape.value, item, growth)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Replaces a null item or value by its default.
fn replace_null(
    default: Option<&Value>,
    item: &mut Value,
    growth: &mut Growth,
) -> Result<(), Overgrown> {
    if let Some(default) = default.filter(|_| item.is_null()) {
        growth.add_member("", default)?;
        *item = default.clone();
    }
    Ok(())
}

fn holds_structs(shape: &Shape) -> bool {
    match shape {
        Shape::Struct(_) => true,
        Shape::List(list) => holds_structs(&list.item),
        Shape::Map(map) => holds_structs(&map.value),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;
    use keelson_meta::{GroupVersionKind, value};

    /// kube-apiserver 1.36 stores and returns these values.
    #[test]
    fn pointers_with_a_zero_default_are_set() {
        let gvk = GroupVersionKind::new("", "v1", "Pod");
        let schema = Catalogue::shared().schema(&gvk).expect("built in");
        let pod = value!({"spec": {
            "containers": [{"name": "a", "livenessProbe": {"grpc": {"port": 9000}}}],
            "volumes": [{"name": "d", "azureDisk": {"diskName": "d"}}],
        }});
        let mut pod = Object::from_value(pod).expect("a map");
        fill(&schema, &mut pod).expect("a small object");
        let container = &pod.array_at(&["spec", "containers"])[0];
        let service = container.str_at(&["livenessProbe", "grpc", "service"]);
        assert_eq!(service, Some(""));
        let volume = &pod.array_at(&["spec", "volumes"])[0];
        assert_eq!(volume.at(&["azureDisk", "readOnly"]), Some(&Value::Bool(false)));
    }
}
