//! `keelson serve --ephemeral`, the server that a test starts, and `keelson version`, which asks
//! it.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A server with a pipe to each of its streams.
pub struct Ephemeral {
    child: Child,
    line: Value,
}

impl Ephemeral {
    /// Starts it with more flags.
    pub fn start(kubeconfig: &Path, flags: &[&str]) -> Ephemeral {
        let mut command = keelson(&["serve", "--ephemeral", "--kubeconfig"]);
        command
            .arg(kubeconfig)
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let line = serde_json::from_str(&line).expect("a line of JSON");
        Ephemeral { child, line }
    }
}

impl Drop for Ephemeral {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a command of the program.
pub fn keelson(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keelson"));
    command.args(arguments).env_remove("KEELSON_CONTROLLERS");
    command
}

/// Runs `keelson version` for the server of a kubeconfig.
fn version(kubeconfig: &Path) -> Value {
    let mut command = keelson(&["version", "-o", "json", "--kubeconfig"]);
    let Output { status, stdout, stderr } = command.arg(kubeconfig).output().expect("a process");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    serde_json::from_slice(&stdout).expect("JSON")
}

#[test]
fn the_line_of_an_ephemeral_server_says_how_it_is_reached() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("kubeconfig");
    let server = Ephemeral::start(&path, &[]);
    let text = |name: &str| server.line[name].as_str().expect(name).to_owned();
    assert_eq!(std::fs::read_to_string(&path).expect("a kubeconfig"), text("kubeconfig"));
    assert!(text("url").starts_with("https://127.0.0.1:"), "{}", text("url"));
    assert_eq!(text("token").len(), 64);
    assert!(text("certificateAuthority").starts_with("-----BEGIN CERTIFICATE-----"));
    assert_eq!(version(&path)["serverVersion"]["gitVersion"], keelson::KUBERNETES_VERSION);
    // A name that leads to this host is as good as its address.
    let by_name = dir.path().join("by-name");
    let named = text("kubeconfig").replace("//127.0.0.1:", "//localhost:");
    std::fs::write(&by_name, named).expect("a kubeconfig");
    assert_eq!(version(&by_name)["serverVersion"]["major"], "1");
}

#[test]
fn an_ephemeral_server_ends_when_nobody_holds_its_streams_and_leaves_no_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("kubeconfig");
    let mut server = Ephemeral::start(&path, &[]);
    let copy = dir.path().join("copy");
    std::fs::copy(&path, &copy).expect("a copy");
    // As when the process at the other ends is killed: what the server logs goes nowhere, either.
    drop(server.child.stderr.take());
    drop(server.child.stdin.take());
    let status = server.child.wait().expect("a status");
    assert_eq!(status.code(), Some(0));
    assert!(!path.exists());
    let asked = version(&copy);
    let why = asked["serverError"].as_str().expect("an error");
    assert!(why.contains("connection refused"), "{why}");
}

#[test]
fn an_ephemeral_server_takes_no_file_and_no_folder_of_others() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("kubeconfig");
    std::fs::write(&path, "mine").expect("a file");
    let kubeconfig = path.display().to_string();
    for (flags, expected) in [
        (["--kubeconfig", &kubeconfig], "File exists"),
        (["--data-dir", &kubeconfig], "--data-dir cannot be used with --ephemeral"),
        (["--durability", "memory"], "--durability cannot be used with --ephemeral"),
        (
            ["--etcd-servers", "http://127.0.0.1:1"],
            "--etcd-servers cannot be used with --ephemeral",
        ),
    ] {
        let mut command = keelson(&["serve", "--ephemeral"]);
        // Standard input stays open: the server does not end because of it.
        let mut child = command
            .args(flags)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        let input = child.stdin.take();
        let output = child.wait_with_output().expect("a status");
        drop(input);
        assert_eq!(output.status.code(), Some(1), "{flags:?}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(expected), "{flags:?}: {errors}");
    }
    assert_eq!(std::fs::read_to_string(&path).expect("a file"), "mine");
}

#[test]
fn version_without_a_server_is_that_of_the_program() {
    let dir = tempfile::tempdir().expect("a folder");
    for flags in [&["--client"][..], &["--data-dir", "/nowhere"], &[]] {
        let mut command = keelson(&["version"]);
        let output = command.args(flags).env("XDG_DATA_HOME", dir.path()).output();
        let text = String::from_utf8(output.expect("a process").stdout).expect("text");
        let lines: Vec<&str> = text.lines().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(lines, ["Program Version", "Commit", "Kubernetes Version"], "{flags:?}");
    }
}
