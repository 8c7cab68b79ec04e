//! `cargo xtask kills`: kills processes that write to a store, or whole servers, and checks that no
//! acknowledged write is lost.

use anyhow::{Context, Result, bail};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Runs the task with its arguments.
pub fn run(args: &[String]) -> Result<()> {
    if let Some(place) = args.iter().position(|word| word == "--server") {
        return servers(args.iter().enumerate().filter(|(n, _)| *n != place).map(|(_, word)| word));
    }
    let built = Command::new("cargo")
        .args(["build", "--release", "--quiet", "-p", "keelson-store", "--example", "kills"])
        .status()
        .context("build the example kills")?;
    if !built.success() {
        bail!("the example kills does not build");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let path = std::path::Path::new(&target).join("release/examples/kills");
    // Replaces this process, so that only the example gets Ctrl-C.
    Err(Command::new(&path).args(args).exec()).with_context(|| path.display().to_string())
}

/// Kills whole servers: runs a test, with the number of kills in its environment.
fn servers<'a>(mut args: impl Iterator<Item = &'a String>) -> Result<()> {
    let count = match (args.next().map(String::as_str), args.next(), args.next()) {
        (Some("--count"), Some(count), None) => count.as_str(),
        (None, ..) => "20",
        _ => bail!("--server allows only --count N"),
    };
    let status = Command::new("cargo")
        .args(["test", "-p", "keelson", "--test", "it", "--", "--nocapture", "a_killed_server"])
        .env("KEELSON_KILLS", count)
        .status()
        .context("run the test")?;
    if !status.success() {
        bail!("the test ended with {status}");
    }
    Ok(())
}
