//! `types.txt`: one block for each struct, one line for each field.

use super::descriptors::{Messages, ProtoField};
use super::presence::{Facts, Presence};
use anyhow::{Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// OpenAPI schemas by full name.
pub type Schemas = BTreeMap<String, Value>;

/// Types with a JSON form of their own, which a list of fields cannot describe.
const SHAPES: &[(&str, &str)] = &[
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "quantity"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "time"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "microtime"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Duration", "duration"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "fieldsv1"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "raw"),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "intorstring"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", "json"),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
        "schemaorarray",
    ),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
        "schemaorbool",
    ),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
        "schemaorstrings",
    ),
];

/// A kind in this many group versions or more, such as DeleteOptions, is in all of them. It is
/// written as `everywhere` instead of with a list.
const EVERYWHERE_MIN: usize = 10;

/// The members of TypeMeta, which Go inlines, in the order of the Go struct.
pub(super) const TYPE_META: [&str; 2] = ["kind", "apiVersion"];

/// Adds the schemas of one OpenAPI document to `schemas`.
pub fn collect(document: &Value, schemas: &mut Schemas) {
    let Some(found) = document.pointer("/components/schemas").and_then(Value::as_object) else {
        return;
    };
    const KINDS: &str = "x-kubernetes-group-version-kind";
    for (name, schema) in found {
        let known = schemas.entry(name.clone()).or_insert_with(|| schema.clone());
        // A document lists only the kinds of its own group version.
        let kinds = schema.get(KINDS).and_then(Value::as_array);
        if let Some(all) = known.get_mut(KINDS).and_then(Value::as_array_mut) {
            for kind in kinds.into_iter().flatten() {
                if !all.contains(kind) {
                    all.push(kind.clone());
                }
            }
        }
    }
}

/// Returns the text of a table of types. `title` begins its first line.
pub fn render(
    title: &str,
    schemas: &Schemas,
    messages: &Messages,
    presence: &Presence,
) -> Result<String> {
    let mut out = format!(
        "# {title}: `struct NAME`, then its members in the order of the Go struct:\n\
         # name, protobuf tag (`-`: none), type, flags. Written by `cargo xtask catalogue`.\n",
    );
    let mut package = "";
    for (name, schema) in schemas {
        if SHAPES.iter().any(|(shape, _)| shape == name) {
            continue;
        }
        let (own_package, short) = name.rsplit_once('.').unwrap_or(("", name));
        if own_package != package {
            writeln!(out, "\npackage {own_package}")?;
            package = own_package;
        }
        let block = Block {
            package,
            schema,
            messages,
            facts: presence.get(name),
            lines: vec![],
            in_protobuf: vec![],
            inlined: vec![],
        };
        block.render(name, short, &mut out)?;
    }
    Ok(out)
}

/// The block of one struct.
struct Block<'a> {
    package: &'a str,
    schema: &'a Value,
    messages: &'a Messages,
    facts: Option<&'a Facts>,
    /// Name, tag, type and flags of each member.
    lines: Vec<[String; 4]>,
    /// Properties that a protobuf field was found for.
    in_protobuf: Vec<String>,
    /// Tag and OpenAPI name of messages whose fields Go inlines.
    inlined: Vec<String>,
}

