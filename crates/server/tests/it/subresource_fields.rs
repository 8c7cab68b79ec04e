//! What each subresource keeps of the metadata, spec and status that a client sends, for every
//! kind, field and verb, compared with a kube-apiserver (`recorded.rs`).

use crate::minimal::{collection, minimal, name, stored_resources};
use crate::recorded::{self, Recorded, outcome};
use keelson_schema::catalogue::{Catalogue, Resource};
use keelson_schema::{Field, Schema, Shape, Types};
use serde_json::{Value, json};

const WIDGETS: &str = "/apis/metadata.test/v1/namespaces/default/widgets";

/// Metadata fields with new values. Name, namespace, uid and resourceVersion are preconditions.
fn fields() -> Vec<(&'static str, Value)> {
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}]);
    vec![
        ("labels", json!({"new": "yes"})),
        ("annotations", json!({"new": "yes"})),
        ("finalizers", json!(["new.test/yes"])),
        ("ownerReferences", owner),
        ("generation", json!(99)),
        ("generateName", json!("new-")),
        ("creationTimestamp", json!("2001-01-01T00:00:00Z")),
        ("deletionTimestamp", json!("2001-01-01T00:00:00Z")),
        ("deletionGracePeriodSeconds", json!(99)),
        ("selfLink", json!("/new")),
    ]
}

/// How often a write is tried again when a control loop has changed the object.
const TRIES_MAX: usize = 20;

/// A field of an object: a member of `metadata`, `spec` or `status`.
type Place<'a> = [&'a str; 2];

/// Sets one field by a verb in a dry run. Returns what became of it.
fn fate(api: &Recorded, target: &Target, verb: &str, place: Place, value: &Value) -> String {
    let [part, field] = place;
    for _ in 0..TRIES_MAX {
        let before = api.send("GET", &target.object, "application/json", "").body;
        let (method, media, mut body) = match verb {
            "update" => ("PUT", "application/json", before.clone()),
            "patch" => ("PATCH", "application/merge-patch+json", json!({})),
            _ => {
                let body = json!({"apiVersion": before["apiVersion"], "kind": before["kind"],
                    "metadata": {"name": before["metadata"]["name"]}});
                ("PATCH", "application/apply-patch+yaml", body)
            }
        };
        body[part][field] = value.clone();
        let query = if verb == "apply" { "&fieldManager=m&force=true" } else { "" };
        let path = format!("{}?dryRun=All{query}", target.path);
        let after = api.send(method, &path, media, &body.to_string());
        let got = &after.body[part][field];
        let had = &before[part][field];
        let owned = if is_owned(&after.body, place) { ", owned" } else { "" };
        match after.code {
            409 => {}
            200 if got == had => return format!("dropped{owned}"),
            200 if contains(got, value) => return format!("kept{owned}"),
            200 => return format!("became {}", without_times(got)),
            _ => return outcome(&after),
        }
    }
    panic!("{} {verb} {field}: always a conflict", target.path);
}

/// Replaces the times that the server has set.
fn without_times(value: &Value) -> Value {
    match value {
        Value::String(text) if text.starts_with("202") && text.ends_with('Z') => json!("<time>"),
        Value::Array(items) => items.iter().map(without_times).collect(),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| (name.clone(), without_times(value));
            Value::Object(members.iter().map(member).collect())
        }
        other => other.clone(),
    }
}

/// What is written, and what is read to see the effect.
struct Target {
    /// The path of the subresource, or of the object.
    path: String,
    /// The path of what a write of `path` sends and returns.
    object: String,
}

/// Whether the manager of a write owns a field through a subresource.
fn is_owned(object: &Value, [part, field]: Place) -> bool {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let own = |entry: &&Value| {
        entry["subresource"].is_string()
            && matches!(entry["manager"].as_str(), Some("m" | "keelson-testkit"))
    };
    let part = format!("f:{part}");
    let field = format!("f:{field}");
    entries.filter(own).any(|entry| !entry["fieldsV1"][&part][&field].is_null())
}

