//! `keelson simulation`: the time of a simulated cluster.

use super::output;
use crate::flags::{SimulationCommand, SimulationFlags};
use anyhow::{Result, anyhow};
use keelson::{AdminClient, CLOCK_PATH, PORTS_PATH, SIMULATION_PATH};
use keelson_meta::Value;
use keelson_meta::time::GoDuration;

/// Runs `keelson simulation`.
pub fn run(command: &SimulationCommand) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (flags, status) = match command {
        SimulationCommand::Status(flags) => {
            (flags, runtime.block_on(client(flags)?.get(SIMULATION_PATH)))
        }
        SimulationCommand::Step { duration, flags } => {
            let step = GoDuration::parse(duration).map_err(|why| anyhow!("DURATION: {why}"))?;
            let path = format!("{CLOCK_PATH}?step={}ns", step.0);
            (flags, runtime.block_on(client(flags)?.post(&path)))
        }
        SimulationCommand::Rate { rate, flags } => {
            let path = format!("{CLOCK_PATH}?rate={rate}");
            (flags, runtime.block_on(client(flags)?.post(&path)))
        }
        SimulationCommand::Port { pod, port, to, flags } => {
            let to = to.map_or_else(String::new, |to| format!("&to={to}"));
            let path = format!("{PORTS_PATH}?pod={pod}&port={port}{to}");
            (flags, runtime.block_on(client(flags)?.post(&path)))
        }
    };
    let status = status.map_err(|why| match why.contains("404") {
        true => anyhow!("the server simulates nothing: it was started without --simulate"),
        false => anyhow!(why),
    })?;
    output::print(&match flags.output {
        Some(format) => output::format(&status, format),
        None => text(&status),
    })
}

fn client(flags: &SimulationFlags) -> Result<AdminClient> {
    let kubeconfig = flags.server.kubeconfig()?;
    AdminClient::new(&kubeconfig).map_err(|why| anyhow!("--kubeconfig: {why}"))
}

fn text(status: &Value) -> String {
    let time = status.str_at(&["time"]).unwrap_or_default();
    let rate = match status.get("rate") {
        Some(Value::Float(rate)) => *rate,
        rate => rate.and_then(Value::as_int).unwrap_or_default() as f64,
    };
    match rate {
        1.0 => format!("{time} in the cluster"),
        rate => format!("{time} in the cluster, where {rate} seconds pass in one"),
    }
}
