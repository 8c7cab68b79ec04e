//! Every kind as data. Built-in kinds and custom resources both have a [`Schema`]; one engine
//! decodes, defaults, encodes, converts to table rows and describes objects by it.
//!
//! Promise: no IO, no clock, no async; equal inputs give equal outputs.

pub mod canonical;
pub mod catalogue;
pub mod cbor;
pub mod continue_token;
pub mod decode;
pub mod default;
mod encoded_form;
pub mod given_numbers;
pub mod go_fmt;
mod go_types;
pub mod json;
mod json_writer;
pub mod openapi;
pub mod proto;
mod scalar;
pub mod structural;
pub mod tables;
pub mod types;
pub mod yaml;

pub use types::{
    Field, ListKind, Presence, Schema, Shape, SharedTypes, Struct, StructId, TagPath, Types,
};
