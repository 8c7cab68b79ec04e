//! `keelson lint`: what in CustomResourceDefinitions breaks the conventions of the Kubernetes API.

use super::findings::{FOUND, Findings, Found, UNUSABLE, counted};
use super::manifests::{self, Manifest};
use super::output;
use crate::flags::LintFlags;
use anyhow::{Result, bail};
use keelson_lint::{Finding, RULES, Severity};
use keelson_meta::{GroupVersion, Value};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

/// Runs `keelson lint` and prints the findings.
pub fn run(flags: &LintFlags) -> ExitCode {
    match lint(flags) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "keelson: {error:#}");
            ExitCode::from(UNUSABLE)
        }
    }
}

fn lint(flags: &LintFlags) -> Result<u8> {
    if flags.rules {
        output::print(rules_page().trim_end())?;
        return Ok(0);
    }
    if let Some(unknown) = flags.disable.iter().find(|id| keelson_lint::rule(id).is_none()) {
        bail!("--disable: there is no rule {unknown:?}; see --rules");
    }
    let least = Severity::from(flags.severity);
    let read = manifests::read(&flags.input.files, flags.input.recursive);
    let mut definitions = 0;
    let mut found = vec![];
    let mut broken = BTreeMap::new();
    for manifest in read.manifests.iter().filter(|manifest| is_definition(&manifest.value)) {
        definitions += 1;
        let findings = keelson_lint::lint(&manifest.value);
        let wanted = findings.into_iter().filter(|finding| {
            finding.rule.severity >= least && !flags.disable.iter().any(|id| id == finding.rule.id)
        });
        let mut of_one: Vec<Found> = wanted
            .map(|finding| {
                broken.insert(finding.rule.id, explanation(&finding));
                found_in(manifest, &finding)
            })
            .collect();
        of_one.sort_by_key(|found| found.place);
        found.append(&mut of_one);
    }
    let count =
        |severity: Severity| found.iter().filter(|one| one.severity == severity.name()).count();
    let counts = [Severity::Error, Severity::Warning, Severity::Advice]
        .map(|severity| (severity, count(severity)));
    let shown = counts.iter().filter(|(severity, _)| *severity >= least);
    let shown: Vec<String> =
        shown.map(|(severity, count)| counted(*count, severity.name())).collect();
    let findings = Findings {
        found: &found,
        explanations: broken,
        summary: format!("{}: {}", counted(definitions, "definition"), shown.join(", ")),
        details: vec![("definitions", Value::Int(i64::try_from(definitions)?))],
    };
    output::print(&findings.format(flags.output))?;
    for error in &read.errors {
        writeln!(std::io::stderr(), "keelson: {error}")?;
    }
    let code = if found.is_empty() { 0 } else { FOUND };
    Ok(if read.errors.is_empty() { code } else { UNUSABLE })
}

fn is_definition(value: &Value) -> bool {
    let group =
        value.str_at(&["apiVersion"]).and_then(GroupVersion::parse).unwrap_or_default().group;
    value.str_at(&["kind"]) == Some(keelson_lint::KIND) && group == keelson_lint::GROUP
}

fn explanation(finding: &Finding) -> String {
    let rule = finding.rule;
    format!("{} {} ({})", rule.summary, rule.advice, rule.section)
}

fn found_in(manifest: &Manifest, finding: &Finding) -> Found {
    let name = manifest.value.str_at(&["metadata", "name"]).unwrap_or_default();
    let about = if finding.field.is_empty() { name } else { &finding.field };
    let mut elsewhere = finding.also_in.clone();
    if finding.repeats > 0 {
        elsewhere.push(counted(finding.repeats, "other field"));
    }
    let also = match elsewhere.is_empty() {
        true => String::new(),
        false => format!(" (also in {})", elsewhere.join(", ")),
    };
    let also_in = finding.also_in.iter().map(|version| Value::from(version.as_str()));
    let text = |text: &str| Value::from(text);
    Found {
        file: manifest.file.to_string(),
        place: manifest.find(&finding.path).0,
        severity: finding.rule.severity.name(),
        rule: finding.rule.id.to_owned(),
        message: format!("{about}: {}{also}", finding.message),
        details: vec![
            ("definition", text(name)),
            ("version", text(finding.version.as_deref().unwrap_or_default())),
            ("alsoIn", Value::Array(also_in.collect())),
            ("repeats", Value::Int(i64::try_from(finding.repeats).unwrap_or(i64::MAX))),
            ("field", text(&finding.field)),
            ("path", text(&finding.path)),
            ("advice", text(finding.rule.advice)),
            ("section", text(finding.rule.section)),
        ],
    }
}

/// Returns all rules as a part of docs/lint.md.
pub fn rules_page() -> String {
    let mut page = String::from("| rule | severity | wants | source |\n|---|---|---|---|\n");
    for rule in RULES {
        let id = rule.id;
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "| [{id}](#{id}) | {} | {} | {} |",
            rule.severity, rule.summary, rule.section
        );
    }
    for rule in RULES {
        let _ = write!(
            page,
            "\n### {}\n\n{} ({}, {})\n\n{}\n",
            rule.id, rule.summary, rule.severity, rule.section, rule.advice
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// What stands before the part of docs/lint.md that is written from the table.
    const START: &str = "\n## Rules\n\n";

    /// `KEELSON_WRITE_RULES=1 cargo test -p keelson rules` writes the page.
    #[test]
    fn docs_lint_has_the_rules() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lint.md");
        let page = fs::read_to_string(&path).expect("docs/lint.md is there");
        let (before, rules) = page.split_once(START).expect("it has a part for the rules");
        if std::env::var_os("KEELSON_WRITE_RULES").is_some() {
            fs::write(&path, format!("{before}{START}{}", rules_page()))
                .expect("docs/lint.md is written");
        } else {
            assert!(
                rules == rules_page(),
                "docs/lint.md is old: KEELSON_WRITE_RULES=1 cargo test -p keelson rules"
            );
        }
    }
}
