//! `cargo xtask startup-order`: lists the functions that a start of the server and its first requests run, for the
//! linker (`crates/keelson/build.rs`).

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const LIST: &str = "crates/keelson/startup-order.txt";
const PROGRAM: &str = "target/release/keelson";
const FOLDER: &str = "target/startup-order";
/// The loops' first round, under valgrind.
const FIRST_ROUND: Duration = Duration::from_secs(45);
const TOKEN: &str = "startup-order";
/// Method, path, media type and body of what is asked, over HTTP/1.1 and over HTTP/2.
const REQUESTS: [[&str; 4]; 13] = [
    ["GET", "/readyz", "", ""],
    ["GET", "/version", "", ""],
    ["POST", PODS, JSON, POD],
    ["GET", ONE_POD, "", ""],
    ["GET", PODS, "", ""],
    ["GET", "/api/v1/pods?limit=500", "", ""],
    ["GET", "/api/v1/pods?labelSelector=app%3Dweb", "", ""],
    [
        "GET",
        "/api/v1/pods?watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        "",
        "",
    ],
    [
        "PATCH",
        ONE_POD,
        "application/merge-patch+json",
        r#"{"metadata":{"labels":{"tier":"front"}}}"#,
    ],
    [
        "PATCH",
        ONE_POD,
        "application/strategic-merge-patch+json",
        r#"{"metadata":{"labels":{"tier":"back"}}}"#,
    ],
    [
        "PATCH",
        "/api/v1/namespaces/default/configmaps/c?fieldManager=a",
        "application/apply-patch+yaml",
        MAP,
    ],
    ["DELETE", ONE_POD, JSON, r#"{"gracePeriodSeconds":0}"#],
    ["DELETE", "/api/v1/namespaces/default/configmaps/c", "", ""],
];
const PODS: &str = "/api/v1/namespaces/default/pods";
const ONE_POD: &str = "/api/v1/namespaces/default/pods/p";
const JSON: &str = "application/json";
const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
const MAP: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: b}}";

/// Builds the program, runs it under valgrind and under perf, and writes the list: first what the start runs, then
/// what only the requests do. Perf adds what runs on this processor only (valgrind has no AVX-512, for one), as far as
/// it lay apart from the rest.
pub fn run() -> Result<()> {
    // The names are those of the usual build: what only the last step is told changes none of a library.
    succeed(
        Command::new("cargo")
            .args("rustc --release -p keelson --bin keelson -- -C strip=none".split(' ')),
    )?;
    let _ = std::fs::remove_dir_all(FOLDER);
    std::fs::create_dir_all(FOLDER).context(FOLDER)?;
    let tokens = format!("{FOLDER}/tokens.csv");
    std::fs::write(&tokens, format!("{TOKEN},admin,admin,system:masters\n")).context("tokens")?;
    let missed = faulting_functions()?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--tool=callgrind", "--demangle=no"]);
    valgrind.arg(format!("--callgrind-out-file={FOLDER}/profile"));
    trace(valgrind, |server| {
        wait_until_idle(server, FIRST_ROUND).and_then(|url| {
            // Writes the profile so far to `profile.1`.
            succeed(Command::new("callgrind_control").args(["--dump", &server.id().to_string()]))?;
            ask_all(&url)
        })
    })?;
    let starting = read(&format!("{FOLDER}/profile.1"))?;
    let all = read(&format!("{FOLDER}/profile"))?;
    let mut first = functions(&starting);
    first.extend(missed.lines().filter_map(faulting_name));
    let mut rest = functions(&all);
    rest.retain(|name| !first.contains(name));
    let compiler = Command::new("rustc").arg("--version").output().context("run rustc")?;
    let mut list = format!(
        "# Written by `cargo xtask startup-order` with {}",
        String::from_utf8_lossy(&compiler.stdout)
    );
    list.extend(first.iter().chain(&rest).flat_map(|name| [*name, "\n"]));
    std::fs::write(LIST, list).context(LIST)?;
    let (first, rest) = (first.len(), rest.len());
    std::fs::remove_dir_all(FOLDER).context(FOLDER)?;
    writeln!(std::io::stdout(), "{first} functions of a start and {rest} of requests in {LIST}")
        .context("write to stdout")
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| path.to_owned())
}

