//! Checks that a public type has a name of its own: who reads it in another crate, or searches for
//! it, finds one. The names that are public in several places are listed. The list may only shrink.

use super::collect_rust_files;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Crates whose types no other crate imports: tools and tests.
const TOOLS: [&str; 4] = ["attack", "bench", "fuzz", "testkit"];

/// The names that several public types have.
const REPEATED: &[&str] = &[
    "Action",
    "Attributes",
    "Authorizer",
    "Binding",
    "BoxFuture",
    "Cause",
    "Change",
    "Check",
    "Claim",
    "ClaimKey",
    "Claims",
    "Client",
    "ConfigError",
    "Context",
    "Credentials",
    "Decision",
    "Definition",
    "Description",
    "Encoding",
    "Ending",
    "EtcdOptions",
    "Event",
    "Field",
    "Filter",
    "Form",
    "Format",
    "Found",
    "Group",
    "GroupResource",
    "KeyValue",
    "Kind",
    "Level",
    "Limits",
    "List",
    "ListKind",
    "Map",
    "Metrics",
    "Mode",
    "NamedCertificate",
    "Node",
    "OpenError",
    "Opened",
    "Operation",
    "Outcome",
    "Pair",
    "Pairs",
    "Phase",
    "Place",
    "Range",
    "Record",
    "Recorder",
    "Refusal",
    "Rejection",
    "Request",
    "Resource",
    "Role",
    "Route",
    "Rule",
    "Scope",
    "Server",
    "Session",
    "Shape",
    "Snapshot",
    "Stage",
    "StartError",
    "Started",
    "State",
    "Status",
    "Subresource",
    "Target",
    "Term",
    "Timestamp",
    "Value",
    "Version",
    "WatchError",
    "WebhookOptions",
];

/// Adds a violation for each name that several public types have, unless it is listed, and for each
/// listed name that is no longer repeated.
pub(super) fn check(violations: &mut Vec<String>) -> Result<()> {
    let mut places: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    for entry in fs::read_dir("crates")? {
        let dir = entry?.path();
        if TOOLS.iter().any(|tool| dir.ends_with(tool)) {
            continue;
        }
        let mut files = vec![];
        collect_rust_files(&dir.join("src"), &mut files)?;
        for path in files {
            for name in public_types(&fs::read_to_string(&path)?) {
                places.entry(name).or_default().insert(path.clone());
            }
        }
    }
    let repeated = places.iter().filter(|(_, files)| files.len() > 1);
    for (name, files) in repeated.clone().filter(|(name, _)| !REPEATED.contains(&name.as_str())) {
        let files: Vec<_> = files.iter().map(|path| Path::display(path).to_string()).collect();
        violations.push(format!("several public types are named {name}: {}", files.join(", ")));
    }
    for name in REPEATED.iter().filter(|name| !repeated.clone().any(|(known, _)| known == *name)) {
        violations
            .push(format!("xtask/src/tidy/names.rs: {name} is no longer repeated; remove it"));
    }
    Ok(())
}

/// Returns the names of the public types of a file, except those of tests.
fn public_types(text: &str) -> impl Iterator<Item = String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    code.lines().filter_map(|line| {
        let declared = line.strip_prefix("pub ")?;
        let (keyword, rest) = declared.split_once(' ')?;
        let is_type = ["struct", "enum", "trait", "type", "union"].contains(&keyword);
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        is_type.then(|| rest[..end].to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::public_types;

    #[test]
    fn public_types_are_found() {
        let text = "pub struct A<'a> {\n    pub fn b() {}\n}\nstruct C;\npub(crate) enum D {}\npub type E = u8;\n\
                    #[cfg(test)]\npub enum F {}\n";
        assert_eq!(public_types(text).collect::<Vec<_>>(), ["A", "E"]);
    }
}
