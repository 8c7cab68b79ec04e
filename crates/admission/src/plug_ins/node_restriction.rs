//! NodeRestriction: a kubelet may change only its own Node, Lease and CSINode, and the pods on its
//! node.

use crate::attributes::Recorder;
use crate::request::{Operation, Request};
use keelson_auth::User;
use keelson_auth::node::{self, Vertex};
use keelson_meta::status::quote;
use keelson_meta::{Failure, Feature, GroupVersionResource, Object, Status, Value};
use std::collections::BTreeSet;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

const MIRROR: &str = "kubernetes.io/config.mirror";
/// The name of the plug-in.
pub(crate) const NAME: &str = "NodeRestriction";
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// Labels of the domains kubernetes.io and k8s.io that kubelets may set.
const KUBELET_LABELS: [&str; 12] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
];
const KUBELET_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Checks creations and updates, before an object is stored.
pub(crate) fn admit(
    req: &Request<'_>,
    obj: &mut Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    check(req, obj)
}

/// Checks deletions and evictions.
pub(crate) fn validate(
    req: &Request<'_>,
    obj: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    match req.operation == Operation::Delete || req.subresource == "eviction" {
        true => check(req, obj),
        false => Ok(()),
    }
}

/// Checks reviews, which are not objects: a node may send one if its name is known.
pub(crate) fn node_rejection(user: &User) -> Option<String> {
    let is_nameless = node::node_name(user).is_some_and(str::is_empty);
    is_nameless.then(|| format!("could not determine node from user {}", quote(&user.name)))
}

fn check(req: &Request<'_>, obj: &Object) -> Result<(), Failure> {
    let Some(node) = node::node_name(req.user) else { return Ok(()) };
    let write = NodeWrite { req, obj, node };
    if let Some(why) = node_rejection(req.user) {
        return write.forbid(&why);
    }
    match (req.gvr.group.as_str(), req.gvr.resource.as_str(), req.subresource) {
        ("", "pods", "") => write.pod(),
        ("", "pods", "status") => write.pod_status(),
        ("", "pods", "eviction") => write.eviction(),
        ("", "pods", other) => write.forbid(&format!(
            "unexpected pod subresource {}, only 'status' and 'eviction' are allowed",
            quote(other)
        )),
        ("", "nodes", _) => write.node(),
        ("", "persistentvolumeclaims", "status") => write.claim_status(),
        ("", "persistentvolumeclaims", _) => write.forbid("may only update PVC status"),
        ("", "serviceaccounts", "token") => write.token(),
        ("coordination.k8s.io", "leases", _) => write.lease(),
        ("storage.k8s.io", "csinodes", _) => {
            write.own_name("can only access CSINode with the same name as the requesting node")
        }
        ("resource.k8s.io", "resourceslices", _) => write.slice(),
        ("certificates.k8s.io", "certificatesigningrequests", "") => write.signing_request(),
        _ => Ok(()),
    }
}

/// A write by a node.
struct NodeWrite<'a> {
    req: &'a Request<'a>,
    obj: &'a Object,
    node: &'a str,
}

