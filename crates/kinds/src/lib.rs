//! The rules of built-in kinds that schemas cannot express: defaults that depend on other fields, server-owned fields,
//! validation, warnings, and conversion between versions. [`strategy`] returns the rules of a resource.
//!
//! Pure functions: no IO, no clock, no async; equal inputs give equal outputs.

mod built_in;
pub mod convert;
mod gated_fields;
mod gates;
pub mod preserve;
pub mod strategy;

mod admission;
pub mod api_services;
mod autoscaling;
mod batch;
mod certificates;
mod check;
mod claim_template;
mod claims;
mod conditions;
mod config;
mod coordination;
mod csi;
pub mod custom;
pub mod definitions;
pub mod deletion;
mod devices;
mod endpoints;
mod equality;
mod events;
pub mod expressions;
pub mod facts;
mod flow;
mod limits;
mod migration;
mod networking;
mod nodes;
mod pod;
mod policies;
mod rbac;
pub mod scale;
mod scheduling;
pub mod service;
mod storage;
mod workloads;

pub use built_in::strategy;
pub use convert::convert;
pub use service::PortRange;
pub use strategy::{
    Check, Generation, SelectableField, StatusMetadata, Strategy, SubresourceStrategy,
};
