//! What the crate promises, checked against reference data.

mod roundtrip;