impl NodeWrite<'_> {
    fn forbid(&self, why: &str) -> Result<(), Failure> {
        Err(self.req.forbidden(self.obj, why))
    }

    /// Rejects the request unless `holds`, with a message that begins with `node "NAME"`.
    fn require(&self, holds: bool, why: &str) -> Result<(), Failure> {
        match holds {
            true => Ok(()),
            false => self.forbid(&format!("node {} {why}", quote(self.node))),
        }
    }

    fn is_on_node(&self, pod: &Object) -> bool {
        pod.str_at(&["spec", "nodeName"]) == self.node
    }

    fn stored(&self, resource: &str, namespace: &str, name: &str) -> Result<Object, Failure> {
        let found = self.req.stored.get("", resource, namespace, name)?;
        found.ok_or_else(|| Status::not_found(&GroupVersionResource::new("", "v1", resource), name))
    }

    fn pod(&self) -> Result<(), Failure> {
        match self.req.operation {
            Operation::Create => self.new_pod(),
            Operation::Delete => {
                let why = "can only delete pods with spec.nodeName set to itself";
                self.require(self.is_on_node(self.obj), why)
            }
            Operation::Connect => Ok(()),
            Operation::Update => self.forbid(&format!(
                "unexpected operation \"UPDATE\", node {} can only create and delete mirror pods",
                quote(self.node)
            )),
        }
    }

    /// Checks a new pod: it must be a mirror pod and must not refer to other objects.
    fn new_pod(&self) -> Result<(), Failure> {
        let pod = self.obj;
        let node = quote(self.node);
        if pod.annotation(MIRROR).is_none() {
            let mirror = quote(MIRROR);
            return self.forbid(&format!(
                "pod does not have {mirror} annotation, node {node} can only create mirror pods"
            ));
        }
        let why = "can only create pods with spec.nodeName set to itself";
        self.require(self.is_on_node(pod), why)?;
        self.owner(pod)?;
        let account = pod.str_at(&["spec", "serviceAccountName"]);
        let without = |what: &str| format!("can not create pods that reference {what}");
        self.require(account.is_empty(), &without("a service account"))?;
        let references = node::references(pod);
        let refers_to = |kind: Vertex| references.iter().any(|(of, ..)| *of == kind);
        self.require(!refers_to(Vertex::Secret), &without("secrets"))?;
        self.require(!refers_to(Vertex::ConfigMap), &without("configmaps"))?;
        let volumes = pod.array_at(&["spec", "volumes"]);
        let bundles = volumes.iter().flat_map(|volume| volume.array_at(&["projected", "sources"]));
        let is_set = |of: &Value, name: &str| of.get(name).is_some_and(|value| !value.is_null());
        let has_bundle = bundles.into_iter().any(|source| is_set(source, "clusterTrustBundle"));
        self.require(!has_bundle, &without("clustertrustbundles"))?;
        let has_claim = volumes.iter().any(|volume| is_set(volume, "persistentVolumeClaim"));
        self.require(!has_claim, &without("persistentvolumeclaims"))?;
        let claims = pod.array_at(&["spec", "resourceClaims"]);
        self.require(claims.is_empty(), &without("resourceclaims"))
    }

    /// Checks that the node is the only owner of a mirror pod.
    fn owner(&self, pod: &Object) -> Result<(), Failure> {
        let set_to_itself = "can only create pods with an owner reference set to itself";
        let owner = match pod.array_at(&["metadata", "ownerReferences"]) {
            [] => return self.require(false, set_to_itself),
            [owner] => owner,
            _ => {
                let why = "can only create pods with a single owner reference set to itself";
                return self.require(false, why);
            }
        };
        let text = |name: &str| owner.str_at(&[name]).unwrap_or_default();
        let is_itself =
            (text("apiVersion"), text("kind"), text("name")) == ("v1", "Node", self.node);
        self.require(is_itself, set_to_itself)?;
        let flag = |name: &str| owner.get(name).and_then(Value::as_bool) == Some(true);
        let why = "can only create pods with a controller owner reference set to itself";
        self.require(flag("controller"), why)?;
        let why = "must not set blockOwnerDeletion on an owner reference";
        self.require(!flag("blockOwnerDeletion"), why)?;
        let stored = self.stored("nodes", "", self.node)?;
        let known = stored.uid();
        let given = text("uid");
        if known != given {
            let node = self.node;
            return self.forbid(&format!("node {node} UID mismatch: expected {known} got {given}"));
        }
        Ok(())
    }

    fn pod_status(&self) -> Result<(), Failure> {
        let Some(old) = self.req.old else { return self.forbid("unexpected operation") };
        let why = "can only update pod status for pods with spec.nodeName set to itself";
        self.require(self.is_on_node(old), why)?;
        let labels = |pod: &Object| {
            let labels = pod.meta_map("labels").map(|(k, v)| (k.to_owned(), v.to_owned()));
            labels.collect::<BTreeSet<_>>()
        };
        let why = "cannot update labels through pod status";
        self.require(labels(old) == labels(self.obj), why)?;
        let same = |field: &str| {
            let of = |pod: &Object| {
                pod.at(&["status", field]).cloned().filter(|value| !value.is_empty())
            };
            of(old) == of(self.obj)
        };
        self.require(same("resourceClaimStatuses"), "cannot update resource claim statuses")?;
        let why = "cannot update extended resource claim status";
        self.require(same("extendedResourceClaimStatus"), why)
    }

    fn eviction(&self) -> Result<(), Failure> {
        let name = if self.req.name.is_empty() { self.obj.name() } else { self.req.name };
        let pod = self.stored("pods", self.req.namespace, name)?;
        match self.is_on_node(&pod) {
            true => Ok(()),
            false => self.forbid(&format!(
                "node {} can only evict pods with spec.nodeName set to itself",
                self.node
            )),
        }
    }

    fn node(&self) -> Result<(), Failure> {
        let name = if self.req.name.is_empty() { self.obj.name() } else { self.req.name };
        self.require(name == self.node, &format!("is not allowed to modify node {}", quote(name)))?;
        if self.req.operation == Operation::Delete {
            return Ok(());
        }
        let source = |node: &Object| {
            node.at(&["spec", "configSource"]).cloned().filter(|source| !source.is_null())
        };
        let Some(old) = self.req.old else {
            let why = "is not allowed to create nodes with a non-nil configSource";
            self.require(source(self.obj).is_none(), why)?;
            let forbidden = forbidden_labels(&changed_labels(self.obj, None));
            let why = format!("is not allowed to set the following labels: {forbidden}");
            return self.require(forbidden.is_empty(), &why);
        };
        let is_kept = source(self.obj).is_none() || source(self.obj) == source(old);
        let why = "is not allowed to update configSource to a new non-nil configSource";
        self.require(is_kept, why)?;
        let taints = |node: &Object| node.array_at(&["spec", "taints"]).to_vec();
        let why = "is not allowed to modify taints";
        self.require(taints(old) == taints(self.obj), why)?;
        let forbidden = forbidden_labels(&changed_labels(self.obj, Some(old)));
        if !forbidden.is_empty() {
            return self.forbid(&format!("is not allowed to modify labels: {forbidden}"));
        }
        let owners = |node: &Object| node.array_at(&["metadata", "ownerReferences"]).to_vec();
        let why = "is not allowed to modify ownerReferences";
        self.require(owners(old) == owners(self.obj), why)
    }

    fn claim_status(&self) -> Result<(), Failure> {
        let Some(old) = self.req.old else { return self.forbid("unexpected operation") };
        let bare = |claim: &Object| {
            let mut claim = claim.clone();
            claim.metadata_mut().remove("resourceVersion");
            claim.metadata_mut().remove("managedFields");
            let status = claim.object_mut("status");
            for name in [
                "capacity",
                "conditions",
                "allocatedResources",
                "allocatedResourceStatuses",
                "currentVolumeAttributesClassName",
                "modifyVolumeStatus",
            ] {
                status.remove(name);
            }
            claim
        };
        let why = "is not allowed to update fields other than status.quantity and \
                   status.conditions";
        self.require(bare(old) == bare(self.obj), why)
    }

    /// Checks a token request: the token must be bound to a pod on the node, with an audience in
    /// one of its volumes.
    fn token(&self) -> Result<(), Failure> {
        let text = |name: &str| self.obj.str_at(&["spec", "boundObjectRef", name]);
        let name = text("name");
        if (text("apiVersion"), text("kind")) != ("v1", "Pod") || name.is_empty() {
            return self.forbid("node requested token not bound to a pod");
        }
        let uid = text("uid");
        if uid.is_empty() {
            return self.forbid("node requested token with a pod binding without a uid");
        }
        let pod = self.stored("pods", self.req.namespace, name)?;
        if pod.uid() != uid {
            return self.forbid(&format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. \
                 The object might have been deleted and then recreated"
            ));
        }
        if !self.is_on_node(&pod) {
            return self
                .forbid("node requested token bound to a pod scheduled on a different node");
        }
        if !self.req.features.is_on(Feature::ServiceAccountNodeAudienceRestriction) {
            return Ok(());
        }
        let audience = match self.obj.array_at(&["spec", "audiences"]) {
            [] => "",
            [one] => one.as_str().unwrap_or_default(),
            _ => return self.forbid("node may only request 0 or 1 audiences"),
        };
        if self.requires_audience(&pod, audience)? {
            return Ok(());
        }
        let audience = quote(audience);
        let user = &self.req.user.name;
        self.forbid(&format!(
            "audience {audience} not found in pod spec volume, {user} is not authorized to request \
             tokens for this audience"
        ))
    }

    /// Returns whether a volume of the pod requires tokens for an audience.
    fn requires_audience(&self, pod: &Object, audience: &str) -> Result<bool, Failure> {
        for volume in pod.array_at(&["spec", "volumes"]) {
            let tokens = volume
                .array_at(&["projected", "sources"])
                .iter()
                .filter_map(|source| source.get("serviceAccountToken"));
            let mut audiences = tokens.map(|token| token.str_at(&["audience"]).unwrap_or_default());
            if audiences.any(|one| one == audience) {
                return Ok(true);
            }
            let driver = match volume.str_at(&["persistentVolumeClaim", "claimName"]) {
                Some(claim) => self.driver_of_claim(claim)?,
                None => volume.str_at(&["csi", "driver"]).unwrap_or_default().to_owned(),
            };
            if driver.is_empty() {
                continue;
            }
            let driver = self.req.stored.get("storage.k8s.io", "csidrivers", "", &driver)?;
            let is_requested = driver.is_some_and(|driver| {
                driver
                    .array_at(&["spec", "tokenRequests"])
                    .iter()
                    .any(|request| request.str_at(&["audience"]).unwrap_or_default() == audience)
            });
            if is_requested {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn driver_of_claim(&self, claim: &str) -> Result<String, Failure> {
        let stored = self.req.stored;
        let claim = stored.get("", "persistentvolumeclaims", self.req.namespace, claim)?;
        let volume = claim.map(|claim| claim.str_at(&["spec", "volumeName"]).to_owned());
        let Some(volume) = volume.filter(|name| !name.is_empty()) else {
            return Ok(String::new());
        };
        let volume = stored.get("", "persistentvolumes", "", &volume)?;
        Ok(volume.map(|v| v.str_at(&["spec", "csi", "driver"]).to_owned()).unwrap_or_default())
    }

    fn lease(&self) -> Result<(), Failure> {
        if self.req.namespace != LEASE_NAMESPACE {
            let namespace = quote(LEASE_NAMESPACE);
            let why = format!("can only access leases in the {namespace} system namespace");
            return self.forbid(&why);
        }
        self.own_name("can only access node lease with the same name as the requesting node")
    }

    fn own_name(&self, why: &str) -> Result<(), Failure> {
        let is_new = self.req.operation == Operation::Create;
        let name = if is_new { self.obj.name() } else { self.req.name };
        if name == self.node { Ok(()) } else { self.forbid(why) }
    }

    fn slice(&self) -> Result<(), Failure> {
        let verb = match self.req.operation {
            Operation::Create => "create",
            Operation::Delete => "delete",
            Operation::Update | Operation::Connect => return Ok(()),
        };
        match self.is_on_node(self.obj) {
            true => Ok(()),
            false => self.forbid(&format!(
                "can only {verb} ResourceSlice with the same NodeName as the requesting node"
            )),
        }
    }

    fn signing_request(&self) -> Result<(), Failure> {
        let signer = self.obj.str_at(&["spec", "signerName"]);
        let is_of_kubelets = matches!(
            signer,
            "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet"
        );
        let is_checked =
            !self.req.features.is_on(Feature::AllowInsecureKubeletCertificateSigningRequests);
        if self.req.operation != Operation::Create || !is_of_kubelets || !is_checked {
            return Ok(());
        }
        let name = common_name(self.obj.str_at(&["spec", "request"]));
        if name.as_deref() == Some(self.req.user.name.as_str()) {
            return Ok(());
        }
        self.forbid(&format!("can only create a node CSR with CN={}", self.req.user.name))
    }
}

/// Returns the common name in a certificate signing request (base64 of PEM).
fn common_name(request: &str) -> Option<String> {
    use base64::Engine;
    let pem = base64::engine::general_purpose::STANDARD.decode(request).ok()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).ok()?;
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).ok()?;
    let subject = &request.certification_request_info.subject;
    subject.iter_common_name().last()?.as_str().ok().map(str::to_owned)
}

