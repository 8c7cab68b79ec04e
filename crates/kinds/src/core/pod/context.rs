//! [`Context`]: facts about a pod that the rules of its parts need.

use keelson_meta::{SmallSet, Value};
use std::collections::HashMap;

/// The valid volumes of a pod by name.
pub(crate) type Volumes<'a> = HashMap<&'a str, &'a Value>;

/// Facts about a pod that the rules of its parts need.
pub(crate) struct Context<'a> {
    /// The valid volumes.
    pub volumes: Volumes<'a>,
    /// The names of `resourceClaims`, in order.
    pub claim_names: Vec<&'a str>,
    /// The names of `resourceClaims`, for lookups.
    pub claims: SmallSet<&'a str>,
    /// `restartPolicy` of the pod.
    pub restart_policy: &'a str,
    /// `terminationGracePeriodSeconds`.
    pub grace_seconds: i64,
    /// `os.name`.
    pub os: &'a str,
    /// Whether the pod uses the host's user namespace.
    pub host_users: bool,
    /// Whether it is a pod and not a template.
    pub is_pod: bool,
}
