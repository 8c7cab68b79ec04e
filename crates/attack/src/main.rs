//! Runs attacks against a server, one after the other, while an administrator requests `/livez` every
//! 20 ms. The run passes if each of these responses arrives within 100 ms, the server's memory stays
//! below 300 MB, every attack gets the expected responses, and no stored object is lost.
//!
//! Connects to loopback addresses only. Every attack ends after a limited time.

#![allow(clippy::print_stdout)]

mod attacks;
mod client;
mod frames;
mod prober;
mod report;
mod target;

use anyhow::{Result, bail};
use attacks::Attack;
use clap::Parser;
use report::Row;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use target::Target;

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
    /// The maximum of the server's resident memory.
    #[arg(long, value_name = "MEGABYTES", default_value_t = 300)]
    memory: u64,
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
    let is_selected = |attack: &Attack| {
        flags.only.is_empty() || flags.only.iter().any(|n| attack.name.contains(n))
    };
    let attacks: Vec<Attack> = attacks::all().into_iter().filter(is_selected).collect();
    if flags.list {
        attacks.iter().for_each(|attack| println!("{:32} {}", attack.name, attack.description));
        return Ok(true);
    }
    if attacks.is_empty() {
        bail!("no attack has this name; --list prints the names");
    }
    let mut target = open(flags)?;
    let time_each = Duration::from_secs(flags.seconds) / u32::try_from(attacks.len())?;
    let limits = report::Limits {
        latency: Duration::from_millis(flags.latency),
        memory_kb: flags.memory * 1024,
        is_strict: flags.strict,
    };
    println!("{}", report::header());
    let mut passed = true;
    for attack in &attacks {
        let row = run_attack(attack, &target, time_each);
        println!("{}", row.line(&limits));
        passed &= row.passed(&limits);
        if row.has_fault(&limits) && flags.program.is_some() {
            // After a fault the next attack gets a new server, so that it is measured alone.
            target = open(flags)?;
        } else if let Err(error) = target.check_canaries() {
            println!("LOST after {}: {error:#}", attack.name);
            passed = false;
        }
    }
    println!("{}", if passed { "passed" } else { "FAILED" });
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
fn run_attack(attack: &Attack, target: &Target, time: Duration) -> Row {
    let start = Instant::now();
    let memory_before = target.memory_kb();
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
