//! `keelson serve --ephemeral`: a server that a test starts. It says on standard output how it is
//! reached, and does not outlive the process that started it.

use crate::commands::new_token;
use anyhow::{Context, Result};
use keelson::{Builder, Keelson};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const TOKEN_USER: &str = "admin";
const FILE_MODE: u32 = 0o600;

/// What belongs to an ephemeral server. Dropping it removes the kubeconfig that it wrote.
pub struct Ephemeral {
    token: String,
    kubeconfig: Option<PathBuf>,
    has_written: bool,
}

impl Ephemeral {
    /// Makes the token of an administrator.
    pub fn new(kubeconfig: Option<PathBuf>) -> Result<Ephemeral> {
        Ok(Ephemeral { token: new_token()?, kubeconfig, has_written: false })
    }

    /// Makes a server accept the token.
    pub fn configure(&self, builder: Builder) -> Builder {
        builder.token(&self.token, TOKEN_USER)
    }

    /// Writes the kubeconfig, if it has a path. It is not synced: nobody reads it after a crash.
    pub fn save(&mut self, text: &str) -> Result<()> {
        let Some(path) = &self.kubeconfig else { return Ok(()) };
        let context = || format!("--kubeconfig: {}", path.display());
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(FILE_MODE);
        let mut file = options.open(path).with_context(context)?;
        self.has_written = true;
        file.write_all(text.as_bytes()).with_context(context)
    }

    /// Returns the path of the kubeconfig.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref()
    }

    /// Returns how a server is reached, as a line of JSON.
    pub fn line(&self, keelson: &Keelson, kubeconfig: &str) -> String {
        let line = keelson_meta::value!({
            "url": (keelson.url()),
            "token": (self.token.as_str()),
            "certificateAuthority": (keelson.certificate_authority()),
            "kubeconfig": kubeconfig,
        });
        let mut out = vec![];
        keelson_schema::json::write_value(&line, &mut out);
        out.push(b'\n');
        String::from_utf8_lossy(&out).into_owned()
    }
}

impl Drop for Ephemeral {
    fn drop(&mut self) {
        if let Some(path) = self.kubeconfig.as_ref().filter(|_| self.has_written) {
            // Whoever started the server may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Starts a thread that asks this process to stop, as SIGTERM does, when standard input ends: the
/// process at its other end has closed it or is gone.
pub fn stop_with_input() -> Result<()> {
    let wait = || {
        let mut input = std::io::stdin().lock();
        let mut ignored = [0; 256];
        while !matches!(input.read(&mut ignored), Ok(0) | Err(_)) {}
        let own = rustix::process::getpid();
        let _ = rustix::process::kill_process(own, rustix::process::Signal::TERM);
    };
    std::thread::Builder::new()
        .name("input".to_owned())
        .spawn(wait)
        .context("start a thread")
        .map(drop)
}
