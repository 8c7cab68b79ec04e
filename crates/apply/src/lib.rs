//! The ways in which a request changes a part of an object: JSON Patch, JSON merge patch, strategic
//! merge patch and server-side apply, and the record of who owns which field.
//!
//! Promise: no IO, no clock, no async; equal inputs give equal outputs.

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
mod laws;
#[cfg(test)]
mod testing;
