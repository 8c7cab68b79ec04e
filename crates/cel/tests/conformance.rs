//! cel-spec's conformance tests, which that project publishes as JSON.
//!
//! They are not part of this repository: they are read from the folder `reference/cel` in that
//! which `KEELSON_SHARED` names. `SKIPPED` lists the tests that cannot pass, with the reason.

use keelson_cel::{Environment, Library, Limits, Type, Val, Version};
use keelson_testkit::prerequisites::reference_data;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::PathBuf;

mod support;

const STRINGS: &str = "Kubernetes has version 2 of cel-go's strings, which formats differently";
const LENIENT_INDEX: &str =
    "an index beyond the end is not an error in Kubernetes' version of cel-go";
const OWN_FUNCTIONS: &str = "the test declares functions, which an environment cannot do";
const REPEATED_KEY: &str = "in a constant map the last entry of a key wins";
const DIFFERENT: &str = "kube-apiserver 1.36 gives another result, and so does Keelson";
const FAULTY: &str = "the expression lacks the backslash of the expected value";

/// Tests that do not pass: file, name (with its section if the name is not unique), reason.
const SKIPPED: &[(&str, &str, &str)] = &[
    ("fields", "map_bad_key_type_or_true", DIFFERENT),
    ("fields", "map_value_repeat_key", REPEATED_KEY),
    ("fields", "map_value_repeat_key_heterogeneous", REPEATED_KEY),
    ("network_ext", "ipv4_equals_ipv6", "Kubernetes rejects IPv4-mapped addresses"),
    ("optionals", "map_null_entry_no_such_key", DIFFERENT),
    ("optionals", "map_present_key_invalid_field", DIFFERENT),
    ("parse", "bytes_literals/triple_single_quoted_unescaped_punctuation", FAULTY),
    ("parse", "bytes_literals/triple_double_quoted_unescaped_punctuation", FAULTY),
    ("string_ext", "scientific notation formatting clause", STRINGS),
    ("string_ext", "default precision for fixed-point clause with int", STRINGS),
    ("string_ext", "default precision for scientific notation with int", STRINGS),
    ("string_ext", "default precision for scientific notation with uint", STRINGS),
    ("string_ext", "negative infinity support for scientific notation", STRINGS),
    ("string_ext", "NaN support for decimal", STRINGS),
    ("string_ext", "positive infinity support for decimal", STRINGS),
    ("string_ext", "positive infinity support for fixed-point", STRINGS),
    ("string_ext", "negative infinity support for fixed-point", STRINGS),
    ("string_ext", "list support for string", STRINGS),
    ("string_ext", "map support (all key types)", STRINGS),
    ("string_ext", "dyntype support for scientific notation", STRINGS),
    ("string_ext", "dyntype NaN/infinity support", STRINGS),
    ("string_ext", "dyntype support for lists", STRINGS),
    ("string_ext", "indexof_out_of_range", LENIENT_INDEX),
    ("string_ext", "lastindexof_out_of_range", LENIENT_INDEX),
    ("type_deduction", "function_result_type", OWN_FUNCTIONS),
    ("type_deduction", "multiple_parameters_parameterized_ovl", OWN_FUNCTIONS),
    ("type_deduction", "multiple_parameters_parameterized_ovl_2", OWN_FUNCTIONS),
];

/// Whether a test disables type checking and its expression does not type-check. Such tests are
/// skipped: Kubernetes checks every expression.
fn is_unchecked(test: &Json) -> bool {
    test["disable_check"].as_bool() == Some(true)
        && environment(test).compile(test["expr"].as_str().unwrap_or_default()).is_err()
}

