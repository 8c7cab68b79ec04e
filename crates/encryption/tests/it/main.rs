//! Tests of the crate's public interface.

mod configs;
mod kms;
mod values;
