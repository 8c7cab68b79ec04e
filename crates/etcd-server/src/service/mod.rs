//! The calls of etcd's services, each as a method of the engine.

mod cluster;
mod kv;
mod lease;
mod maintenance;

pub(crate) use maintenance::{ETCD_VERSION, STORAGE_VERSION};
