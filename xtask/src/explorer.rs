//! `cargo xtask explorer`: the tests of the explorer. Its modules run in Node, its pages in a
//! browser against a server with a simulated cluster.

use crate::ci::{has, is_named, is_required};
use crate::commands;
use anyhow::{Result, bail};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const UNIT_TESTS: &str = "crates/explorer/tests/js/";
const BROWSER_TESTS: &str = "tests/explorer";
/// Where the tests leave what the pages looked like.
const SHOTS: &str = "target/explorer";
/// The folder of the pictures in the documentation.
const IMAGES: &str = "docs/images";
/// Screenshots that the documentation shows.
const SHOWN: [&str; 2] = ["history.png", "relations.png"];
/// Names of browsers that the tests can drive.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// Environment variable: the path of a browser.
const BROWSER: &str = "KEELSON_BROWSER";
/// The name of the browser in `KEELSON_REQUIRE`.
pub const NAME: &str = "chromium";

/// Runs the tests. Returns what did not run. `--images` also writes the pictures of the
/// documentation.
pub fn run(args: &[String]) -> Result<Vec<String>> {
    let writes_images = match args {
        [] => false,
        [flag] if flag == "--images" => true,
        _ => bail!("explorer: unknown arguments {args:?}"),
    };
    if !has("npm") {
        return missing("npm", "Node 20 with npm");
    }
    commands::run(Command::new("node").args(["--test", UNIT_TESTS]).stdin(Stdio::null()))?;
    // `all` means what a machine can have: Debian's package of a browser cannot be had everywhere.
    let Some(browser) = browser() else {
        if is_named(NAME) {
            bail!("explorer: Chromium is missing, and KEELSON_REQUIRE names {NAME}");
        }
        return Ok(vec!["pages of the explorer (need Chromium)".to_owned()]);
    };
    commands::build_tests()?;
    let install = ["ci", "--no-audit", "--no-fund", "--silent"];
    commands::run(Command::new("npm").args(install).current_dir(BROWSER_TESTS))?;
    let root = std::env::current_dir()?;
    let mut tests = Command::new("node");
    tests.args(["--test"]).current_dir(BROWSER_TESTS).stdin(Stdio::null());
    tests.env("KEELSON_PROGRAM", root.join(commands::SERVER));
    tests.env("KEELSON_SHOTS", root.join(SHOTS)).env(BROWSER, browser);
    commands::run(&mut tests)?;
    if writes_images {
        std::fs::create_dir_all(IMAGES)?;
        for name in SHOWN {
            std::fs::copy(Path::new(SHOTS).join(name), Path::new(IMAGES).join(name))?;
        }
    }
    writeln!(std::io::stdout(), "explorer: its modules and pages passed; screenshots: {SHOTS}")?;
    Ok(vec![])
}

fn missing(name: &str, needs: &str) -> Result<Vec<String>> {
    if is_required(name) {
        bail!("explorer: {needs} is missing, and KEELSON_REQUIRE names {name}");
    }
    Ok(vec![format!("explorer (needs {needs})")])
}

/// Returns the browser that the environment names, or one of the system.
fn browser() -> Option<String> {
    if let Ok(named) = std::env::var(BROWSER) {
        return Some(named);
    }
    let folders: Vec<_> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let paths = BROWSERS.iter().flat_map(|name| folders.iter().map(move |dir| dir.join(name)));
    let found = paths.into_iter().find(|path| path.is_file())?;
    Some(found.to_string_lossy().into_owned())
}
