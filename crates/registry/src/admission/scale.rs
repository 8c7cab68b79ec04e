//! Admission of the `scale` subresource. Plug-ins see a Scale, not the scaled object.

use super::AdmissionConfigs;
use crate::registry::Registry;
use crate::target::Target;
use crate::write::{OwnKind, Write};
use keelson_kinds::scale::{REPLICAS, members, scale_kind, set_at};
use keelson_meta::{Failure, Object, Str};
use keelson_resources::api_table::Source;

impl Registry {
    /// Runs mutating admission on the Scale of an updated object, which is in the version that
    /// writes use.
    pub(crate) async fn admit_scale(
        &self,
        write: &Write<'_>,
        obj: &mut Object,
        warnings: &mut Vec<Str>,
    ) -> Result<AdmissionConfigs, Failure> {
        let kind = scale_kind();
        let old = stored_scale(write);
        let own = Some(OwnKind { kind: &kind, resource: None });
        let write = Write { old: old.as_ref(), own, ..*write };
        let mut scale = scale_in_version(write.target, obj);
        let before = scale.int_at(REPLICAS);
        let configs = self.admit(&write, &mut scale, warnings).await?;
        if let Some(replicas) = scale.int_at(REPLICAS).filter(|after| before != Some(*after)) {
            let paths = write.target.kind.scale(&write.target.version);
            let path = paths.as_ref().map(|paths| members(&paths.spec_replicas));
            set_at(obj, path.as_deref().unwrap_or(REPLICAS), replicas);
        }
        Ok(configs)
    }

    /// Runs validating admission on the Scale of an object.
    pub(crate) async fn validate_scale(
        &self,
        write: &Write<'_>,
        configs: &AdmissionConfigs,
        obj: &Object,
        warnings: &mut Vec<Str>,
    ) -> Result<(), Failure> {
        let kind = scale_kind();
        let old = stored_scale(write);
        let own = Some(OwnKind { kind: &kind, resource: None });
        let scale = scale_in_version(write.target, obj);
        let write = Write { old: old.as_ref(), own, ..*write };
        self.validate_admitted(&write, configs, &scale, warnings).await
    }
}

/// Returns the Scale of an object that is in the version that writes use.
fn scale_in_version(target: &Target, obj: &Object) -> Object {
    match target.kind.source {
        Source::BuiltIn => {
            target.scale_before(&target.kind.in_version(obj.clone(), target.schema()))
        }
        Source::Custom => target.scale_before(obj),
    }
}

fn stored_scale(write: &Write<'_>) -> Option<Object> {
    write.old.map(|old| scale_in_version(write.target, old))
}
