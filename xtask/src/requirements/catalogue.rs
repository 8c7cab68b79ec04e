//! The text files of the requirements: the requirements by family, and remarks on single ones.

use std::collections::BTreeMap;

/// ID of a requirement to a remark.
pub type Notes = BTreeMap<String, String>;

/// Requirements on one subject.
pub struct Family {
    /// For example `RV`.
    pub name: String,
    pub title: String,
    pub requirements: Vec<Requirement>,
}

/// One rule of the API.
pub struct Requirement {
    /// For example `R-RV-01`.
    pub id: String,
    /// Documents and their sections, for example `concepts: The resourceVersion parameter`.
    pub source: String,
    pub statement: String,
}

/// Reads the requirements: lines `## FAMILY: title`, followed by lines `ID [source] statement`.
pub fn families(text: &str, problems: &mut Vec<String>) -> Vec<Family> {
    let mut families: Vec<Family> = vec![];
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
        if let Some((name, title)) = line.strip_prefix("## ").and_then(|l| l.split_once(": ")) {
            let name = name.to_owned();
            let title = title.to_owned();
            families.push(Family { name, title, requirements: vec![] });
            continue;
        }
        let family = families.last_mut();
        match (family, requirement(line)) {
            (Some(family), Some(requirement))
                if requirement.id.starts_with(&format!("R-{}-", family.name)) =>
            {
                family.requirements.push(requirement);
            }
            _ => problems.push(format!("not `R-FAMILY-01 [source] statement`: {line}")),
        }
    }
    families
}

/// Reads `ID [source] statement`.
fn requirement(line: &str) -> Option<Requirement> {
    let (id, rest) = line.split_once(" [")?;
    let (source, statement) = rest.split_once("] ")?;
    Some(Requirement {
        id: id.to_owned(),
        source: source.to_owned(),
        statement: statement.to_owned(),
    })
}

/// Reads remarks: lines `R-X-01: text`. A requirement has one remark.
pub fn notes(path: &str, text: &str, problems: &mut Vec<String>) -> Notes {
    let mut notes = Notes::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.split_once(": ") {
            Some((id, note)) => {
                if notes.insert(id.to_owned(), note.to_owned()).is_some() {
                    problems.push(format!("{path}: {id} occurs twice"));
                }
            }
            None => problems.push(format!("{path}: not `R-X-01: text`: {line}")),
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_belong_to_the_family_above_them() {
        let text =
            "# Remark\n## A: First\nR-A-01 [x: y; z: w] One: two.\n\n## B: Second\nR-A-02 [x] no\n";
        let mut problems = vec![];
        let families = families(text, &mut problems);
        assert_eq!(problems, ["not `R-FAMILY-01 [source] statement`: R-A-02 [x] no"]);
        let titles: Vec<&str> = families.iter().map(|family| family.title.as_str()).collect();
        assert_eq!(titles, ["First", "Second"]);
        let one = &families[0].requirements[0];
        assert_eq!((one.source.as_str(), one.statement.as_str()), ("x: y; z: w", "One: two."));
    }

    #[test]
    fn a_requirement_has_one_remark() {
        let mut problems = vec![];
        let notes = notes("f", "# r\nR-A-01: a: b\nR-A-01: c\nno\n", &mut problems);
        assert_eq!(problems, ["f: R-A-01 occurs twice", "f: not `R-X-01: text`: no"]);
        assert_eq!(notes["R-A-01"], "c");
    }
}
