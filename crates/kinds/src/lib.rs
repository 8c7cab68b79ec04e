//! The rules of the built-in kinds that no table can say: derived defaults, what the server sets on create
//! and update, validation between fields, warnings, and conversion between versions. One row a resource
//! ([`strategy`]) names them.
//!
//! Promise: no IO, no clock, no async; equal inputs give equal outputs.

pub mod convert;
mod gated;
mod gates;
pub mod keep;
mod rows;
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
mod same;
pub mod scale;
mod scheduling;
pub mod service;
mod storage;
mod workloads;

pub use convert::convert;
pub use rows::strategy;
pub use service::PortRange;
pub use strategy::{Check, Generation, PartRules, SelectableField, StatusMetadata, Strategy};
