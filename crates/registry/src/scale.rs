//! The `scale` subresource, which reads and writes the replicas of several kinds (registry
//! `apps/deployment/storage`, `core/replicationcontroller/storage`).

use crate::managed_fields::FieldManager;
use crate::options::{Freshness, Patch, WriteOptions};
use crate::patching::ParsedPatch;
use crate::preconditions::{check_scale, check_uid};
use crate::registry::Registry;
use crate::target::{Answer, Target};
use crate::verbs::bodies::{NewObject, check_namespace};
use crate::verbs::patch::ApplyConfiguration;
use crate::verbs::update::check_name;
use crate::verbs::{WriteResponse, check_body_fields};
use crate::write::Subresource;
use keelson_apply::managed::scale::{ReplicasPaths, to_resource, to_scale};
use keelson_auth::Permit;
use keelson_kinds::scale::{self, REPLICAS, members, scale_kind, set_at};
use keelson_meta::{ErrorList, Failure, FieldError, Object, Path, Status, Str};
use keelson_resources::api_table::Source;
use keelson_schema::Schema;
use keelson_schema::decode::{self, Decoded};

/// A write of a Scale.
#[derive(Debug)]
pub enum ScaleChange {
    /// PUT: the new Scale.
    Whole(Decoded),
    /// PATCH of the Scale.
    Patch(Patch),
}

fn scale_of(target: &Target, obj: &Object) -> Result<Object, Failure> {
    let Some(paths) = target.kind.scale(&target.version) else { return Ok(scale::built_in(obj)) };
    if obj.int_at(&members(&paths.spec_replicas)).is_none() {
        let path = paths.spec_replicas.join(".");
        let why = format!("the spec replicas field \".{path}\" does not exist");
        return Err(Status::internal(why));
    }
    Ok(scale::custom(&paths, obj))
}

impl Registry {
    /// Returns the Scale of an object.
    pub async fn get_scale(
        &self,
        permit: &Permit,
        target: &Target,
        freshness: Freshness,
    ) -> Result<Answer, Failure> {
        target.assert_covered(permit, "get", "scale");
        match self.read(target, freshness).await? {
            Answer::Entry(entry) => {
                let obj = target.kind.object_in(&entry, target.schema())?;
                Ok(Answer::Object(scale_of(target, &obj)?))
            }
            other => Ok(other),
        }
    }

