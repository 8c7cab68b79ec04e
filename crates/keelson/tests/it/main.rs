//! A whole server under test: real kubectl, every built-in resource, and restarts.

// What a test skips, and what it counts, is told on standard output.
#![allow(clippy::print_stdout)]

mod conformance;
mod http;
mod kubectl;
mod minimal;
mod requirements;
mod resources;
mod restart;
