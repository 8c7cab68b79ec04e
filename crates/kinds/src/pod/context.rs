//! [`Context`]: what rules of parts of a pod have to know of the whole.

use keelson_meta::{Seen, Value};
use std::collections::HashMap;

/// The well-formed volumes of a pod, by their names.
pub(crate) type Volumes<'a> = HashMap<&'a str, &'a Value>;

/// What rules of parts have to know of the whole.
pub(crate) struct Context<'a> {
    /// The volumes that are well-formed.
    pub volumes: Volumes<'a>,
    /// The names of `resourceClaims`, in order.
    pub claim_names: Vec<&'a str>,
    /// The same, to look one up.
    pub claims: Seen<&'a str>,
    /// `restartPolicy` of the pod.
    pub restart_policy: &'a str,
    /// `terminationGracePeriodSeconds`.
    pub grace_seconds: i64,
    /// `os.name`.
    pub os: &'a str,
    /// Users of the pod are those of the host.
    pub host_users: bool,
    /// A pod, not a template of one.
    pub is_pod: bool,
}
