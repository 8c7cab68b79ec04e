//! Runs attacks against a server, one after the other, while an administrator requests `/livez`
//! every 20 ms. The run passes if each of these responses arrives within 100 ms, the server's
//! memory stays below 300 MB, every attack gets the expected responses, and no stored object is
//! lost. Then the same for the program in the place of etcd, whose administrator reads a key.
//!
//! Connects to loopback addresses only. Every attack ends after a limited time.

#![allow(clippy::print_stdout)]

mod attack;
mod attacks;
mod client;
mod etcd;
mod far_scene;
mod far_side;
mod frames;
mod prober;
mod report;
mod spdy;
mod target;
mod victim;

use anyhow::{Result, bail};
use attack::Attack;
use clap::Parser;
use etcd::EtcdTarget;
use report::Row;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use target::Target;
use victim::{Victim, memory_kb};

/// Attacks a server and measures how the attacks affect an administrator.
#[derive(Debug, Parser)]
struct Flags {
    /// The server's program. It is started on a free port, with a data folder of its own.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["kubeconfig", "list"])]
    program: Option<PathBuf>,
    /// The kubeconfig of an administrator, for a server that already runs on this host.
    #[arg(long, value_name = "FILE", conflicts_with = "program", requires = "pid")]
    kubeconfig: Option<PathBuf>,
    /// The process ID of that server.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// About how long all attacks take together.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Run only attacks whose name contains this; can be given more than once.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Fail on known faults too.
    #[arg(long)]
    strict: bool,
    /// The longest time that a response to the administrator may take.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 100)]
    latency: u64,
    /// The same of the program in the place of etcd.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 100)]
    etcd_latency: u64,
    /// The maximum of the server's resident memory.
    #[arg(long, value_name = "MEGABYTES", default_value_t = 300)]
    memory: u64,
    /// The maximum of the resident memory of the program in the place of etcd.
    #[arg(long, value_name = "MEGABYTES", default_value_t = 700)]
    etcd_memory: u64,
    /// Print the names of the attacks.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            println!("attack: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs the selected attacks. Returns whether all passed.
fn run(flags: &Flags) -> Result<bool> {
    let is_selected =
        |name: &str| flags.only.is_empty() || flags.only.iter().any(|part| name.contains(part));
    let mut attacks = attacks::all();
    attacks.retain(|attack| is_selected(attack.name));
    let mut on_etcd = attack::of_tables(&[&etcd::ATTACKS]);
    // A server that runs already is an API server.
    on_etcd.retain(|attack| is_selected(attack.name) && flags.kubeconfig.is_none());
    if flags.list {
        let line = |name: &str, description: &str| println!("{name:32} {description}");
        attacks.iter().for_each(|attack| line(attack.name, attack.description));
        on_etcd.iter().for_each(|attack| line(attack.name, attack.description));
        return Ok(true);
    }
    let count = attacks.len() + on_etcd.len();
    if count == 0 {
        bail!("no attack has this name; --list prints the names");
    }
    let time_each = Duration::from_secs(flags.seconds) / u32::try_from(count)?;
    let limits = report::Limits {
        latency: Duration::from_millis(flags.latency),
        memory_kb: flags.memory * 1024,
        is_strict: flags.strict,
    };
    println!("{}", report::header());
    let mut passed = run_attacks(&attacks, || open(flags), time_each, &limits)?;
    if let Some(program) = &flags.program {
        let limits = report::Limits {
            latency: Duration::from_millis(flags.etcd_latency),
            memory_kb: flags.etcd_memory * 1024,
            ..limits
        };
        passed &= run_attacks(&on_etcd, || EtcdTarget::start(program), time_each, &limits)?;
    }
    println!("{}", if passed { "passed" } else { "FAILED" });
    Ok(passed)
}

/// Runs attacks on a server, which `open` starts. Returns whether all passed.
fn run_attacks<T: Victim>(
    attacks: &[Attack<T>],
    open: impl Fn() -> Result<T>,
    time_each: Duration,
    limits: &report::Limits,
) -> Result<bool> {
    let mut passed = true;
    let mut opened = None;
    for attack in attacks {
        let target = match opened.take() {
            Some(target) => target,
            None => open()?,
        };
        let row = run_attack(attack, &target, time_each);
        println!("{}", row.line(limits));
        passed &= row.passed(limits);
        // After a fault the next attack gets a new server, so that it is measured alone.
        if row.has_fault(limits) {
            continue;
        }
        if let Err(error) = target.check_canaries() {
            println!("LOST after {}: {error:#}", attack.name);
            passed = false;
        }
        opened = Some(target);
    }
    Ok(passed)
}

/// Starts the server, or opens the running one, and stores the canary objects.
fn open(flags: &Flags) -> Result<Target> {
    let target = match (&flags.program, &flags.kubeconfig) {
        (Some(program), _) => Target::start(program)?,
        (None, Some(kubeconfig)) => Target::connect(kubeconfig, flags.pid.unwrap_or_default())?,
        (None, None) => bail!("--program or --kubeconfig"),
    };
    target.store_canaries()?;
    Ok(target)
}

/// Waits between the steps of an attack.
#[expect(
    clippy::disallowed_methods,
    reason = "the pace is part of an attack: no event to wait for"
)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Runs one attack while the prober measures the server.
fn run_attack<T: Victim>(attack: &Attack<T>, target: &T, time: Duration) -> Row {
    let start = Instant::now();
    let memory_before = memory_kb(target.pid());
    let prober = prober::Prober::start(target);
    let outcome = (attack.run)(target, Instant::now() + time);
    let probe = prober.stop();
    Row {
        name: attack.name,
        known_fault: attack.known_fault,
        duration: start.elapsed(),
        memory_before_kb: memory_before,
        outcome,
        probe,
    }
}
