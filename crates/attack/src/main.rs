//! Attacks a running server, one way after the other, while an administrator asks `/livez` every 20 ms.
//! The run passes when each answer came within 100 ms, the server's memory stayed below 300 MB, every
//! attack was answered as it should be, and nothing that was stored before is lost.
//!
//! It connects to loopback addresses only, and ends by itself.

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

/// Attacks a server and measures what its administrator feels of it.
#[derive(Debug, Parser)]
struct Flags {
    /// The server's program, which is started on a free port with a data folder of its own.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["kubeconfig", "list"])]
    program: Option<PathBuf>,
    /// An administrator's kubeconfig of a server on this host that runs already.
    #[arg(long, value_name = "FILE", conflicts_with = "program", requires = "pid")]
    kubeconfig: Option<PathBuf>,
    /// The process of that server.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// How long all attacks take together, about.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Only attacks whose name contains this; may be given more than once.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Faults that are known count too.
    #[arg(long)]
    strict: bool,
    /// Longest time that an answer to the administrator may take.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 100)]
    latency: u64,
    /// Most memory that the server may have resident.
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

/// Runs all attacks that are asked for; whether all went well.
fn run(flags: &Flags) -> Result<bool> {
    let is_meant = |attack: &Attack| {
        flags.only.is_empty() || flags.only.iter().any(|n| attack.name.contains(n))
    };
    let attacks: Vec<Attack> = attacks::all().into_iter().filter(is_meant).collect();
    if flags.list {
        attacks.iter().for_each(|attack| println!("{:32} {}", attack.name, attack.what));
        return Ok(true);
    }
    if attacks.is_empty() {
        bail!("no attack has such a name; --list prints them");
    }
    let mut target = open(flags)?;
    let each = Duration::from_secs(flags.seconds) / u32::try_from(attacks.len())?;
    let bounds = report::Bounds {
        latency: Duration::from_millis(flags.latency),
        memory_kb: flags.memory * 1024,
        is_strict: flags.strict,
    };
    println!("{}", report::head());
    let mut is_fine = true;
    for attack in &attacks {
        let row = one(attack, &target, each);
        println!("{}", row.line(&bounds));
        is_fine &= row.is_fine(&bounds);
        if row.has_fault(&bounds) && flags.program.is_some() {
            // What it left behind is not to be felt by the next one.
            target = open(flags)?;
        } else if let Err(error) = target.witnesses_are_there() {
            println!("LOST after {}: {error:#}", attack.name);
            is_fine = false;
        }
    }
    println!("{}", if is_fine { "passed" } else { "FAILED" });
    Ok(is_fine)
}

/// The server to attack, in which there is something to lose.
fn open(flags: &Flags) -> Result<Target> {
    let target = match (&flags.program, &flags.kubeconfig) {
        (Some(program), _) => Target::start(program)?,
        (None, Some(kubeconfig)) => Target::running(kubeconfig, flags.pid.unwrap_or_default())?,
        (None, None) => bail!("--program or --kubeconfig"),
    };
    target.store_witnesses()?;
    Ok(target)
}

/// Waits, for the pace that is a part of an attack.
#[expect(clippy::disallowed_methods, reason = "nothing else says when to go on")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Runs one attack, beside the administrator.
fn one(attack: &Attack, target: &Target, time: Duration) -> Row {
    let began = Instant::now();
    let memory_before = target.memory_kb();
    let prober = prober::Prober::start(target);
    let outcome = (attack.run)(target, Instant::now() + time);
    let felt = prober.stop();
    Row {
        name: attack.name,
        known: attack.known,
        took: began.elapsed(),
        memory_before_kb: memory_before,
        outcome,
        felt,
    }
}
