//! Tests of the whole server: real kubectl, all built-in resources, control loops, restarts, kills,
//! watches under load. What is answered over HTTP is tested in `server/tests/it`.

// Tests print counts and skipped parts to standard output.
#![allow(clippy::print_stdout)]

mod admission;
mod aggregation;
mod anonymous;
mod api_services;
mod audit;
mod authenticators;
mod authorization;
mod authorization_webhooks;
mod backup;
mod bit_rot;
mod certificates;
mod clients;
mod command_lines;
mod component_pages;
mod conformance;
mod connection_limit;
mod connection_limits;
mod controllers;
mod egress_selector;
mod encryption;
mod ephemeral;
mod etcd;
mod etcd_face;
mod etcd_fairness;
mod etcd_overrides;
mod etcd_values;
mod event_ttl;
mod explorer;
mod external_signer;
mod faults;
mod flag_effects;
mod front_proxy;
mod handshakes;
mod http;
mod in_process_admission;
mod kill;
mod kube_apiserver;
mod kubeadm;
mod kubectl;
mod legacy_tokens;
mod logs;
mod metrics;
#[path = "../../../server/tests/it/minimal.rs"]
mod minimal;
mod moves;
mod namespaces;
mod observe;
mod oidc;
mod operators;
mod plug_ins;
mod random;
mod reference;
mod requirements_of_loops;
mod resources;
mod restart;
mod short_connections;
mod simulation;
mod spans;
mod stop_signals;
mod stream_credentials;
mod stream_ends;
mod supervisor;
mod swap;
mod taken_over;
mod tokens;
mod torture;
mod validate;
