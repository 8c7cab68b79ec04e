//! What is done about one claim.

use super::matching::{
    self, BIND_COMPLETED, BOUND_BY_CONTROLLER, PROVISIONERS, SELECTED_NODE, class_of, is_bound_to,
};
use super::{Volumes, WARNING};
use keelson_meta::{Failure, Object, Status};
use keelson_registry::{Subresource, Target};

impl Volumes {
    pub(super) async fn sync_claim(&self, namespace: &str, name: &str) -> Result<(), Failure> {
        let Some(kind) = self.client.kind("", "persistentvolumeclaims") else { return Ok(()) };
        let known = self.client.registry.cached(&kind, namespace, name);
        let Some(claim) = known.map(|entry| kind.decode(&entry)).transpose()? else {
            return Ok(());
        };
        let target = Target::of(&kind, namespace, name);
        if claim.annotation(BIND_COMPLETED).is_some() {
            self.sync_bound(&target, claim).await
        } else if claim.str_at(&["spec", "volumeName"]).is_empty() {
            self.sync_unbound(&target, claim).await
        } else {
            self.sync_reserving(&target, claim).await
        }
    }

    /// A claim that may have any volume.
    async fn sync_unbound(&self, target: &Target, mut claim: Object) -> Result<(), Failure> {
        let is_delayed = self.is_delayed(&claim)?;
        let volumes = self.decode_all("", "persistentvolumes")?;
        if let Some(volume) = matching::find_best(&claim, &volumes, is_delayed) {
            return self.bind(target, claim, volume.clone()).await;
        }
        if !matching::states_class(&claim) {
            let classes = self.decode_all("storage.k8s.io", "storageclasses")?;
            if let Some(class) = matching::default_class(&classes) {
                claim.object_mut("spec").insert("storageClassName", class);
                return self.client.update(target, Subresource::None, claim).await.map(drop);
            }
        }
        if is_delayed && claim.annotation(SELECTED_NODE).is_none() {
            let (reason, message) = self.waiting_for(&claim);
            self.event(&claim, "Normal", reason, &message);
        } else if !class_of(&claim).is_empty() {
            return self.provision(target, claim).await;
        } else {
            let message =
                "no persistent volumes available for this claim and no storage class is set";
            self.event(&claim, "Normal", "FailedBinding", message);
        }
        self.set_phase(target, claim, "Pending", None).await.map(drop)
    }

    /// Whether the volume of a claim is chosen when its first pod is scheduled.
    fn is_delayed(&self, claim: &Object) -> Result<bool, Failure> {
        let class = class_of(claim);
        let Some(kind) = self.client.kind("storage.k8s.io", "storageclasses") else {
            return Ok(false);
        };
        let known = (!class.is_empty()).then(|| self.client.registry.cached(&kind, "", class));
        let Some(entry) = known.flatten() else { return Ok(false) };
        Ok(kind.decode(&entry)?.str_at(&["volumeBindingMode"]) == "WaitForFirstConsumer")
    }

    fn waiting_for(&self, claim: &Object) -> (&'static str, String) {
        let pods = self.unscheduled_pods(claim);
        let names = pods.join(",");
        match pods.len() {
            0 => {
                let message = "waiting for first consumer to be created before binding";
                ("WaitForFirstConsumer", message.to_owned())
            }
            1 => ("WaitForPodScheduled", format!("waiting for pod {names} to be scheduled")),
            _ => ("WaitForPodScheduled", format!("waiting for pods {names} to be scheduled")),
        }
    }

