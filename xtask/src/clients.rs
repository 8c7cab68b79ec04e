//! `cargo xtask clients`: runs the tests of stock clients in `tests/` with servers, and writes
//! their matrix, docs/clients.md.

use crate::commands;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const PAGE: &str = "docs/clients.md";
const HEAD: &str = "\
# Clients

Stock clients whose tests pass with Keelson. `cargo xtask clients` runs them and writes this page. kubectl, kube-rs and
the stock controllers are driven by the tests of `crates/keelson/tests`.

The fabric8 client for Java reads RSA keys only, and the keys in Keelson's kubeconfigs are of elliptic curves: give it a
token (`--token-auth-file`, or one of a service account) instead of the certificate.
";
const GO: &str = "tests/go/clients";
const GO_ENVTEST: &str = "tests/go/envtest";
const GO_ETCD: &str = "tests/go/etcd";
const JAVASCRIPT: &str = "tests/js";
const JAVA_RESULTS: &str = "target/java/surefire-reports";
const TOKEN: &str = "admintoken";

/// A client with its tests, by name, and whether they passed.
struct Row {
    client: String,
    tests: BTreeMap<String, bool>,
}

/// Runs the tests of all clients whose tools are installed. Returns what did not run. With `check`
/// the page is compared instead of written.
pub fn run(check: bool) -> Result<Vec<String>> {
    commands::build_tests()?;
    let program = std::env::current_dir()?.join(commands::SERVER);
    let mut rows = vec![];
    let mut not_run = vec![];
    type Client = (&'static str, &'static str, fn(&Path) -> Result<Vec<Row>>);
    let clients: [Client; 4] = [
        ("Go clients", "go", go),
        ("JavaScript client", "npm", javascript),
        ("Java client", "mvn", java),
        ("Python client", crate::ci::PYTHON, python),
    ];
    for (name, tool, run) in clients {
        if crate::ci::has(tool) {
            writeln!(std::io::stdout(), "clients: {name}")?;
            rows.extend(run(&program).with_context(|| name.to_owned())?);
        } else if crate::ci::is_required("clients") {
            bail!("{name}: {tool} is missing, and KEELSON_REQUIRE names clients");
        } else {
            not_run.push(format!("{name} (needs {tool})"));
        }
    }
    for row in &rows {
        let failed: Vec<_> = row.tests.iter().filter(|(_, passed)| !**passed).collect();
        if row.tests.is_empty() || !failed.is_empty() {
            bail!("{}: of {} tests failed {failed:?}", row.client, row.tests.len());
        }
    }
    let tests: usize = rows.iter().map(|row| row.tests.len()).sum();
    writeln!(std::io::stdout(), "clients: {tests} tests of {} clients passed", rows.len())?;
    if not_run.is_empty() {
        let page = page(&rows);
        if !check {
            std::fs::write(PAGE, page).context(PAGE)?;
        } else if std::fs::read_to_string(PAGE).unwrap_or_default() != page {
            bail!("{PAGE} is not what `cargo xtask clients` writes");
        }
    }
    Ok(not_run)
}

fn page(rows: &[Row]) -> String {
    let mut page = format!("{HEAD}\n| client | tests that passed |\n|---|---|\n");
    for row in rows {
        let tests: Vec<_> = row.tests.keys().map(String::as_str).collect();
        let _ = writeln!(page, "| {} | {} |", row.client, tests.join("; "));
    }
    page
}

