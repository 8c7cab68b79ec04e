//! Tests of the schema crate against recordings of kube-apiserver.

// The tests print what was compared.
#![allow(clippy::print_stdout)]

mod generate;
mod openapi;
mod property;
mod roundtrip;
mod strict;
mod yaml;
