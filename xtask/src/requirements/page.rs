//! The text of docs/requirements.md.

use super::Proofs;
use super::catalogue::{Family, Notes, Requirement};

const HEAD: &str = "\
# Requirements of the Kubernetes API

What the documents of the Kubernetes API demand of a server, and the tests that prove it of this one.

- *conventions*: the [API conventions](https://github.com/kubernetes/community/blob/main/contributors/devel/sig-architecture/api-conventions.md);
  *conventions 2016*: their edition of release 1.4.
- *concepts*: the [API concepts](https://kubernetes.io/docs/reference/using-api/api-concepts/).

Where the documents disagree with each other or are older than Kubernetes 1.36, a line *Here:* says what this server
does and what a kube-apiserver 1.36 does.

This page is written by `cargo xtask requirements` from the `Proves:` lines of the tests, requirements.txt,
requirements-notes.txt and requirements-exceptions.txt beside it. `cargo xtask ci` fails if a requirement has neither a
test nor an exception.
";

/// Returns the page: each family with its requirements, and for each the statement, where the
/// documents say it, and its tests or the reason why it has none.
pub fn page(families: &[Family], proofs: &Proofs, exceptions: &Notes, notes: &Notes) -> String {
    let mut page = HEAD.to_owned();
    page.push_str("\n| family | about | requirements | with tests |\n|---|---|---|---|\n");
    for Family { name, title, requirements } in families {
        let proven = requirements.iter().filter(|one| proofs.contains_key(&one.id)).count();
        let link = anchor(&heading(name, title));
        let count = requirements.len();
        page.push_str(&format!("| [{name}](#{link}) | {title} | {count} | {proven} |\n"));
    }
    for Family { name, title, requirements } in families {
        page.push_str(&format!("\n## {}\n", heading(name, title)));
        for requirement in requirements {
            page.push_str(&entry(requirement, proofs, exceptions, notes));
        }
    }
    page
}

fn heading(name: &str, title: &str) -> String {
    format!("{name}: {title}")
}

/// Returns the fragment by which web pages of repositories link to a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn entry(
    Requirement { id, source, statement }: &Requirement,
    proofs: &Proofs,
    exceptions: &Notes,
    notes: &Notes,
) -> String {
    let mut entry = format!("\n**{id}** {statement} *({source})*\n");
    if let Some(note) = notes.get(id) {
        entry.push_str(&format!("\n- Here: {note}\n"));
    } else {
        entry.push('\n');
    }
    let tests = proofs.get(id).into_iter().flatten();
    for (file, test) in tests.filter_map(|test| test.split_once("::")) {
        let shown = file.trim_start_matches("crates/");
        entry.push_str(&format!("- `{test}` in [{shown}](../{file})\n"));
    }
    if let Some(why) = exceptions.get(id) {
        entry.push_str(&format!("- No test: {why}\n"));
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requirements::catalogue::families;
    use std::collections::BTreeSet;

    #[test]
    fn a_requirement_is_shown_with_its_source_its_tests_and_what_is_different() {
        let text =
            "## RV: Versions, and more\nR-RV-01 [concepts: A] One.\nR-RV-02 [concepts: B] Two.\n";
        let families = families(text, &mut vec![]);
        let test = BTreeSet::from(["crates/a/src/b.rs::c".to_owned()]);
        let proofs = Proofs::from([("R-RV-01".to_owned(), test)]);
        let exceptions = Notes::from([("R-RV-02".to_owned(), "why.".to_owned())]);
        let notes = Notes::from([("R-RV-01".to_owned(), "so.".to_owned())]);
        let page = page(&families, &proofs, &exceptions, &notes);
        let expected = "\
| [RV](#rv-versions-and-more) | Versions, and more | 2 | 1 |

## RV: Versions, and more

**R-RV-01** One. *(concepts: A)*

- Here: so.
- `c` in [a/src/b.rs](../crates/a/src/b.rs)

**R-RV-02** Two. *(concepts: B)*

- No test: why.
";
        assert!(page.ends_with(expected), "{page}");
    }
}
