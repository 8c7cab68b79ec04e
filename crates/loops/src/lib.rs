//! What control loops are made of. Each loop acts as a client within the process: under a service
//! account of its own, through authorization and admission.
//!
//! A loop has the name of the kube-controller-manager loop that it replaces, and `--controllers`
//! selects loops by that name: [`Selection`]. [`ReadyLoop::run`] starts a loop; dropping its future
//! ends it.

pub mod client;
pub mod control_loop;
mod controller;
pub mod events;
pub mod far_objects;
pub mod go_text;
pub mod int_or_percent;
mod known;
pub mod metadata;
pub mod pods;
pub mod queue;
mod selection;

pub use controller::{Controller, ReadyLoop, Running, StandsFor};
pub use known::Known;
pub use selection::{Selection, unknown_words};
