//! The path `/keelson/simulation` of a server that simulates a cluster: what time it is there, and changing
//! it.

use keelson_meta::time::GoDuration;
use keelson_meta::{Failure, Map, Status, Value};
use keelson_registry::{Clock, SteppedClock};
use keelson_server::{ExtraPath, Query};
use keelson_workloads::Simulation;
use std::time::Duration;

/// The path of the status.
pub const STATUS_PATH: &str = "/keelson/simulation";
/// The path that changes the time: its parameters are `step`, a duration such as `36h`, and `rate`.
pub const CLOCK_PATH: &str = "/keelson/simulation/clock";

/// Returns the paths of the server.
pub fn paths(simulation: &Simulation) -> Vec<ExtraPath> {
    let (read, changed) = (simulation.clone(), simulation.clone());
    vec![
        ExtraPath::get(STATUS_PATH, move |_| {
            let shown = Ok(status(&read));
            Box::pin(async move { shown })
        }),
        ExtraPath::post(CLOCK_PATH, move |request| {
            let answer = change(&changed.clock, request.query).map(|()| status(&changed));
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
    let (rate, step) = (rate.transpose()?, step.transpose()?);
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
