//! `cargo xtask nightly`: the faults that need hours: those of three servers on three members of
//! etcd, and kills of processes that write to a store.

use anyhow::{Context, Result, bail};
use std::process::Command;

const SECONDS: &str = "3600";
const KILLS: &str = "100000";

/// Runs the task with its arguments.
pub fn run(args: &[String]) -> Result<()> {
    let mut seconds = SECONDS.to_owned();
    let mut kills = KILLS.to_owned();
    let mut args = args.iter();
    while let Some(name) = args.next() {
        let value = args.next().with_context(|| format!("{name} has no value"))?;
        match name.as_str() {
            "--seconds" => seconds.clone_from(value),
            "--kills" => kills.clone_from(value),
            _ => bail!("unknown argument {name:?}; `cargo xtask help` lists them"),
        }
    }
    let status = Command::new("cargo")
        .args(["test", "-p", "keelson", "--test", "it", "--", "--nocapture"])
        .arg("three_servers_on_three")
        .env("KEELSON_CLUSTER_SECONDS", &seconds)
        .status()
        .context("run the test of the cluster")?;
    if !status.success() {
        bail!("the test of the cluster ended with {status}");
    }
    crate::kills::run(&["--count".to_owned(), kills])
}
