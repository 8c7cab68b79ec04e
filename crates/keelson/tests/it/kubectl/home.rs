//! [`Home`]: a folder with a kubeconfig, in which kubectl runs.

use super::{CHARTS, PRELUDE, Row};
use crate::http::POLL_TIMEOUT;
use keelson_testkit::poll;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Unread lines of output.
const LINES_MAX: usize = 64;

/// A home directory with `admin.kubeconfig`, and the programs that run in it.
pub struct Home {
    pub dir: TempDir,
    /// kubectl.
    pub program: PathBuf,
    /// Helm, for the tests that use it.
    pub helm: Option<PathBuf>,
}

impl Home {
    /// Makes a folder with the text of a kubeconfig.
    pub fn new(program: PathBuf, kubeconfig: &str) -> Home {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("admin.kubeconfig"), kubeconfig).expect("a kubeconfig");
        Home { dir, program, helm: None }
    }

    /// Returns a shell that runs a line.
    pub fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{PRELUDE}{line}")).env("HOME", self.dir.path());
        command.env("KUBECTL", &self.program).env("CHARTS", CHARTS);
        command.envs(self.helm.iter().map(|helm| ("HELM", helm)));
        command.env_remove("KUBECONFIG").stdin(Stdio::null());
        command
    }

    /// Runs all rows in order, then reports all failed rows.
    pub fn run(&self, rows: &[Row<'_>]) {
        let mut faults = vec![];
        for (line, code, says) in rows {
            let output = self.shell(line).output().expect("a shell");
            let out = String::from_utf8_lossy(&output.stdout);
            let err = String::from_utf8_lossy(&output.stderr);
            let got = output.status.code();
            if got != Some(*code) || !(out.contains(says) || err.contains(says)) {
                faults.push(format!("{line}\n  wants {code} {says:?}\n  got {got:?} {out}{err}"));
            }
        }
        assert!(faults.is_empty(), "{}: {}", self.program.display(), faults.join("\n"));
    }

    /// Starts a command that runs until it is killed.
    pub fn spawn(&self, line: &str) -> Running {
        self.spawn_shell(&format!("exec {line}"))
    }

    /// Starts a shell that runs until it is killed; its last command should be an `exec`.
    pub fn spawn_shell(&self, line: &str) -> Running {
        let mut command = self.shell(line);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a shell");
        let out = child.stdout.take().expect("a pipe");
        let (send, lines) = std::sync::mpsc::sync_channel(LINES_MAX);
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Running { child, lines }
    }
}

/// A kubectl that runs until it is dropped.
pub struct Running {
    child: Child,
    pub lines: std::sync::mpsc::Receiver<String>,
}

impl Running {
    /// Returns the next line of its output.
    pub fn line(&mut self) -> String {
        self.lines.recv_timeout(POLL_TIMEOUT).expect("kubectl says more")
    }

    /// Waits until it ends. Returns the lines that were not read, and the exit code.
    pub fn end(mut self) -> (Vec<String>, Option<i32>) {
        let ended = poll(POLL_TIMEOUT, || self.child.try_wait().expect("a child"));
        let status = ended.expect("kubectl ends");
        (self.lines.iter().collect(), status.code())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
