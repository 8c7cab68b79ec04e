//! `openapi.txt`: facts that only OpenAPI documents need, as exceptions from what `types.txt`
//! implies.

use super::types::{Schemas, implied_default, reference};
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

const HEAD: &str = "\
# What only OpenAPI documents need to know. Written by `cargo xtask catalogue`.
# everywhere GROUP/VERSION ..: where the kinds stand that belong to every group version.
# deleted GROUP/VERSION RESOURCE ..: a delete answers with the object.
# struct NAME [notype] [unions=JSON], then members with what types.txt does not imply:
# bare: a plain reference; unstated: no list type; granular; listtype=; patch=; itemenum=
# (`+` is a space); default=; nodefault
";

/// Returns the text of `openapi.txt`. `types` is the text of `types.txt`, `documents` maps file
/// names to OpenAPI v3 documents, `v2` is the OpenAPI v2 document.
pub fn render(
    types: &str,
    schemas: &Schemas,
    documents: &BTreeMap<String, Value>,
    v2: &Value,
) -> Result<String> {
    let mut out = HEAD.to_owned();
    write_group_versions(v2, &mut out)?;
    write_deletes(documents, &mut out)?;
    let members = parse_members(types);
    for (name, schema) in schemas {
        render_struct(name, schema, &members, &mut out)?;
    }
    Ok(out)
}

/// Writes all group versions: those in which OpenAPI v2 has DeleteOptions.
fn write_group_versions(v2: &Value, out: &mut String) -> Result<()> {
    let options = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
    let kinds = v2
        .pointer(&format!("/definitions/{options}/x-kubernetes-group-version-kind"))
        .and_then(Value::as_array)
        .context("OpenAPI v2 has no kinds of DeleteOptions")?;
    write!(out, "\neverywhere")?;
    for kind in kinds {
        write!(out, " {}/{}", text(kind, "group"), text(kind, "version"))?;
    }
    out.push('\n');
    Ok(())
}

/// Writes the resources whose delete returns the object instead of a Status.
fn write_deletes(documents: &BTreeMap<String, Value>, out: &mut String) -> Result<()> {
    for document in documents.values() {
        let paths = document.get("paths").and_then(Value::as_object);
        let mut found = vec![];
        let mut group_version = String::new();
        for (path, item) in paths.into_iter().flatten() {
            let Some(delete) = item.get("delete") else { continue };
            let response = delete
                .pointer("/responses/200/content/application~1json/schema")
                .and_then(reference)
                .unwrap_or_default();
            let is_single = delete.get("x-kubernetes-action") == Some(&Value::from("delete"));
            if !is_single || response.ends_with(".Status") {
                continue;
            }
            let kind = delete.get("x-kubernetes-group-version-kind").context("no kind")?;
            group_version = format!("{}/{}", text(kind, "group"), text(kind, "version"));
            found.extend(path.rsplit('/').nth(1));
        }
        if !found.is_empty() {
            writeln!(out, "deleted {group_version} {}", found.join(" "))?;
        }
    }
    Ok(())
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Full name of a struct and name of a member to the type and flags of the member.
type Members<'a> = HashMap<(String, &'a str), (&'a str, Vec<&'a str>)>;

/// Parses the members in `types.txt`.
fn parse_members(types: &str) -> Members<'_> {
    let mut out = Members::new();
    let mut package = "";
    let mut current = String::new();
    for line in types.lines() {
        if let Some(name) = line.strip_prefix("package ") {
            package = name;
        } else if let Some(rest) = line.strip_prefix("struct ") {
            let name = rest.split(' ').next().unwrap_or_default();
            current = format!("{package}.{name}");
        } else if let Some(member) = line.strip_prefix("  ") {
            let mut words = member.split_ascii_whitespace();
            let name = words.next().unwrap_or_default();
            let kind = words.nth(1).unwrap_or_default();
            out.insert((current.clone(), name), (kind, words.collect()));
        }
    }
    out
}

fn render_struct(
    name: &str,
    schema: &Value,
    member_types: &Members,
    out: &mut String,
) -> Result<()> {
    let mut head = String::new();
    if schema.get("type").is_none() {
        head.push_str(" notype");
    }
    if let Some(unions) = schema.get("x-kubernetes-unions") {
        write!(head, " unions={unions}")?;
    }
    let mut members = String::new();
    let properties = schema.get("properties").and_then(Value::as_object);
    for (property, schema) in properties.into_iter().flatten() {
        let (kind, flags) = member_types
            .get(&(name.to_owned(), property.as_str()))
            .with_context(|| format!("types.txt has no {name} {property}"))?;
        let exceptions = exceptions(name, property, schema, kind, flags);
        if !exceptions.is_empty() {
            writeln!(members, "  {property} {}", exceptions.join(" "))?;
        }
    }
    let is_shape = properties.is_none() && schema.get("type").is_none();
    if !is_shape && (!head.is_empty() || !members.is_empty()) {
        write!(out, "\nstruct {name}{head}\n{members}")?;
    }
    Ok(())
}

/// Returns what the OpenAPI schema of a member has beyond its line in `types.txt`, which gives
/// `kind` and `flags`.
fn exceptions(
    struct_name: &str,
    property: &str,
    schema: &Value,
    kind: &str,
    flags: &[&str],
) -> Vec<String> {
    let mut out = vec![];
    if schema.get("$ref").is_some() {
        out.push("bare".to_owned());
    }
    let is_array = text(schema, "type") == "array";
    match text(schema, "x-kubernetes-list-type") {
        "" if is_array && !(property == "items" && struct_name.ends_with("List")) => {
            out.push("unstated".to_owned());
        }
        "" => {}
        kind if !is_array => out.push(format!("listtype={kind}")),
        _ => {}
    }
    if text(schema, "x-kubernetes-map-type") == "granular" {
        out.push("granular".to_owned());
    }
    if text(schema, "x-kubernetes-patch-strategy") == "replace" {
        out.push("patch=replace".to_owned());
    }
    for inner in ["items", "additionalProperties"] {
        let values = schema.pointer(&format!("/{inner}/enum")).and_then(Value::as_array);
        if let Some(values) = values {
            let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            out.push(format!("itemenum={}", values.join("|").replace(' ', "+")));
        }
    }
    let stated = flags.iter().find_map(|flag| flag.strip_prefix("default="));
    let implied = match stated {
        Some(json) => serde_json::from_str(json).ok(),
        None => implied_default(kind, flags.contains(&"always")),
    };
    match schema.get("default") {
        None if implied.is_some() => out.push("nodefault".to_owned()),
        Some(actual) if implied.as_ref() != Some(actual) => out.push(format!("default={actual}")),
        _ => {}
    }
    out
}
