//! The Node authorizer: grants kubelets access to their own Node, Lease and CSINode, and to the
//! objects that the pods on their node refer to.

mod graph;

pub use graph::{Graph, Vertex, references};

use crate::rbac::Rule;
use crate::watched_index::WatchedIndex;
use crate::{Attributes, AuthorizationReason, Decision, NODES, Objects, User};
use keelson_meta::status::quote;
use std::sync::Arc;

/// Prefix of the user names of nodes.
const USER_PREFIX: &str = "system:node:";
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// The Node authorizer.
pub struct NodeAuthorizer {
    /// The rules of `system:node`, for all nodes and objects.
    rules: Vec<Rule>,
    graph: WatchedIndex<Graph>,
}

/// Returns the node name of a user; `None` if the user is not a node. May be empty.
pub fn node_name(user: &User) -> Option<&str> {
    user.name.strip_prefix(USER_PREFIX).filter(|_| user.is_in(NODES))
}

/// `Ok`: allowed. `Err`: no opinion, with the reason.
type AuthorizeResult = Result<(), String>;

fn reject(why: &str) -> AuthorizeResult {
    Err(why.to_owned())
}

impl NodeAuthorizer {
    /// Returns an authorizer with the rules of `system:node`.
    pub fn new(rules: Vec<Rule>) -> NodeAuthorizer {
        NodeAuthorizer { rules, graph: WatchedIndex::default() }
    }

    /// Starts following pods and the objects that they refer to.
    pub fn attach(&self, objects: Arc<dyn Objects>) {
        self.graph.attach(objects);
    }

    /// Decides for nodes; no opinion on other users.
    pub async fn decide(&self, user: &User, attributes: &Attributes) -> Decision {
        let Some(node) = node_name(user) else { return Decision::no_opinion(String::new()) };
        if node.is_empty() {
            return Decision::no_opinion(format!("unknown node for user {}", quote(&user.name)));
        }
        if needs_graph(attributes)
            && let Err(error) = self.graph.current().await
        {
            return Decision::failed(error);
        }
        match self.authorize(node, attributes) {
            Ok(()) => Decision::allow(AuthorizationReason::Empty),
            Err(why) => Decision::no_opinion(why),
        }
    }

    fn authorize(&self, node: &str, attributes: &Attributes) -> AuthorizeResult {
        if attributes.is_resource() {
            let group = &*attributes.gvr.group;
            let resource = &*attributes.gvr.resource;
            match (group, resource) {
                ("", "secrets") => return self.read(node, Vertex::Secret, attributes),
                ("", "configmaps") => return self.read(node, Vertex::ConfigMap, attributes),
                ("", "persistentvolumeclaims") if attributes.subresource == "status" => {
                    return match attributes.verb.as_str() {
                        "update" | "patch" => self.has_path(node, Vertex::Claim, attributes),
                        _ => reject("can only get/update/patch this type"),
                    };
                }
                ("", "persistentvolumeclaims") => return self.get(node, Vertex::Claim, attributes),
                ("", "persistentvolumes") => return self.get(node, Vertex::Volume, attributes),
                ("resource.k8s.io", "resourceclaims") => {
                    return self.get(node, Vertex::ResourceClaim, attributes);
                }
                ("storage.k8s.io", "volumeattachments") => {
                    return self.get(node, Vertex::Attachment, attributes);
                }
                ("", "serviceaccounts") => return self.service_account(node, attributes),
                ("coordination.k8s.io", "leases") => return lease(node, attributes),
                ("storage.k8s.io", "csinodes") => return csi_node(node, attributes),
                ("resource.k8s.io", "resourceslices") => return self.slice(node, attributes),
                ("", "nodes") => return own_node(node, attributes),
                ("", "pods") => return self.pod(node, attributes),
                _ => {}
            }
        }
        match self.rules.iter().any(|rule| rule.allows(attributes)) {
            true => Ok(()),
            false => reject(""),
        }
    }

    /// Allows access if the graph has a path from the object to a pod on the node.
    fn has_path(&self, node: &str, vertex: Vertex, attributes: &Attributes) -> AuthorizeResult {
        if attributes.name.is_empty() {
            return reject("No Object name found");
        }
        match self.graph.index().has_path_to_node(
            vertex,
            &attributes.namespace,
            &attributes.name,
            node,
        ) {
            true => Ok(()),
            false => Err(format!("no relationship found between node '{node}' and this object")),
        }
    }

