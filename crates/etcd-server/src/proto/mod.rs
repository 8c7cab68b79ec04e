//! The messages of etcd's v3 API, with the names, numbers and types of etcd's `rpc.proto` and
//! `kv.proto` (3.6). Written by hand, so that no build needs `protoc`.

mod kv;
mod lease;
mod maintenance;
mod watch;

pub(crate) use kv::*;
pub(crate) use lease::*;
pub(crate) use maintenance::*;
pub(crate) use watch::*;
