//! The parts of the program as a CycloneDX document: every crate that is linked into it, with its
//! license, its hash in Cargo.lock, and what it depends on; and the script that the explorer
//! contains.

use super::{PROGRAM, VERSION};
use crate::commands;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

const SPEC_VERSION: &str = "1.6";
/// The script of others that is part of the explorer.
const VENDORED_SCRIPT: &str = include_str!("../../../crates/explorer/web/vendor/js-yaml.mjs");
/// Crates of the registry have this source, and only they are known to package URLs.
const REGISTRY: &str = "registry+";

/// Returns what cargo knows of the workspace.
pub fn metadata() -> Result<Value> {
    let version = commands::output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--locked", "--format-version=1", "--filter-platform"]);
    let text = commands::output(cargo.arg(host.context("rustc -vV names no host")?))?;
    serde_json::from_str(&text).context("cargo metadata")
}

/// Returns the document. `lock` is the text of Cargo.lock.
pub fn document(metadata: &Value, lock: &str) -> Result<String> {
    let packages = by_id(&metadata["packages"]);
    let nodes = by_id(&metadata["resolve"]["nodes"]);
    let root = packages
        .values()
        .find(|package| package["name"] == PROGRAM)
        .and_then(|package| package["id"].as_str())
        .context("no package keelson")?;
    let hashes = hashes(lock);
    let mut components = vec![];
    let mut dependencies = vec![];
    let mut seen = BTreeSet::from([root]);
    let mut waiting = vec![root];
    while let Some(id) = waiting.pop() {
        let package = packages.get(id).with_context(|| id.to_owned())?;
        let node = nodes.get(id).with_context(|| id.to_owned())?;
        let linked = linked(node, &packages);
        for dependency in &linked {
            if seen.insert(dependency) {
                waiting.push(dependency);
            }
        }
        let names: BTreeSet<String> =
            linked.iter().map(|id| reference(packages.get(id).copied())).collect();
        dependencies.push(json!({"ref": reference(Some(package)), "dependsOn": names}));
        if id != root {
            components.push(component(package, &hashes));
        }
    }
    let script = vendored_script()?;
    dependencies.push(json!({"ref": script["bom-ref"], "dependsOn": []}));
    components.push(script);
    let order = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    components.sort_by_key(|component| order(component, "bom-ref"));
    dependencies.sort_by_key(|dependency| order(dependency, "ref"));
    let document = json!({
        "$schema": format!("http://cyclonedx.org/schema/bom-{SPEC_VERSION}.schema.json"),
        "bomFormat": "CycloneDX", "specVersion": SPEC_VERSION, "version": 1,
        "metadata": {
            "tools": {"components": [
                {"type": "application", "name": "cargo xtask package", "version": VERSION},
            ]},
            "component": {
                "type": "application", "bom-ref": reference(packages.get(root).copied()),
                "name": PROGRAM, "version": VERSION,
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": components,
        "dependencies": dependencies,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// Returns the script that the explorer contains: its first line names it, its version and licence.
fn vendored_script() -> Result<Value> {
    let first = VENDORED_SCRIPT.lines().next().unwrap_or_default();
    let words: Vec<&str> = first.split(' ').collect();
    let [_, name, version, _, _, license, ..] = words.as_slice() else {
        bail!("the vendored script does not say what it is: {first}");
    };
    let digest = Sha256::digest(VENDORED_SCRIPT);
    let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(json!({
        "type": "library", "bom-ref": format!("{name}@{version}"), "name": name, "version": version,
        "licenses": [{"expression": license}], "purl": format!("pkg:npm/{name}@{version}"),
        "hashes": [{"alg": "SHA-256", "content": hash}],
    }))
}

fn by_id(list: &Value) -> BTreeMap<&str, &Value> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|item| Some((item["id"].as_str()?, item))).collect()
}

/// Returns the dependencies of a package that are linked: not those of its tests and build scripts,
/// and no macros, which run in the compiler.
fn linked<'a>(node: &'a Value, packages: &BTreeMap<&str, &'a Value>) -> Vec<&'a str> {
    let dependencies = node["deps"].as_array().into_iter().flatten();
    let normal = dependencies.filter(|dependency| {
        let mut kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
        kinds.any(|kind| kind["kind"].is_null())
    });
    let ids = normal.filter_map(|dependency| dependency["pkg"].as_str());
    ids.filter(|id| packages.get(id).is_some_and(|package| !is_macro(package))).collect()
}

fn is_macro(package: &Value) -> bool {
    let mut targets = package["targets"].as_array().into_iter().flatten();
    targets.any(|target| target["kind"][0] == "proc-macro")
}

fn component(package: &Value, hashes: &BTreeMap<(&str, &str), &str>) -> Value {
    let text = |key: &str| package[key].as_str().unwrap_or_default();
    let name = text("name");
    let version = text("version");
    let mut component = json!({
        "type": "library", "bom-ref": reference(Some(package)), "name": name, "version": version,
    });
    // Older manifests separate alternatives with a slash.
    let license = text("license").replace('/', " OR ");
    if !license.is_empty() {
        component["licenses"] = json!([{"expression": license}]);
    }
    if text("source").starts_with(REGISTRY) {
        component["purl"] = format!("pkg:cargo/{name}@{version}").into();
    }
    if let Some(hash) = hashes.get(&(name, version)) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": hash}]);
    }
    component
}

fn reference(package: Option<&Value>) -> String {
    let text = |key: &str| package.and_then(|package| package[key].as_str()).unwrap_or_default();
    format!("{}@{}", text("name"), text("version"))
}

/// Returns the hashes of archives by name and version, from Cargo.lock.
fn hashes(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let packages = lock.split("[[package]]").skip(1);
    let hashed = packages.filter_map(|package| {
        let value = |key: &str| {
            let mut lines = package.lines();
            lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'))
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    });
    hashed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_workspace() -> Value {
        let lock = include_str!("../../../Cargo.lock");
        let text = document(&metadata().expect("metadata"), lock).expect("a document");
        serde_json::from_str(&text).expect("JSON")
    }

    #[test]
    fn the_document_has_what_the_schema_of_cyclonedx_requires() {
        let document = of_workspace();
        assert_eq!(document["bomFormat"], "CycloneDX");
        assert_eq!(document["specVersion"], SPEC_VERSION);
        assert_eq!(document["metadata"]["component"]["name"], PROGRAM);
        let components = document["components"].as_array().expect("components");
        let mut references =
            BTreeSet::from([document["metadata"]["component"]["bom-ref"].clone().to_string()]);
        for component in components {
            for key in ["type", "name", "version", "bom-ref"] {
                assert!(component[key].is_string(), "{key} of {component}");
            }
            assert!(component["licenses"][0]["expression"].is_string(), "{component}");
            assert!(references.insert(component["bom-ref"].to_string()), "twice: {component}");
            // What comes from the registry is known by its hash.
            assert_eq!(
                component["purl"].is_string(),
                component["hashes"].is_array(),
                "{component}"
            );
        }
        let dependencies = document["dependencies"].as_array().expect("dependencies");
        assert_eq!(dependencies.len(), references.len());
        for dependency in dependencies {
            assert!(references.contains(&dependency["ref"].to_string()), "{dependency}");
            for name in dependency["dependsOn"].as_array().expect("a list") {
                assert!(references.contains(&name.to_string()), "{name}");
            }
        }
    }

    #[test]
    fn only_what_is_linked_into_the_program_is_listed() {
        let document = of_workspace();
        let names: BTreeSet<&str> = document["components"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|component| component["name"].as_str())
            .collect();
        for (name, expected) in [
            ("tokio", true),
            ("rustls", true),
            ("keelson-store", true),
            ("js-yaml", true),
            ("keelson-testkit", false),
            ("keelson-descriptions", false),
            ("serde_derive", false),
            ("kube", false),
        ] {
            assert_eq!(names.contains(name), expected, "{name}");
        }
    }
}