#[test]
fn cel_spec_conformance_tests_pass() {
    let Some(folder) = reference_data("reference/cel") else { return };
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no tests in {}", folder.display());
    let mut failed = vec![];
    let mut counts: BTreeMap<String, (usize, usize, usize)> = BTreeMap::new();
    for path in files {
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        let tests: Vec<Json> =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for test in &tests {
            let name = test["name"].as_str().unwrap_or_default();
            let full = format!("{}/{name}", test["section"].as_str().unwrap_or_default());
            let count = counts.entry(file.clone()).or_default();
            let is = |rule: &str| rule == name || rule == full;
            let named = SKIPPED.iter().any(|(of, rule, _)| *of == file && is(rule));
            match (run(test), named || is_unchecked(test)) {
                (Ok(()), false) => count.0 += 1,
                (Ok(()), true) if named => {
                    failed.push(format!("{file}/{name} passes, and is left out"));
                }
                (_, true) => count.1 += 1,
                (Err(why), false) => {
                    count.2 += 1;
                    failed.push(format!("{file}/{name}: {}\n    {why}", test["expr"]));
                }
            }
        }
    }
    for (file, (passed, left_out, failed)) in &counts {
        println!("{file}: {passed} passed, {left_out} left out, {failed} failed");
    }
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

fn environment(test: &Json) -> Environment {
    let mut env = Environment::kubernetes(Version::STORED_EXPRESSIONS)
        .with_library(Library::Math)
        .with_library(Library::Encoders)
        .with_library(Library::Bindings)
        .with_library(Library::ReverseStrings)
        .lenient();
    if let Some(container) = test["container"].as_str() {
        env = env.with_container(container);
    }
    let mut decl_type = vec![];
    for variable in test["type_env"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().unwrap_or_default();
        if variable.get("ident").is_some() {
            decl_type.push(name.to_owned());
            env = env.with_variable(name, support::ty(&variable["ident"]["type"]));
        }
    }
    for name in test["bindings"].as_object().into_iter().flat_map(|map| map.keys()) {
        if !decl_type.contains(name) {
            env = env.with_variable(name.as_str(), Type::Dyn);
        }
    }
    env
}

fn variables(test: &Json) -> Vec<Option<Val<'static>>> {
    let bound = |name: &str| {
        let value = test["bindings"].get(name)?;
        Some(support::val(&value["value"]))
    };
    let mut names: Vec<String> = vec![];
    for variable in test["type_env"].as_array().into_iter().flatten() {
        if variable.get("ident").is_some() {
            names.push(variable["name"].as_str().unwrap_or_default().to_owned());
        }
    }
    for name in test["bindings"].as_object().into_iter().flat_map(|map| map.keys()) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names.iter().map(|name| bound(name)).collect()
}

fn run(test: &Json) -> Result<(), String> {
    let text = test["expr"].as_str().unwrap_or_default();
    let env = environment(test);
    let wants_error = test.get("eval_error").is_some();
    let compiled = match env.compile(text) {
        Ok(compiled) => compiled,
        Err(_) if wants_error => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    if let Some(wanted) = test["typed_result"].get("deduced_type") {
        let wanted = support::ty(wanted);
        let found = compiled.program.result_type();
        if wanted.to_string() != found.to_string() {
            return Err(format!("wanted the type {wanted}, found {found}"));
        }
    }
    if test["check_only"].as_bool() == Some(true) {
        return Ok(());
    }
    let variables = variables(test);
    let limits = Limits { cost_max: u64::MAX };
    let outcome = compiled.program.evaluate(&variables, &limits);
    let typed = test["typed_result"].get("result");
    let wanted = match test.get("value").or(typed) {
        Some(value) => support::val(value),
        None => Val::Bool(true),
    };
    match outcome.result {
        Ok(found) if wants_error => Err(format!("wanted an error, found {found:?}")),
        Ok(found) if support::same(&wanted, &found) => Ok(()),
        Ok(found) => Err(format!("wanted {wanted:?}, found {found:?}")),
        Err(_) if wants_error => Ok(()),
        Err(error) => Err(format!("wanted {wanted:?}, failed with {error}")),
    }
}
