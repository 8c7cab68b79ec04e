//! Tests of the crate's public interface.

mod configs;
mod flips;
mod kms;
mod values;
