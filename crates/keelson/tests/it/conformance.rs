//! Replays the recorded transcripts. A scenario that was once exact must stay
//! exact: `files/exact.txt` lists them and only grows, but for what only the recorded build, which
//! was patched, answers: eight documents of OpenAPI v3 without the zero values of items
//! (`schema/tests/it/openapi.rs`).

use keelson::{Builder, Keelson};
use keelson_testkit::prerequisites::reference_data;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use tokio::runtime::Runtime;

/// Folders of transcripts that need no controllers.
const FOLDERS: [&str; 6] =
    ["rest/simple", "rest/kinds", "kinds", "ext", "sys/discovery", "sys/headers"];
/// Folders of transcripts of controllers, all of which are exact.
const CONTROLLERS: &str = "sys/controllers";
/// Number of scenarios that are replayed concurrently. Those of controllers mostly wait.
const JOBS: &str = "8";
const CONTROLLER_JOBS: &str = "24";

/// The names of a folder's scenarios that are exact.
fn exact(dir: &Path, url: &str, folder: &str, jobs: &str) -> BTreeSet<String> {
    let transcripts = dir.join("transcripts").join(folder);
    let output = Command::new("python3")
        .arg(dir.join("transcript"))
        .args(["replay", "--server", url, "--jobs", jobs])
        .arg(&transcripts)
        .output()
        .expect("python3 runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let fallen: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("FAIL   ").or_else(|| line.strip_prefix("loose  ")))
        .collect();
    assert!(text.contains(" passed, "), "{folder}: the replay did not end: {text}");
    let mut names = BTreeSet::new();
    collect(&transcripts, &mut names);
    assert!(!names.is_empty(), "{folder}: no scenarios");
    names.retain(|name| !fallen.contains(name.as_str()));
    names
}

fn collect(dir: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).expect("transcripts are readable") {
        let path = entry.expect("transcripts are readable").path();
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|ending| ending == "json") {
            names.insert(path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
        }
    }
}

/// A server for the replay.
fn serve(tokens: &str, builder: Builder) -> (Runtime, Keelson) {
    let runtime = Runtime::new().expect("runtime");
    let mut builder = builder.in_memory().plain_http();
    builder.authentication.tokens = keelson_auth::TokenFile::parse(tokens).expect("tokens.csv");
    let keelson = runtime.block_on(builder.start()).expect("the server starts");
    (runtime, keelson)
}

#[test]
fn recorded_controller_scenarios_replay_exactly() {
    let Some(dir) = reference_data("conformance") else { return };
    let tokens = std::fs::read_to_string(dir.join("tokens.csv")).expect("tokens.csv");
    let (runtime, keelson) = serve(&tokens, Keelson::builder());
    let exact = exact(&dir, keelson.url(), CONTROLLERS, CONTROLLER_JOBS);
    runtime.block_on(keelson.stop());
    let mut all = BTreeSet::new();
    collect(&dir.join("transcripts").join(CONTROLLERS), &mut all);
    let fallen: Vec<&String> = all.difference(&exact).collect();
    assert!(fallen.is_empty(), "not exact: {fallen:#?}");
}

#[test]
fn recorded_scenarios_replay_exactly() {
    let Some(dir) = reference_data("conformance") else { return };
    let tokens = std::fs::read_to_string(dir.join("tokens.csv")).expect("tokens.csv");
    let (runtime, keelson) = serve(&tokens, Keelson::builder().no_controllers());
    let url = keelson.url().to_owned();
    let mut now: BTreeSet<String> = BTreeSet::new();
    for folder in FOLDERS {
        now.extend(exact(&dir, &url, folder, JOBS));
    }
    runtime.block_on(keelson.stop());
    let known = include_str!("files/exact.txt");
    let fallen: Vec<&str> = known.lines().filter(|name| !now.contains(*name)).collect();
    println!("{} scenarios exact, {} listed", now.len(), known.lines().count());
    if let Ok(path) = std::env::var("KEELSON_WRITE_EXACT") {
        let names: Vec<&str> = now.iter().map(String::as_str).collect();
        std::fs::write(path, names.join("\n") + "\n").expect("the list can be written");
        return;
    }
    assert!(fallen.is_empty(), "no longer exact: {fallen:#?}");
}
