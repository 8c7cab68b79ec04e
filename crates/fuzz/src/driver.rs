//! Runs a target: inputs from its seeds, changed at random; those that led to an answer that was not seen
//! before are kept and changed further.

use crate::mutate::{Random, mutate};
use crate::targets::Target;
use crate::{INPUT_BYTES_MAX, MEMORY_BYTES_MAX};
use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Inputs that are kept at most.
const POOL_MAX: usize = 4_096;

/// Inputs between two looks at the memory.
const ROUNDS_PER_LOOK: u64 = 1_000;

/// What is run, and for how long.
pub struct Run {
    /// Equal seeds give equal rows of inputs.
    pub seed: u64,
    /// Ends the run.
    pub time: Duration,
    /// Ends the run.
    pub rounds_max: u64,
    /// The stack on which inputs are tried.
    pub stack_bytes: usize,
    /// Each input is written here before it is tried: the last one is that of a crash.
    pub trace: Option<PathBuf>,
}

/// What a run did.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Inputs that were tried.
    pub rounds: u64,
    /// Answers that differ.
    pub answers: usize,
}

/// An input that does harm.
#[derive(Debug)]
pub struct Fault {
    /// Of the target.
    pub target: &'static str,
    /// Which input of the row.
    pub round: u64,
    /// What happened.
    pub why: String,
    /// The input.
    pub input: Vec<u8>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { target, round, why, input } = self;
        write!(f, "{target}: round {round}: {why}\n  {}", input.escape_ascii())
    }
}

impl std::error::Error for Fault {}

impl Run {
    /// Runs a target to the end, or to its first fault.
    pub fn of(&self, target: &'static Target) -> Result<Summary, Box<Fault>> {
        self.on_stack(|| self.all(target))
    }

    /// Tries one input: what the target says of it, or why that is a fault.
    pub fn one(&self, target: &'static Target, input: &[u8]) -> Result<u64, String> {
        self.on_stack(|| self.attempt(target, input))
    }

    fn on_stack<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(self.stack_bytes);
            let running = thread.spawn_scoped(scope, work);
            running.expect("a thread").join().expect("panics are caught within")
        })
    }

    fn all(&self, target: &'static Target) -> Result<Summary, Box<Fault>> {
        let mut pool = (target.seeds)();
        pool.iter_mut().for_each(|seed| seed.truncate(INPUT_BYTES_MAX));
        let seeds = pool.len() as u64;
        let mut random = Random::new(self.seed);
        let mut answers = HashSet::new();
        let end = Instant::now() + self.time;
        let mut round = 0;
        while round < self.rounds_max && (round < seeds || Instant::now() < end) {
            let input = if round < seeds {
                pool[round as usize].clone()
            } else {
                let (one, other) = (random.below(pool.len()), random.below(pool.len()));
                mutate(&pool[one], &pool[other], target.words, &mut random)
            };
            let fault =
                |why| Box::new(Fault { target: target.name, round, why, input: input.clone() });
            let answer = self.attempt(target, &input).map_err(fault)?;
            if answers.insert(answer) && round >= seeds {
                keep(&mut pool, seeds as usize, input.clone(), &mut random);
            }
            if round % ROUNDS_PER_LOOK == 0
                && let Some(bytes) = memory()
                && bytes > MEMORY_BYTES_MAX
            {
                return Err(fault(format!("{bytes} bytes of memory")));
            }
            round += 1;
        }
        Ok(Summary { rounds: round, answers: answers.len() })
    }

    /// What the target says of an input, or why that is a fault.
    fn attempt(&self, target: &Target, input: &[u8]) -> Result<u64, String> {
        if let Some(path) = &self.trace {
            std::fs::write(path, input).map_err(|error| format!("--trace: {error}"))?;
        }
        match catch_unwind(AssertUnwindSafe(|| (target.attempt)(input))) {
            Ok(answer) => answer,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                Err(format!("panic: {}", text.unwrap_or("no words")))
            }
        }
    }
}

/// Adds an input; when there is no room, in the place of another one that is no seed.
fn keep(pool: &mut Vec<Vec<u8>>, seeds: usize, input: Vec<u8>, random: &mut Random) {
    if pool.len() < POOL_MAX.max(seeds + 1) {
        pool.push(input);
    } else {
        let at = seeds + random.below(pool.len() - seeds);
        pool[at] = input;
    }
}

/// The most memory that the process ever took, where the system tells.
fn memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes << 10)
}
