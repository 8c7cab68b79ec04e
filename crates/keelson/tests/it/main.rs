//! A whole server under test: real kubectl, every built-in resource, and restarts.

mod conformance;
mod http;
mod kubectl;
mod minimal;
mod resources;
mod restart;
