//! The four kinds of patch (JSON Patch, JSON merge patch, strategic merge patch and server-side
//! apply) and `metadata.managedFields`, which records the fields that each field manager owns.
//!
//! Pure functions: no IO, no clock, no async; equal inputs give equal outputs.

pub mod apply;
pub mod error;
pub mod fields;
pub mod json_patch;
pub mod managed;
pub mod merge_patch;
pub mod strategic;
pub mod typed;

pub use error::PatchError;
pub use keelson_schema::go_fmt;

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod testing;
