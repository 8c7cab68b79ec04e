//! The calls of etcd's services, each as a method of the engine.

mod cluster;
mod kv;
mod lease;
mod maintenance;
#[cfg(test)]
mod tests;

pub(crate) use maintenance::{ETCD_VERSION, STORAGE_VERSION};
