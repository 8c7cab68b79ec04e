//! The project's own tools; `cargo xtask help` lists them.

mod attack;
mod bench;
mod catalogue;
mod ci;
mod clients;
mod commands;
mod corpus;
mod explorer;
mod fuzz;
mod kills;
mod nightly;
mod package;
mod peers;
mod rbac;
mod release_notes;
mod requirements;
mod startup_order;
mod tidy;
mod transcripts;

use anyhow::{Result, bail};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

const HELP: &str = "\
cargo xtask ci
    Builds everything and runs all checks and tests. Installs tools that are missing. Lists at the end
    what did not run and what it needs. KEELSON_REQUIRE=NAME,... (or all) makes missing ones fail.
cargo xtask clients [--check]
    Runs the tests of stock clients for Go, Java, JavaScript and Python with servers, and writes
    docs/clients.md. With --check it only compares the page.
cargo xtask package wheel|npm|deb|static|sbom|all [--program FILE] [--out DIR]
cargo xtask package --check-static
    Makes the packages of docs/install.md in DIR (default target/packages), each with its SBOM beside it.
    Builds the profile dist, or packs a program that is already built. --check-static links the program
    of the tests statically, and runs it in an empty root; it needs root.
cargo xtask corpus [--only NAME] [--broken N] [--objects N] [--seed N] [-v]
    Downloads the packages of crates/testkit/compare/corpus.txt, manifests of public projects, sends them
    to a kube-apiserver and to Keelson, as they are and with broken fields, reads them in all forms and
    with kubectl, and prints what differs. Takes some forty minutes and gigabytes of Go's module cache.
cargo xtask peers [NAME ...]
    Builds the stock programs that tests drive into target/peers: kube-apiserver, kube-controller-manager,
    kube-scheduler, three versions of kubectl, sample-apiserver, etcd and Helm 4, from the Go modules in
    tests/go. Needs Go 1.26; takes ten to twenty minutes the first time. helm3, etcdctl and etcdutl are
    built if they are named.
cargo xtask attack [--seconds N] [--only NAME] [--list] [--strict] [--kubeconfig FILE --pid PID]
    Runs about sixty attacks against a server on this host, for about a minute, while an administrator
    sends a request every 20 ms. Fails when a response takes 250 ms (in the place of etcd 300; of the
    program of a package 100), memory exceeds 300 MB, or data is lost. Known faults fail only with --strict.
cargo xtask explorer [--images]
    Runs the tests of the explorer: its modules in Node, its pages in a headless Chromium with a server.
    Leaves screenshots in target/explorer; --images copies those of the documentation to docs/images.
cargo xtask fuzz [--seconds N] [--target NAME] [--seed N] [--trace FILE] [--input FILE]
    Runs decoders, parsers and patches with random inputs, each target for N seconds (default 60). Prints
    a fault with its input and round. --trace keeps the last input even when the process dies, and
    --input runs it again.
cargo xtask kills [--count N] [--jobs N] [--seed N]
    Kills processes that write to a store, N times (default 1000), and checks after each that no
    acknowledged write is lost; about a hundred in ten seconds. Ctrl-C ends it with the results so far.
    With --server it kills whole servers (default 20, about one a second).
cargo xtask nightly [--seconds N] [--kills N]
    An hour (or N seconds) of faults of three servers on three members of etcd, then 100,000 (or N) kills
    as `kills` does them.
cargo xtask tidy
    Checks the rules of STYLE.md and ARCHITECTURE.md that a machine can check.
cargo xtask rbac DIR
    Writes the default roles and bindings of RBAC, crates/builtin/src/bootstrap/rbac.txt, from those of a
    kube-apiserver: DIR/clusterroles.json and so on, the output of `kubectl get clusterroles -A -o json`.
cargo xtask record --server URL --token TOKEN [FILE|all]
cargo xtask replay --server URL --token TOKEN [FILE|all]
    Sends the requests of transcripts, crates/*/tests/**/*.transcript. `record` sends them to a
    kube-apiserver 1.36 and saves its answers; `replay` sends them to any server and prints the
    differences. --help prints more.
cargo xtask release-notes [VERSION]
    Prints the section of a version in CHANGELOG.md, or that of the next one.
cargo xtask requirements [--check]
    Writes docs/requirements.md: the requirements of the API (docs/requirements.txt) and the tests that prove them.
    Fails if a requirement has no test. With --check it writes nothing and compares.
cargo xtask bench [--compare FILE.json]
    Measures a dist build, in about ten minutes, and writes docs/perf: every row of the budget, growth
    up to a million objects, and the verbs one by one.
cargo xtask startup-order
    Writes crates/keelson/startup-order.txt, the functions that run during the start. The linker places
    them next to each other, which saves 10 MB of an idle server's resident memory. Needs valgrind, perf
    and curl. The symbols are those of one compiler; others link the same program in another order.
