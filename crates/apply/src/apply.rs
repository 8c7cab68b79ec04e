//! Server-side apply: merges a client's configuration into an object and records the applier as the
//! manager of the fields that the configuration sets.

mod conflict;
mod last_applied;
mod prune;

pub use conflict::{Conflict, Conflicts};

use crate::fields::equal_values;
use crate::managed::{
    Manager, Managers, Operation, Refused, Scope, UNMANAGED, new_manager, reconcile_all,
    remove_changed_fields, track_before_apply,
};
use crate::typed::{self, Form};
use keelson_meta::status::Failure;
use keelson_meta::{GroupVersion, GroupVersionKind, Map, Object, Reason, Status, Value};
use std::fmt;

/// The field manager of `kubectl apply --server-side`. Client-side `kubectl apply` keeps its
/// configuration in an annotation, which an apply by this manager updates.
const KUBECTL: &str = "kubectl";

/// The options of an apply request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The name of the field manager.
    pub manager: &'a str,
    /// Whether to take fields from other managers instead of failing with a conflict.
    pub force: bool,
    /// The time of the request: RFC 3339 with seconds.
    pub now: &'a str,
}

/// The result of an apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The merged object with its new `managedFields`. It may hold the nulls of the configuration:
    /// the caller still canonicalizes it and sets defaults.
    pub object: Object,
    /// Whether anything but `managedFields` changed.
    pub changed: bool,
}

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq)]
pub enum ApplyError {
    /// The configuration cannot be applied: 400.
    BadRequest(String),
    /// The configuration changes fields that other managers own: 409.
    Conflict(Conflicts),
    /// An error that upstream returns without a Status of its own: 500 with the text.
    Internal(String),
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApplyError::BadRequest(text) | ApplyError::Internal(text) => f.write_str(text),
            ApplyError::Conflict(conflicts) => conflicts.fmt(f),
        }
    }
}

impl std::error::Error for ApplyError {}

impl From<ApplyError> for Failure {
    fn from(error: ApplyError) -> Failure {
        match error {
            ApplyError::BadRequest(text) => Status::bad_request(text),
            ApplyError::Conflict(conflicts) => conflicts.into_status(),
            ApplyError::Internal(text) => Status::new(Reason::Unknown, text),
        }
    }
}

/// Applies `config` to `live`. Pass [`Object::new`] as `live` when the object does not exist.
pub fn apply(
    scope: &Scope<'_>,
    request: &Request<'_>,
    live: &Object,
    config: &Value,
) -> Result<Applied, ApplyError> {
    let kind = gvk(config);
    if kind != scope.schema.gvk {
        return Err(ApplyError::BadRequest(format!("invalid object type: {kind}")));
    }
    let entries = config.at(&["metadata", "managedFields"]);
    if entries.is_some_and(|it| it.as_array().is_some() && is_well_typed_managed_fields(it)) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let Value::Object(config_root) = config else {
        return Err(ApplyError::BadRequest(format!("invalid object type: {kind}")));
    };
    typed::validate(scope.schema, config).map_err(|errors| {
        let id = object_id(config, &kind);
        ApplyError::Internal(format!("failed to create typed patch object ({id}): {errors}"))
    })?;
    if scope.schema.types.is_custom_resource() {
        typed::validate_types(scope.schema, &live.root).map_err(|errors| {
            let id = format!("{}/{}; {kind}", live.namespace(), live.name());
            ApplyError::Internal(format!("failed to create typed live object ({id}): {errors}"))
        })?;
    }
    let mut managers = managers_of(scope, request, live)?;
    reconcile_all(scope, &mut managers, live).map_err(ApplyError::Internal)?;
    let merged = typed::merge(scope.schema, &live.root, config_root)
        .map_err(|errors| ApplyError::Internal(format!("failed to merge config: {errors}")))?;
    let mut state = ApplyState { scope, request, managers, object: Object { root: merged } };
    let applier = state.record_applier(config_root)?;
    state.remove_other_managers(live, &applier)?;
    let changed = !equal_objects(live, &state.object);
    let mut object = if changed { state.object } else { live.clone() };
    let mut managers = state.managers;
    if changed {
        managers.set_time(&applier, request.now);
    }
    if request.manager == KUBECTL {
        last_applied::update_annotation(&mut object, config);
    }
    managers.store(&mut object);
    Ok(Applied { object, changed })
}

