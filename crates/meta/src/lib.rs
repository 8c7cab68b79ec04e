//! The words of the Kubernetes API, shared by every other crate. No IO, no clock, no async.
