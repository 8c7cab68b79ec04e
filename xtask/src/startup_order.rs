//! `cargo xtask startup-order`: lists the functions that run during the start of the server, its
//! first requests, and with simulated nodes. The linker places them next to each other
//! (`crates/keelson/build.rs`).

use crate::commands;
use anyhow::{Context, Result, bail, ensure};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const LIST: &str = "crates/keelson/startup-order.txt";
const PROGRAM: &str = "target/dist/keelson";
const FOLDER: &str = "target/startup-order";
/// How long the first round of the control loops takes under valgrind.
const FIRST_ROUND: Duration = Duration::from_secs(45);
const TOKEN: &str = "startup-order";
/// Flags of the server with simulated nodes.
const SIMULATION: [&str; 2] = ["--simulate", "--simulate-nodes=3"];
/// A request that runs what every request runs, such as a handshake, and little else. Method, path,
/// content type and body.
const ANY_REQUEST: [[&str; 4]; 1] = [["GET", "/readyz", "", ""]];
/// Other requests. All are sent over HTTP/1.1 and over HTTP/2.
const REQUESTS: [[&str; 4]; 12] = [
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
        CONFIG_MAP,
    ],
    ["DELETE", ONE_POD, JSON, r#"{"gracePeriodSeconds":0}"#],
    ["DELETE", "/api/v1/namespaces/default/configmaps/c", "", ""],
];
const PODS: &str = "/api/v1/namespaces/default/pods";
const ONE_POD: &str = "/api/v1/namespaces/default/pods/p";
const JSON: &str = "application/json";
const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
const CONFIG_MAP: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: b}}";

/// Builds the program, runs it under valgrind and perf, and writes the list: first the functions of
/// the start, then those that any request runs beside them, such as a handshake, then those that
/// only other requests run, then those that only simulated nodes run. Valgrind
/// lacks some instruction sets, such as AVX-512, so the program runs other functions under it. Perf
/// adds functions of this processor that cause page faults during the start.
pub fn run() -> Result<()> {
    // The symbols of libraries are those of a usual dist build, because only the last rustc gets
    // these flags.
    commands::run(
        Command::new("cargo")
            .args("rustc --profile dist -p keelson --bin keelson -- -C strip=none".split(' ')),
    )?;
    let _ = std::fs::remove_dir_all(FOLDER);
    std::fs::create_dir_all(FOLDER).context(FOLDER)?;
    let tokens = format!("{FOLDER}/tokens.csv");
    std::fs::write(&tokens, format!("{TOKEN},admin,admin,system:masters\n")).context("tokens")?;
    let page_faults = page_faults()?;
    trace(valgrind("simulation"), &SIMULATION, |server| {
        wait_until_idle(server, FIRST_ROUND).map(drop)
    })?;
    trace(valgrind("requests"), &[], |server| {
        let url = wait_until_idle(server, FIRST_ROUND)?;
        // Each writes what has run since the one before: `requests.1`, `requests.2`; the end of the
        // program writes the rest.
        dump(server)?;
        send_requests(&url, &ANY_REQUEST)?;
        dump(server)?;
        send_requests(&url, &REQUESTS)
    })?;
    let profiles = [
        read(&format!("{FOLDER}/requests.1"))?,
        read(&format!("{FOLDER}/requests.2"))?,
        read(&format!("{FOLDER}/requests"))?,
        read(&format!("{FOLDER}/simulation"))?,
    ];
    let faulting: Vec<&str> = page_faults.lines().filter_map(function_of_page_fault).collect();
    let profiles = profiles.each_ref().map(|profile| costs(profile));
    let parts = in_order(&profiles, &faulting);
    let compiler = Command::new("rustc").arg("--version").output().context("run rustc")?;
    let mut list = format!(
        "# Written by `cargo xtask startup-order` with {}",
        String::from_utf8_lossy(&compiler.stdout)
    );
    list.extend(parts.iter().flatten().flat_map(|name| [*name, "\n"]));
    std::fs::write(LIST, list).context(LIST)?;
    let [start, any, others, simulated] = parts.map(|part| part.len());
    std::fs::remove_dir_all(FOLDER).context(FOLDER)?;
    writeln!(
        std::io::stdout(),
        "{LIST}: {start} functions of the start, {any} of any request, {others} of others, \
         {simulated} of simulated nodes"
    )
    .context("write to stdout")
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| path.to_owned())
}

/// Returns the command that writes a profile to `file`.
fn valgrind(file: &str) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--tool=callgrind", "--demangle=no"]);
    command.arg(format!("--callgrind-out-file={FOLDER}/{file}"));
    command
}

/// Runs the server with more flags under `tool`, on an empty data folder, calls `client`, and stops
/// the server.
fn trace(
    mut tool: Command,
    flags: &[&str],
    client: impl FnOnce(&mut Child) -> Result<()>,
) -> Result<()> {
    let data = format!("{FOLDER}/data");
    let _ = std::fs::remove_dir_all(&data);
    let mut server = tool
        .args([PROGRAM, "serve", "--bind-address", "127.0.0.1", "--secure-port", "0"])
        .args(["--data-dir", &data, "--token-auth-file", &format!("{FOLDER}/tokens.csv")])
        .args(flags)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {}", tool.get_program().display()))?;
    let result = client(&mut server);
    // SIGTERM, so that the tool writes its results.
    commands::run(Command::new("kill").arg(server.id().to_string()))?;
    server.wait().context("wait for the server")?;
    result
}

/// Lets callgrind write what has run since it did so last.
fn dump(server: &Child) -> Result<()> {
    commands::run(Command::new("callgrind_control").args(["--dump", &server.id().to_string()]))
}

