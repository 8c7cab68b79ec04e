//! Tests of HTTP: a server over a registry of its own, without files, flags and control loops
//! (`world.rs`).

// Tests print counts and skipped parts to standard output.
#![allow(clippy::print_stdout)]

mod access_reviews;
mod answer_forms;
mod applies;
mod applies_of_versions;
mod authorization;
mod bad_input;
mod bad_input_tls;
mod bad_input_wire;
mod connections;
mod custom_objects;
mod definitions;
mod discovery;
mod documents;
mod empty_values;
mod fairness;
mod flow_control;
mod forms;
mod frames;
mod gates;
mod growth;
mod http_edges;
mod impersonation;
mod minimal;
mod nodes;
mod options;
mod policies;
mod preconditions;
mod recorded;
mod request_corners;
mod requirements;
mod rights;
mod runtime_kinds;
mod small_answers;
mod small_warnings;
mod subresource_fields;
mod webhooks;
mod websocket;
mod world;
