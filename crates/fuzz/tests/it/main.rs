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

/// `KEELSON_FUZZ_SECONDS`: how long each decoder is tried, instead of a number of inputs.
fn decoder_time() -> Option<Duration> {
    let seconds = std::env::var("KEELSON_FUZZ_SECONDS").ok()?;
    Some(Duration::from_secs(seconds.parse().expect("KEELSON_FUZZ_SECONDS is a number")))
}

fn check(target: &str) {
    check_for(target, TIME, ROUNDS);
}

fn check_decoder(target: &str) {
    match decoder_time() {
        Some(time) => check_for(target, time, u64::MAX),
        None => check(target),
    }
}

fn check_for(target: &str, time: Duration, rounds_max: u64) {
    let stack_bytes = STACK_BYTES * UNOPTIMISED_FACTOR;
    let run = Run { seed: 1, time, rounds_max, stack_bytes, trace: None };
    match run.run(find(target).expect("a target")) {
        Ok(summary) => println!("{target}: {summary:?}"),
        Err(fault) => panic!("{fault}"),
    }
}

#[test]
fn json() {
    check_decoder("json");
}

#[test]
fn yaml() {
    check_decoder("yaml");
}

#[test]
fn protobuf() {
    check_decoder("protobuf");
}

#[test]
fn cbor() {
    check_decoder("cbor");
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

#[test]
fn cel() {
    check("cel");
}

/// Each case takes a while: few of them, so that the test is short.
#[test]
fn hostile() {
    check_for("hostile", TIME, ROUNDS);
}

#[test]
fn spdy() {
    check("spdy");
}

#[test]
fn channels() {
    check("channels");
}