cargo xtask soak [--seconds N]
    Runs a small cluster against a dist build for 20 minutes, with a burst at the end, and writes
    docs/perf/soak.md. Fails when memory grows, a request fails, or latencies take more than a second
    to recover from the burst.
cargo xtask catalogue [--reference DIR] [--check]
    Writes crates/schema/catalogue from OpenAPI v3 and v2 documents, a protobuf descriptor set and
    aggregated discovery in DIR (default ../shared/reference). With --check it only compares.
";

fn main() -> Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(code) = package::compile(&args) {
        return Ok(code);
    }
    let of_package = variables_of_package();
    if !of_package.is_empty() {
        let mut again = Command::new(std::env::current_exe()?);
        for name in of_package {
            again.env_remove(name);
        }
        return Err(again.args(args).exec().into());
    }
    run(&args).map(|()| ExitCode::SUCCESS)
}

/// Returns the names of the variables that `cargo run` sets for this package. With them, cargo
/// builds crates again whose build scripts read them, ring for one, and all that depend on those.
fn variables_of_package() -> Vec<OsString> {
    let is_of_package = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    };
    std::env::vars_os().map(|(name, _)| name).filter(is_of_package).collect()
}

fn run(args: &[String]) -> Result<()> {
    if let Some(help) = help(args) {
        use std::io::Write;
        return Ok(std::io::stdout().write_all(help.as_bytes())?);
    }
    match args.first().map(String::as_str) {
        Some("attack") => attack::run(&args[1..]),
        Some("bench") => bench::run(&args[1..]),
        Some("catalogue") => catalogue::run(&args[1..]),
        Some("clients") => clients::run(args[1..] == ["--check"]).map(drop),
        Some("ci") => ci::run(),
        Some("corpus") => corpus::run(&args[1..]),
        Some("explorer") => explorer::run(&args[1..]).map(drop),
        Some("fuzz") => fuzz::run(&args[1..]),
        Some("package") => package::run(&args[1..]),
        Some("peers") => peers::run(&args[1..]),
        Some("kills") => kills::run(&args[1..]),
        Some("nightly") => nightly::run(&args[1..]),
        Some("startup-order") => startup_order::run(),
        Some("soak") => bench::soak(&args[1..]),
        Some("rbac") => rbac::run(&args[1..]),
        Some("release-notes") => release_notes::run(&args[1..]),
        Some("requirements") => requirements::run(&args[1..]),
        Some("record" | "replay") => transcripts::run(args),
        Some("tidy") => tidy::run(),
        other => bail!("unknown task {other:?}; `cargo xtask help` lists them"),
    }
}

/// Returns the help that the arguments request: of all tasks, or of one (`ci --help`). Returns
/// `None` when they request no help, or that of `record` and `replay`, which print their own.
fn help(args: &[String]) -> Option<String> {
    let is_help = |arg: &str| matches!(arg, "--help" | "-h");
    let Some(task) = args.first().filter(|task| *task != "help" && !is_help(task)) else {
        return Some(HELP.to_owned());
    };
    let has_own_help = matches!(task.as_str(), "record" | "replay");
    if has_own_help || !args.iter().any(|arg| is_help(arg)) {
        return None;
    }
    let usage = format!("cargo xtask {task}");
    let is_usage = |line: &str| line == usage || line.starts_with(&format!("{usage} "));
    // A paragraph is one or more lines of usage, and the indented lines that describe them.
    let mut paragraphs: Vec<(bool, Vec<&str>)> = vec![];
    for line in HELP.lines() {
        let starts = !line.starts_with(' ')
            && paragraphs.last().is_none_or(|(_, lines)| lines[lines.len() - 1].starts_with(' '));
        if starts {
            paragraphs.push((false, vec![]));
        }
        if let Some((is_requested, lines)) = paragraphs.last_mut() {
            *is_requested |= is_usage(line);
            lines.push(line);
        }
    }
    let (_, lines) = paragraphs.into_iter().find(|(is_requested, _)| *is_requested)?;
    Some(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help_of(args: &str) -> Option<String> {
        let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
        help(&args)
    }

    #[test]
    fn every_task_prints_its_help_instead_of_running() {
        for line in HELP.lines().filter(|line| !line.starts_with(' ')) {
            let task = line.split_whitespace().nth(2).expect("a task");
            if matches!(task, "record" | "replay") {
                assert_eq!(help_of(&format!("{task} --help")), None);
                continue;
            }
            for args in [format!("{task} --help"), format!("{task} --seconds 1 -h")] {
                let help = help_of(&args).expect(&args);
                assert!(help.contains(line) && help.contains("\n    "), "{args}: {help}");
                assert!(help.len() < HELP.len() / 3, "{args}: {help}");
            }
            assert_eq!(help_of(task), None);
        }
        for all in ["", "help", "--help", "-h"] {
            assert_eq!(help_of(all).as_deref(), Some(HELP));
        }
        assert_eq!(help_of("nothing --help"), None);
    }
}
