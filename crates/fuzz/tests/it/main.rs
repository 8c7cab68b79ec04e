//! A short run of each target: what was found once is found again, and what is new has a chance.

#![allow(clippy::print_stdout)]

use keelson_fuzz::{Run, STACK_BYTES, find};
use std::time::Duration;

/// Inputs of a run; enough to go past the seeds and their nearest neighbours.
const ROUNDS: u64 = 20_000;

/// How much more stack a function takes that was not optimised.
const UNOPTIMISED_FACTOR: usize = 16;

/// Ends a run on a slow machine.
const TIME: Duration = Duration::from_secs(10);

fn check(target: &str) {
    let stack_bytes = STACK_BYTES * UNOPTIMISED_FACTOR;
    let run = Run { seed: 1, time: TIME, rounds_max: ROUNDS, stack_bytes, trace: None };
    match run.of(find(target).expect("a target")) {
        Ok(summary) => println!("{target}: {summary:?}"),
        Err(fault) => panic!("{fault}"),
    }
}

#[test]
fn json() {
    check("json");
}

#[test]
fn yaml() {
    check("yaml");
}

#[test]
fn protobuf() {
    check("protobuf");
}

#[test]
fn cbor() {
    check("cbor");
}

#[test]
fn selector() {
    check("selector");
}

#[test]
fn quantity() {
    check("quantity");
}

#[test]
fn time() {
    check("time");
}

#[test]
fn patch() {
    check("patch");
}