/// Returns whether the members of all `managedFields` entries have the right types. Entries that
/// are not well typed fail later, when the whole object is decoded, as they do upstream.
pub fn is_well_typed_managed_fields(entries: &Value) -> bool {
    let is_well_typed = |entry: &Value| {
        let Value::Object(members) = entry else { return entry.is_null() };
        members.iter().all(|(name, value)| match (name.as_str(), value) {
            (_, Value::Null) | ("fieldsV1", _) => true,
            ("time", Value::String(text)) => keelson_meta::Timestamp::parse(text).is_ok(),
            (_, value) => value.as_str().is_some(),
        })
    };
    entries.as_array().is_none_or(|entries| entries.iter().all(is_well_typed))
}

/// Decodes the managers of the live object. The entries also stay in the object and in the merged
/// one: `managedFields` itself is unmanaged, and it is replaced at the end.
fn managers_of(
    scope: &Scope<'_>,
    request: &Request<'_>,
    live: &Object,
) -> Result<Managers, ApplyError> {
    let managers =
        Managers::decode(live.array_at(&["metadata", "managedFields"])).map_err(|error| {
            ApplyError::Internal(format!("failed to decode managed fields: {error}"))
        })?;
    if !managers.is_empty() {
        return Ok(managers);
    }
    Ok(track_before_apply(scope, request.now, live))
}

/// The managers and the merged object during an apply.
struct ApplyState<'a> {
    scope: &'a Scope<'a>,
    request: &'a Request<'a>,
    managers: Managers,
    object: Object,
}

impl ApplyState<'_> {
    /// Records the applier as the manager of the fields that the configuration sets. Removes from
    /// the merged object the fields that only its previous configuration set. Returns the applier.
    fn record_applier(&mut self, config: &Map) -> Result<Manager, ApplyError> {
        let mut fields = typed::field_set(self.scope.schema, Form::Written, config);
        if let Some(filter) = self.scope.filter {
            filter.apply(&mut fields);
        }
        fields.subtract(&UNMANAGED);
        let applier = new_manager(self.scope, self.request.manager, Operation::Apply);
        let last = self.managers.replace(&applier, fields);
        if let Some((version, last)) = last {
            prune::prune(self.scope, &self.managers, &mut self.object, &version, last)
                .map_err(|why| ApplyError::Internal(format!("failed to prune fields: {why}")))?;
        }
        Ok(applier)
    }

    /// Removes the changed fields from the other managers, or fails with the conflicts.
    fn remove_other_managers(
        &mut self,
        live: &Object,
        applier: &Manager,
    ) -> Result<(), ApplyError> {
        let is_forced = self.request.force;
        let objects = (live, &self.object);
        let result = remove_changed_fields(
            self.scope,
            &mut self.managers,
            objects,
            Some(applier),
            is_forced,
        );
        let mut conflicts = match result {
            Ok(_) => return Ok(()),
            Err(Refused::Version(why)) => return Err(ApplyError::Internal(why)),
            Err(Refused::Conflicts(conflicts)) => conflicts,
        };
        if self.request.manager == KUBECTL
            && let Some(allowed) = last_applied::unchanged_fields(self.scope, live)
        {
            conflicts.retain_mut(|(_, fields)| {
                fields.subtract(&allowed);
                !fields.is_empty()
            });
            if conflicts.is_empty() {
                let objects = (live, &self.object);
                let forced = remove_changed_fields(
                    self.scope,
                    &mut self.managers,
                    objects,
                    Some(applier),
                    true,
                );
                debug_assert!(forced.is_ok(), "a forced change has no conflicts");
                return Ok(());
            }
        }
        Err(ApplyError::Conflict(Conflicts::new(&conflicts)))
    }
}

fn equal_objects(live: &Object, merged: &Object) -> bool {
    live.root.len() == merged.root.len()
        && live.root.iter().all(|(key, value)| {
            merged.root.get(key).is_some_and(|other| equal_values(value, other))
        })
}

/// Returns the `apiVersion` and `kind` of an object; empty when `apiVersion` is malformed.
fn gvk(object: &Value) -> GroupVersionKind {
    let kind = object.str_at(&["kind"]).unwrap_or_default();
    let api_version = object.str_at(&["apiVersion"]).unwrap_or_default();
    match GroupVersion::parse(api_version) {
        Some(version) => version.kind(kind),
        None => GroupVersionKind::default(),
    }
}

/// Identifies an object in a message: `namespace/name; group/version, Kind=kind`.
fn object_id(object: &Value, kind: &GroupVersionKind) -> String {
    let text = |name: &str| object.str_at(&["metadata", name]).unwrap_or_default();
    format!("{}/{}; {kind}", text("namespace"), text("name"))
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