    /// Asks the provisioner of the class for a volume.
    async fn provision(&self, target: &Target, mut claim: Object) -> Result<(), Failure> {
        let class = class_of(&claim).to_owned();
        let kind = self.client.kind("storage.k8s.io", "storageclasses");
        let known = kind.as_ref().and_then(|kind| self.client.registry.cached(kind, "", &class));
        let Some((kind, entry)) = kind.zip(known) else {
            let message = format!("storageclass.storage.k8s.io {class:?} not found");
            self.event(&claim, WARNING, "ProvisioningFailed", &message);
            return Ok(());
        };
        let provisioner = kind.decode(&entry)?.str_at(&["provisioner"]).to_owned();
        if provisioner.starts_with("kubernetes.io/") && !is_migrated(&provisioner) {
            let message = format!("no volume plugin matched name: {provisioner}");
            self.event(&claim, WARNING, "ProvisioningFailed", &message);
            return Ok(());
        }
        if PROVISIONERS.iter().any(|name| claim.annotation(name) != Some(&provisioner)) {
            let annotations = claim.metadata_mut().object_at("annotations");
            for name in PROVISIONERS {
                annotations.insert(name, provisioner.as_str());
            }
            match self.client.update(target, Subresource::None, claim.clone()).await {
                Ok(stored) => claim = stored,
                Err(error) => {
                    let message = format!("Error saving claim: {}", error.message);
                    self.event(&claim, WARNING, "ProvisioningFailed", &message);
                    return Err(error);
                }
            }
        }
        let message = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' \
             or manually by the system administrator. If volume creation is delayed, please verify \
             that the provisioner is running and correctly registered."
        );
        self.event(&claim, "Normal", "ExternalProvisioning", &message);
        Ok(())
    }

    /// A claim that asks for a volume by name.
    async fn sync_reserving(&self, target: &Target, claim: Object) -> Result<(), Failure> {
        let name = claim.str_at(&["spec", "volumeName"]).to_owned();
        let Some(volume) = self.volume(&name)? else {
            return self.set_phase(target, claim, "Pending", None).await.map(drop);
        };
        if !volume.at(&["spec", "claimRef"]).is_some_and(keelson_meta::Value::is_map) {
            let Some(why) = matching::mismatch(&volume, &claim) else {
                return self.bind(target, claim, volume).await;
            };
            let message = format!("Cannot bind to requested volume {name:?}: {why}");
            self.event(&claim, WARNING, "VolumeMismatch", &message);
            return self.set_phase(target, claim, "Pending", None).await.map(drop);
        }
        if is_bound_to(&volume, &claim) {
            return self.bind(target, claim, volume).await;
        }
        let message = format!("volume {name:?} already bound to a different claim.");
        self.event(&claim, WARNING, "FailedBinding", &message);
        if claim.annotation(BOUND_BY_CONTROLLER).is_none() {
            return self.set_phase(target, claim, "Pending", None).await.map(drop);
        }
        let other = |name: &str| volume.str_at(&["spec", "claimRef", name]).to_owned();
        let key = target.key();
        let other = format!("{}/{}", other("namespace"), other("name"));
        Err(Status::internal(format!(
            "invalid binding of claim {key:?} to volume {name:?}: volume already claimed by {other:?}"
        )))
    }

    /// A claim whose binding was complete once.
    async fn sync_bound(&self, target: &Target, claim: Object) -> Result<(), Failure> {
        let name = claim.str_at(&["spec", "volumeName"]).to_owned();
        if name.is_empty() {
            let message =
                "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
            return self.lose(target, claim, "ClaimLost", message).await;
        }
        let Some(volume) = self.volume(&name)? else {
            let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
            return self.lose(target, claim, "ClaimLost", message).await;
        };
        let is_free = !volume.at(&["spec", "claimRef"]).is_some_and(keelson_meta::Value::is_map);
        if is_free || volume.str_at(&["spec", "claimRef", "uid"]) == claim.uid() {
            return self.bind(target, claim, volume).await;
        }
        let message = "Two claims are bound to the same volume, this one is bound incorrectly";
        self.lose(target, claim, "ClaimMisbound", message).await
    }

    async fn lose(
        &self,
        target: &Target,
        claim: Object,
        reason: &str,
        message: &str,
    ) -> Result<(), Failure> {
        if claim.str_at(&["status", "phase"]) == "Lost" {
            return Ok(());
        }
        let lost = self.set_phase(target, claim, "Lost", None).await?;
        self.event(&lost, WARNING, reason, message);
        Ok(())
    }

    async fn set_phase(
        &self,
        target: &Target,
        claim: Object,
        phase: &str,
        volume: Option<&Object>,
    ) -> Result<Object, Failure> {
        match matching::claim_status(&claim, phase, volume) {
            None => Ok(claim),
            Some(changed) => self.client.update(target, Subresource::Status, changed).await,
        }
    }

    /// Writes the four parts of a binding, those that are missing, in the order in which an
    /// interrupted binding can be continued.
    async fn bind(
        &self,
        target: &Target,
        mut claim: Object,
        mut volume: Object,
    ) -> Result<(), Failure> {
        let Some(kind) = self.client.kind("", "persistentvolumes") else { return Ok(()) };
        let volume_target = Target::of(&kind, "", volume.name());
        if let Some(bound) = matching::bind_volume(&volume, &claim) {
            volume = self.client.update(&volume_target, Subresource::None, bound).await?;
        }
        let volume = self.set_volume_phase(&volume_target, volume, "Bound", "").await?;
        if let Some(bound) = matching::bind_claim(&claim, &volume) {
            claim = self.client.update(target, Subresource::None, bound).await?;
        }
        self.set_phase(target, claim, "Bound", Some(&volume)).await.map(drop)
    }
}

/// Whether a CSI driver stands in for an in-tree provisioner.
fn is_migrated(provisioner: &str) -> bool {
    const MIGRATED: [&str; 7] = [
        "aws-ebs",
        "azure-disk",
        "azure-file",
        "cinder",
        "gce-pd",
        "portworx-volume",
        "vsphere-volume",
    ];
    provisioner.strip_prefix("kubernetes.io/").is_some_and(|name| MIGRATED.contains(&name))
}
