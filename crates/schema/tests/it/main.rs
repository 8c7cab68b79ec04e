//! Tests of the schema crate against facts of a running server.

// What was compared is told in the output of the tests.
#![allow(clippy::print_stdout)]

mod generate;
mod openapi;
mod property;
mod roundtrip;
