//! A fuzzer for the code that reads bytes of clients and nodes: the decoders, the parsers of
//! selectors, quantities and times, patches, CEL expressions, and the protocols of streams.
//!
//! Equal seeds give equal inputs in the same order, so seed and round reproduce a fault. A fault is
//! a panic, a stack overflow, more memory than [`MEMORY_BYTES_MAX`], or a value that changes when
//! it is encoded and decoded again.

mod driver;
mod memory;
mod mutate;
mod objects;
mod targets;

pub use driver::{Fault, Run, Summary};
pub use targets::{TARGETS, Target, find};

/// The maximum size of an input. It is far below the limit of request bodies, which keeps runs
/// fast.
pub const INPUT_BYTES_MAX: usize = 16 << 10;

/// The stack of a thread that serves requests.
pub const STACK_BYTES: usize = 2 << 20;

/// The maximum of the process's resident memory during a run.
pub const MEMORY_BYTES_MAX: u64 = 768 << 20;
