//! `resources.txt`: groups, versions and resources as aggregated discovery lists them.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The text of `resources.txt`. `all` has every version switched on, `on` those that are by default.
/// `gates`: resource to the feature gate that it needs.
pub fn render(all: &Value, on: &Value, gates: &BTreeMap<String, String>) -> Result<String> {
    let mut out = String::from(
        "# Every built-in resource, in the order of discovery. `off`: only on request.\n\
         # resource NAME KIND SCOPE SINGULAR VERBS [short=..] [categories=..] [gate=..];\n\
         # sub NAME KIND VERBS (`-` is the resource's own kind). Written by `cargo xtask catalogue`.\n",
    );
    let mut defaults = vec![];
    for group in groups(on) {
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

fn words(value: &Value, name: &str) -> String {
    let words: Vec<&str> = list(value, name).iter().filter_map(Value::as_str).collect();
    words.join(",")
}

fn name(group: &Value) -> String {
    group.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// `Kind`, or `group/version/Kind` when it belongs to another group version. An empty group or version
/// is that of the resource.
fn kind(value: &Value, group: &str, version: &str) -> Result<String> {
    let kind = value.get("responseKind").context("a resource without a kind")?;
    let own = |given: String, own: &str| if given.is_empty() { own.to_owned() } else { given };
    let in_group = own(text(kind, "group"), group);
    let in_version = own(text(kind, "version"), version);
    if in_group == group && in_version == version {
        return Ok(text(kind, "kind"));
    }
    Ok(format!("{in_group}/{in_version}/{}", text(kind, "kind")))
}

/// What decides whether a resource is served.
struct Flags<'a> {
    /// Not served unless asked for, though its version is.
    off: bool,
    gate: Option<&'a str>,
}

fn render_resource(
    group: &str,
    version: &str,
    resource: &Value,
    flags: Flags<'_>,
    out: &mut String,
) -> Result<()> {
    let own = kind(resource, group, version)?;
    let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    write!(
        out,
        "  resource {} {own} {} {} {}",
        text(resource, "resource"),
        text(resource, "scope").to_lowercase(),
        dash(text(resource, "singularResource")),
        dash(words(resource, "verbs")),
    )?;
    for (flag, values) in
        [("short", words(resource, "shortNames")), ("categories", words(resource, "categories"))]
    {
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
        let shown = if sub_kind == own { "-" } else { &sub_kind };
        writeln!(out, "    sub {} {shown} {}", text(sub, "subresource"), words(sub, "verbs"))?;
    }
    Ok(())
}
