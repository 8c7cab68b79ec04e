//! The volumes of a pod.

use keelson_meta::{Object, Str};

/// The volumes of a pod.
#[derive(Clone, Debug, Default)]
pub struct PodVolumes {
    /// Names of claims, and whether they belong to the pod (ephemeral volumes).
    pub claims: Vec<(Str, bool)>,
    /// Drivers of inline volumes.
    pub drivers: Vec<Str>,
}

impl PodVolumes {
    /// Reads the volumes of a pod.
    pub fn of(pod: &Object) -> PodVolumes {
        let mut volumes = PodVolumes::default();
        for volume in pod.array_at(&["spec", "volumes"]) {
            let name = volume.str_at(&["name"]).unwrap_or_default();
            if let Some(claim) = volume.str_at(&["persistentVolumeClaim", "claimName"]) {
                volumes.claims.push((claim.into(), false));
            } else if volume.get("ephemeral").is_some() {
                volumes.claims.push((Str::new(format!("{}-{name}", pod.name())), true));
            } else if let Some(driver) = volume.str_at(&["csi", "driver"]) {
                volumes.drivers.push(driver.into());
            }
        }
        volumes
    }
}
