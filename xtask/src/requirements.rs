//! `cargo xtask requirements`: writes docs/requirements.md, the table of the API's requirements and the
//! tests that prove them. A test names what it proves in its doc comment: `/// Proves: R-RV-01, R-RV-02.`

use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;

const TABLE: &str = "docs/requirements.md";
/// Requirements that no test of a server can prove, each with the reason.
const EXCEPTIONS: &str = "docs/requirements-exceptions.txt";
/// The list of requirements, which is not part of this repository: beside it, or below the folder that
/// `KEELSON_SHARED` names.
const SPEC: &str = "spec/requirements.md";
/// Families of requirements of which each must have a test.
const FAMILIES: [&str; 11] =
    ["RV", "CHUNK", "WATCH", "PATCH", "SMP", "CONC", "HTTP", "STAT", "META", "VERB", "IDEM"];
const MARK: &str = "/// Proves:";
const HEAD: &str = "\
# Requirements

Which test proves which requirement of the Kubernetes API. `cargo xtask requirements` writes this page from the
`Proves:` lines of the tests and from requirements-exceptions.txt beside it. Paths are below `crates/`.
";

/// By family and number: where the tests are that prove a requirement.
type Proofs = BTreeMap<String, BTreeSet<String>>;

/// Writes the table, or with `--check` compares it and looks for requirements without a test.
pub fn run(args: &[String]) -> Result<()> {
    let check = match args {
        [] => false,
        [word] if word == "--check" => true,
        _ => bail!("cargo xtask requirements [--check]"),
    };
    let mut faults = vec![];
    let proofs = proofs(&mut faults)?;
    let exceptions = exceptions(&mut faults)?;
    let table = table(&proofs, &exceptions);
    if check {
        let written = fs::read_to_string(TABLE).unwrap_or_default();
        if written != table {
            faults.push(format!("{TABLE} is not what `cargo xtask requirements` writes"));
        }
    } else {
        fs::write(TABLE, &table).context(TABLE)?;
    }
    let shared = std::env::var("KEELSON_SHARED").unwrap_or_else(|_| "../shared".to_owned());
    let spec = Path::new(&shared).join(SPEC);
    match fs::read_to_string(&spec) {
        Ok(spec) => compare(&spec, &proofs, &exceptions, &mut faults),
        Err(_) => {
            let place = spec.display();
            say(&format!("{place} is absent: requirements without a test were not looked for"))?;
        }
    }
    if faults.is_empty() {
        return say(&format!("{} requirements have a test", proofs.len()));
    }
    bail!("{} faults:\n{}", faults.len(), faults.join("\n"))
}

fn say(text: &str) -> Result<()> {
    writeln!(std::io::stdout(), "requirements: {text}").context("write to standard output")
}

/// What the tests of all crates say that they prove.
fn proofs(faults: &mut Vec<String>) -> Result<Proofs> {
    let mut files = vec![];
    crate::tidy::collect(Path::new("crates"), &mut files)?;
    let mut proofs = Proofs::new();
    for path in files {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let shown = path.strip_prefix("crates").unwrap_or(&path).display().to_string();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with(MARK)) {
            let Some(test) = test_after(&lines[at + 1..]) else {
                faults.push(format!("{}:{}: no test follows {line:?}", path.display(), at + 1));
                continue;
            };
            for id in ids(&lines[at..]) {
                proofs.entry(id).or_default().insert(format!("{shown}::{test}"));
            }
        }
    }
    Ok(proofs)
}

/// The name of the test whose comments and attributes these lines begin with.
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

/// The requirements that a mark names, up to the full stop, be it some lines below.
fn ids(lines: &[&str]) -> Vec<String> {
    let mut ids = vec![];
    for line in lines.iter().take_while(|line| line.starts_with("///")) {
        let words = line.trim_start_matches(MARK).trim_start_matches("///").split_whitespace();
        ids.extend(words.map(|word| word.trim_matches(&[',', '.'][..]).to_owned()));
        if line.ends_with('.') {
            break;
        }
    }
    ids
}

/// Lines of the form `R-X-01: why`.
fn exceptions(faults: &mut Vec<String>) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(EXCEPTIONS).context(EXCEPTIONS)?;
    let mut exceptions = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.split_once(": ") {
            Some((id, why)) => {
                exceptions.insert(id.to_owned(), why.to_owned());
            }
            None => faults.push(format!("{EXCEPTIONS}: not `R-X-01: why`: {line}")),
        }
    }
    Ok(exceptions)
}

/// The page.
fn table(proofs: &Proofs, exceptions: &BTreeMap<String, String>) -> String {
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

/// `RV` of `R-RV-01`.
fn family_of(id: &str) -> &str {
    id.split('-').nth(1).unwrap_or_default()
}

/// Every requirement of the families must have a test or a reason, and only they.
fn compare(
    spec: &str,
    proofs: &Proofs,
    exceptions: &BTreeMap<String, String>,
    faults: &mut Vec<String>,
) {
    let lines = spec.lines().filter_map(|line| line.strip_prefix("- **R-"));
    let known: BTreeSet<String> =
        lines.filter_map(|line| line.split_once("**").map(|(id, _)| format!("R-{id}"))).collect();
    for id in known.iter().filter(|id| FAMILIES.contains(&family_of(id))) {
        match (proofs.contains_key(id), exceptions.contains_key(id)) {
            (false, false) => faults.push(format!("{id}: no test proves it")),
            (true, true) => faults.push(format!("{id}: has a test and needs no exception")),
            (true, false) | (false, true) => {}
        }
    }
    for id in proofs.keys().chain(exceptions.keys()).filter(|id| !known.contains(*id)) {
        faults.push(format!("{id}: there is no such requirement"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_belongs_to_the_test_below_it() {
        let lines =
            ["/// Proves: R-A-01,", "/// R-B-02.", "/// More.", "#[test]", "fn it_holds() {"];
        assert_eq!(ids(&lines), ["R-A-01", "R-B-02"]);
        assert_eq!(test_after(&lines[1..]), Some("it_holds"));
        assert_eq!(test_after(&["fn helper() {"]), None);
        assert_eq!(test_after(&["", "#[test]", "fn far() {"]), None);
    }

    #[test]
    fn a_requirement_without_test_or_reason_is_a_fault() {
        let spec = "- **R-RV-01** one\n- **R-RV-02** two\n- **R-RV-03** three\n- **R-TTL-01** x\n";
        let test = |id: &str| (id.to_owned(), BTreeSet::from(["a.rs::b".to_owned()]));
        let proofs = Proofs::from([test("R-RV-01"), test("R-RV-09")]);
        let exceptions = BTreeMap::from([("R-RV-02".to_owned(), "why".to_owned())]);
        let mut faults = vec![];
        compare(spec, &proofs, &exceptions, &mut faults);
        assert_eq!(faults, ["R-RV-03: no test proves it", "R-RV-09: there is no such requirement"]);
        let page = table(&proofs, &exceptions);
        let rows = "| R-RV-01 | `a.rs::b` |\n| R-RV-02 | none: why |\n| R-RV-09 | `a.rs::b` |\n";
        assert!(page.ends_with(rows), "{page}");
    }
}
