//! `cargo xtask tidy`: checks the rules of STYLE.md and ARCHITECTURE.md that a machine can check.

mod cycles;
mod names;

use anyhow::{Context, Result, bail};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
/// The columns of a comment; rustfmt sees to the code.
const COLUMNS_MAX: usize = 100;
/// The resources that are served.
const RESOURCES: &str = "crates/schema/catalogue/resources.txt";
/// Crates that must not name built-in kinds.
const KIND_INDEPENDENT: [&str; 6] = [
    "crates/admission/src",
    "crates/cache/src",
    "crates/records/src",
    "crates/registry/src",
    "crates/resources/src",
    "crates/server/src",
];
/// Exceptions in these crates: the admission plug-ins, their configuration, and the list of the
/// kinds that configure webhooks and policies.
const KIND_SPECIFIC: [&str; 5] = [
    "crates/admission/src/config.rs",
    "crates/admission/src/config/",
    "crates/admission/src/exempt.rs",
    "crates/admission/src/plug_ins.rs",
    "crates/admission/src/plug_ins/",
];
/// Resource names that may be used because they also name a scope.
const ALLOWED_NAMES: [&str; 1] = ["namespaces"];
/// Macros of unfinished work. The strings are split so that this file does not contain them.
const UNFINISHED: [&str; 3] =
    [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("db", "g!(")];

/// Checks all Rust files and manifests below the current folder. The error lists all violations.
pub fn run() -> Result<()> {
    let mut violations = vec![];
    let mut files = vec![];
    for root in ["crates", "xtask"] {
        collect_rust_files(Path::new(root), &mut files)?;
    }
    for path in &files {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        check_file(path, &text, &mut violations);
    }
    check_kind_names(&mut violations)?;
    check_subresource_names(&mut violations)?;
    cycles::check(&mut violations)?;
    names::check(&mut violations)?;
    check_layers(&mut violations)?;
    check_pure_crates(&mut violations)?;
    check_manifests(&mut violations)?;
    if violations.is_empty() {
        return Ok(());
    }
    bail!("{} violations:\n{}", violations.len(), violations.join("\n"))
}

/// Adds the Rust files below a folder to `out`, sorted by path.
pub(crate) fn collect_rust_files(dir: &Path, out: &mut Vec<PathBuf>) -> Result<()> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(dir)?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect_rust_files(&path, out)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            out.push(path);
        }
    }
    Ok(())
}

/// The first line of a function starts with one of these.
const FUNCTION_STARTS: [&str; 8] = [
    "fn ",
    "pub fn ",
    "pub(crate) fn ",
    "pub(super) fn ",
    "async fn ",
    "pub async fn ",
    "pub(crate) async fn ",
    "pub(super) async fn ",
];

