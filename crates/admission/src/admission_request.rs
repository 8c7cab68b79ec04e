//! `AdmissionRequest` without its objects: the request of a review and the CEL variable `request`.

use crate::attributes::Attributes;
use keelson_auth::User;
use keelson_meta::{GroupVersionKind, GroupVersionResource, Map, Str, Value};

/// Returns the fields of an `AdmissionRequest` in the order of the API, without `uid`, `object` and
/// `oldObject`. `resource` and `kind` are those that a rule matched.
pub(crate) fn admission_request(
    attributes: &Attributes<'_>,
    resource: &GroupVersionResource,
    kind: &GroupVersionKind,
) -> Map {
    let mut request = Map::with_capacity(12);
    request.insert("kind", kind_value(kind));
    request.insert("resource", resource_value(resource));
    let subresource = attributes.subresource;
    insert_text(&mut request, "subResource", subresource);
    request.insert("requestKind", kind_value(attributes.kind));
    request.insert("requestResource", resource_value(attributes.resource));
    insert_text(&mut request, "requestSubResource", subresource);
    insert_text(&mut request, "name", attributes.name);
    insert_text(&mut request, "namespace", attributes.namespace);
    request.insert("operation", attributes.operation.name());
    request.insert("userInfo", user_info(attributes.user));
    request.insert("dryRun", attributes.dry_run);
    request.insert("options", attributes.options.clone());
    request
}

fn insert_text(map: &mut Map, name: &'static str, text: &str) {
    if !text.is_empty() {
        map.insert(name, text);
    }
}

fn kind_value(kind: &GroupVersionKind) -> Value {
    let mut map = Map::with_capacity(3);
    map.insert("group", kind.group.clone());
    map.insert("version", kind.version.clone());
    map.insert("kind", kind.kind.clone());
    Value::Object(map)
}

fn resource_value(resource: &GroupVersionResource) -> Value {
    let mut map = Map::with_capacity(3);
    map.insert("group", resource.group.clone());
    map.insert("version", resource.version.clone());
    map.insert("resource", resource.resource.clone());
    Value::Object(map)
}

fn user_info(user: &User) -> Value {
    let mut info = Map::with_capacity(4);
    insert_text(&mut info, "username", &user.name);
    insert_text(&mut info, "uid", &user.uid);
    if !user.groups.is_empty() {
        info.insert("groups", texts(&user.groups));
    }
    if !user.extra.is_empty() {
        let mut extra = Map::new();
        for (name, values) in &user.extra {
            extra.insert(name.clone(), texts(values));
        }
        info.insert("extra", extra);
    }
    Value::Object(info)
}

fn texts(list: &[Str]) -> Value {
    Value::Array(list.iter().cloned().map(Value::from).collect())
}
