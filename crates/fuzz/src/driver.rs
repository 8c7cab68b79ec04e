//! Runs a target with random inputs. They are mutations of its seeds, and of earlier inputs that
//! had a new outcome.

use crate::memory::peak_memory_bytes;
use crate::mutate::{Random, mutate};
use crate::targets::Target;
use crate::{INPUT_BYTES_MAX, MEMORY_BYTES_MAX};
use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The maximum of inputs that are kept for mutation.
const CORPUS_INPUTS_MAX: usize = 4_096;

/// The memory is measured once in this many rounds.
const ROUNDS_PER_MEMORY_CHECK: u64 = 1_000;

/// The options of a run.
pub struct Run {
    /// Seed of the random numbers. Equal seeds give equal inputs in the same order.
    pub seed: u64,
    /// How long the run lasts.
    pub time: Duration,
    /// The maximum of inputs.
    pub rounds_max: u64,
    /// The size of the stack of the thread that runs the target.
    pub stack_bytes: usize,
    /// A file to which each input is written before it is run. After a crash it contains the input
    /// that caused it.
    pub trace: Option<PathBuf>,
}

/// The results of a run without a fault.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// The number of inputs.
    pub rounds: u64,
    /// The number of distinct outcomes.
    pub outcomes: usize,
}

/// An input for which the target fails.
#[derive(Debug)]
pub struct Fault {
    /// The name of the target.
    pub target: &'static str,
    /// The number of the input, counted from 0.
    pub round: u64,
    /// The error or panic message.
    pub message: String,
    /// The input.
    pub input: Vec<u8>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { target, round, message, input } = self;
        write!(f, "{target}: round {round}: {message}\n  {}", input.escape_ascii())
    }
}

impl std::error::Error for Fault {}

impl Run {
    /// Runs a target until the end of the run, or until its first fault.
    pub fn run(&self, target: &'static Target) -> Result<Summary, Box<Fault>> {
        self.on_stack(|| self.run_rounds(target))
    }

    /// Runs a target with one input. Returns the hash of the outcome, or the message of the fault.
    pub fn run_input(&self, target: &'static Target, input: &[u8]) -> Result<u64, String> {
        self.on_stack(|| self.attempt(target, input))
    }

    fn on_stack<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(self.stack_bytes);
            let handle = thread.spawn_scoped(scope, work);
            handle.expect("spawn a thread").join().expect("`attempt` catches panics")
        })
    }

    fn run_rounds(&self, target: &'static Target) -> Result<Summary, Box<Fault>> {
        let mut corpus = (target.seeds)();
        corpus.iter_mut().for_each(|seed| seed.truncate(INPUT_BYTES_MAX));
        let seeds = corpus.len() as u64;
        let mut random = Random::new(self.seed);
        let mut outcomes = HashSet::new();
        let end = Instant::now() + self.time;
        let mut round = 0;
        while round < self.rounds_max && (round < seeds || Instant::now() < end) {
            let input = if round < seeds {
                corpus[round as usize].clone()
            } else {
                let one = random.below(corpus.len());
                let other = random.below(corpus.len());
                mutate(&corpus[one], &corpus[other], target.dictionary, &mut random)
            };
            let fault = |message| {
                Box::new(Fault { target: target.name, round, message, input: input.clone() })
            };
            let outcome = self.attempt(target, &input).map_err(fault)?;
            if outcomes.insert(outcome) && round >= seeds {
                add_to_corpus(&mut corpus, seeds as usize, input.clone(), &mut random);
            }
            if round % ROUNDS_PER_MEMORY_CHECK == 0
                && let Some(bytes) = peak_memory_bytes()
                && bytes > MEMORY_BYTES_MAX
            {
                return Err(fault(format!("{bytes} bytes of memory")));
            }
            round += 1;
        }
        Ok(Summary { rounds: round, outcomes: outcomes.len() })
    }

    /// Returns the hash of the outcome of an input, or the message of the fault.
    fn attempt(&self, target: &Target, input: &[u8]) -> Result<u64, String> {
        if let Some(path) = &self.trace {
            std::fs::write(path, input).map_err(|error| format!("--trace: {error}"))?;
        }
        match catch_unwind(AssertUnwindSafe(|| (target.attempt)(input))) {
            Ok(result) => result,
            Err(panic) => {
                let text = panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| panic.downcast_ref::<&str>().copied());
                Err(format!("panic: {}", text.unwrap_or("no message")))
            }
        }
    }
}

/// Adds an input to the corpus. In a full corpus it replaces a random input, but never a seed.
fn add_to_corpus(corpus: &mut Vec<Vec<u8>>, seeds: usize, input: Vec<u8>, random: &mut Random) {
    if corpus.len() < CORPUS_INPUTS_MAX.max(seeds + 1) {
        corpus.push(input);
    } else {
        let at = seeds + random.below(corpus.len() - seeds);
        corpus[at] = input;
    }
}
