//! The `keelson` binary: commands, flags and logs.

mod commands;
mod documents;
mod flags;
mod stop_signals;
mod version;

use anyhow::{Context, Result};
use clap::{CommandFactory, Parser};
use flags::table::Face;
use flags::{Cli, Command};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let began = Instant::now();
    let mut arguments = std::env::args_os();
    let own_name = arguments.next().unwrap_or_default();
    let rest = || arguments.map(|word| word.to_string_lossy().into_owned()).collect();
    match Path::new(&own_name).file_name().and_then(|name| name.to_str()) {
        Some("kube-apiserver") => {
            return commands::serve::run(Face::KubeApiserver, rest(), began);
        }
        Some("etcd") => return commands::etcd::run(rest()),
        _ => {}
    }
    let result = match Cli::parse().command {
        Command::Serve(flags) => {
            return commands::serve::run(Face::Serve, flags.arguments, began);
        }
        Command::KubeApiserver(flags) => {
            return commands::serve::run(Face::KubeApiserver, flags.arguments, began);
        }
        Command::Etcd(flags) => return commands::etcd::run(flags.arguments),
        Command::Envtest(flags) => commands::envtest::run(&flags),
        Command::Kubeconfig(flags) => kubeconfig(&flags),
        Command::Backup(flags) => commands::backup::run(&flags),
        Command::Restore(flags) => commands::restore::run(&flags),
        Command::Encryption(command) => commands::encryption::run(&command),
        Command::Simulation(command) => commands::simulation::run(&command),
        Command::Check(flags) => commands::check::run(&flags),
        Command::Lint(flags) => return commands::lint::run(&flags),
        Command::Validate(flags) => return commands::validate::run(&flags),
        Command::Ui(flags) => commands::ui::run(&flags),
        Command::Version(flags) => commands::version::run(&flags),
        Command::Completion { shell } => {
            let mut command = flags::help::with_flags(Cli::command());
            clap_complete::generate(shell, &mut command, "keelson", &mut std::io::stdout());
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "keelson: {error:#}");
            ExitCode::from(1)
        }
    }
}

/// Runs `keelson kubeconfig`.
fn kubeconfig(flags: &flags::KubeconfigFlags) -> Result<()> {
    let path = flags.path()?;
    let read = || {
        std::fs::read_to_string(&path).with_context(|| {
            format!("{} is not there; `keelson serve` writes it (see --data-dir)", path.display())
        })
    };
    let text = match flags.certificate()? {
        None => read()?,
        Some(certificate) => {
            let url = match &flags.server {
                Some(url) => url.clone(),
                None => server_of(&read()?).context("--server: the kubeconfig names none")?,
            };
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
            let now = i64::try_from(now.as_secs())?;
            let kubeconfig = certificate.kubeconfig(&flags.cert_dir()?, &url, now);
            kubeconfig.map_err(anyhow::Error::msg)?.text().to_owned()
        }
    };
    std::io::stdout().write_all(text.as_bytes()).context("write to standard output")
}

/// Returns the server URL of a kubeconfig that Keelson wrote.
fn server_of(kubeconfig: &str) -> Option<String> {
    let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: "));
    line.map(str::to_owned)
}
