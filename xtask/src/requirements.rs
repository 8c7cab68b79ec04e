//! `cargo xtask requirements`: writes docs/requirements.md, the table of the API's requirements and the
//! tests that prove them. A test names its requirements in its doc comment: `/// Proves: R-RV-01, R-RV-02.`

use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;

const PAGE: &str = "docs/requirements.md";
/// Requirements that no test of a server can prove, each with the reason.
const EXCEPTIONS: &str = "docs/requirements-exceptions.txt";
/// The list of requirements, which is not part of this repository. It is read from the folder that
/// `KEELSON_SHARED` names, by default `../shared`.
const SPEC: &str = "spec/requirements.md";
/// Families whose requirements must all have a test or an exception.
const FAMILIES: [&str; 11] =
    ["RV", "CHUNK", "WATCH", "PATCH", "SMP", "CONC", "HTTP", "STAT", "META", "VERB", "IDEM"];
const PROVES: &str = "/// Proves:";
const HEAD: &str = "\
# Requirements

Which test proves which requirement of the Kubernetes API. `cargo xtask requirements` writes this page from the
`Proves:` lines of the tests and from requirements-exceptions.txt beside it. Paths are below `crates/`.
";

/// ID of a requirement to the tests that prove it, for example `keelson/tests/it/kill.rs::NAME`.
type Proofs = BTreeMap<String, BTreeSet<String>>;

/// Writes the table, or with `--check` compares it. Fails if a requirement has neither a test
/// nor an exception.
pub fn run(args: &[String]) -> Result<()> {
    let check = match args {
        [] => false,
        [word] if word == "--check" => true,
        _ => bail!("cargo xtask requirements [--check]"),
    };
    let mut problems = vec![];
    let proofs = proofs(&mut problems)?;
    let exceptions = exceptions(&mut problems)?;
    let page = page(&proofs, &exceptions);
    if check {
        let written = fs::read_to_string(PAGE).unwrap_or_default();
        if written != page {
            problems.push(format!("{PAGE} is not what `cargo xtask requirements` writes"));
        }
    } else {
        fs::write(PAGE, &page).context(PAGE)?;
    }
    let shared = std::env::var("KEELSON_SHARED").unwrap_or_else(|_| "../shared".to_owned());
    let spec = Path::new(&shared).join(SPEC);
    match fs::read_to_string(&spec) {
        Ok(spec) => compare(&spec, &proofs, &exceptions, &mut problems),
        Err(_) => {
            let place = spec.display();
            say(&format!("{place} does not exist: did not look for requirements without a test"))?;
        }
    }
    if problems.is_empty() {
        return say(&format!("{} requirements have a test", proofs.len()));
    }
    bail!("{} problems:\n{}", problems.len(), problems.join("\n"))
}

fn say(text: &str) -> Result<()> {
    writeln!(std::io::stdout(), "requirements: {text}").context("write to standard output")
}

/// Reads the `Proves:` lines of all crates.
fn proofs(problems: &mut Vec<String>) -> Result<Proofs> {
    let mut files = vec![];
    crate::tidy::collect_rust_files(Path::new("crates"), &mut files)?;
    let mut proofs = Proofs::new();
    for path in files {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let shown = path.strip_prefix("crates").unwrap_or(&path).display().to_string();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with(PROVES)) {
            let Some(test) = test_after(&lines[at + 1..]) else {
                problems.push(format!("{}:{}: no test follows {line:?}", path.display(), at + 1));
                continue;
            };
            for id in ids(&lines[at..]) {
                proofs.entry(id).or_default().insert(format!("{shown}::{test}"));
            }
        }
    }
    Ok(proofs)
}

/// Returns the name of the test whose doc comment continues in these lines.
fn test_after<'l>(lines: &[&'l str]) -> Option<&'l str> {
    let mut is_test = false;
    for line in lines {
        if let Some(head) = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn ")) {
            return head.split('(').next().filter(|_| is_test);
        }
        is_test |= matches!(*line, "#[test]") || line.starts_with("#[tokio::test");
        if !line.starts_with("///") && !line.starts_with("#[") {
            return None;
        }
    }
    None
}

