//! `keelson-fuzz [--target NAME] [--seconds N] [--seed N] [--rounds N] [--trace FILE]` runs
//! targets, and `keelson-fuzz --target NAME --input FILE` runs one input again. `cargo xtask fuzz`
//! starts it.

use anyhow::{Context, Result, bail};
use keelson_fuzz::{Run, STACK_BYTES, TARGETS, Target, find};
use std::io::Write;
use std::time::Duration;

fn main() -> Result<()> {
    let mut run = Run {
        seed: 1,
        time: Duration::from_secs(60),
        rounds_max: u64::MAX,
        stack_bytes: STACK_BYTES,
        trace: None,
    };
    let mut targets: Vec<&'static Target> = TARGETS.iter().collect();
    let mut args = std::env::args().skip(1);
    let mut input = None;
    while let Some(flag) = args.next() {
        let value = args.next().with_context(|| format!("{flag} needs a value"))?;
        let number = || value.parse::<u64>().with_context(|| format!("{flag} {value}"));
        match flag.as_str() {
            "--target" => {
                let names = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>();
                let target = find(&value);
                targets = vec![target.with_context(|| format!("the targets are {:?}", names()))?];
            }
            "--seconds" => run.time = Duration::from_secs(number()?),
            "--seed" => run.seed = number()?,
            "--rounds" => run.rounds_max = number()?,
            "--trace" => run.trace = Some(value.into()),
            "--input" => input = Some(std::fs::read(&value).with_context(|| value.clone())?),
            other => bail!("unknown flag {other:?}"),
        }
    }
    let mut out = std::io::stdout();
    for target in targets {
        if let Some(input) = &input {
            writeln!(out, "{}: {:?}", target.name, run.run_input(target, input))?;
            continue;
        }
        writeln!(out, "{}: seed {}", target.name, run.seed)?;
        let summary = run.run(target).map_err(|fault| anyhow::anyhow!("{fault}"))?;
        let rounds = summary.rounds;
        let outcomes = summary.outcomes;
        writeln!(out, "{}: {rounds} inputs, {outcomes} distinct outcomes", target.name)?;
    }
    Ok(())
}
