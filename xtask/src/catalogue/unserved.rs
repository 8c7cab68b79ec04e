//! Schemas, in the form of OpenAPI, of types that only the descriptors know: kinds of versions that no
//! server has any more, options that travel in a query, answers in a form of their own. What descriptors
//! do not say is taken from the type of the same name in a version that is served, else from
//! `supplement.txt`.

use super::descriptors::{Messages, ProtoField};
use super::presence::{Facts, Presence};
use super::supplement::{Notes, Supplement};
use super::types::{Schemas, TYPE_META, is_message, openapi_name, plain_name, proto_name};
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Types whose zero value is written in place of none.
const METADATA: [&str; 2] = [
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
];

const KINDS: &str = "x-kubernetes-group-version-kind";

/// The kind that tells which group versions there are.
const EVERYWHERE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

/// What types are made from.
pub struct Sources<'a> {
    /// Of OpenAPI.
    pub served: &'a Schemas,
    /// Of the descriptors.
    pub messages: &'a Messages,
    /// Of `supplement.txt`.
    pub supplement: &'a Supplement,
}

impl Sources<'_> {
    /// The schemas of all unserved types, and what is known of the presence of their members, which is
    /// added to `presence`.
    pub fn schemas(&self, presence: &mut Presence) -> Result<Schemas> {
        let mut out = self.kinds()?;
        let mut wanted: Vec<String> = out.keys().cloned().collect();
        let mut seen = BTreeSet::new();
        while let Some(name) = wanted.pop() {
            if self.served.contains_key(&name) || !seen.insert(name.clone()) {
                continue;
            }
            let (mut schema, facts) = self.schema(&name, presence).with_context(|| name.clone())?;
            wanted.extend(references(&schema));
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

    /// The types that are kinds, and of which.
    fn kinds(&self) -> Result<Schemas> {
        let mut out = Schemas::new();
        for kinds in &self.supplement.kinds {
            for name in &kinds.names {
                let mut both = vec![name.clone()];
                both.push(format!("{name}List"));
                both.retain(|name| {
                    let message = proto_name(&format!("{}.{name}", kinds.package));
                    self.messages.contains_key(&message)
                });
                if both.first() != Some(name) {
                    bail!("there is no message {}.{name}", kinds.package);
                }
                for name in both {
                    let full = format!("{}.{name}", kinds.package);
                    let entry = out.entry(full).or_insert_with(|| json!({KINDS: []}));
                    let listed = entry[KINDS].as_array_mut().context("a list of kinds")?;
                    listed.extend(self.group_versions(&kinds.group_version, &name)?);
                }
            }
        }
        Ok(out)
    }

    fn group_versions(&self, group_version: &str, kind: &str) -> Result<Vec<Value>> {
        if let Some((group, version)) = group_version.split_once('/') {
            return Ok(vec![json!({"group": group, "version": version, "kind": kind})]);
        }
        let all = self.served.get(EVERYWHERE).and_then(|schema| schema.get(KINDS));
        let mut all = all.and_then(Value::as_array).context("no group versions")?.clone();
        for place in &mut all {
            place["kind"] = kind.into();
        }
        Ok(all)
    }

    fn schema(&self, name: &str, presence: &Presence) -> Result<(Value, Facts)> {
        let none = Notes::default();
        let notes = self.supplement.facts.get(name).unwrap_or(&none);
        let sibling = self.sibling(name);
        let served = sibling.as_ref().and_then(|name| self.served.get(name));
        let mut facts = sibling.as_ref().and_then(|name| presence.get(name).cloned());
        let facts = facts.get_or_insert_default();
        let mut made = Made { notes, served, properties: Map::new(), required: vec![] };
        self.members(&proto_name(name), facts, &mut made)?;
        for member in made.properties.keys().filter(|member| notes.presence.names(member)) {
            facts.forget(member);
            facts.take(&notes.presence, member);
        }
        let mut schema = json!({"type": "object", "properties": made.properties});
        if !made.required.is_empty() {
            schema["required"] = made.required.into();
        }
        if let Some(map_type) = served.and_then(|served| served.get("x-kubernetes-map-type")) {
            schema["x-kubernetes-map-type"] = map_type.clone();
        }
        Ok((schema, std::mem::take(facts)))
    }

    /// The members of a message; those of messages that Go inlines are members of the same type.
    fn members(&self, message: &str, facts: &mut Facts, out: &mut Made) -> Result<()> {
        let fields = self.messages.get(message).context("no such message")?;
        for field in fields {
            if out.is_inlined(field) {
                self.members(&field.type_name, facts, out)?;
                continue;
            }
            let (member, known) = out.member(field);
            let mut schema = self.field(message, field)?;
            let same_form = known.filter(|known| form(known) == form(&schema));
            let is_told = out.notes.presence.names(&member) || out.notes.omit.contains(&member);
            if let Some(known) = same_form {
                let reference = references(&schema).pop();
                schema = (*known).clone();
                redirect(&mut schema, reference.as_deref());
                if is_told {
                    schema.as_object_mut().context("an object")?.remove("default");
                }
            }
            let required = out.served.and_then(|served| served.get("required"));
            let required = required.and_then(Value::as_array).into_iter().flatten();
            if !is_told && required.into_iter().any(|other| *other == *member) {
                out.required.push(member.clone());
            }
            if out.notes.omit.contains(&member) {
                facts.forget(&member);
            }
            let is_value = out.notes.presence.always.contains(&member)
                && !out.notes.presence.pointer.contains(&member);
            let is_metadata = METADATA.iter().any(|name| references(&schema) == [*name]);
            if (is_value || is_metadata) && form(&schema).starts_with('#') {
                schema["default"] = json!({});
            }
            out.properties.insert(member, schema);
        }
        Ok(())
    }

    /// What a field of a message alone tells.
    fn field(&self, message: &str, field: &ProtoField) -> Result<Value> {
        if let Some([_, value]) = self.entry(message, field) {
            return Ok(json!({"type": "object", "additionalProperties": self.value(value)?}));
        }
        let value = self.value(field)?;
        Ok(if field.repeated { json!({"type": "array", "items": value}) } else { value })
    }

    /// Key and value of a map.
    fn entry(&self, message: &str, field: &ProtoField) -> Option<&[ProtoField; 2]> {
        let is_nested = field.type_name.strip_prefix(message)?.starts_with('.');
        let fields = self.messages.get(&field.type_name)?;
        fields.as_slice().try_into().ok().filter(|_| is_nested && field.repeated)
    }

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
                    // A Go list with a name of its own.
                    [items]
                        if items.repeated && items.name == "items" && !self.is_served(&name) =>
                    {
                        json!({"type": "array", "items": self.value(items)?})
                    }
                    _ => json!({"$ref": format!("#/components/schemas/{name}")}),
                }
            }
            other => bail!("type {other} of a field"),
        })
    }

    fn is_served(&self, name: &str) -> bool {
        self.served.contains_key(name)
    }

    /// A type that is served and has the same name: in another version of the group, or in a package that
    /// the supplement names.
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
        // `v1` before `v1beta1`.
        self.served.keys().filter(is_sibling).min_by_key(|name| (name.len(), *name)).cloned()
    }
}

