//! Tests of the whole server: real kubectl, all built-in resources, restarts, kills, watches under
//! load, and bad input.

// Tests print counts and skipped parts to standard output.
#![allow(clippy::print_stdout)]

mod access_reviews;
mod admission;
mod api_services;
mod authenticators;
mod authorization;
mod authorization_webhooks;
mod backup;
mod bad_input;
mod bad_input_tls;
mod bad_input_wire;
mod bit_rot;
mod certificates;
mod clients;
mod component_pages;
mod conformance;
mod connection;
mod connections;
mod controllers;
mod definitions;
mod discovery;
mod documents;
mod etcd;
mod etcd_values;
mod event_ttl;
mod external_signer;
mod faults;
mod flow_control;
mod forms;
mod frames;
mod front_proxy;
mod growth;
mod http;
mod http_edges;
mod https_peer;
mod impersonation;
mod in_process_admission;
mod kill;
mod kubectl;
mod legacy_tokens;
mod logs;
mod metrics;
mod minimal;
mod namespaces;
mod nodes;
mod oidc;
mod operators;
mod plug_ins;
mod policies;
mod random;
mod requirements;
mod resources;
mod restart;
mod runtime_kinds;
mod supervisor;
mod swap;
mod taken_over;
mod tokens;
mod torture;
mod webhooks;
mod websocket;
