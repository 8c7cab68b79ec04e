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

fn read(arguments: Vec<String>) -> Result<Values> {
    // Go's own flags may have one dash.
    let arguments = arguments.into_iter().map(|argument| {
        let has_one_dash = argument.starts_with('-') && !argument.starts_with("--");
        if has_one_dash && argument.len() > 2 { format!("-{argument}") } else { argument }
    });
    Ok(Values::read(Face::KubeApiserver, &[&GROUP], arguments)?)
}

fn command(arguments: Vec<String>) -> Result<()> {
    let values = read(arguments)?;
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
        keelson_platform::allocator::give_back_soon();
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

    /// The flags that other programs start etcd with.
    #[test]
    fn command_lines_of_other_programs_are_accepted() {
        let client =
            "--listen-client-urls http://0.0.0.0:1 --advertise-client-urls http://0.0.0.0:1";
        for (program, more) in [
            (
                "envtest",
                "--data-dir=/d --listen-peer-urls=http://127.0.0.1:0 --unsafe-no-fsync=true",
            ),
            (
                "kube-api-test",
                "-data-dir /d -wal-dir /w --initial-cluster default=http://localhost:2 \
                 --initial-advertise-peer-urls http://localhost:2 \
                 --listen-peer-urls http://localhost:2",
            ),
            (
                "kwokctl",
                "--name=node0 --data-dir=/d --auto-compaction-retention=1 \
                 --quota-backend-bytes=8589934592 --initial-cluster=node0=http://0.0.0.0:2",
            ),
            (
                "kubeadm",
                "--name=n --data-dir=/d --client-cert-auth=true --cert-file=/c --key-file=/k \
                 --trusted-ca-file=/a --peer-client-cert-auth=true --peer-cert-file=/c \
                 --peer-key-file=/k --peer-trusted-ca-file=/a --snapshot-count=10000 \
                 --listen-metrics-urls=http://127.0.0.1:3 --feature-gates=InitialCorruptCheck=true \
                 --watch-progress-notify-interval=5s",
            ),
        ] {
            let arguments = format!("{client} {more}");
            let values = read(arguments.split_whitespace().map(str::to_owned).collect());
            let values = values.unwrap_or_else(|error| panic!("{program}: {error:#}"));
            let settings = Settings::of(&values).map(|settings| settings.folder);
            assert_eq!(settings.expect(program).to_str(), Some("/d"), "{program}");
        }
    }
}