impl<'a> Block<'a> {
    fn render(mut self, name: &str, short: &str, out: &mut String) -> Result<()> {
        let message = proto_name(name);
        self.members(&message, "")?;
        self.members_without_tag()?;
        write!(out, "\nstruct {short}")?;
        if self.schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic") {
            out.push_str(" atomic");
        }
        if self.schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
            out.push_str(" preserve");
        }
        out.push('\n');
        self.kinds(out)?;
        for inlined in &self.inlined {
            writeln!(out, " inline {inlined}")?;
        }
        let width = |i: usize| self.lines.iter().map(|l| l[i].len()).max().unwrap_or(0);
        let a = width(0);
        let b = width(1);
        let c = width(2);
        for [name, tag, kind, flags] in &self.lines {
            let line = format!("  {name:a$} {tag:>b$} {kind:c$} {flags}");
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    fn kinds(&self, out: &mut String) -> Result<()> {
        let kinds = self
            .schema
            .get("x-kubernetes-group-version-kind")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let text = |kind: &Value, name: &str| {
            kind.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        if let Some(first) = kinds.first().filter(|_| kinds.len() >= EVERYWHERE_MIN) {
            writeln!(out, " everywhere {}", text(first, "kind"))?;
            return Ok(());
        }
        for kind in kinds {
            let group = text(kind, "group");
            let version = text(kind, "version");
            writeln!(out, " kind {group}/{version} {}", text(kind, "kind"))?;
        }
        Ok(())
    }

    /// Adds the members that are not in the descriptors. TypeMeta goes before all other members,
    /// because Go inlines it first. The rest follow at the end: first the required ones in the
    /// order of the `required` list, which is that of the Go struct, then all others.
    fn members_without_tag(&mut self) -> Result<()> {
        let properties = self.schema.get("properties").and_then(Value::as_object);
        let rest: Vec<_> = properties
            .into_iter()
            .flatten()
            .filter(|(name, _)| !self.in_protobuf.contains(name))
            .collect();
        let with_tag = std::mem::take(&mut self.lines);
        for (name, schema) in TYPE_META.iter().filter_map(|n| rest.iter().find(|(r, _)| r == n)) {
            self.line(name, "-", 0, schema)?;
        }
        self.lines.extend(with_tag);
        let required = self.schema.get("required").and_then(Value::as_array);
        let required: Vec<&str> =
            required.into_iter().flatten().filter_map(Value::as_str).collect();
        let mut rest = rest;
        rest.retain(|(name, _)| !TYPE_META.contains(&name.as_str()));
        rest.sort_by_key(|(name, _)| {
            required.iter().position(|other| other == name).unwrap_or(required.len())
        });
        for (name, schema) in rest {
            self.line(name, "-", 0, schema)?;
        }
        Ok(())
    }

    /// Adds the fields of a message. The fields of an inlined message are added as members of the
    /// struct itself; `tags` is then the tag of that message.
    fn members(&mut self, message: &str, tags: &str) -> Result<()> {
        let messages = self.messages;
        let Some(fields) = messages.get(message) else { return Ok(()) };
        for field in fields {
            let tag = if tags.is_empty() {
                field.number.to_string()
            } else {
                format!("{tags}.{}", field.number)
            };
            match self.property(&field.name) {
                Some((name, schema)) => {
                    self.in_protobuf.push(name.clone());
                    // A list whose field is not repeated is wrapped in a message, as its field 1.
                    let wrapped = schema.get("items").is_some() && !field.repeated;
                    let tag = if wrapped { format!("{tag}.1") } else { tag };
                    self.line(name, &tag, field.kind, schema)?;
                }
                None if is_message(field) => {
                    self.inlined.push(format!("{tag} {}", openapi_name(&field.type_name)));
                    self.members(&field.type_name, &tag)?;
                }
                // Only protobuf has this field.
                None => {}
            }
        }
        Ok(())
    }

    /// Returns the property of a protobuf field. The names may differ in the case of letters
    /// (`Webhooks`, `uID`) and in characters that protobuf does not allow (`$ref`,
    /// `x-kubernetes-...`).
    fn property(&self, field: &str) -> Option<(&'a String, &'a Value)> {
        let properties = self.schema.get("properties")?.as_object()?;
        properties.get_key_value(field).or_else(|| {
            let field = plain_name(field);
            properties.iter().find(|(name, _)| plain_name(name) == field)
        })
    }

    fn line(&mut self, name: &str, tag: &str, proto: u64, schema: &Value) -> Result<()> {
        let kind = self.kind(schema, proto)?;
        let mut flags: Vec<String> = vec![];
        let required = self
            .schema
            .get("required")
            .and_then(Value::as_array)
            .is_some_and(|names| names.iter().any(|n| n.as_str() == Some(name)));
        flags.extend(presence(name, &kind, schema, required, self.facts));
        if required {
            flags.push("required".to_owned());
        }
        // A zero default changes only pointers: a Go value is zero anyway.
        let is_pointer = flags.iter().any(|flag| flag == "ptr" || flag == "null");
        let is_effective = |default: &&Value| is_pointer || !is_zero(default);
        if let Some(default) = schema.get("default").filter(is_effective) {
            flags.push(format!("default={default}"));
        }
        merge_flags(schema, &mut flags);
        if let Some(values) = enumeration(schema) {
            flags.push(format!("enum={}", values.join("|")));
        }
        self.lines.push([name.to_owned(), tag.to_owned(), kind, flags.join(" ")]);
        Ok(())
    }

    fn kind(&self, schema: &Value, proto: u64) -> Result<String> {
        if let Some(name) = reference(schema) {
            if let Some((_, shape)) = SHAPES.iter().find(|(full, _)| *full == name) {
                return Ok((*shape).to_owned());
            }
            return Ok(match name.rsplit_once('.') {
                Some((package, short)) if package == self.package => short.to_owned(),
                _ => name,
            });
        }
        let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
        Ok(match (schema.get("type").and_then(Value::as_str).unwrap_or_default(), format) {
            ("string", "byte") => "bytes".to_owned(),
            ("string", "date-time") => "time".to_owned(),
            ("string", _) if proto == 12 => "bytes".to_owned(),
            ("string", _) => "string".to_owned(),
            ("boolean", _) => "bool".to_owned(),
            ("integer", "int32") => "int32".to_owned(),
            ("integer", _) => "int64".to_owned(),
            ("number", _) => "double".to_owned(),
            ("array", _) => {
                let item = schema.get("items").unwrap_or(&Value::Null);
                format!("[]{}", self.kind(item, proto)?)
            }
            ("object", _) => match schema.get("additionalProperties") {
                Some(value) => format!("{{}}{}", self.kind(value, 0)?),
                None => "json".to_owned(),
            },
            ("", _) => "json".to_owned(),
            (other, _) => bail!("unknown type {other:?}"),
        })
    }
}

/// Returns the lowercase letters and digits of a name, by which protobuf fields and members are
/// matched.
pub(super) fn plain_name(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase()
}

/// Returns the name of the protobuf message of an OpenAPI type. Protobuf packages have underscores
/// instead of dashes.
pub(super) fn proto_name(openapi: &str) -> String {
    let name = openapi.strip_prefix("io.").unwrap_or(openapi);
    name.replacen("k8s.", "k8s.io.", 1).replace('-', "_")
}

/// Returns the OpenAPI name of a protobuf message.
pub(super) fn openapi_name(proto: &str) -> String {
    proto
        .replacen("k8s.io.", "io.k8s.", 1)
        .replace("apiextensions_", "apiextensions-")
        .replace("kube_", "kube-")
}

pub(super) fn is_message(field: &ProtoField) -> bool {
    field.kind == 11 && !field.type_name.is_empty()
}

/// Returns the full name of the type in the `$ref` of a schema, which may be inside `allOf`.
pub(super) fn reference(schema: &Value) -> Option<String> {
    let referenced = |schema: &Value| {
        let name = schema.get("$ref")?.as_str()?;
        Some(name.rsplit_once('/').map_or(name, |(_, name)| name).to_owned())
    };
    referenced(schema).or_else(|| referenced(schema.get("allOf")?.as_array()?.first()?))
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Returns how a member is written. `ptr`: only when set, also as zero value. `always`: also when
/// zero. `null`: as null when unset. `None`: omitted when zero.
fn presence(
    name: &str,
    kind: &str,
    schema: &Value,
    required: bool,
    facts: Option<&Facts>,
) -> Option<String> {
    let is_in = |set: fn(&Facts) -> &std::collections::HashSet<String>| {
        facts.is_some_and(|facts| set(facts).contains(name))
    };
    let pointer = is_in(|f| &f.pointer);
    let value = is_in(|f| &f.value);
    let always = is_in(|f| &f.always);
    let scalar = matches!(
        kind,
        "bool" | "int32" | "int64" | "double" | "quantity" | "duration" | "intorstring"
    );
    let text = matches!(kind, "string" | "bytes");
    let list = kind.starts_with("[]") || kind.starts_with("{}");
    let time = matches!(kind, "time" | "microtime");
    let zero_default = schema.get("default").is_some_and(is_zero);
    let has_default = schema.get("default").is_some();
    let special = matches!(kind, "raw" | "json" | "fieldsv1");
    let is_struct = !(scalar || text || list || time || special);
    let word = if always {
        let is_pointer = pointer || (scalar && !value) || (is_struct && !zero_default);
        if is_pointer { "null" } else { "always" }
    } else if value || is_in(|f| &f.omitempty) {
        return None;
    } else if required && !has_default && has_zero_default(kind) && !(list || time || special) {
        // OpenAPI documents have a zero default for members that are neither pointers nor
        // omitempty.
        if kind == "string" && !pointer {
            return None;
        }
        "ptr"
    } else if required || (zero_default && (scalar || text) && !pointer) {
        "always"
    } else if list {
        return None;
    } else if scalar || pointer || time || special {
        "ptr"
    } else if text {
        return None;
    } else if zero_default {
        // `omitempty` has no effect on a struct that is not a pointer.
        "always"
    } else {
        "ptr"
    };
    Some(word.to_owned())
}

/// Returns whether OpenAPI documents have the zero default of an always written member of this
/// type. They have none for bytes and for types with a JSON form of their own.
fn has_zero_default(kind: &str) -> bool {
    !matches!(kind, "bytes" | "quantity" | "duration" | "intorstring")
}

/// Returns the default in OpenAPI of a member without a default of its own: the zero value, if it
/// is always written.
pub(super) fn implied_default(kind: &str, always: bool) -> Option<Value> {
    if !always || kind.starts_with("[]") || kind.starts_with("{}") {
        return None;
    }
    Some(match kind {
        "string" => "".into(),
        "bool" => false.into(),
        "int32" | "int64" => 0.into(),
        "bytes" | "double" | "json" | "raw" | "fieldsv1" => return None,
        _ => Value::Object(serde_json::Map::new()),
    })
}

/// Adds the flags that say how lists and maps are merged and patched.
fn merge_flags(schema: &Value, flags: &mut Vec<String>) {
    let text = |name: &str| schema.get(name).and_then(Value::as_str);
    match text("x-kubernetes-list-type") {
        Some("map") => {
            let keys: Vec<&str> = schema
                .get("x-kubernetes-list-map-keys")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            flags.push(format!("listmap={}", keys.join(",")));
        }
        Some(kind) => flags.push(kind.to_owned()),
        None => {}
    }
    if text("x-kubernetes-map-type") == Some("granular") {
        flags.push("granular".to_owned());
    }
    if text("x-kubernetes-map-type") == Some("atomic") {
        flags.push("atomic".to_owned());
    }
    let strategy = text("x-kubernetes-patch-strategy").unwrap_or_default();
    for word in strategy.split(',').filter(|word| !word.is_empty()) {
        let flag = match word {
            "retainKeys" => "retainkeys",
            "replace" => "patchreplace",
            _ => "patchmerge",
        };
        flags.push(flag.to_owned());
    }
    if let Some(key) = text("x-kubernetes-patch-merge-key") {
        flags.push(format!("mergekey={key}"));
    }
}

fn enumeration(schema: &Value) -> Option<Vec<String>> {
    let values = schema.get("enum")?.as_array()?;
    Some(values.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}
