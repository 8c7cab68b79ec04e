//! The contract's suite and the random walk on every store of this crate, and what the embedded
//! engine promises beyond the contract: restarts, failing disks, power cuts, `kill -9`.
// Helpers of tests may unwrap as tests do.
#![allow(clippy::unwrap_used)]

mod damage;
mod decide;
mod kill;
mod leases;
mod log;
mod offline;
mod power;
mod restart;
mod rewrite;
mod sim;
mod suite;
mod upgrade;