/// Returns whether a line gives names to values that are not parts of one thing:
/// `let (a, b) = (x, y);`.
fn binds_strangers(line: &str) -> bool {
    let Some((names, values)) =
        line.strip_prefix("let (").and_then(|rest| rest.split_once(") = ("))
    else {
        return false;
    };
    // `let (Some(a), Some(b)) = (x, y) else`: a pattern that may not match needs one statement.
    let is_pattern = names.contains(char::is_uppercase);
    let mut depth = 1_usize;
    let end = values.find(|character| {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    !is_pattern && end.is_none_or(|end| values[end..] == *");")
}

/// Returns whether a line has a parameter that is taken apart in the signature:
/// `(group, resource): (&str, &str),`.
fn is_tuple_parameter(line: &str) -> bool {
    let parameter = match line.split_once("fn ") {
        Some((before, rest)) if !before.contains("//") => {
            rest.split_once('(').map_or("", |(_, rest)| rest)
        }
        _ => line,
    };
    let starts = parameter.split(", ").map(str::trim_start).any(|part| part.starts_with('('));
    starts
        && !parameter.contains("(): ()")
        && (parameter.contains("): (") || parameter.contains("): &("))
        && !line.contains('|')
        && !line.starts_with("let ")
}

fn check_file(path: &Path, text: &str, violations: &mut Vec<String>) {
    let file = path.display();
    if !text.starts_with("//!") {
        violations.push(format!("{file}: does not start with a module comment (`//!`)"));
    }
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        violations.push(format!("{file}: {lines} lines, at most {FILE_LINES_MAX}"));
    }
    for word in UNFINISHED {
        if text.contains(word) {
            violations.push(format!("{file}: contains {word}"));
        }
    }
    // Line number, indent and first line of the current function.
    let mut function: Option<(usize, usize, &str)> = None;
    for (number, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let words = line.trim_start();
        if words.starts_with("//") && line.chars().count() > COLUMNS_MAX && words.contains(' ') {
            let is_link = words.contains("://") || words.contains("](");
            if !is_link && !words.contains(" | ") {
                violations.push(format!("{file}:{}: a comment beyond column 100", number + 1));
            }
        }
        if binds_strangers(words) {
            violations.push(format!("{file}:{}: two bindings in one `let`: {words}", number + 1));
        }
        if is_tuple_parameter(words) {
            violations.push(format!("{file}:{}: a tuple as parameter: {words}", number + 1));
        }
        let is_start = FUNCTION_STARTS.iter().any(|start| words.starts_with(start));
        if is_start && function.is_none() && !words.ends_with('}') && !words.ends_with(';') {
            function = Some((number, indent, words));
        }
        // The end of a declaration without a body.
        if function.is_some_and(|(_, outer, _)| indent == outer)
            && words.starts_with(')')
            && words.ends_with(';')
        {
            function = None;
        }
        if let Some((start, outer, first_line)) = function
            && words == "}"
            && indent == outer
        {
            let length = number - start + 1;
            if length > FUNCTION_LINES_MAX {
                violations.push(format!("{file}:{}: {length} lines: {first_line}", start + 1));
            }
            function = None;
        }
    }
}

/// Checks that string literals in kind-independent crates, except in tests, name no kind or
/// resource of the catalogue.
fn check_kind_names(violations: &mut Vec<String>) -> Result<()> {
    let table = fs::read_to_string(RESOURCES)?;
    let rows = table.lines().filter_map(|line| line.trim_start().strip_prefix("resource "));
    let names: HashSet<&str> = rows
        .flat_map(|row| row.split(' ').take(2))
        .filter(|name| !ALLOWED_NAMES.contains(name))
        .collect();
    let mut files = vec![];
    for root in KIND_INDEPENDENT {
        collect_rust_files(Path::new(root), &mut files)?;
    }
    for path in files {
        let file = path.display().to_string();
        if KIND_SPECIFIC.iter().any(|part| file.starts_with(part)) {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            // Every second part is in quotes.
            let quoted = line.split('"').skip(1).step_by(2).filter(|_| !is_comment);
            for name in quoted.filter(|name| names.contains(name)) {
                violations.push(format!("{file}:{}: names the kind {name:?}", number + 1));
            }
        }
    }
    Ok(())
}

/// Checks that server, registry and resources name no subresource: the catalogue says what each one
/// does.
fn check_subresource_names(violations: &mut Vec<String>) -> Result<()> {
    let table = fs::read_to_string(RESOURCES)?;
    let rows = table.lines().filter_map(|line| line.trim().strip_prefix("sub "));
    let names: HashSet<&str> = rows.filter_map(|row| row.split(' ').next()).collect();
    if names.is_empty() {
        bail!("{RESOURCES} has no subresources");
    }
    let mut files = vec![];
    for folder in ["crates/server/src", "crates/registry/src", "crates/resources/src"] {
        collect_rust_files(Path::new(folder), &mut files)?;
    }
    for path in files {
        let file = path.display().to_string();
        let text = fs::read_to_string(&path)?;
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            let quoted = line.split('"').skip(1).step_by(2).filter(|_| !is_comment);
            // These words mean other things, too: members of objects, and a health check.
            let named = quoted.filter(|name| names.contains(name));
            for name in named.filter(|name| !matches!(*name, "status" | "scale" | "log")) {
                violations.push(format!("{file}:{}: names the subresource {name:?}", number + 1));
            }
        }
    }
    Ok(())
}

