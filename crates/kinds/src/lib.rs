//! The rules of built-in kinds that schemas cannot express: defaults that depend on other fields,
//! server-owned fields, validation, warnings, and conversion between versions. [`strategy`] returns
//! the rules of a resource.
//!
//! Pure functions: no IO, no clock, no async; equal inputs give equal outputs.

mod built_in;
pub mod convert;
mod gated_fields;
mod gates;
pub mod preserve;
mod row;
pub mod strategy;

mod admission;
pub mod api_services;
mod apiextensions;
mod apps;
mod autoscaling;
mod batch;
mod certificates;
mod check;
mod conditions;
mod coordination;
mod core;
pub mod custom;
pub mod definitions;
pub mod deletion;
mod devices;
mod discovery;
mod equality;
mod events;
pub mod expressions;
pub mod facts;
mod flow;
mod migration;
mod networking;
mod node;
mod policy;
mod rbac;
pub mod scale;
mod scheduling;
mod storage;

pub use crate::core::service;
pub use crate::core::service::PortRange;
pub use crate::gates::with_features;
pub use built_in::strategy;
pub use convert::convert;
pub use strategy::{
    Check, Generation, SelectableField, StatusMetadata, Strategy, SubresourceStrategy,
};