    /// Sets the replicas of an object to those of the changed Scale.
    pub async fn update_scale(
        &self,
        permit: &Permit,
        target: &Target,
        change: &ScaleChange,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Failure> {
        let verb = match change {
            ScaleChange::Whole(_) => "update",
            ScaleChange::Patch(_) => "patch",
        };
        target.assert_covered(permit, verb, "scale");
        let schema = self
            .catalogue
            .schema(&scale_kind())
            .ok_or_else(|| Status::internal("Scale has no schema"))?;
        let mut body_warnings = vec![];
        if let ScaleChange::Whole(body) = change {
            // A wrong body is reported also when the object does not exist.
            body_warnings = check_body_fields(&schema, body, options.field_validation)?;
            let mut scale = body.object.clone();
            check_namespace(target, &mut scale)
                .and_then(|()| check_name(target, &scale))
                .map_err(|failure| failure.with_warnings(body_warnings.clone()))?;
        }
        let make = |live: Option<&Object>| {
            let live = live.ok_or_else(|| target.not_found())?;
            let (object, mut warnings) =
                self.with_new_replicas(target, &schema, live, change, options)?;
            warnings.extend(body_warnings.iter().cloned());
            Ok(NewObject { object, managed: true, warnings })
        };
        let subresource = Subresource::Other("scale");
        let changed = Box::pin(self.change(permit, target, subresource, &make, options)).await;
        // Those of the body belong to a refusal, too: also when the object does not exist.
        let mut response = changed.map_err(|failure| failure.with_warnings(body_warnings))?;
        let obj = match &response.answer {
            Answer::Entry(entry) => target.kind.object_in(entry, target.schema())?,
            Answer::Object(obj) => obj.clone(),
            Answer::Success(_) => return Err(Status::internal("a scale without an object")),
        };
        // Replicas that the schema does not have are pruned, and shown as none.
        let scale = match target.kind.scale(&target.version) {
            Some(paths) => scale::custom(&paths, &obj),
            None => scale::built_in(&obj),
        };
        response.answer = Answer::Object(scale);
        Ok(response)
    }

    /// Returns the object with the replicas of the changed Scale, and with its managedFields.
    fn with_new_replicas(
        &self,
        target: &Target,
        schema: &Schema,
        live: &Object,
        change: &ScaleChange,
        options: &WriteOptions,
    ) -> Result<(Object, Vec<Str>), Failure> {
        let scale = target.kind.scale(&target.version);
        let own = scale.as_ref().map(|paths| members(&paths.spec_replicas));
        let place = own.as_deref().unwrap_or(REPLICAS);
        let versions: Vec<String> = target
            .kind
            .versions
            .iter()
            .map(|schema| schema.gvk.api_version().to_string())
            .collect();
        let versions: Vec<(&str, Option<&[&str]>)> =
            versions.iter().map(|version| (version.as_str(), Some(place))).collect();
        let api_version = target.schema().gvk.api_version();
        let paths = ReplicasPaths { api_version: &api_version, versions: &versions };
        let entries = live.array_at(&["metadata", "managedFields"]);
        let mut before = target.scale_before(live);
        let scale_entries = to_scale(entries, &paths).map_err(Status::internal)?;
        if !scale_entries.is_empty() {
            before.metadata_mut().insert("managedFields", scale_entries);
        }
        let (scale, warnings) = self.new_scale(target, schema, &before, change, options)?;
        if target.kind.source == Source::BuiltIn {
            // The schema of a custom resource validates its object.
            check_replicas(target, &scale)?;
            check_scale(target, &scale, live.uid())?;
        }
        let mut object = live.clone();
        let replicas = scale.int_at(REPLICAS).unwrap_or(0);
        set_at(&mut object, place, replicas);
        // Without a resourceVersion, a custom resource keeps that of the stored object.
        if target.kind.source == Source::BuiltIn || !scale.resource_version().is_empty() {
            object.set_meta("resourceVersion", scale.resource_version());
        }
        let owners = scale.array_at(&["metadata", "managedFields"]);
        let owners = to_resource(entries, owners, &paths).map_err(Status::internal)?;
        object.metadata_mut().insert("managedFields", owners);
        if target.kind.source == Source::Custom {
            let pruned = decode::canonicalize(target.schema(), object.into_value());
            object = pruned.map_err(Status::internal)?.object;
        }
        Ok((object, warnings))
    }

    fn new_scale(
        &self,
        target: &Target,
        schema: &Schema,
        before: &Object,
        change: &ScaleChange,
        options: &WriteOptions,
    ) -> Result<(Object, Vec<Str>), Failure> {
        let manager = FieldManager::with_own_kind(schema, "scale");
        let now = self.clock.now();
        let validation = options.field_validation;
        let (mut scale, warnings) = match change {
            ScaleChange::Patch(patch) if patch.form.is_apply() => {
                let applied = ApplyConfiguration::parse(patch)?;
                return applied.apply(target, &manager, Some(before), options, now);
            }
            ScaleChange::Patch(patch) => {
                let mut sent = before.clone();
                if sent.int_at(REPLICAS) == Some(0) {
                    // In Go's JSON zero replicas are absent, and so they are for a JSON Patch.
                    sent.object_mut("spec").remove("replicas");
                }
                let patched = ParsedPatch::parse(patch)?.apply(schema, &sent, validation, false)?;
                (patched.object, patched.warnings)
            }
            ScaleChange::Whole(body) => {
                // Its fields have been checked.
                check_uid(target, &body.object, before.uid(), options.dry_run)?;
                (body.object.clone(), vec![])
            }
        };
        check_namespace(target, &mut scale)?;
        check_name(target, &scale)?;
        manager.update(before, &mut scale, options, now);
        Ok((scale, warnings))
    }
}

fn check_replicas(target: &Target, scale: &Object) -> Result<(), Failure> {
    let mut errors = ErrorList::new();
    let replicas = scale.int_at(REPLICAS).unwrap_or(0);
    if replicas < 0 {
        let spec = Path::new("spec");
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(&spec.field("replicas"), replicas, why));
    }
    errors.into_result("autoscaling", "Scale", &target.name)
}
