//! Finds or creates the ReplicaSet with the template of the Deployment.

use super::annotations::{max_revision, set, set_new, set_sizes};
use super::parts::{Rollout, Split};
use super::replica_set::{REVISION, by_age};
use super::status;
use super::strategy::new_size;
use crate::pod_control::{controller_reference, is_controlled_by};
use crate::{stored, template_hash};
use keelson_loops::client::is_namespace_terminating;
use keelson_meta::{Failure, Map, Object, Reason, Value, value};
use keelson_registry::{Subresource, Target};

const HASH_LABEL: &str = "pod-template-hash";
const NAME_BYTES_MAX: usize = 253;

impl Rollout<'_> {
    /// Returns the new ReplicaSet, with its annotations brought up to date, and the old ones. If
    /// there is no new one, it is created if `creates`.
    pub(super) async fn split(&mut self, creates: bool) -> Result<Split, Failure> {
        self.sets.sort_by(by_age);
        let template = self.deployment.at(&["spec", "template"]);
        let place = self
            .sets
            .iter()
            .position(|set| is_same_template(set.at(&["spec", "template"]), template));
        let mut old = self.sets.clone();
        let known = place.map(|place| old.remove(place));
        let revision = max_revision(&old) + 1;
        let new = match known {
            Some(known) => Some(self.refresh(known, revision).await?),
            None if creates => Some(self.create_set(&old, revision).await?),
            None => None,
        };
        if let (Some(place), Some(new)) = (place, &new) {
            self.sets[place] = new.clone();
        }
        Ok(Split { new, old })
    }

    async fn refresh(&mut self, known: Object, revision: i64) -> Result<Object, Failure> {
        let mut new = known.clone();
        let mut is_changed = set_new(&self.deployment, &mut new, revision);
        let seconds = |object: &Object| object.int_at(&["spec", "minReadySeconds"]).unwrap_or(0);
        if seconds(&new) != seconds(&self.deployment) {
            let wanted = seconds(&self.deployment);
            stored::set_count(new.object_mut("spec"), "minReadySeconds", wanted);
            is_changed = true;
        }
        if is_changed {
            let target = Target::of(&self.kinds.sets, new.namespace(), new.name());
            return self.control.client.update(&target, Subresource::None, new).await;
        }
        let mut status = stored::status(&self.deployment);
        let has_deadline = status::deadline(&self.deployment).is_some();
        if has_deadline && stored::condition(&status, status::PROGRESSING).is_none() {
            let message = format!("Found new replica set {:?}", new.name());
            let facts = ("True", "FoundNewReplicaSet", message.as_str());
            let now = self.control.client.now();
            status::set_condition(&mut status, status::PROGRESSING, facts, now);
        }
        let revision = new.annotation(REVISION).unwrap_or_default().to_owned();
        self.write_revision(&revision, status).await?;
        Ok(new)
    }

    /// Writes the revision of the new ReplicaSet, and a status, to the Deployment.
    async fn write_revision(&mut self, revision: &str, status: Map) -> Result<(), Failure> {
        if self.deployment.annotation(REVISION).unwrap_or_default() == revision {
            return self.write_status(status).await;
        }
        let mut changed = self.deployment.clone();
        set(&mut changed, REVISION, revision);
        changed.root.insert("status", status);
        let target = Target::of(&self.kinds.deployments, changed.namespace(), changed.name());
        let written = self.control.client.update(&target, Subresource::Status, changed).await?;
        self.deployment = written;
        self.deployment.set_gvk(&self.kinds.deployments.storage.gvk);
        Ok(())
    }

    async fn create_set(&mut self, old: &[Object], revision: i64) -> Result<Object, Failure> {
        let new = new_set(&self.deployment, old, revision);
        let namespace = new.namespace().to_owned();
        let name = new.name().to_owned();
        let size = new.int_at(&["spec", "replicas"]).unwrap_or(0);
        let target = Target::of(&self.kinds.sets, &namespace, &name);
        let (created, is_new) = match self.control.client.create(&target, new).await {
            Ok(created) => (created, true),
            Err(error) if error.reason == Reason::AlreadyExists => {
                (self.existing(&target, error).await?, false)
            }
            Err(error) if is_namespace_terminating(&error) => return Err(error),
            Err(error) => return Err(self.report_failure(&name, error).await),
        };
        self.of.sets.put(&created);
        self.sets.push(created.clone());
        if is_new && size > 0 {
            let message = format!("Scaled up replica set {name} from 0 to {size}");
            self.control.event(&self.deployment, "Normal", "ScalingReplicaSet", &message);
        }
        let mut status = stored::status(&self.deployment);
        if is_new && status::deadline(&self.deployment).is_some() {
            let message = format!("Created new replica set {name:?}");
            let facts = ("True", "NewReplicaSetCreated", message.as_str());
            let now = self.control.client.now();
            status::set_condition(&mut status, status::PROGRESSING, facts, now);
        }
        self.write_revision(&revision.to_string(), status).await?;
        Ok(created)
    }

    /// Returns the ReplicaSet that has the name already, if it is the wanted one. Else the hashes
    /// of two templates are equal: the next one is computed with another number of collisions.
    async fn existing(&mut self, target: &Target, error: Failure) -> Result<Object, Failure> {
        let client = &self.control.client;
        let existing = client.get(target).await?.ok_or_else(|| error.clone())?;
        let template = self.deployment.at(&["spec", "template"]);
        if is_controlled_by(&existing, &self.deployment)
            && is_same_template(existing.at(&["spec", "template"]), template)
        {
            return Ok(existing);
        }
        let mut status = stored::status(&self.deployment);
        let count = status.get("collisionCount").and_then(Value::as_int).unwrap_or(0);
        status.insert("collisionCount", count + 1);
        self.write_status(status).await?;
        Err(error)
    }

    async fn report_failure(&mut self, name: &str, error: Failure) -> Failure {
        let message = format!("Failed to create new replica set {name:?}: {}", error.message);
        let reason = "ReplicaSetCreateError";
        if status::deadline(&self.deployment).is_some() {
            let mut status = stored::status(&self.deployment);
            let facts = ("False", reason, message.as_str());
            let now = self.control.client.now();
            status::set_condition(&mut status, status::PROGRESSING, facts, now);
            if let Err(error) = self.write_status(status).await {
                tracing::debug!(%error, "a failed creation was not reported");
            }
        }
        self.control.event(&self.deployment, "Warning", reason, &message);
        error
    }
}

