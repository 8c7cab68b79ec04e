//! `cargo xtask requirements`: writes docs/requirements.md, the requirements of the API and the
//! tests that prove them. docs/requirements.txt lists the requirements. A test names those that it
//! proves in its doc comment: `/// Proves: R-RV-01, R-RV-02.`

mod catalogue;
mod page;

use anyhow::{Context, Result, bail};
use catalogue::{Family, Notes};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;

const PAGE: &str = "docs/requirements.md";
/// The requirements, by family.
const CATALOGUE: &str = "docs/requirements.txt";
/// Requirements that no test of a server can prove, each with the reason.
const EXCEPTIONS: &str = "docs/requirements-exceptions.txt";
/// What Keelson does where the documents disagree or are older than Kubernetes 1.36.
const NOTES: &str = "docs/requirements-notes.txt";
const PROVES: &str = "/// Proves:";

/// ID of a requirement to the tests that prove it, for example
/// `crates/keelson/tests/it/kill.rs::NAME`.
type Proofs = BTreeMap<String, BTreeSet<String>>;

/// Writes the page, or with `--check` compares it. Fails if a requirement has neither a test
/// nor an exception.
pub fn run(args: &[String]) -> Result<()> {
    let check = match args {
        [] => false,
        [word] if word == "--check" => true,
        _ => bail!("cargo xtask requirements [--check]"),
    };
    let mut problems = vec![];
    let proofs = proofs(&mut problems)?;
    let families = catalogue::families(&read(CATALOGUE)?, &mut problems);
    let exceptions = catalogue::notes(EXCEPTIONS, &read(EXCEPTIONS)?, &mut problems);
    let notes = catalogue::notes(NOTES, &read(NOTES)?, &mut problems);
    compare(&families, &proofs, &exceptions, &notes, &mut problems);
    let page = page::page(&families, &proofs, &exceptions, &notes);
    if check {
        let written = fs::read_to_string(PAGE).unwrap_or_default();
        if written != page {
            problems.push(format!("{PAGE} is not what `cargo xtask requirements` writes"));
        }
    } else {
        fs::write(PAGE, &page).context(PAGE)?;
    }
    if problems.is_empty() {
        let count: usize = families.iter().map(|family| family.requirements.len()).sum();
        return say(&format!("{count}: {} with tests", proofs.len()));
    }
    bail!("{} problems:\n{}", problems.len(), problems.join("\n"))
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.to_owned())
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
        let shown = path.display();
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

/// Returns the requirements of a `Proves:` line. The list ends with a full stop, which may be on a
/// later line.
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

/// Checks that each requirement has either a test or an exception, and that tests, exceptions and
/// notes name no unknown requirement.
fn compare(
    families: &[Family],
    proofs: &Proofs,
    exceptions: &Notes,
    notes: &Notes,
    problems: &mut Vec<String>,
) {
    let all = families.iter().flat_map(|family| &family.requirements);
    let known: BTreeSet<&str> = all.map(|requirement| requirement.id.as_str()).collect();
    for id in &known {
        match (proofs.contains_key(*id), exceptions.contains_key(*id)) {
            (false, false) => problems.push(format!("{id}: no test proves it")),
            (true, true) => problems.push(format!("{id}: has a test and needs no exception")),
            (true, false) | (false, true) => {}
        }
    }
    let named = proofs.keys().chain(exceptions.keys()).chain(notes.keys());
    for id in named.filter(|id| !known.contains(id.as_str())) {
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
        let text = "## RV: Versions\nR-RV-01 [concepts: A] One.\nR-RV-02 [concepts: A] Two.\n\
                    R-RV-03 [concepts: A] Three.\n";
        let mut problems = vec![];
        let families = catalogue::families(text, &mut problems);
        let test = |id: &str| (id.to_owned(), BTreeSet::from(["crates/a.rs::b".to_owned()]));
        let proofs = Proofs::from([test("R-RV-01"), test("R-RV-09")]);
        let exceptions = Notes::from([("R-RV-02".to_owned(), "why".to_owned())]);
        compare(&families, &proofs, &exceptions, &Notes::new(), &mut problems);
        let expected = ["R-RV-03: no test proves it", "R-RV-09: there is no such requirement"];
        assert_eq!(problems, expected);
    }
}
