//! Builds OpenAPI schemas of types that no OpenAPI document contains: kinds of removed versions,
//! options that are sent as query parameters, and responses that are not objects. Names and types
//! of the fields come from the protobuf descriptors. The rest comes from the sibling, which is the
//! type of the same name in a served version, or from `supplement.txt`.

use super::descriptors::{Messages, ProtoField};
use super::presence::{Facts, Presence};
use super::supplement::{Supplement, TypeSupplement};
use super::types::{Schemas, TYPE_META, is_message, openapi_name, plain_name, proto_name};
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Types that are written as `{}` when unset.
const METADATA: [&str; 2] = [
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
];

const KINDS: &str = "x-kubernetes-group-version-kind";

/// A kind that is in every group version.
const EVERYWHERE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// The sources of the schemas.
pub struct Sources<'a> {
    /// The schemas of the OpenAPI documents.
    pub served: &'a Schemas,
    /// The messages of the descriptors.
    pub messages: &'a Messages,
    /// The content of `supplement.txt`.
    pub supplement: &'a Supplement,
}

impl Sources<'_> {
    /// Returns the schemas of the kinds in `supplement.txt` and of all types that they refer to.
    /// Adds the facts about their members to `presence`.
    pub fn schemas(&self, presence: &mut Presence) -> Result<Schemas> {
        let mut out = self.kinds()?;
        let mut pending: Vec<String> = out.keys().cloned().collect();
        let mut visited = BTreeSet::new();
        while let Some(name) = pending.pop() {
            if self.served.contains_key(&name) || !visited.insert(name.clone()) {
                continue;
            }
            let (mut schema, facts) = self.schema(&name, presence).with_context(|| name.clone())?;
            pending.extend(references(&schema));
            if let Some(kinds) = out.get(&name).and_then(|kinds| kinds.get(KINDS)) {
                for member in TYPE_META {
                    schema["properties"][member] = json!({"type": "string"});
                }
                schema[KINDS] = kinds.clone();
            }
            out.insert(name.clone(), schema);
            presence.insert(name, facts);
        }
        Ok(out)
    }

    /// Returns the types of the kinds in `supplement.txt`, with their groups, versions and kinds
    /// only.
    fn kinds(&self) -> Result<Schemas> {
        let mut out = Schemas::new();
        for kinds in &self.supplement.kinds {
            for name in &kinds.names {
                let mut kind_and_list = vec![name.clone(), format!("{name}List")];
                kind_and_list.retain(|name| {
                    let message = proto_name(&format!("{}.{name}", kinds.package));
                    self.messages.contains_key(&message)
                });
                if kind_and_list.first() != Some(name) {
                    bail!("there is no message {}.{name}", kinds.package);
                }
                for name in kind_and_list {
                    let full = format!("{}.{name}", kinds.package);
                    let entry = out.entry(full).or_insert_with(|| json!({KINDS: []}));
                    let listed = entry[KINDS].as_array_mut().context("a list of kinds")?;
                    listed.extend(self.group_versions(&kinds.group_version, &name)?);
                }
            }
        }
        Ok(out)
    }

    /// Returns `x-kubernetes-group-version-kind` of a kind; `*` stands for all group versions.
    fn group_versions(&self, group_version: &str, kind: &str) -> Result<Vec<Value>> {
        if let Some((group, version)) = group_version.split_once('/') {
            return Ok(vec![json!({"group": group, "version": version, "kind": kind})]);
        }
        let mut all = self
            .served
            .get(EVERYWHERE)
            .and_then(|schema| schema.get(KINDS))
            .and_then(Value::as_array)
            .context("no group versions")?
            .clone();
        for group_version_kind in &mut all {
            group_version_kind["kind"] = kind.into();
        }
        Ok(all)
    }

    /// Returns the schema of a type and the facts about its members.
    fn schema(&self, name: &str, presence: &Presence) -> Result<(Value, Facts)> {
        let none = TypeSupplement::default();
        let supplement = self.supplement.types.get(name).unwrap_or(&none);
        let sibling = self.sibling(name);
        let sibling_schema = sibling.as_ref().and_then(|name| self.served.get(name));
        let mut facts = sibling.as_ref().and_then(|name| presence.get(name).cloned());
        let facts = facts.get_or_insert_default();
        let mut builder = SchemaBuilder {
            supplement,
            sibling: sibling_schema,
            properties: Map::new(),
            required: vec![],
        };
        self.members(&proto_name(name), facts, &mut builder)?;
        let properties = builder.properties;
        for member in properties.keys().filter(|member| supplement.presence.contains(member)) {
            facts.remove(member);
            facts.copy_from(&supplement.presence, member);
        }
        let mut schema = json!({"type": "object", "properties": properties});
        if !builder.required.is_empty() {
            schema["required"] = builder.required.into();
        }
        let map_type = sibling_schema.and_then(|sibling| sibling.get("x-kubernetes-map-type"));
        if let Some(map_type) = map_type {
            schema["x-kubernetes-map-type"] = map_type.clone();
        }
        Ok((schema, std::mem::take(facts)))
    }

    /// Adds the members of a message. The members of messages that Go inlines become members of the
    /// same type.
    fn members(&self, message: &str, facts: &mut Facts, out: &mut SchemaBuilder) -> Result<()> {
        let fields = self.messages.get(message).context("no such message")?;
        for field in fields {
            if out.is_inlined(field) {
                self.members(&field.type_name, facts, out)?;
                continue;
            }
            let (member, in_sibling) = out.member(field);
            let mut schema = self.field(message, field)?;
            let same_form = in_sibling.filter(|other| form(other) == form(&schema));
            let supplement = out.supplement;
            let is_supplemented =
                supplement.presence.contains(&member) || supplement.omit.contains(&member);
            if let Some(other) = same_form {
                let reference = references(&schema).pop();
                schema = (*other).clone();
                redirect(&mut schema, reference.as_deref());
                if is_supplemented {
                    schema.as_object_mut().context("an object")?.remove("default");
                }
            }
            let required = out
                .sibling
                .and_then(|sibling| sibling.get("required"))
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            if !is_supplemented && required.into_iter().any(|other| *other == *member) {
                out.required.push(member.clone());
            }
            if supplement.omit.contains(&member) {
                facts.remove(&member);
            }
            let is_value = supplement.presence.always.contains(&member)
                && !supplement.presence.pointer.contains(&member);
            let is_metadata = METADATA.iter().any(|name| references(&schema) == [*name]);
            if (is_value || is_metadata) && form(&schema).starts_with('#') {
                schema["default"] = json!({});
            }
            out.properties.insert(member, schema);
        }
        Ok(())
    }

    /// Returns the schema of a field by its descriptor alone.
    fn field(&self, message: &str, field: &ProtoField) -> Result<Value> {
        if let Some([_, value]) = self.map_entry(message, field) {
            return Ok(json!({"type": "object", "additionalProperties": self.value(value)?}));
        }
        let value = self.value(field)?;
        Ok(if field.repeated { json!({"type": "array", "items": value}) } else { value })
    }

    /// Returns the fields for key and value, if the field is a map.
    fn map_entry(&self, message: &str, field: &ProtoField) -> Option<&[ProtoField; 2]> {
        let is_nested = field.type_name.strip_prefix(message)?.starts_with('.');
        let fields = self.messages.get(&field.type_name)?;
        fields.as_slice().try_into().ok().filter(|_| is_nested && field.repeated)
    }

    /// Returns the schema of one value of a field.
    fn value(&self, field: &ProtoField) -> Result<Value> {
        Ok(match field.kind {
            1 => json!({"type": "number", "format": "double"}),
            3 => json!({"type": "integer", "format": "int64"}),
            5 => json!({"type": "integer", "format": "int32"}),
            8 => json!({"type": "boolean"}),
            9 => json!({"type": "string"}),
            12 => json!({"type": "string", "format": "byte"}),
            11 => {
                let name = openapi_name(&field.type_name);
                let fields = self.messages.get(&field.type_name).context("no such message")?;
                match &fields[..] {
                    // A named list type of Go, which protobuf wraps in a message.
                    [items]
                        if items.repeated && items.name == "items" && !self.is_served(&name) =>
                    {
                        json!({"type": "array", "items": self.value(items)?})
                    }
                    _ => json!({"$ref": format!("#/components/schemas/{name}")}),
                }
            }
            other => bail!("unknown field type {other}"),
        })
    }

    fn is_served(&self, name: &str) -> bool {
        self.served.contains_key(name)
    }

    /// Returns the full name of the served type of the same name, in another version of the group
    /// or in a package that `supplement.txt` names.
    fn sibling(&self, name: &str) -> Option<String> {
        let (package, short) = name.rsplit_once('.')?;
        let (family, _) = package.rsplit_once('.')?;
        if let Some(others) = self.supplement.like.get(package) {
            let mut others = others.iter().map(|other| format!("{other}.{short}"));
            return others.find(|name| self.is_served(name));
        }
        let is_sibling = |other: &&String| {
            other
                .strip_prefix(family)
                .and_then(|rest| rest.strip_prefix('.'))
                .is_some_and(|rest| rest.split_once('.').is_some_and(|(_, other)| other == short))
        };
        // The shortest name is first: `v1` before `v1beta1`.
        self.served.keys().filter(is_sibling).min_by_key(|name| (name.len(), *name)).cloned()
    }
}