/// Checks that every crate depends only on the crates of this workspace that the table in
/// ARCHITECTURE.md allows.
fn check_layers(violations: &mut Vec<String>) -> Result<()> {
    let text = fs::read_to_string("ARCHITECTURE.md").context("ARCHITECTURE.md")?;
    // Crate to the crates of this workspace that it may depend on.
    let mut allowed: HashMap<String, Vec<String>> = HashMap::new();
    let rows = text.lines().skip_while(|line| !line.starts_with("| crate |")).skip(2);
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if let [_, name, _, own, ..] = cells.as_slice() {
            let plain = own.replace(',', " ").replace('`', "");
            let own = plain.split_whitespace().filter(|word| *word != "-").map(str::to_owned);
            allowed.insert(name.replace('`', ""), own.collect());
        }
    }
    for entry in fs::read_dir("crates")? {
        let dir = entry?.path();
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(own) = allowed.get(&name) else {
            violations.push(format!("ARCHITECTURE.md: the table has no crate {name}"));
            continue;
        };
        let manifest = fs::read_to_string(dir.join("Cargo.toml"))?;
        let dependencies = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        for line in dependencies.lines().filter_map(|line| line.strip_prefix("keelson-")) {
            let dependency = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if !own.iter().any(|word| word == dependency) {
                violations.push(format!(
                    "crates/{name}: depends on {dependency}, which ARCHITECTURE.md does not allow"
                ));
            }
        }
    }
    Ok(())
}

/// Checks that the crates of stored objects and of resources have no runtime, and use of the store
/// only its values.
fn check_pure_crates(violations: &mut Vec<String>) -> Result<()> {
    for name in ["records", "resources"] {
        let manifest = fs::read_to_string(format!("crates/{name}/Cargo.toml"))?;
        let dependencies = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        for line in dependencies.lines().filter(|line| line.starts_with("tokio")) {
            violations.push(format!("crates/{name}: depends on a runtime: {line}"));
        }
        let mut files = vec![];
        collect_rust_files(&Path::new("crates").join(name).join("src"), &mut files)?;
        for path in files {
            let text = fs::read_to_string(&path)?;
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for used in code.split("keelson_store::").skip(1) {
                let end = used.find([';', '(', ')', '>']).unwrap_or(used.len());
                let names = used[..end]
                    .split([',', '{', '}'])
                    .map(str::trim)
                    .filter(|name| !name.is_empty());
                for other in names.filter(|name| !matches!(*name, "KeyValue" | "Revision")) {
                    violations.push(format!("{}: uses {other} of the store", path.display()));
                }
            }
        }
    }
    Ok(())
}

/// Checks that versions of dependencies are given in the root manifest only.
fn check_manifests(violations: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir("crates")? {
        let path = entry?.path().join("Cargo.toml");
        let text = fs::read_to_string(&path)?;
        for line in text.lines() {
            let is_inherited = line.starts_with("version.") || line.starts_with("rust-version.");
            if !is_inherited
                && (line.contains("version = \"")
                    || line.contains(" = \"0")
                    || line.contains(" = \"1"))
            {
                violations.push(format!(
                    "{}: a version, which belongs in the root manifest: {line}",
                    path.display()
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{binds_strangers, is_tuple_parameter};

    #[test]
    fn parameters_have_names() {
        let check =
            |line: &str, expected: bool| assert_eq!(is_tuple_parameter(line), expected, "{line}");
        check(concat!("(group, ", "resource): (&str, &str),"), true);
        check(&format!("fn key(&self, (name, node){} &(Str, Node)) -> Field {{", ':'), true);
        check("fn key(&self, pair: (Str, Str)) -> Field {", false);
        check("let (names, values): (Vec<_>, Vec<_>) = all.unzip();", false);
        check(".map(|(name, value): (&str, &str)| name)", false);
    }

    #[test]
    fn one_let_names_only_parts_of_one_thing() {
        let check =
            |line: &str, expected: bool| assert_eq!(binds_strangers(line), expected, "{line}");
        check("let (name, began) = (object(1), Instant::now());", true);
        check("let (mut a, b) = (", true);
        check("let (reader, writer) = split(stream);", false);
        check("let (schemas, levels) = (source.read)(registry);", false);
        check("let (Some(a), Some(b)) = (x, y) else {", false);
    }
}
