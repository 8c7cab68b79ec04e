//! Inputs made at random and given to what reads bytes of a stranger: the decoders, the parsers of
//! selectors, quantities and times, and the patches.
//!
//! A run is told by its seed and nothing else: equal seeds give equal rows of inputs, so a fault is found
//! again by the number of its round. What counts as a fault is a panic, an overflow of the stack, more
//! memory than [`MEMORY_BYTES_MAX`], and an object that is not the same after it was written and read.

mod driver;
mod mutate;
mod objects;
mod targets;

pub use driver::{Fault, Run, Summary};
pub use targets::{TARGETS, Target, find};

/// Bytes of an input: a tenth of what a request may hold is enough for every shape, and quick.
pub const INPUT_BYTES_MAX: usize = 16 << 10;

/// The stack of a thread that answers requests.
pub const STACK_BYTES: usize = 2 << 20;

/// Memory that the process may take in a run, all in all.
pub const MEMORY_BYTES_MAX: u64 = 768 << 20;
