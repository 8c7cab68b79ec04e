//! Every kind as data. A built-in kind and a custom one are the same [`Schema`]; one engine decodes,
//! defaults, encodes, converts, prints and describes both.
//!
//! Promise: no IO, no clock, no async; equal inputs give equal outputs.

pub mod catalogue;
pub mod cbor;
pub mod conform;
pub mod continue_token;
pub mod decode;
pub mod default;
mod go_types;
pub mod gofmt;
pub mod json;
mod json_writer;
pub mod openapi;
pub mod proto;
pub mod structural;
pub mod tables;
mod text;
pub mod types;
mod written;
pub mod yaml;

pub use types::{
    Field, ListKind, Presence, Schema, Shape, SharedTypes, Struct, StructId, TagPath, Types,
};
