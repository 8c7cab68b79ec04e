//! `cargo xtask tidy`: what a machine can hold of STYLE.md and ARCHITECTURE.md.

mod circles;

use anyhow::{Context, Result, bail};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
/// What stays in the registry is what each verb does, in order.
const REGISTRY_LINES_MAX: usize = 8_000;
/// Crates that know no built-in kind by name.
const NAMELESS: [&str; 4] =
    ["crates/admission/src", "crates/cache/src", "crates/registry/src", "crates/server/src"];
/// What of them is about single kinds: the plug-ins of admission and their configuration, and the kinds that
/// configure its webhooks and policies.
const NAMING: [&str; 5] = [
    "crates/admission/src/config.rs",
    "crates/admission/src/config/",
    "crates/admission/src/exempt.rs",
    "crates/admission/src/plug_ins.rs",
    "crates/admission/src/plug_ins/",
];
/// Names that are more than a kind's: the scope of others.
const SCOPES: [&str; 1] = ["namespaces"];
/// Words that mark unfinished work; written apart so that this file does not hold them.
const UNFINISHED: [&str; 3] =
    [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("db", "g!(")];

/// Checks the tree below the current folder.
pub fn run() -> Result<()> {
    let mut faults = vec![];
    let mut files = vec![];
    for root in ["crates", "xtask"] {
        collect(Path::new(root), &mut files)?;
    }
    for path in &files {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        check_file(path, &text, &mut faults);
    }
    check_kind_names(&mut faults)?;
    check_registry(&mut faults)?;
    circles::check(&mut faults)?;
    check_layers(&mut faults)?;
    check_manifests(&mut faults)?;
    if faults.is_empty() {
        return Ok(());
    }
    bail!("{} faults:\n{}", faults.len(), faults.join("\n"))
}

/// The Rust files below a folder.
pub(crate) fn collect(dir: &Path, out: &mut Vec<PathBuf>) -> Result<()> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(dir)?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, out)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            out.push(path);
        }
    }
    Ok(())
}

/// What the first line of a function begins with.
const FUNCTION_HEADS: [&str; 8] = [
    "fn ",
    "pub fn ",
    "pub(crate) fn ",
    "pub(super) fn ",
    "async fn ",
    "pub async fn ",
    "pub(crate) async fn ",
    "pub(super) async fn ",
];

fn check_file(path: &Path, text: &str, faults: &mut Vec<String>) {
    let shown = path.display();
    if !text.starts_with("//!") {
        faults.push(format!("{shown}: does not begin with what it is for (`//!`)"));
    }
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        faults.push(format!("{shown}: {lines} lines, at most {FILE_LINES_MAX}"));
    }
    for word in UNFINISHED {
        if text.contains(word) {
            faults.push(format!("{shown}: {word} in it"));
        }
    }
    let mut begun: Option<(usize, usize, &str)> = None;
    for (number, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let words = line.trim_start();
        let is_head = FUNCTION_HEADS.iter().any(|head| words.starts_with(head));
        if is_head && begun.is_none() && !words.ends_with('}') && !words.ends_with(';') {
            begun = Some((number, indent, words));
        }
        // The end of a declaration without a body.
        if begun.is_some_and(|(_, depth, _)| indent == depth)
            && words.starts_with(')')
            && words.ends_with(';')
        {
            begun = None;
        }
        if let Some((start, depth, head)) = begun
            && words == "}"
            && indent == depth
        {
            let length = number - start + 1;
            if length > FUNCTION_LINES_MAX {
                faults.push(format!("{shown}:{}: {length} lines: {head}", start + 1));
            }
            begun = None;
        }
    }
}

/// No kind or resource of the catalogue is named, outside of tests, in crates that work for all of them.
fn check_kind_names(faults: &mut Vec<String>) -> Result<()> {
    let table = fs::read_to_string("crates/schema/catalogue/resources.txt")?;
    let rows = table.lines().filter_map(|line| line.trim_start().strip_prefix("resource "));
    let names = rows.flat_map(|row| row.split(' ').take(2));
    let names: HashSet<&str> = names.filter(|name| !SCOPES.contains(name)).collect();
    let mut files = vec![];
    for root in NAMELESS {
        collect(Path::new(root), &mut files)?;
    }
    for path in files {
        let shown = path.display().to_string();
        if NAMING.iter().any(|part| shown.starts_with(part)) {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            // Every second part stands in quotes.
            let quoted = line.split('"').skip(1).step_by(2).filter(|_| !is_comment);
            for name in quoted.filter(|name| names.contains(name)) {
                faults.push(format!("{shown}:{}: names {name:?}", number + 1));
            }
        }
    }
    Ok(())
}

fn check_registry(faults: &mut Vec<String>) -> Result<()> {
    let mut files = vec![];
    collect(Path::new("crates/registry/src"), &mut files)?;
    let mut lines = 0;
    for path in files {
        lines += fs::read_to_string(&path)?.lines().count();
    }
    if lines > REGISTRY_LINES_MAX {
        faults.push(format!("crates/registry/src: {lines} lines, at most {REGISTRY_LINES_MAX}"));
    }
    Ok(())
}

/// Every crate depends on what the table of ARCHITECTURE.md lets it depend on, and on nothing else.
fn check_layers(faults: &mut Vec<String>) -> Result<()> {
    let text = fs::read_to_string("ARCHITECTURE.md").context("ARCHITECTURE.md")?;
    let mut allowed: HashMap<String, Vec<String>> = HashMap::new();
    let rows = text.lines().skip_while(|line| !line.starts_with("| crate |")).skip(2);
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if let [_, name, _, own, ..] = cells.as_slice() {
            let own = own.replace(',', " ").replace('`', "");
            let own = own.split_whitespace().filter(|word| *word != "-").map(str::to_owned);
            allowed.insert(name.replace('`', ""), own.collect());
        }
    }
    for entry in fs::read_dir("crates")? {
        let dir = entry?.path();
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(own) = allowed.get(&name) else {
            faults.push(format!("ARCHITECTURE.md: crate {name} is not in the table"));
            continue;
        };
        let manifest = fs::read_to_string(dir.join("Cargo.toml"))?;
        let used = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        for line in used.lines().filter_map(|line| line.strip_prefix("keelson-")) {
            let dependency = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if !own.iter().any(|word| word == dependency) {
                faults.push(format!("crates/{name}: depends on {dependency}, not in the table"));
            }
        }
    }
    Ok(())
}

/// Versions stand in the root manifest only.
fn check_manifests(faults: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir("crates")? {
        let path = entry?.path().join("Cargo.toml");
        let text = fs::read_to_string(&path)?;
        for line in text.lines() {
            let own = line.starts_with("version.") || line.starts_with("rust-version.");
            if !own
                && (line.contains("version = \"")
                    || line.contains(" = \"0")
                    || line.contains(" = \"1"))
            {
                faults.push(format!("{}: a version: {line}", path.display()));
            }
        }
    }
    Ok(())
}
