//! What the crate promises, checked against reference data.

mod generate;
mod property;
mod roundtrip;