/// Returns the page faults of a start and a request, in the output format of `perf script`.
fn page_faults() -> Result<String> {
    let faults = format!("{FOLDER}/faults");
    let mut perf = Command::new("perf");
    perf.args(["record", "--quiet", "--event", "page-faults", "--count", "1", "--output", &faults]);
    trace(perf, &[], |server| {
        send_requests(&wait_until_idle(server, Duration::from_secs(5))?, &ANY_REQUEST)
    })?;
    let mut script = Command::new("perf");
    script.args(["script", "--input", &faults, "--fields", "ip,sym,dso", "--no-demangle"]);
    let output = script.output().context("run perf script")?;
    ensure!(output.status.success(), "perf script: {}", output.status);
    String::from_utf8(output.stdout).context("output of perf script")
}

/// Returns the function in a line of `perf script`, `5555 name (/path/of/the/program)`, if the line
/// is of the server's program.
fn function_of_page_fault(line: &str) -> Option<&str> {
    let (name, file) = line.trim_start().split_once(' ')?.1.rsplit_once(" (")?;
    (file.trim_end_matches(')').ends_with(PROGRAM) && name != "[unknown]").then_some(name)
}

fn send_requests(url: &str, requests: &[[&str; 4]]) -> Result<()> {
    for version in ["--http1.1", "--http2"] {
        for request in requests {
            send_request(url, version, *request)?;
        }
    }
    Ok(())
}

/// Sends a request by curl. `version` is the flag of the HTTP version.
fn send_request(
    url: &str,
    version: &str,
    [method, path, content_type, body]: [&str; 4],
) -> Result<()> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--fail", "--insecure", "--output", "/dev/null", version]);
    curl.args(["--request", method, "--header", &format!("Authorization: Bearer {TOKEN}")]);
    if !body.is_empty() {
        curl.args(["--header", &format!("Content-Type: {content_type}"), "--data", body]);
    }
    commands::run(curl.arg(format!("{url}{path}")))
}

/// Waits until the server has started, and then for `first_round`, the time of the first round of
/// its control loops. Returns its URL.
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

/// The instructions of each function.
type Costs<'t> = BTreeMap<&'t str, u64>;

/// Returns the functions of each profile that are in none before it: those of the start, of any
/// request, of other requests, and of simulated nodes. `faulting` are more functions of the second.
/// Each part is sorted by the cost during requests, so that the functions that take most of their
/// time are together on few pages; that of the simulation by its own. Of other requests, those that
/// simulated nodes run too come first.
fn in_order<'t>(profiles: &[Costs<'t>; 4], faulting: &[&'t str]) -> [Vec<&'t str>; 4] {
    let [_, any, others, simulation] = profiles;
    let cost = |of: &[&Costs<'_>], name: &str| -> u64 {
        of.iter().filter_map(|costs| costs.get(name)).sum()
    };
    let mut known = BTreeSet::new();
    std::array::from_fn(|at| {
        let more = if at == 1 { faulting } else { &[] };
        let names = profiles[at].keys().chain(more).copied();
        let mut part: Vec<&str> = names.filter(|name| known.insert(*name)).collect();
        let measure: &[&Costs<'_>] = if at == 3 { &[simulation] } else { &[any, others] };
        let is_simulated = |name: &str| at == 2 && simulation.contains_key(name);
        part.sort_by_key(|name| Reverse((is_simulated(name), cost(measure, name))));
        part
    })
}

/// Parses a profile of callgrind. Returns the instructions of each function itself, without those
/// of the functions that it calls. Leaves out functions without a name.
fn costs(profile: &str) -> Costs<'_> {
    let mut names = BTreeMap::new();
    let mut costs = BTreeMap::new();
    let mut function = None;
    let mut is_call = false;
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
            if let (Some(name), Some(cost), false) = (function.and_then(symbol), cost, is_call) {
                *costs.entry(name).or_default() += cost;
            }
            is_call = false;
        }
    }
    costs
}

/// Returns the symbol without the suffix of a recursive call, such as `'2`. `None`: the function
/// has no name but an address.
fn symbol(name: &str) -> Option<&str> {
    name.split('\'').next().filter(|name| !name.starts_with("0x") && !name.starts_with('('))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_faults_outside_the_program_are_ignored() {
        let faults = [
            "  5555 _ZN1a1bE (/src/target/dist/keelson)",
            "  7f00 memcpy (/usr/lib/libc.so.6)",
            "  5555 [unknown] (/src/target/dist/keelson)",
        ];
        assert_eq!(faults.map(function_of_page_fault), [Some("_ZN1a1bE"), None, None]);
    }

    #[test]
    fn functions_are_sorted_by_their_own_cost_during_requests() {
        let start = "fn=(1) main\n0 5\ncfn=(2) _RNv1a'2\ncalls=1 0\n0 90\nfn=(2)\n0 3\nfn=(4) 0x10c0\n0 1\n";
        assert_eq!(costs(start), [("_RNv1a", 3), ("main", 5)].into());
        let any = "fn=(1) main\n0 1\nfn=(2) _RNv1a\n0 4\nfn=(3) b\n+2 1\nfn=(5) c\n0 2\n";
        let others = "fn=(1) b\n0 5\nfn=(2) d\n0 1\nfn=(3) f\n0 2\n";
        let simulation = "fn=(1) d\n0 5\nfn=(2) g\n0 7\nfn=(4) e\n0 9\n";
        let profiles = [start, any, others, simulation].map(costs);
        let order = in_order(&profiles, &["page_fault", "main"]);
        assert_eq!(order[0], ["_RNv1a", "main"]);
        assert_eq!(order[1], ["b", "c", "page_fault"]);
        assert_eq!((&*order[2], &*order[3]), (&["d", "f"][..], &["e", "g"][..]));
    }
}