/// Two versions of client-go, and controller-runtime with the newer one, also with servers that it
/// starts itself.
fn go(program: &Path) -> Result<Vec<Row>> {
    let mut rows = vec![];
    let controllers = "sigs.k8s.io/controller-runtime";
    for (folder, module, package, pins, part) in [
        (GO, "k8s.io/client-go", "./clientgo", "-modfile=go-0.36.mod", ""),
        (GO, "k8s.io/client-go", "./clientgo", "-modfile=go.mod", ""),
        (GO, controllers, "./controllers", "-modfile=go.mod", ""),
        (GO_ENVTEST, controllers, ".", "-modfile=go.mod", ", envtest"),
        (
            GO_ETCD,
            "go.etcd.io/etcd/client/v3",
            ".",
            "-modfile=go.mod",
            ", the program in etcd's place",
        ),
    ] {
        let version = commands::output(
            Command::new("go")
                .args(["list", pins, "-m", "-f", "{{.Version}}", module])
                .current_dir(folder),
        )?;
        let mut tests = Command::new("go");
        tests.args(["test", pins, "-count=1", "-json", package]).current_dir(folder);
        tests.env("KEELSON_PROGRAM", program).stdin(Stdio::null());
        let output = tests.output().context("run go")?;
        let events = String::from_utf8_lossy(&output.stdout);
        let client = format!("{module} {}{part}", version.trim());
        let mut row = Row { client, tests: go_tests(&events) };
        if !output.status.success() {
            let mut err = std::io::stderr();
            writeln!(err, "{events}{}", String::from_utf8_lossy(&output.stderr))?;
            row.tests.insert(package.to_owned(), false);
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Reads the events that `go test -json` prints, one a line.
fn go_tests(events: &str) -> BTreeMap<String, bool> {
    let events = events.lines().filter_map(|line| serde_json::from_str(line).ok());
    let ends = events.filter_map(|event: serde_json::Value| {
        let passed = match event["Action"].as_str()? {
            "pass" => true,
            "fail" => false,
            _ => return None,
        };
        Some((words(event["Test"].as_str()?.trim_start_matches("Test")), passed))
    });
    ends.collect()
}

/// `ListsByPages` and `listsByPages` become `lists by pages`; a run of capitals stays together.
fn words(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut text = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let is_lower = |at: usize| letters.get(at).is_some_and(char::is_ascii_lowercase);
        let starts_word =
            letter.is_ascii_uppercase() && (at > 0 && is_lower(at - 1) || is_lower(at + 1));
        if starts_word && at > 0 {
            text.push(' ');
        }
        text.push(if is_lower(at + 1) { letter.to_ascii_lowercase() } else { *letter });
    }
    text
}

/// Installs the JavaScript client beside its tests, as its lock says.
pub fn install_javascript() -> Result<()> {
    let install = ["ci", "--no-audit", "--no-fund", "--silent"];
    commands::run(Command::new("npm").args(install).current_dir(JAVASCRIPT))
}

fn javascript(program: &Path) -> Result<Vec<Row>> {
    install_javascript()?;
    let folder = Path::new(JAVASCRIPT);
    let lock =
        std::fs::read_to_string(folder.join("package-lock.json")).context("package-lock.json")?;
    let lock: serde_json::Value = serde_json::from_str(&lock).context("package-lock.json")?;
    let name = "@kubernetes/client-node";
    let version = lock["packages"][format!("node_modules/{name}")]["version"].as_str();
    let server = Server::start(program)?;
    let mut tests = Command::new("node");
    tests.args(["--test", "--test-reporter=tap"]).current_dir(folder).stdin(Stdio::null());
    let output = tests.env("KUBECONFIG", &server.kubeconfig).output().context("run node")?;
    let report = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        writeln!(std::io::stderr(), "{report}")?;
    }
    let client = format!("{name} {}", version.unwrap_or_default());
    Ok(vec![Row { client, tests: tap_tests(&report) }])
}

/// Reads the results of a report in the format of TAP.
fn tap_tests(report: &str) -> BTreeMap<String, bool> {
    let results = report.lines().filter_map(|line| {
        let (result, name) = line.trim().split_once(" - ")?;
        let passed = result.starts_with("ok ");
        (passed || result.starts_with("not ok ")).then(|| (name.to_owned(), passed))
    });
    results.collect()
}

fn java(program: &Path) -> Result<Vec<Row>> {
    let folder = Path::new("tests/java");
    let pom = std::fs::read_to_string(folder.join("pom.xml")).context("pom.xml")?;
    let between = |text: &str, open: &str, close: &str| -> Option<String> {
        Some(text.split_once(open)?.1.split_once(close)?.0.to_owned())
    };
    let version = between(&pom, "<client.version>", "</client.version>").unwrap_or_default();
    let _ = std::fs::remove_dir_all(JAVA_RESULTS);
    let server = Server::start(program)?;
    let mut tests = Command::new("mvn");
    tests.args(["-q", "-B", "test"]).current_dir(folder).stdin(Stdio::null());
    tests.env("KUBECONFIG", &server.kubeconfig).env("KEELSON_TOKEN", TOKEN);
    let output = tests.output().context("run mvn")?;
    let report = Path::new(JAVA_RESULTS).join("TEST-dev.keelson.ClientTest.xml");
    let report = std::fs::read_to_string(report).unwrap_or_default();
    let mut results: BTreeMap<String, bool> = report
        .split("<testcase ")
        .skip(1)
        .filter_map(|case| {
            let name = between(case, "name=\"", "\"")?;
            Some((words(&name), !(case.contains("<failure") || case.contains("<error"))))
        })
        .collect();
    if !output.status.success() {
        writeln!(std::io::stderr(), "{}", String::from_utf8_lossy(&output.stdout))?;
        results.insert("all".to_owned(), false);
    }
    let client = format!("io.fabric8:kubernetes-client {version}");
    Ok(vec![Row { client, tests: results }])
}

fn python(program: &Path) -> Result<Vec<Row>> {
    let python = std::env::current_dir()?.join(crate::ci::PYTHON);
    let server = Server::start(program)?;
    let script = "crates/keelson/tests/clients/twenty.py";
    let did = commands::output(Command::new(&python).arg(script).arg(&server.kubeconfig))?;
    let tests = [(format!("{} through all verbs", did.trim()), true)].into();
    let client = format!("kubernetes (Python) {}", crate::ci::PYTHON_CLIENT);
    Ok(vec![Row { client, tests }])
}

/// A server in memory for the tests of one client. Dropping it ends it.
struct Server {
    child: Child,
    kubeconfig: PathBuf,
    _dir: tempfile::TempDir,
}

impl Server {
    fn start(program: &Path) -> Result<Server> {
        let dir = tempfile::tempdir().context("a folder")?;
        let tokens = dir.path().join("tokens.csv");
        let kubeconfig = dir.path().join("kubeconfig");
        std::fs::write(&tokens, format!("{TOKEN},admin,admin,system:masters\n"))?;
        let mut child = Command::new(program)
            .args(["serve", "--secure-port=0", "--bind-address=127.0.0.1", "--durability=memory"])
            .arg("--data-dir")
            .arg(dir.path())
            .arg("--token-auth-file")
            .arg(tokens)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| program.display().to_string())?;
        let output = child.stdout.take().context("the output of the server")?;
        // The kubeconfig is there when the banner is printed.
        let mut banner = BufReader::new(output).lines().map_while(Result::ok);
        if !banner.any(|line| line.contains("https://")) {
            bail!("the server did not start");
        }
        Ok(Server { child, kubeconfig, _dir: dir })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tests_become_words() {
        for (name, expected) in [
            ("ListsByPages", "lists by pages"),
            ("serverSideApply", "server side apply"),
            ("DynamicClientAndRESTMapper", "dynamic client and REST mapper"),
        ] {
            assert_eq!(words(name), expected);
        }
    }

    #[test]
    fn results_are_read_from_reports() {
        let go = "{\"Action\":\"pass\",\"Test\":\"TestA\"}\n{\"Action\":\"fail\",\"Test\":\"TestB\"}\n\
                  {\"Action\":\"pass\"}\n";
        assert_eq!(go_tests(go), [("A".to_owned(), true), ("B".to_owned(), false)].into());
        let tap = "TAP version 13\n    ok 1 - inner\nnot ok 2 - outer\n";
        assert_eq!(
            tap_tests(tap),
            [("inner".to_owned(), true), ("outer".to_owned(), false)].into()
        );
    }
}
