//! The program under the name `etcd`: one member that speaks etcd's protocol, for kube-apiserver
//! and other programs that use etcd, and for test environments that start both.

mod flags;
mod settings;

use crate::flags::help;
use crate::flags::pflag::Values;
use crate::flags::table::{Effect, Face};
use crate::stop_signals;
use anyhow::{Result, bail};
use flags::GROUP;
use keelson::EtcdStandIn;
use settings::Settings;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// How long the process may take to end after a signal.
const STOP_TIME_MAX: Duration = Duration::from_secs(2);
/// Threads that serve clients. Writes are decided on another one.
const WORKERS: usize = 2;
const INTRODUCTION: &str = "\
Serves etcd's v3 API over Keelson's embedded store: one member, for a kube-apiserver or any other
client of etcd. A Keelson that is started as kube-apiserver beside it keeps its own data in the same
folder.

Usage:
  etcd [flags]
";

/// Runs the program with its arguments.
pub fn run(arguments: Vec<String>) -> ExitCode {
    match command(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "etcd: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn command(arguments: Vec<String>) -> Result<()> {
    // Go's own flags may have one dash.
    let arguments = arguments.into_iter().map(|argument| {
        let has_one_dash = argument.starts_with('-') && !argument.starts_with("--");
        if has_one_dash && argument.len() > 2 { format!("-{argument}") } else { argument }
    });
    let values = Values::read(Face::KubeApiserver, &[&GROUP], arguments)?;
    let mut out = std::io::stdout();
    if values.bool("help") {
        return Ok(
            out.write_all(help::page(INTRODUCTION, &[&GROUP], Face::KubeApiserver).as_bytes())?
        );
    }
    if values.text("version") != "false" {
        return Ok(writeln!(out, "keelson {} in the place of etcd", env!("CARGO_PKG_VERSION"))?);
    }
    for flag in GROUP.flags {
        match flag.effect {
            Effect::Refused(what) if values.is_changed(flag) => {
                bail!("--{}: {what} is not there yet", flag.name);
            }
            Effect::Accepted(why) if values.is_given(flag.name) => {
                writeln!(std::io::stderr(), "etcd: --{} has no effect: {why}", flag.name)?;
            }
            _ => {}
        }
    }
    let Settings { folder, options, clients, pages, tls } = Settings::of(&values)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(WORKERS).enable_all().build()?;
    let mut stop = stop_signals::listen(STOP_TIME_MAX)?;
    runtime.block_on(async {
        let stand_in = EtcdStandIn::open(&folder, options, &clients, &pages, tls.as_ref()).await?;
        tokio::select! {
            () = stand_in.run() => {}
            () = stop.received() => {}
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_what_test_environments_look_for() {
        let help = help::page(INTRODUCTION, &[&GROUP], Face::KubeApiserver);
        assert!(help.contains("\n      --unsafe-no-fsync "), "{help}");
    }
}