/// Returns the requirements of a `Proves:` line. The list ends with a full stop, which may be on a later line.
fn ids(lines: &[&str]) -> Vec<String> {
    let mut ids = vec![];
    for line in lines.iter().take_while(|line| line.starts_with("///")) {
        let words = line.trim_start_matches(PROVES).trim_start_matches("///").split_whitespace();
        ids.extend(words.map(|word| word.trim_matches(&[',', '.'][..]).to_owned()));
        if line.ends_with('.') {
            break;
        }
    }
    ids
}

/// Reads the exceptions: ID to reason. A line has the form `R-X-01: why`.
fn exceptions(problems: &mut Vec<String>) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(EXCEPTIONS).context(EXCEPTIONS)?;
    let mut exceptions = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.split_once(": ") {
            Some((id, why)) => {
                exceptions.insert(id.to_owned(), why.to_owned());
            }
            None => problems.push(format!("{EXCEPTIONS}: not `R-X-01: why`: {line}")),
        }
    }
    Ok(exceptions)
}

/// Returns the text of docs/requirements.md.
fn page(proofs: &Proofs, exceptions: &BTreeMap<String, String>) -> String {
    let mut rows: BTreeMap<&str, String> = BTreeMap::new();
    for (id, tests) in proofs {
        let cells: Vec<String> = tests.iter().map(|test| format!("`{test}`")).collect();
        rows.insert(id, cells.join("<br>"));
    }
    for (id, why) in exceptions {
        rows.insert(id, format!("none: {why}"));
    }
    let mut page = HEAD.to_owned();
    let mut family = "";
    for (id, cell) in rows {
        if family_of(id) != family {
            family = family_of(id);
            page.push_str(&format!("\n## {family}\n\n| requirement | proved by |\n|---|---|\n"));
        }
        page.push_str(&format!("| {id} | {cell} |\n"));
    }
    page
}

/// Returns the family of a requirement: `RV` of `R-RV-01`.
fn family_of(id: &str) -> &str {
    id.split('-').nth(1).unwrap_or_default()
}

/// Checks that each requirement of [`FAMILIES`] has either a test or an exception, and that tests and exceptions name
/// no unknown requirement.
fn compare(
    spec: &str,
    proofs: &Proofs,
    exceptions: &BTreeMap<String, String>,
    problems: &mut Vec<String>,
) {
    let lines = spec.lines().filter_map(|line| line.strip_prefix("- **R-"));
    let known: BTreeSet<String> =
        lines.filter_map(|line| line.split_once("**").map(|(id, _)| format!("R-{id}"))).collect();
    for id in known.iter().filter(|id| FAMILIES.contains(&family_of(id))) {
        match (proofs.contains_key(id), exceptions.contains_key(id)) {
            (false, false) => problems.push(format!("{id}: no test proves it")),
            (true, true) => problems.push(format!("{id}: has a test and needs no exception")),
            (true, false) | (false, true) => {}
        }
    }
    for id in proofs.keys().chain(exceptions.keys()).filter(|id| !known.contains(*id)) {
        problems.push(format!("{id}: there is no such requirement"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proves_line_belongs_to_the_test_below_it() {
        let lines =
            ["/// Proves: R-A-01,", "/// R-B-02.", "/// More.", "#[test]", "fn it_holds() {"];
        assert_eq!(ids(&lines), ["R-A-01", "R-B-02"]);
        assert_eq!(test_after(&lines[1..]), Some("it_holds"));
        assert_eq!(test_after(&["fn helper() {"]), None);
        assert_eq!(test_after(&["", "#[test]", "fn far() {"]), None);
    }

    #[test]
    fn a_requirement_needs_a_test_or_an_exception() {
        let spec = "- **R-RV-01** one\n- **R-RV-02** two\n- **R-RV-03** three\n- **R-TTL-01** x\n";
        let test = |id: &str| (id.to_owned(), BTreeSet::from(["a.rs::b".to_owned()]));
        let proofs = Proofs::from([test("R-RV-01"), test("R-RV-09")]);
        let exceptions = BTreeMap::from([("R-RV-02".to_owned(), "why".to_owned())]);
        let mut problems = vec![];
        compare(spec, &proofs, &exceptions, &mut problems);
        assert_eq!(
            problems,
            ["R-RV-03: no test proves it", "R-RV-09: there is no such requirement"]
        );
        let page = page(&proofs, &exceptions);
        let rows = "| R-RV-01 | `a.rs::b` |\n| R-RV-02 | none: why |\n| R-RV-09 | `a.rs::b` |\n";
        assert!(page.ends_with(rows), "{page}");
    }
}