/// Whether a value is another one, or a map with its members.
fn contains(got: &Value, value: &Value) -> bool {
    match (got.as_object(), value.as_object()) {
        (Some(got), Some(value)) => value.iter().all(|(key, value)| got.get(key) == Some(value)),
        _ => got == value,
    }
}

/// Sets each metadata field by each verb. Returns a line for each.
fn lines_of(api: &Recorded, path: &str, subresource: &str) -> Vec<String> {
    let target = Target { path: format!("{path}/{subresource}"), object: path.to_owned() };
    let mut lines = vec![];
    for (field, value) in fields() {
        for verb in ["update", "patch", "apply"] {
            let fate = fate(api, &target, verb, ["metadata", field], &value);
            lines.push(format!("{} {verb} {field}: {fate}", target.path));
        }
    }
    lines
}

/// Returns the names of the subresources that write a part of the object.
fn parts(resource: &Resource) -> Vec<&str> {
    let is_part = |name: &&str| {
        matches!(*name, "status" | "approval" | "ephemeralcontainers" | "resize" | "finalize")
    };
    resource.subresources.iter().map(|sub| sub.name.as_str()).filter(is_part).collect()
}

#[test]
fn subresources_keep_the_metadata_that_kube_apiserver_keeps() {
    let api = recorded::start();
    let account = json!({"metadata": {"name": "default"}});
    api.prepare("POST", "/api/v1/namespaces/default/serviceaccounts", &account);
    let mut lines = vec![];
    for resource in stored_resources() {
        let parts = parts(resource);
        if parts.is_empty() {
            continue;
        }
        let all = collection(resource);
        api.prepare("POST", &all, &minimal(resource));
        let one = format!("{all}/{}", name(&resource.name));
        for part in parts {
            lines.extend(lines_of(&api, &one, part));
        }
    }
    let definition = json!({"metadata": {"name": "widgets.metadata.test"}, "spec": {
        "group": "metadata.test", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    api.prepare("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
    api.wait_until_served(WIDGETS);
    let widget = json!({"apiVersion": "metadata.test/v1", "kind": "Widget",
        "metadata": {"name": "w"}});
    api.prepare("POST", WIDGETS, &widget);
    lines.extend(lines_of(&api, &format!("{WIDGETS}/w"), "status"));
    api.end("subresource_metadata.txt", &lines);
}

/// Resources to whose objects the server itself adds conditions, soon after they are created.
const CONDITIONED: [&str; 3] = ["apiservices", "customresourcedefinitions", "flowschemas"];
/// How deep values are generated.
const DEPTH_MAX: usize = 4;

/// Returns a value of a field's type that differs from the one before where its type allows it: the
/// required members of structs, or their first, lists and maps of one item.
fn sample(types: &Types, field: &Field, had: &Value, depth: usize) -> Value {
    if !field.enumeration.is_empty() && matches!(field.shape, Shape::String) {
        let mut others = field.enumeration.iter().filter(|value| had != value.as_str());
        return others.next_back().map_or(Value::Null, |value| json!(value.as_str()));
    }
    sample_of(types, &field.shape, had, depth)
}

fn sample_of(types: &Types, shape: &Shape, had: &Value, depth: usize) -> Value {
    match shape {
        Shape::String | Shape::Formatted => json!("new"),
        Shape::Bool => json!(had != &json!(true)),
        Shape::Int32 | Shape::Int64 | Shape::Double | Shape::Number | Shape::IntOrString => {
            json!(had.as_i64().unwrap_or(6) + 1)
        }
        Shape::Bytes => json!("bmV3"),
        Shape::Time => json!("2001-01-01T00:00:00Z"),
        Shape::MicroTime => json!("2001-01-01T00:00:00.000000Z"),
        Shape::Duration => json!("7s"),
        Shape::Quantity => json!("7"),
        Shape::Json | Shape::RawExtension | Shape::FieldsV1 => json!({"new": "yes"}),
        Shape::SchemaOr(..) => json!({}),
        Shape::List(list) => json!([sample_of(types, &list.item, &Value::Null, depth + 1)]),
        Shape::Map(map) => json!({"new": sample_of(types, &map.value, &Value::Null, depth + 1)}),
        Shape::Struct(_) if depth > DEPTH_MAX => json!({}),
        Shape::Struct(id) => {
            let fields = &types.get(*id).fields;
            let mut members: Vec<&Field> = fields.iter().filter(|field| field.required).collect();
            if members.is_empty() {
                members.extend(fields.first());
            }
            let member = |field: &&Field| {
                let value = sample(types, field, &had[field.name.as_str()], depth + 1);
                (field.name.to_string(), value)
            };
            Value::Object(members.iter().map(member).collect())
        }
    }
}

/// Returns the fields of `spec` and `status` of a kind, with a value for each.
fn places<'s>(schema: &'s Schema, object: &Value) -> Vec<(Place<'s>, Value)> {
    let mut places = vec![];
    for part in ["spec", "status"] {
        let Some(Shape::Struct(id)) = schema.root().field(part).map(|field| &field.shape) else {
            continue;
        };
        for field in &schema.types.get(*id).fields {
            let name = field.name.as_str();
            places.push(([part, name], sample(&schema.types, field, &object[part][name], 0)));
        }
    }
    places
}

/// Sets each field of `places` by each verb. Returns a line for each field, with equal fates
/// joined.
fn fates_of(api: &Recorded, target: &Target, places: &[(Place, Value)]) -> Vec<String> {
    let mut lines = vec![];
    for (place, value) in places {
        let mut fates: Vec<(String, Vec<&str>)> = vec![];
        for verb in ["update", "patch", "apply"] {
            let fate = fate(api, target, verb, *place, value);
            match fates.iter_mut().find(|(other, _)| *other == fate) {
                Some((_, verbs)) => verbs.push(verb),
                None => fates.push((fate, vec![verb])),
            }
        }
        let fates: Vec<String> =
            fates.iter().map(|(fate, verbs)| format!("{} {fate}", verbs.join(","))).collect();
        lines.push(format!("{} {}: {}", target.path, place.join("."), fates.join("; ")));
    }
    lines
}

/// Returns the lines of the subresources of a resource, and of the statuses that are written
/// without them.
fn fates_of_resource(api: &Recorded, resource: &Resource) -> Vec<String> {
    let catalogue = Catalogue::shared();
    let path = format!("{}/{}", collection(resource), name(&resource.name));
    let object = api.send("GET", &path, "application/json", "").body;
    let schema = catalogue.schema(&resource.kind).expect("the schema of a resource");
    let mut own = places(&schema, &object);
    let mut lines = vec![];
    for part in parts(resource) {
        let target = Target { path: format!("{path}/{part}"), object: path.clone() };
        lines.extend(fates_of(api, &target, &own));
    }
    own.retain(|(place, _)| place[0] == "status");
    lines.extend(fates_of(api, &Target { path: path.clone(), object: path.clone() }, &own));
    if let Some(scale) = resource.subresource("scale") {
        let path = format!("{path}/scale");
        let object = api.send("GET", &path, "application/json", "").body;
        let schema = catalogue.schema(&scale.kind).expect("the schema of scales");
        let mut own = places(&schema, &object);
        own.extend(fields().into_iter().map(|(field, value)| (["metadata", field], value)));
        lines.extend(fates_of(api, &Target { path: path.clone(), object: path }, &own));
    }
    lines
}

#[test]
fn subresources_keep_the_spec_and_status_that_kube_apiserver_keeps() {
    let api = recorded::start_with(|options| options.chain = keelson_admission::Chain::default());
    let account = json!({"metadata": {"name": "default"}});
    api.prepare("POST", "/api/v1/namespaces/default/serviceaccounts", &account);
    let mut lines = vec![];
    for resource in stored_resources() {
        if parts(resource).is_empty() {
            continue;
        }
        api.prepare("POST", &collection(resource), &minimal(resource));
        if CONDITIONED.contains(&resource.name.as_str()) {
            let path = format!("{}/{}", collection(resource), name(&resource.name));
            api.wait_until(&path, |object| object["status"]["conditions"].is_array());
        }
        lines.extend(fates_of_resource(&api, resource));
    }
    api.end("subresource_fields.txt", &lines);
}