/// Whether two pod templates are equal, apart from the label with their hash.
pub(super) fn is_same_template(one: Option<&Value>, other: Option<&Value>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return false };
    one.get("spec") == other.get("spec") && plain_metadata(one) == plain_metadata(other)
}

fn plain_metadata(template: &Value) -> Map {
    let mut metadata =
        template.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(Value::Object(labels)) = metadata.get_mut("labels") {
        labels.remove(HASH_LABEL);
    }
    metadata.retain(|_, value| !value.is_empty());
    metadata
}

/// Returns the ReplicaSet for the template of a Deployment.
fn new_set(deployment: &Object, old: &[Object], revision: i64) -> Object {
    let mut template = deployment.at(&["spec", "template"]).cloned().unwrap_or_default();
    let collisions = deployment.int_at(&["status", "collisionCount"]);
    let hash = template_hash::of_template(&template, collisions);
    let mut labels = Map::new();
    if let Some(template) = template.as_object_mut() {
        let all = template.object_at("metadata").object_at("labels");
        all.insert(HASH_LABEL, hash.as_str());
        labels = all.clone();
    }
    let mut selector = deployment.at(&["spec", "selector"]).cloned().unwrap_or_default();
    if let Some(selector) = selector.as_object_mut() {
        selector.object_at("matchLabels").insert(HASH_LABEL, hash.as_str());
    }
    let mut set = Object::from_value(value!({
        "metadata": {
            "name": (set_name(deployment.name(), &hash)), "namespace": (deployment.namespace()),
            "labels": (labels), "ownerReferences": [(controller_reference(deployment))]
        },
        "spec": {"selector": (selector), "template": (template)}
    }))
    .unwrap_or_default();
    let spec = set.object_mut("spec");
    spec.insert("replicas", new_size(deployment, old, 0));
    let seconds = deployment.int_at(&["spec", "minReadySeconds"]).unwrap_or(0);
    stored::set_count(spec, "minReadySeconds", seconds);
    set_new(deployment, &mut set, revision);
    set_sizes(&mut set, deployment);
    set
}

/// Returns the name of a ReplicaSet; a long name of the Deployment is cut.
fn set_name(deployment: &str, hash: &str) -> String {
    let most = NAME_BYTES_MAX - 1 - hash.len();
    let base = deployment.get(..most).unwrap_or(deployment);
    format!("{base}-{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment() -> Object {
        let deployment = value!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "n", "uid": "u", "annotations": {"x": "y"}},
            "spec": {
                "replicas": 3, "minReadySeconds": 5, "selector": {"matchLabels": {"a": "b"}},
                "strategy": {"type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 0}},
                "template": {"metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]}}
            }
        });
        Object::from_value(deployment).expect("a map")
    }

    #[test]
    fn a_new_set_has_the_template_with_the_hash_as_a_label() {
        let set = new_set(&deployment(), &[], 4);
        let template = deployment().at(&["spec", "template"]).cloned().expect("a template");
        let hash = template_hash::of_template(&template, None);
        assert_eq!(set.name(), format!("web-{hash}"));
        for path in [
            &["metadata", "labels"][..],
            &["spec", "selector", "matchLabels"],
            &["spec", "template", "metadata", "labels"],
        ] {
            assert_eq!(
                set.at(path),
                Some(&value!({"a": "b", "pod-template-hash": (hash.as_str())}))
            );
        }
        let annotations = value!({
            "x": "y", "deployment.kubernetes.io/revision": "4",
            "deployment.kubernetes.io/desired-replicas": "3",
            "deployment.kubernetes.io/max-replicas": "5"
        });
        assert_eq!(set.at(&["metadata", "annotations"]), Some(&annotations));
        assert_eq!(set.int_at(&["spec", "replicas"]), Some(3));
        assert_eq!(set.int_at(&["spec", "minReadySeconds"]), Some(5));
        assert!(is_same_template(set.at(&["spec", "template"]), Some(&template)));
    }

    #[test]
    fn a_long_name_is_cut() {
        let name = set_name(&"a".repeat(253), "hash");
        assert_eq!((name.len(), &name[245..]), (253, "aaa-hash"));
    }
}
