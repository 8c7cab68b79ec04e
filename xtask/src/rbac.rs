//! `cargo xtask rbac`: writes the table of default roles and bindings from those of a
//! kube-apiserver.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fmt::Write;
use std::path::Path;

const TABLE: &str = "crates/builtin/src/bootstrap/rbac.txt";
const HEAD: &str = "\
# Default roles and bindings of RBAC; written by `cargo xtask rbac`.
# clusterrole NAME | role NAMESPACE/NAME, then its lines:
#   label KEY, aggregate KEY (labels and the selector of an aggregationRule, all with the value true)
#   VERBS GROUPS RESOURCES [NAMES] (the core group is `core`), VERBS url PATHS
# clusterrolebinding NAME ROLE SUBJECT.. | rolebinding NAMESPACE/NAME ROLE SUBJECT..
";
const BOOTSTRAPPING: &str = "kubernetes.io/bootstrapping";

/// Runs the task with its arguments: the folder with the lists of roles and bindings.
pub fn run(args: &[String]) -> Result<()> {
    let [dir] = args else { bail!("cargo xtask rbac DIR") };
    let dir = Path::new(dir);
    let mut table = HEAD.to_owned();
    for (resource, keyword) in [("clusterroles", "clusterrole"), ("roles", "role")] {
        for role in defaults(dir, resource)? {
            write_role(&mut table, keyword, &role)?;
        }
    }
    let bindings = [("clusterrolebindings", "clusterrolebinding"), ("rolebindings", "rolebinding")];
    for (resource, keyword) in bindings {
        for binding in defaults(dir, resource)? {
            write_binding(&mut table, keyword, &binding)?;
        }
    }
    std::fs::write(TABLE, table).context(TABLE)
}

/// Reads `RESOURCE.json` and returns the default objects, sorted by name.
fn defaults(dir: &Path, resource: &str) -> Result<Vec<Value>> {
    let path = dir.join(format!("{resource}.json"));
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let list: Value = serde_json::from_str(&text)?;
    let items = list["items"].as_array().context("items")?.iter();
    let is_default = |item: &&Value| item["metadata"]["labels"][BOOTSTRAPPING] == "rbac-defaults";
    let mut items: Vec<Value> = items.filter(is_default).cloned().collect();
    items.sort_by_key(name);
    Ok(items)
}

/// Returns `NAME` or `NAMESPACE/NAME`.
fn name(object: &Value) -> String {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

fn write_role(table: &mut String, keyword: &str, role: &Value) -> Result<()> {
    writeln!(table, "{keyword} {}", name(role))?;
    let labels = role["metadata"]["labels"].as_object().context("labels")?;
    for key in labels.keys().filter(|key| *key != BOOTSTRAPPING) {
        writeln!(table, "  label {key}")?;
    }
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array();
    for selector in selectors.into_iter().flatten() {
        for key in selector["matchLabels"].as_object().context("matchLabels")?.keys() {
            writeln!(table, "  aggregate {key}")?;
        }
    }
    if selectors.is_some() {
        return Ok(());
    }
    for rule in role["rules"].as_array().into_iter().flatten() {
        let verbs = joined(&rule["verbs"]);
        if rule["nonResourceURLs"].is_array() {
            writeln!(table, "  {verbs} url {}", joined(&rule["nonResourceURLs"]))?;
            continue;
        }
        write!(table, "  {verbs} {} {}", joined(&rule["apiGroups"]), joined(&rule["resources"]))?;
        if rule["resourceNames"].is_array() {
            write!(table, " {}", joined(&rule["resourceNames"]))?;
        }
        writeln!(table)?;
    }
    Ok(())
}

fn write_binding(table: &mut String, keyword: &str, binding: &Value) -> Result<()> {
    let role = &binding["roleRef"];
    let role_name = role["name"].as_str().context("roleRef.name")?;
    let kind = role["kind"].as_str().context("roleRef.kind")?;
    write!(table, "{keyword} {} {kind}/{role_name}", name(binding))?;
    for subject in binding["subjects"].as_array().into_iter().flatten() {
        let text = |name: &str| subject[name].as_str().unwrap_or_default();
        match text("kind") {
            "ServiceAccount" => {
                write!(table, " ServiceAccount/{}/{}", text("namespace"), text("name"))?;
            }
            kind => write!(table, " {kind}/{}", text("name"))?,
        }
    }
    writeln!(table)?;
    Ok(())
}

/// Joins a list of strings by commas. The empty string, the core group, becomes `core`.
fn joined(list: &Value) -> String {
    let words = list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(|word| if word.is_empty() { "core" } else { word });
    words.collect::<Vec<_>>().join(",")
}