/// A schema in the making.
struct Made<'a> {
    notes: &'a Notes,
    served: Option<&'a Value>,
    properties: Map<String, Value>,
    required: Vec<String>,
}

impl<'a> Made<'a> {
    /// The sibling's member of the same name.
    fn known(&self, field: &str) -> Option<(&'a String, &'a Value)> {
        let properties = self.served?.get("properties")?.as_object()?;
        let plain = plain_name(field);
        properties.iter().find(|(name, _)| plain_name(name) == plain)
    }

    fn is_inlined(&self, field: &ProtoField) -> bool {
        self.notes.inline.contains(&field.name) && is_message(field)
    }

    /// The member's name, and the sibling's schema of it.
    fn member(&self, field: &ProtoField) -> (String, Option<&'a Value>) {
        let known = self.known(&field.name);
        let name = match (self.notes.rename.get(&field.name), known) {
            (Some(name), _) => name.clone(),
            (None, Some((name, _))) => name.clone(),
            (None, None) => {
                let mut letters = field.name.chars();
                letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect()
            }
        };
        (name, known.map(|(_, schema)| schema))
    }
}

/// The names that a schema refers to, in order.
fn references(schema: &Value) -> Vec<String> {
    let mut out = vec![];
    walk(&mut schema.clone(), &mut |name| out.push(name.clone()));
    out
}

/// Points a schema's reference to another type.
fn redirect(schema: &mut Value, to: Option<&str>) {
    walk(schema, &mut |name| {
        if let Some(to) = to {
            *name = to.to_owned();
        }
    });
}

/// Calls `visit` with every name that a schema refers to, and keeps what it leaves there.
fn walk(schema: &mut Value, visit: &mut dyn FnMut(&mut String)) {
    match schema {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if key == "$ref" => {
                        let mut name = text.rsplit('/').next().unwrap_or_default().to_owned();
                        visit(&mut name);
                        *text = format!("#/components/schemas/{name}");
                    }
                    other => walk(other, visit),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, visit)),
        _ => {}
    }
}

/// What two schemas of members must have in common: `[string`, `#ObjectMeta`, `integer int32`.
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
