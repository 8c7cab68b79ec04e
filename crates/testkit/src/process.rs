//! A child process with its output in a file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Timeout of a graceful termination.
const END_TIME_MAX: Duration = Duration::from_secs(10);

/// A child process, which is killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program. Its stdout and stderr are appended to the file `log`.
    pub fn start(mut command: Command, log: &Path) -> io::Result<Process> {
        let file = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Ok(Process { child: command.spawn()?, log: log.to_owned() })
    }

    /// Returns the content of the log file.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns whether the process is running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends SIGTERM and waits until the process ends; after a timeout it is killed.
    pub fn terminate(mut self) {
        let id = self.child.id().to_string();
        let _ = Command::new("kill").args(["-s", "TERM", &id]).status();
        crate::poll(END_TIME_MAX, || (!self.is_running()).then_some(()));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
