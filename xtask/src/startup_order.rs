//! `cargo xtask startup-order`: lists the functions that a start of the server runs, for the linker
//! (`crates/keelson/build.rs`).

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const LIST: &str = "crates/keelson/startup-order.txt";
const PROGRAM: &str = "target/release/keelson";
const FOLDER: &str = "target/startup-order";
/// What the server prints when it is ready.
const READY: &str = "kubectl";
/// The loops' first round takes some seconds under valgrind.
const FIRST_ROUND: Duration = Duration::from_secs(45);

/// Builds the program, runs it under valgrind, and writes the list.
pub fn run() -> Result<()> {
    // The names are those of the usual build: what only the last step is told changes none of a library.
    succeed(
        Command::new("cargo")
            .args("rustc --release -p keelson --bin keelson -- -C strip=none".split(' ')),
    )?;
    let _ = std::fs::remove_dir_all(FOLDER);
    std::fs::create_dir_all(FOLDER).context(FOLDER)?;
    let profile = format!("{FOLDER}/callgrind.out");
    let mut server = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--demangle=no"])
        .arg(format!("--callgrind-out-file={profile}"))
        .args([PROGRAM, "serve", "--bind-address", "127.0.0.1", "--secure-port", "0"])
        .args(["--data-dir", &format!("{FOLDER}/data")])
        .stdout(Stdio::piped())
        .spawn()
        .context("run valgrind")?;
    let idle = wait_until_idle(&mut server);
    // SIGTERM, so that valgrind writes what it has seen.
    succeed(Command::new("kill").arg(server.id().to_string()))?;
    server.wait().context("wait for the server")?;
    idle?;
    let text = std::fs::read_to_string(&profile).with_context(|| profile.clone())?;
    let names = functions(&text);
    let compiler = Command::new("rustc").arg("--version").output().context("run rustc")?;
    let mut list = format!(
        "# Written by `cargo xtask startup-order` with {}",
        String::from_utf8_lossy(&compiler.stdout)
    );
    list.extend(names.iter().flat_map(|name| [*name, "\n"]));
    std::fs::write(LIST, list).context(LIST)?;
    std::fs::remove_dir_all(FOLDER).context(FOLDER)?;
    writeln!(std::io::stdout(), "{} functions in {LIST}", names.len()).context("write to stdout")
}

fn wait_until_idle(server: &mut Child) -> Result<()> {
    let output = server.stdout.take().context("the server's output")?;
    for line in BufReader::new(output).lines() {
        if line.context("read the server's output")?.contains(READY) {
            std::thread::park_timeout(FIRST_ROUND);
            return Ok(());
        }
    }
    bail!("the server ended before it was ready")
}

/// The names that a profile of callgrind defines: `fn=(12) name`, with `'2` behind it for a recursion. Functions
/// without a name are shown by their addresses.
fn functions(profile: &str) -> BTreeSet<&str> {
    profile.lines().filter_map(defined_name).collect()
}

fn defined_name(line: &str) -> Option<&str> {
    let line = line.strip_prefix('c').unwrap_or(line).strip_prefix("fn=(")?;
    let (_, name) = line.split_once(") ")?;
    name.split('\'').next().filter(|name| !name.starts_with("0x") && !name.starts_with('('))
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_where_they_are_defined() {
        let profile = "fl=(1) a.rs\nfn=(1) main\n0 5\ncfn=(2) _RNv1a'2\ncalls=1 0\nfn=(1)\nfn=(3) b\nfn=(4) 0x10c0\nfn=(5) (below main)\n";
        assert_eq!(functions(profile).into_iter().collect::<Vec<_>>(), ["_RNv1a", "b", "main"]);
    }
}
