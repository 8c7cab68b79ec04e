//! The program under the name `etcd`, for test environments that start it beside kube-apiserver.

use crate::flags::help;
use crate::flags::pflag::Values;
use crate::flags::table::{Effect, Face, Flag, Group, Kind};
use crate::stop_signals;
use anyhow::{Context, Result, bail};
use keelson::EtcdStandIn;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long the process may take to end after a signal.
const STOP_TIME_MAX: Duration = Duration::from_secs(1);
const NO_CLUSTER: &str = "it has no members and no protocol of its own";
const TLS: &str = "TLS in the place of etcd";

/// The flags that are known: those that test environments and clusters of one member use.
static GROUP: Group = Group {
    title: "Etcd",
    flags: &[
        Flag::new("advertise-client-urls", Kind::Text, "", "URLs for clients.")
            .accepted(NO_CLUSTER),
        Flag::new("auto-compaction-mode", Kind::Text, "", "How compaction is decided.")
            .accepted(NO_CLUSTER),
        Flag::new("auto-compaction-retention", Kind::Text, "", "What compaction keeps.")
            .accepted(NO_CLUSTER),
        Flag::new("cert-file", Kind::Text, "", "Serving certificate.").refused(TLS),
        Flag::new("client-cert-auth", Kind::Bool, "false", "Whether clients need certificates.")
            .refused(TLS),
        Flag::new("data-dir", Kind::Text, "default.etcd", "Folder of the data."),
        Flag::new("election-timeout", Kind::Uint, "1000", "Timeout of elections.")
            .accepted(NO_CLUSTER),
        Flag::new("heartbeat-interval", Kind::Uint, "100", "Interval of heartbeats.")
            .accepted(NO_CLUSTER),
        Flag::new("help", Kind::Bool, "false", "Print this help."),
        Flag::new("initial-advertise-peer-urls", Kind::Text, "", "URLs for other members.")
            .accepted(NO_CLUSTER),
        Flag::new("initial-cluster", Kind::Text, "", "Members of a new cluster.")
            .accepted(NO_CLUSTER),
        Flag::new("initial-cluster-state", Kind::Text, "new", "Whether the cluster is new.")
            .accepted(NO_CLUSTER),
        Flag::new("initial-cluster-token", Kind::Text, "", "Name of the cluster.")
            .accepted(NO_CLUSTER),
        Flag::new("key-file", Kind::Text, "", "Key of the serving certificate.").refused(TLS),
        Flag::new(
            "listen-client-urls",
            Kind::Text,
            "http://localhost:2379",
            "URLs to listen on for clients, with http.",
        ),
        Flag::new("listen-metrics-urls", Kind::Text, "", "URLs to listen on for metrics.")
            .accepted(NO_CLUSTER),
        Flag::new("listen-peer-urls", Kind::Text, "", "URLs to listen on for other members.")
            .accepted(NO_CLUSTER),
        Flag::new("log-level", Kind::Text, "info", "Log level.").accepted("it logs warnings only"),
        Flag::new("log-outputs", Kind::Text, "default", "Where logs are written.")
            .accepted("it logs to standard error only"),
        Flag::new("logger", Kind::Text, "zap", "Logger.").accepted("there is one logger"),
        Flag::new("max-request-bytes", Kind::Uint, "1572864", "Most bytes of a request.")
            .accepted(NO_CLUSTER),
        Flag::new("max-txn-ops", Kind::Uint, "128", "Most operations of a transaction.")
            .accepted(NO_CLUSTER),
        Flag::new("name", Kind::Text, "default", "Name of this member.").accepted(NO_CLUSTER),
        Flag::new("quota-backend-bytes", Kind::Int, "0", "Most bytes of the data.")
            .accepted(NO_CLUSTER),
        Flag::new("snapshot-count", Kind::Uint, "10000", "Number of writes between snapshots.")
            .accepted(NO_CLUSTER),
        Flag::new("trusted-ca-file", Kind::Text, "", "CA bundle for client certificates.")
            .refused(TLS),
        Flag::new("unsafe-no-fsync", Kind::Bool, "false", "Whether writes are not synced.")
            .accepted("the API server writes the data, and syncs it"),
        Flag::new("version", Kind::Version, "", "Print the version."),
    ],
};
const INTRODUCTION: &str = "\
Stands in the place of etcd beside Keelson as kube-apiserver, for test environments that start both. It
answers health checks, and the API server keeps its data in the folder. It does not speak etcd's protocol:
other programs need a real etcd.

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
    let addresses = addresses(values.text("listen-client-urls"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut stop = stop_signals::listen(STOP_TIME_MAX)?;
    runtime.block_on(async {
        let mut running = tokio::task::JoinSet::new();
        for address in addresses {
            let stand_in = EtcdStandIn::bind(&address, Path::new(values.text("data-dir"))).await?;
            running.spawn(stand_in.run());
        }
        stop.received().await;
        Ok(())
    })
}

/// Returns the addresses of a list of URLs.
fn addresses(urls: &str) -> Result<Vec<String>> {
    let address = |url: &str| {
        let rest = url.trim().strip_prefix("http://");
        let rest =
            rest.with_context(|| format!("--listen-client-urls: {url}: only http is there"))?;
        Ok(rest.trim_end_matches('/').to_owned())
    };
    urls.split(',').map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_addresses() {
        let all = addresses("http://127.0.0.1:1234,http://localhost:5/").expect("addresses");
        assert_eq!(all, ["127.0.0.1:1234", "localhost:5"]);
        assert!(addresses("https://127.0.0.1:1234").is_err());
    }

    #[test]
    fn the_help_names_what_test_environments_look_for() {
        let help = help::page(INTRODUCTION, &[&GROUP], Face::KubeApiserver);
        assert!(help.contains("\n      --unsafe-no-fsync "), "{help}");
    }
}
