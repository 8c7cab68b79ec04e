//! Takes the texts that describe the built-in types out of the source of the crate `k8s-openapi`,
//! for a build script that embeds them. Nothing of this crate is part of the server.
//!
//! The source is found, not compiled: see `Cargo.toml`. A machine that can build the server has it.

mod extract;
mod find;
mod pack;

pub use extract::{Texts, extract};
pub use find::{VARIABLE, find_source};
pub use pack::pack;