/// Collects the members of a schema.
struct SchemaBuilder<'a> {
    supplement: &'a TypeSupplement,
    /// The schema of the sibling.
    sibling: Option<&'a Value>,
    properties: Map<String, Value>,
    required: Vec<String>,
}

impl<'a> SchemaBuilder<'a> {
    /// Returns the sibling's member for a field.
    fn sibling_member(&self, field: &str) -> Option<(&'a String, &'a Value)> {
        let properties = self.sibling?.get("properties")?.as_object()?;
        let plain = plain_name(field);
        properties.iter().find(|(name, _)| plain_name(name) == plain)
    }

    fn is_inlined(&self, field: &ProtoField) -> bool {
        self.supplement.inline.contains(&field.name) && is_message(field)
    }

    /// Returns the member's name and its schema in the sibling.
    fn member(&self, field: &ProtoField) -> (String, Option<&'a Value>) {
        let in_sibling = self.sibling_member(&field.name);
        let name = match (self.supplement.rename.get(&field.name), in_sibling) {
            (Some(name), _) => name.clone(),
            (None, Some((name, _))) => name.clone(),
            (None, None) => {
                let mut letters = field.name.chars();
                letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect()
            }
        };
        (name, in_sibling.map(|(_, schema)| schema))
    }
}

