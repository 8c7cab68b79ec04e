//! `cargo xtask startup-order`: lists the functions that a start of the server and its first requests run, for the
//! linker (`crates/keelson/build.rs`).

use anyhow::{Context, Result, bail, ensure};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
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
    let (first, rest) = in_order(&starting, &all, missed.lines().filter_map(faulting_name));
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
    ensure!(output.status.success(), "perf script: {}", output.status);
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

/// The functions of a start and those that only requests run. Of the first, those come first that requests run too, and
/// what takes most of their time stands together, on few pages.
fn in_order<'t>(
    starting: &'t str,
    all: &'t str,
    missed: impl Iterator<Item = &'t str>,
) -> (Vec<&'t str>, Vec<&'t str>) {
    let (starting, mut asked) = (costs(starting), costs(all));
    for (name, cost) in &starting {
        asked.entry(name).and_modify(|all| *all = all.saturating_sub(*cost));
    }
    let by_cost = |names: BTreeSet<&'t str>| {
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_by_key(|name| Reverse(asked.get(name).copied().unwrap_or_default()));
        names
    };
    let first: BTreeSet<&str> = starting.keys().copied().chain(missed).collect();
    let rest = asked.keys().copied().filter(|name| !first.contains(name)).collect();
    (by_cost(first), by_cost(rest))
}

/// Instructions of each function in a profile of callgrind, without those of what it calls. Functions without a name,
/// which are shown by their addresses, are left out.
fn costs(profile: &str) -> BTreeMap<&str, u64> {
    let mut names = BTreeMap::new();
    let mut costs = BTreeMap::new();
    let (mut function, mut is_call) = (None, false);
    for line in profile.lines() {
        if let Some(defined) = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")) {
            let (id, name) = defined.split_once(' ').unwrap_or((defined, ""));
            if !name.is_empty() {
                names.insert(id, name);
            }
            if !line.starts_with('c') {
                function = names.get(id).copied();
            }
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|sign: char| sign.is_ascii_digit() || "+-*".contains(sign)) {
            let cost = line.rsplit(' ').next().and_then(|cost| cost.parse::<u64>().ok());
            if let (Some(name), Some(cost), false) = (function.and_then(plain), cost, is_call) {
                *costs.entry(name).or_default() += cost;
            }
            is_call = false;
        }
    }
    costs
}

/// The name without the `'2` of a recursion.
fn plain(name: &str) -> Option<&str> {
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
    fn a_fault_names_a_function_of_the_program() {
        let faults = [
            "  5555 _ZN1a1bE (/src/target/release/keelson)",
            "  7f00 memcpy (/usr/lib/libc.so.6)",
            "  5555 [unknown] (/src/target/release/keelson)",
        ];
        assert_eq!(faults.map(faulting_name), [Some("_ZN1a1bE"), None, None]);
    }

    #[test]
    fn costs_are_those_of_the_function_itself() {
        let starting = "fn=(1) main\n0 5\ncfn=(2) _RNv1a'2\ncalls=1 0\n0 90\nfn=(2)\n0 3\nfn=(4) 0x10c0\n0 1\n";
        assert_eq!(costs(starting), [("_RNv1a", 3), ("main", 5)].into());
        let all = "fn=(1) main\n0 5\nfn=(2) _RNv1a\n0 7\nfn=(3) b\n+2 1\nfn=(5) c\n0 2\n";
        let order = in_order(starting, all, ["missed"].into_iter());
        assert_eq!(order, (vec!["_RNv1a", "main", "missed"], vec!["c", "b"]));
    }
}
