//! [`PodControl`]: creates pods from templates and deletes them, with the events of
//! kube-controller-manager about their owner.

use keelson_loops::client::{Client, is_namespace_terminating};
use keelson_loops::events::Recorder;
use keelson_meta::names::name_is_dns_subdomain;
use keelson_meta::{Failure, Object, Reason, Status, Value, value};
use keelson_registry::Target;
use keelson_registry::options::DeleteOptions;

/// Creates and deletes the pods of one control loop.
pub(crate) struct PodControl {
    /// Acts as the loop.
    pub client: Client,
    /// Records the events of the loop.
    pub events: Recorder,
}

impl PodControl {
    /// Returns the control for a loop with this service account, whose events have this source.
    pub fn new(client: Client, component: &'static str) -> PodControl {
        let events = Recorder::new(&client, component);
        PodControl { client, events }
    }

    /// Records an event about an object.
    pub fn event(&self, object: &Object, kind: &'static str, reason: &str, message: &str) {
        self.events.about(&self.client, object, kind, (reason, message));
    }

    /// Creates a pod and returns it.
    pub async fn create(&self, owner: &Object, pod: Object) -> Result<Object, Failure> {
        let is_labelled = pod.meta_map("labels").next().is_some();
        if !is_labelled {
            return Err(Status::internal("unable to create pods, no labels"));
        }
        let kind =
            self.client.kind("", "pods").ok_or_else(|| Status::internal("pods are not served"))?;
        let target = Target::of(&kind, owner.namespace(), pod.name());
        match self.client.create(&target, pod).await {
            Ok(pod) => {
                let message = format!("Created pod: {}", pod.name());
                self.event(owner, "Normal", "SuccessfulCreate", &message);
                Ok(pod)
            }
            Err(error) => {
                if !is_namespace_terminating(&error) {
                    let message = format!("Error creating: {}", error.message);
                    self.event(owner, "Warning", "FailedCreate", &message);
                }
                Err(error)
            }
        }
    }

    /// Deletes a pod. A pod that does not exist is an error with code 404 and no event.
    pub async fn delete(&self, owner: &Object, name: &str) -> Result<(), Failure> {
        let Some(kind) = self.client.kind("", "pods") else { return Ok(()) };
        let target = Target::of(&kind, owner.namespace(), name);
        match self.client.delete(&target, &DeleteOptions::default()).await {
            Ok(_) => {
                self.event(owner, "Normal", "SuccessfulDelete", &format!("Deleted pod: {name}"));
                Ok(())
            }
            Err(error) if error.code == 404 => Err(error),
            Err(error) => {
                let message = format!("Error deleting: {}", error.message);
                self.event(owner, "Warning", "FailedDelete", &message);
                let why = format!("unable to delete pods: {}", error.message);
                Err(Status::new(Reason::InternalError, why))
            }
        }
    }
}

/// Returns the pod of a template: its labels, annotations, finalizers and spec, with a generated
/// name.
pub(crate) fn pod_from_template(template: &Value, owner: &Object) -> Object {
    let mut pod = Object::new();
    pod.root.insert("apiVersion", "v1");
    pod.root.insert("kind", "Pod");
    let metadata = pod.metadata_mut();
    metadata.insert("generateName", name_prefix(owner.name()));
    for name in ["labels", "annotations", "finalizers"] {
        let part = template.at(&["metadata", name]).filter(|part| !part.is_empty());
        part.map(|part| metadata.insert(name, part.clone()));
    }
    metadata.insert("ownerReferences", vec![controller_reference(owner)]);
    pod.root.insert("spec", template.get("spec").cloned().unwrap_or_default());
    pod
}

/// Returns the prefix of the names of pods: with a dash, unless that makes the name too long.
pub(crate) fn name_prefix(owner: &str) -> String {
    let prefix = format!("{owner}-");
    if name_is_dns_subdomain(&prefix, true).is_empty() { prefix } else { owner.to_owned() }
}

/// Returns the owner reference to a controller.
pub(crate) fn controller_reference(owner: &Object) -> Value {
    value!({
        "apiVersion": (owner.api_version()), "kind": (owner.kind()), "name": (owner.name()),
        "uid": (owner.uid()), "controller": true, "blockOwnerDeletion": true
    })
}

/// Whether this object is the controller of another one.
pub(crate) fn is_controlled_by(object: &Object, owner: &Object) -> bool {
    let controller = object.controller().and_then(|controller| controller.str_at(&["uid"]));
    controller.is_some_and(|uid| uid == owner.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_the_parts_of_its_template_and_its_owner() {
        let template = value!({
            "metadata": {"name": "ignored", "labels": {"a": "b"}, "annotations": {},
                "finalizers": ["x.io/f"]},
            "spec": {"containers": [{"name": "c"}]}
        });
        let owner = value!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": "web", "namespace": "n", "uid": "u"}});
        let owner = Object::from_value(owner).expect("a map");
        let wanted = value!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-", "labels": {"a": "b"}, "finalizers": ["x.io/f"],
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web",
                    "uid": "u", "controller": true, "blockOwnerDeletion": true}]},
            "spec": {"containers": [{"name": "c"}]}
        });
        let pod = pod_from_template(&template, &owner);
        assert!(is_controlled_by(&pod, &owner));
        assert_eq!(pod.into_value(), wanted);
    }

    #[test]
    fn a_prefix_ends_with_a_dash_unless_no_name_may_begin_so() {
        assert_eq!(name_prefix("web"), "web-");
        let long = "a".repeat(253);
        assert_eq!(name_prefix(&long), format!("{long}-"));
        assert_eq!(name_prefix("Web"), "Web");
    }
}