/// Returns the types that a schema refers to, in order.
fn references(schema: &Value) -> Vec<String> {
    let mut out = vec![];
    walk_references(&mut schema.clone(), &mut |name| out.push(name.clone()));
    out
}

/// Changes the references of a schema to another type.
fn redirect(schema: &mut Value, to: Option<&str>) {
    walk_references(schema, &mut |name| {
        if let Some(to) = to {
            *name = to.to_owned();
        }
    });
}

/// Calls `visit` with the name in each reference of a schema. `visit` may change the name.
fn walk_references(schema: &mut Value, visit: &mut dyn FnMut(&mut String)) {
    match schema {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if key == "$ref" => {
                        let mut name = text.rsplit('/').next().unwrap_or_default().to_owned();
                        visit(&mut name);
                        *text = format!("#/components/schemas/{name}");
                    }
                    other => walk_references(other, visit),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk_references(item, visit)),
        _ => {}
    }
}

/// Returns the form of a schema, such as `[string`, `#ObjectMeta` or `integer int32`. Members whose
/// forms differ are not taken from the sibling.
fn form(schema: &Value) -> String {
    if let Some(name) = super::types::reference(schema) {
        return format!("#{}", name.rsplit('.').next().unwrap_or_default());
    }
    let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
    match (text("type"), schema.get("items"), schema.get("additionalProperties")) {
        (_, Some(items), _) => format!("[{}", form(items)),
        (_, _, Some(value)) => format!("{{{}", form(value)),
        ("string", ..) if text("format") != "byte" => "string".to_owned(),
        (kind, ..) => format!("{kind} {}", text("format")),
    }
}