/// Returns the keys of labels that an update changes, adds or removes, or that a new object has.
fn changed_labels<'a>(new: &'a Object, old: Option<&'a Object>) -> BTreeSet<&'a str> {
    let old_label = |key: &str| old.and_then(|old| old.label(key));
    let changed = new.meta_map("labels").filter(|(key, value)| old_label(key) != Some(*value));
    let removed = old
        .into_iter()
        .flat_map(|old| old.meta_map("labels"))
        .filter(|(key, _)| new.label(key).is_none());
    changed.chain(removed).map(|(key, _)| key).collect()
}

/// Returns labels that a kubelet may not set, sorted: they could attract workloads.
fn forbidden_labels(labels: &BTreeSet<&str>) -> String {
    let is_in = |domain: &str, parent: &str| {
        domain == parent || domain.strip_suffix(parent).is_some_and(|head| head.ends_with('.'))
    };
    let is_forbidden = |label: &&&str| {
        let domain = label.split_once('/').map_or("", |(domain, _)| domain);
        let is_kubernetes = is_in(domain, "kubernetes.io") || is_in(domain, "k8s.io");
        let is_kubelet =
            KUBELET_LABELS.contains(*label) || KUBELET_DOMAINS.iter().any(|own| is_in(domain, own));
        is_in(domain, "node-restriction.kubernetes.io") || (is_kubernetes && !is_kubelet)
    };
    labels.iter().filter(is_forbidden).copied().collect::<Vec<_>>().join(", ")
}
