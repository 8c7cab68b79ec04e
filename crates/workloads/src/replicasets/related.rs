//! Pods of the same workload: those of all ReplicaSets with the same controller. Of two pods, the
//! one whose node has more of them is deleted first.

use super::Replicas;
use crate::pod_control::is_controlled_by;
use keelson_loops::client::Client;
use keelson_meta::selector::Selector;
use keelson_meta::{Failure, Object};

/// Returns the pods that are selected by an object, or by one with the same controller.
pub(super) fn pods<R: Replicas>(client: &Client, owner: &Object) -> Result<Vec<Object>, Failure> {
    let (group, resource) = R::SCOPE[0];
    let (Some(kind), Some(pod_kind)) = (client.kind(group, resource), client.kind("", "pods"))
    else {
        return Ok(vec![]);
    };
    let prefix = format!("{}/", owner.namespace());
    let mut selectors: Vec<Selector> = vec![];
    match owner.controller().and_then(|controller| controller.str_at(&["uid"])) {
        None => selectors.extend(R::selector(owner)),
        Some(uid) => {
            let mut controller = Object::new();
            controller.set_meta("uid", uid);
            for entry in client.registry.cached_all(&kind).range(&prefix, "") {
                let sibling = kind.decode(entry)?;
                if is_controlled_by(&sibling, &controller) {
                    selectors.extend(R::selector(&sibling));
                }
            }
        }
    }
    let all = client.registry.cached_all(&pod_kind);
    let related = all
        .range(&prefix, "")
        .filter(|entry| selectors.iter().any(|selector| selector.matches(|key| entry.label(key))));
    related.map(|entry| pod_kind.decode(entry)).collect()
}
