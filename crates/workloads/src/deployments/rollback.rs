//! Rollbacks that old clients ask for by an annotation.

use super::annotations::{self, last_revision};
use super::new_set::is_same_template;
use super::parts::Rollout;
use super::replica_set::revision;
use keelson_meta::{Failure, Object, Value};
use keelson_registry::{Subresource, Target};
use std::time::Duration;

const NOT_FOUND: &str = "DeploymentRollbackRevisionNotFound";

impl Rollout<'_> {
    /// Gives the Deployment the template of an earlier revision, and removes the wish.
    pub(super) async fn roll_back(&mut self) -> Result<Option<Duration>, Failure> {
        let split = self.split(true).await?;
        let all = || split.old.iter().chain(&split.new);
        let wanted = match annotations::rollback_to(&self.deployment).unwrap_or(0) {
            0 => last_revision(all()),
            wanted => wanted,
        };
        let name = self.deployment.name().to_owned();
        let found = all().find(|set| revision(set) == Some(wanted)).cloned();
        let done = match found {
            _ if wanted == 0 => {
                self.warn(NOT_FOUND, "Unable to find last revision.");
                None
            }
            None => {
                self.warn(NOT_FOUND, "Unable to find the revision to rollback to.");
                None
            }
            Some(set) => {
                let template = self.deployment.at(&["spec", "template"]);
                if is_same_template(template, set.at(&["spec", "template"])) {
                    let message = format!(
                        "The rollback revision contains the same template as current deployment \
                         {name:?}"
                    );
                    self.warn("DeploymentRollbackTemplateUnchanged", &message);
                    None
                } else {
                    take_template(&mut self.deployment, &set);
                    annotations::restore(&mut self.deployment, &set);
                    Some(format!("Rolled back deployment {name:?} to revision {wanted}"))
                }
            }
        };
        annotations::clear_rollback(&mut self.deployment);
        let target = Target::of(&self.kinds.deployments, self.deployment.namespace(), &name);
        let changed = self.deployment.clone();
        self.control.client.update(&target, Subresource::None, changed).await?;
        if let Some(message) = done {
            self.control.event(&self.deployment, "Normal", "DeploymentRollback", &message);
        }
        Ok(None)
    }

    fn warn(&self, reason: &str, message: &str) {
        self.control.event(&self.deployment, "Warning", reason, message);
    }
}

fn take_template(deployment: &mut Object, set: &Object) {
    let mut template = set.at(&["spec", "template"]).cloned().unwrap_or_default();
    if let Some(template) = template.as_object_mut()
        && let Some(Value::Object(labels)) = template.object_at("metadata").get_mut("labels")
    {
        labels.remove("pod-template-hash");
    }
    deployment.object_mut("spec").insert("template", template);
}