/// Runs the program by a tool, on an empty folder, and has it end after what is done with it.
fn trace(mut tool: Command, with: impl FnOnce(&mut Child) -> Result<()>) -> Result<()> {
    let data = format!("{FOLDER}/data");
    let _ = std::fs::remove_dir_all(&data);
    let mut server = tool
        .args([PROGRAM, "serve", "--bind-address", "127.0.0.1", "--secure-port", "0"])
        .args(["--data-dir", &data, "--token-auth-file", &format!("{FOLDER}/tokens.csv")])
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {}", tool.get_program().display()))?;
    let done = with(&mut server);
    // SIGTERM, so that the tool writes what it has seen.
    succeed(Command::new("kill").arg(server.id().to_string()))?;
    server.wait().context("wait for the server")?;
    done
}

/// The functions at which the program had to wait for a page, as `perf script` prints them.
fn faulting_functions() -> Result<String> {
    let faults = format!("{FOLDER}/faults");
    let mut perf = Command::new("perf");
    perf.args(["record", "--quiet", "--event", "page-faults", "--count", "1", "--output", &faults]);
    trace(perf, |server| ask_all(&wait_until_idle(server, Duration::from_secs(5))?))?;
    let mut script = Command::new("perf");
    script.args(["script", "--input", &faults, "--fields", "ip,sym,dso", "--no-demangle"]);
    let output = script.output().context("run perf script")?;
    String::from_utf8(output.stdout).context("what perf script prints")
}

/// The function in a line of `perf script`, `5555 name (/path/of/the/program)`, when it is the program's.
fn faulting_name(line: &str) -> Option<&str> {
    let (name, file) = line.trim_start().split_once(' ')?.1.rsplit_once(" (")?;
    (file.trim_end_matches(')').ends_with(PROGRAM) && name != "[unknown]").then_some(name)
}

fn ask_all(url: &str) -> Result<()> {
    for version in ["--http1.1", "--http2"] {
        for request in REQUESTS {
            ask(url, version, request)?;
        }
    }
    Ok(())
}

fn ask(url: &str, version: &str, [method, path, media, body]: [&str; 4]) -> Result<()> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--fail", "--insecure", "--output", "/dev/null", version]);
    curl.args(["--request", method, "--header", &format!("Authorization: Bearer {TOKEN}")]);
    if !body.is_empty() {
        curl.args(["--header", &format!("Content-Type: {media}"), "--data", body]);
    }
    succeed(curl.arg(format!("{url}{path}")))
}

/// Waits for the server to start and do a first round of everything, which takes so long; returns its URL.
fn wait_until_idle(server: &mut Child, first_round: Duration) -> Result<String> {
    let output = server.stdout.take().context("the server's output")?;
    for line in BufReader::new(output).lines() {
        let line = line.context("read the server's output")?;
        // "Keelson ... serves the Kubernetes API ... on https://..."
        if let Some(url) = line.split(' ').find(|word| word.starts_with("https://")) {
            std::thread::park_timeout(first_round);
            return Ok(url.to_owned());
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
        let faults = [
            "  5555 _ZN1a1bE (/src/target/release/keelson)",
            "  7f00 memcpy (/usr/lib/libc.so.6)",
            "  5555 [unknown] (/src/target/release/keelson)",
        ];
        assert_eq!(faults.map(faulting_name), [Some("_ZN1a1bE"), None, None]);
        assert_eq!(functions(profile).into_iter().collect::<Vec<_>>(), ["_RNv1a", "b", "main"]);
    }
}
