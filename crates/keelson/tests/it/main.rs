//! A whole server under test: real kubectl, every built-in resource, and restarts.

// What a test skips, and what it counts, is told on standard output.
#![allow(clippy::print_stdout)]

mod conformance;
mod discovery;
mod forms;
mod http;
mod kubectl;
mod minimal;
mod resources;
mod restart;
