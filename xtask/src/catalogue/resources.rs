//! `resources.txt`: groups, versions and resources, from aggregated discovery.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Returns the text of `resources.txt`. `all` is the discovery of a server with all versions
/// enabled, `default` that of a server without flags. `gates` maps a resource to its feature gate.
pub fn render(all: &Value, default: &Value, gates: &BTreeMap<String, String>) -> Result<String> {
    let mut out = String::from(
        "# Every built-in resource, in the order of discovery. `off`: only on request.\n\
         # resource NAME KIND SCOPE SINGULAR VERBS [short=..] [categories=..] [gate=..];\n\
         # sub NAME KIND VERBS (`-` is the resource's own kind). Written by `cargo xtask catalogue`.\n",
    );
    let mut defaults = vec![];
    for group in groups(default) {
        for version in list(group, "versions") {
            for resource in list(version, "resources") {
                defaults.push((name(group), text(version, "version"), text(resource, "resource")));
            }
        }
    }
    for group in groups(all) {
        let group_name = name(group);
        writeln!(out, "\ngroup {}", if group_name.is_empty() { "core" } else { &group_name })?;
        for version in list(group, "versions") {
            let version_name = text(version, "version");
            let on = defaults.iter().any(|(g, v, _)| *g == group_name && *v == version_name);
            writeln!(out, "version {version_name}{}", if on { "" } else { " off" })?;
            for resource in list(version, "resources") {
                let key = (group_name.clone(), version_name.clone(), text(resource, "resource"));
                let off = on && !defaults.contains(&key);
                let gate = gates.get(&key.2).map(String::as_str);
                let flags = Flags { off: off && gate.is_none(), gate };
                render_resource(&group_name, &version_name, resource, flags, &mut out)?;
            }
        }
    }
    Ok(out)
}

fn groups(document: &Value) -> impl Iterator<Item = &Value> {
    ["/api/items", "/apis/items"]
        .into_iter()
        .filter_map(|place| document.pointer(place).and_then(Value::as_array))
        .flatten()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn comma_separated(value: &Value, name: &str) -> String {
    let words: Vec<&str> = list(value, name).iter().filter_map(Value::as_str).collect();
    words.join(",")
}

fn name(group: &Value) -> String {
    group.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns `Kind`, or `group/version/Kind` if it is in another group version than the resource. An
/// empty group or version in discovery means that of the resource.
fn kind(value: &Value, group: &str, version: &str) -> Result<String> {
    let kind = value.get("responseKind").context("a resource without a kind")?;
    let or = |value: String, default: &str| {
        if value.is_empty() { default.to_owned() } else { value }
    };
    let kind_group = or(text(kind, "group"), group);
    let kind_version = or(text(kind, "version"), version);
    if kind_group == group && kind_version == version {
        return Ok(text(kind, "kind"));
    }
    Ok(format!("{kind_group}/{kind_version}/{}", text(kind, "kind")))
}

/// Decides whether a resource is served by default.
struct Flags<'a> {
    /// The resource is disabled by default, though its version is enabled.
    off: bool,
    /// The feature gate that enables the resource.
    gate: Option<&'a str>,
}

fn render_resource(
    group: &str,
    version: &str,
    resource: &Value,
    flags: Flags<'_>,
    out: &mut String,
) -> Result<()> {
    let resource_kind = kind(resource, group, version)?;
    let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    write!(
        out,
        "  resource {} {resource_kind} {} {} {}",
        text(resource, "resource"),
        text(resource, "scope").to_lowercase(),
        dash(text(resource, "singularResource")),
        dash(comma_separated(resource, "verbs")),
    )?;
    for (flag, values) in [
        ("short", comma_separated(resource, "shortNames")),
        ("categories", comma_separated(resource, "categories")),
    ] {
        if !values.is_empty() {
            write!(out, " {flag}={values}")?;
        }
    }
    if let Some(gate) = flags.gate {
        write!(out, " gate={gate}")?;
    }
    writeln!(out, "{}", if flags.off { " off" } else { "" })?;
    for sub in list(resource, "subresources") {
        let sub_kind = kind(sub, group, version)?;
        let sub_kind = if sub_kind == resource_kind { "-" } else { &sub_kind };
        writeln!(
            out,
            "    sub {} {sub_kind} {}",
            text(sub, "subresource"),
            comma_separated(sub, "verbs")
        )?;
    }
    Ok(())
}
