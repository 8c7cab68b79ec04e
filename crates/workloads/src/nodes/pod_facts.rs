//! What nodes keep about pods.

use keelson_meta::{Str, Timestamp};
use std::collections::BTreeMap;

/// Why a node does not accept a pod: reason and message of its status.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    pub reason: String,
    pub message: String,
}

/// Resource, namespace and name of an object.
pub type Needed = (&'static str, Str, Str);
/// Names of containers and the times of their start; the time of the pod's acceptance without a
/// name.
pub type Started = BTreeMap<Str, Timestamp>;
