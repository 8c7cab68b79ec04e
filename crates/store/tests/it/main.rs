//! The contract's suite and the random walk on every store of this crate.

mod suite;