    fn get(&self, node: &str, vertex: Vertex, attributes: &Attributes) -> AuthorizeResult {
        if attributes.verb != "get" {
            return reject("can only get individual resources of this type");
        }
        if !attributes.subresource.is_empty() {
            return reject("cannot get subresource");
        }
        self.has_path(node, vertex, attributes)
    }

    fn read(&self, node: &str, vertex: Vertex, attributes: &Attributes) -> AuthorizeResult {
        if !attributes.is_read_only() {
            return reject("can only read resources of this type");
        }
        if !attributes.subresource.is_empty() {
            return reject("cannot read subresource");
        }
        if attributes.namespace.is_empty() {
            return reject("can only read namespaced object of this type");
        }
        self.has_path(node, vertex, attributes)
    }

    /// Kubelets read the service accounts of their pods and request their tokens.
    fn service_account(&self, node: &str, attributes: &Attributes) -> AuthorizeResult {
        if attributes.verb == "get" && attributes.subresource.is_empty() {
            return self.read(node, Vertex::ServiceAccount, attributes);
        }
        if attributes.verb != "create" || attributes.name.is_empty() {
            return reject("can only create tokens for individual service accounts");
        }
        if attributes.subresource != "token" {
            return reject("can only create token subresource of serviceaccount");
        }
        self.has_path(node, Vertex::ServiceAccount, attributes)
    }

    fn slice(&self, node: &str, attributes: &Attributes) -> AuthorizeResult {
        if !attributes.subresource.is_empty() {
            return reject("cannot authorize ResourceSlice subresources");
        }
        match attributes.verb.as_str() {
            // NodeRestriction checks the owner.
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.has_path(node, Vertex::Slice, attributes),
            "watch" | "list" | "deletecollection" => {
                match attributes.required_field("spec.nodeName") == Some(node) {
                    true => Ok(()),
                    false => reject(
                        "can only list/watch/deletecollection resourceslices with nodeName field \
                         selector",
                    ),
                }
            }
            _ => reject(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, \
                 create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn pod(&self, node: &str, attributes: &Attributes) -> AuthorizeResult {
        match (attributes.subresource.as_str(), attributes.verb.as_str()) {
            ("", "get") => self.get(node, Vertex::Pod, attributes),
            ("", "list" | "watch") => {
                if attributes.required_field("spec.nodeName") == Some(node) {
                    return Ok(());
                }
                if attributes.name.is_empty() {
                    return reject("can only list/watch pods with spec.nodeName field selector");
                }
                self.has_path(node, Vertex::Pod, attributes)
            }
            // NodeRestriction checks the node.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
                Ok(())
            }
            _ => reject(""),
        }
    }
}

/// Returns whether the decision depends on references between objects.
fn needs_graph(attributes: &Attributes) -> bool {
    !matches!(
        (&*attributes.gvr.group, &*attributes.gvr.resource),
        ("coordination.k8s.io", "leases")
            | ("storage.k8s.io", "csinodes")
            | ("", "nodes" | "events")
    ) && attributes.is_resource()
}

fn own_node(node: &str, attributes: &Attributes) -> AuthorizeResult {
    match (attributes.subresource.as_str(), attributes.verb.as_str()) {
        // NodeRestriction checks the name.
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") => match attributes.name.as_str() {
            name if name == node => Ok(()),
            "" => Err(format!("node '{node}' cannot read all nodes, only its own Node object")),
            name => Err(format!("node '{node}' cannot read '{name}', only its own Node object")),
        },
        _ => reject(""),
    }
}

fn lease(node: &str, attributes: &Attributes) -> AuthorizeResult {
    if !is_own_verb(&attributes.verb) {
        return reject("can only get, create, update, patch, or delete a node lease");
    }
    if attributes.namespace != LEASE_NAMESPACE {
        let namespace = quote(LEASE_NAMESPACE);
        return Err(format!("can only access leases in the {namespace} system namespace"));
    }
    // The name of a new lease is not known yet; NodeRestriction checks it.
    if attributes.verb != "create" && attributes.name != node {
        return reject("can only access node lease with the same name as the requesting node");
    }
    Ok(())
}

fn csi_node(node: &str, attributes: &Attributes) -> AuthorizeResult {
    if !is_own_verb(&attributes.verb) {
        return reject("can only get, create, update, patch, or delete a CSINode");
    }
    if !attributes.subresource.is_empty() {
        return reject("cannot authorize CSINode subresources");
    }
    if attributes.verb != "create" && attributes.name != node {
        return reject("can only access CSINode with the same name as the requesting node");
    }
    Ok(())
}

fn is_own_verb(verb: &str) -> bool {
    matches!(verb, "get" | "create" | "update" | "patch" | "delete")
}
