//! The path `/keelson/simulation` of a server that simulates a cluster: what time it is there, and
//! changing it.

use keelson_meta::time::GoDuration;
use keelson_meta::{Failure, Map, Status, Value};
use keelson_registry::{Clock, SteppedClock};
use keelson_server::{ExtraPath, Query};
use keelson_workloads::{SimulatedPorts, Simulation};
use std::time::Duration;

/// The path of the status.
pub const STATUS_PATH: &str = "/keelson/simulation";
/// The path that changes the time: its parameters are `step`, a duration such as `36h`, and `rate`.
pub const CLOCK_PATH: &str = "/keelson/simulation/clock";
/// The path that registers what answers at a port of a pod: its parameters are `pod`, as
/// `NAMESPACE/NAME`, `port`, and `to`, an address of the server's machine such as `127.0.0.1:8080`;
/// without it, the port is removed.
pub const PORTS_PATH: &str = "/keelson/simulation/ports";

/// Returns the paths of the server.
pub fn paths(simulation: &Simulation) -> Vec<ExtraPath> {
    let read = simulation.clone();
    let changed = simulation.clone();
    let served = simulation.clone();
    vec![
        ExtraPath::get(STATUS_PATH, move |_| {
            let shown = Ok(status(&read));
            Box::pin(async move { shown })
        }),
        ExtraPath::post(CLOCK_PATH, move |request| {
            let answer = change(&changed.clock, request.query).map(|()| status(&changed));
            Box::pin(async move { answer })
        }),
        ExtraPath::post(PORTS_PATH, move |request| {
            let answer = register(&served.ports, request.query).map(|()| status(&served));
            Box::pin(async move { answer })
        }),
    ]
}

fn status(simulation: &Simulation) -> Value {
    let mut shown = Map::default();
    shown.insert("kind", "SimulationStatus");
    shown.insert("time", simulation.clock.now().text());
    shown.insert("rate", simulation.clock.rate());
    shown.insert("nodes", i64::try_from(simulation.nodes).unwrap_or(i64::MAX));
    Value::Object(shown)
}

/// Registers a port, or removes it.
fn register(ports: &SimulatedPorts, query: &Query) -> Result<(), Failure> {
    let invalid = |what: String| Status::bad_request(format!("invalid {what}"));
    let pod = query.get("pod").and_then(|pod| pod.split_once('/'));
    let (namespace, name) = pod
        .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
        .ok_or_else(|| invalid("pod: it must be NAMESPACE/NAME".to_owned()))?;
    let port = query
        .get("port")
        .and_then(|port| port.parse::<u16>().ok())
        .filter(|port| *port > 0)
        .ok_or_else(|| invalid("port: it must be between 1 and 65535".to_owned()))?;
    let place = (namespace, name, port);
    let Some(to) = query.get("to") else {
        return match ports.remove(place) {
            true => Ok(()),
            false => Err(Status::bad_request("nothing is registered for this port")),
        };
    };
    let address = to.parse().map_err(|_| invalid("to: it must be IP:PORT".to_owned()))?;
    ports.forward(place, address).map_err(|why| invalid(format!("to: {why}")))
}

/// Checks both parameters before either changes the clock.
fn change(clock: &SteppedClock, query: &Query) -> Result<(), Failure> {
    let invalid = |what: &str| Status::bad_request(format!("invalid {what}"));
    let rate = query.get("rate").map(|text| match text.parse::<f64>() {
        Ok(rate) if (SteppedClock::RATE_MIN..=SteppedClock::RATE_MAX).contains(&rate) => Ok(rate),
        _ => Err(invalid("rate: it must be a number between 0.001 and 10000")),
    });
    let step = query.get("step").map(|text| match GoDuration::parse(text) {
        Ok(GoDuration(nanos @ 0..)) => Ok(Duration::from_nanos(nanos.unsigned_abs())),
        _ => Err(invalid("step: it must be a duration that is not negative, such as 90s or 36h")),
    });
    let rate = rate.transpose()?;
    let step = step.transpose()?;
    if rate.is_none() && step.is_none() {
        return Err(Status::bad_request("neither step nor rate is given"));
    }
    if let Some(rate) = rate {
        clock.set_rate(rate);
    }
    if let Some(step) = step {
        clock.step(step);
    }
    Ok(())
}
