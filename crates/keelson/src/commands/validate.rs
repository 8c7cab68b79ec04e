//! `keelson validate`: what a server would say to manifests, without a server.

mod places;

use super::findings::{FOUND, Findings, Found, UNUSABLE, counted};
use super::manifests::{self, Manifest};
use super::output;
use crate::flags::ValidateFlags;
use anyhow::Result;
use keelson::{Validator, ValidatorInput, Verdict};
use keelson_meta::{Failure, Map, Value};
use places::Place;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::process::ExitCode;

/// The rule of warnings of the server.
const WARNING: &str = "Warning";
/// The rule of an object that is twice among the files.
const TWICE: &str = "Duplicate";

/// Runs `keelson validate` and prints what is wrong.
pub fn run(flags: &ValidateFlags) -> ExitCode {
    match validate(flags) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "keelson: {error:#}");
            ExitCode::from(UNUSABLE)
        }
    }
}

fn validate(flags: &ValidateFlags) -> Result<u8> {
    let mut read = manifests::read(&flags.files, flags.recursive);
    let count = read.manifests.len();
    for more in [&flags.crds, &flags.policies] {
        let more = manifests::read(more, flags.recursive);
        read.manifests.extend(more.manifests);
        read.errors.extend(more.errors);
    }
    let given =
        read.manifests.iter().map(|one| ValidatorInput { value: &one.value, text: one.text() });
    let given: Vec<ValidatorInput<'_>> = given.collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let verdicts = runtime.block_on(async {
        let validator = Validator::open(flags.namespace.as_deref()).await?;
        anyhow::Ok(validator.validate(&given).await)
    })?;
    let mut found = vec![];
    let mut results = vec![];
    let mut invalid = 0;
    let mut twice = Twice::default();
    for (manifest, verdict) in read.manifests.iter().zip(&verdicts) {
        let mut of_one = found_in(manifest, verdict);
        of_one.extend(twice.check(manifest));
        of_one.retain_mut(|one| {
            if flags.strict {
                one.severity = "error";
            }
            !flags.quiet || one.severity == "error"
        });
        invalid += usize::from(of_one.iter().any(|one| one.severity == "error"));
        found.append(&mut of_one);
        results.push(result_value(manifest, verdict));
    }
    let warnings = found.iter().filter(|one| one.severity == "warning").count();
    let summary = format!(
        "{}: {invalid} invalid, {}",
        counted(count, "manifest"),
        counted(warnings, "warning")
    );
    let findings = Findings {
        found: &found,
        explanations: BTreeMap::new(),
        summary: if flags.quiet { String::new() } else { summary },
        details: vec![("results", Value::Array(results))],
    };
    let text = findings.format(flags.output);
    if !text.is_empty() {
        output::print(text.trim_end())?;
    }
    for error in &read.errors {
        writeln!(std::io::stderr(), "keelson: {error}")?;
    }
    let code = if invalid == 0 { 0 } else { FOUND };
    Ok(if read.errors.is_empty() { code } else { UNUSABLE })
}

/// Names an object: `Deployment web/api`.
fn name_of(value: &Value) -> String {
    let text = |path: &[&str]| value.str_at(path).unwrap_or_default();
    let kind = text(&["kind"]);
    let namespace = text(&["metadata", "namespace"]);
    let name = match text(&["metadata", "name"]) {
        "" => text(&["metadata", "generateName"]),
        name => name,
    };
    match (namespace, name) {
        (_, "") => kind.to_owned(),
        ("", name) => format!("{kind} {name}"),
        (namespace, name) => format!("{kind} {namespace}/{name}"),
    }
}

/// Returns what the server says to an object, each with its place.
fn found_in(manifest: &Manifest, verdict: &Verdict) -> Vec<Found> {
    let about = name_of(&manifest.value);
    let one = |severity: &'static str, rule: &str, Place { field, message }: Place| Found {
        file: manifest.file.to_string(),
        place: places::of(manifest, &field),
        severity,
        rule: rule.to_owned(),
        message: format!("{about}: {message}"),
        details: vec![("field", Value::from(field.as_str()))],
    };
    let mut found: Vec<Found> = vec![];
    if let Err(failure) = &verdict.result {
        let reason = match failure.reason.as_str() {
            "" => "Unknown",
            reason => reason,
        };
        found.extend(
            places::of_failure(failure).into_iter().map(|place| one("error", reason, place)),
        );
    }
    let warnings = verdict.warnings.iter();
    found.extend(warnings.map(|text| one("warning", WARNING, places::of_warning(text))));
    found
}

/// Returns the JSON form of a verdict.
fn result_value(manifest: &Manifest, verdict: &Verdict) -> Value {
    let text = |path: &[&str]| Value::from(manifest.value.str_at(path).unwrap_or_default());
    let mut map = Map::default();
    map.insert("file", &*manifest.file);
    map.insert("line", i64::from(manifest.find("").0.line));
    map.insert("apiVersion", text(&["apiVersion"]));
    map.insert("kind", text(&["kind"]));
    map.insert("namespace", text(&["metadata", "namespace"]));
    map.insert("name", text(&["metadata", "name"]));
    map.insert("valid", verdict.result.is_ok());
    if let Err(failure) = &verdict.result {
        map.insert("status", Failure::as_ref(failure).to_value());
    }
    let warnings = verdict.warnings.iter().map(|warning| Value::from(warning.as_str()));
    map.insert("warnings", warnings.collect::<Vec<Value>>());
    Value::Object(map)
}

/// Finds objects that are given twice.
#[derive(Default)]
struct Twice {
    /// The place of each object.
    seen: HashMap<[String; 4], String>,
}

impl Twice {
    fn check(&mut self, manifest: &Manifest) -> Option<Found> {
        let text = |path: &[&str]| manifest.value.str_at(path).unwrap_or_default().to_owned();
        let name = text(&["metadata", "name"]);
        let group = text(&["apiVersion"])
            .rsplit_once('/')
            .map_or(String::new(), |(group, _)| group.to_owned());
        let identity = [group, text(&["kind"]), text(&["metadata", "namespace"]), name.clone()];
        let (place, _) = manifest.find("metadata.name");
        let here = format!("{}:{}", manifest.file, place.line);
        if name.is_empty() {
            return None;
        }
        let first = self.seen.entry(identity).or_insert_with(|| here.clone());
        (*first != here).then(|| Found {
            file: manifest.file.to_string(),
            place,
            severity: "warning",
            rule: TWICE.to_owned(),
            message: format!("{}: is also in {first}", name_of(&manifest.value)),
            details: vec![("field", Value::from("metadata.name"))],
        })
    }
}
