//! Server-side apply: merges a client's configuration into an object, field by field as they are
//! owned.

mod conflict;
mod last_applied;
mod prune;

pub use conflict::{Conflict, Conflicts};

use crate::fields::equal_values;
use crate::managed::{
    Manager, Managers, Operation, Scope, UNOWNED, disown, new_manager, reconcile_all,
    track_before_apply,
};
use crate::typed::{self, Form};
use keelson_meta::status::Failure;
use keelson_meta::{GroupVersion, GroupVersionKind, Map, Object, Reason, Status, Value};
use std::fmt;

/// The manager whose configurations `kubectl apply` keeps in an annotation too.
const KUBECTL: &str = "kubectl";

/// Who applies, and how.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The owner's name.
    pub manager: &'a str,
    /// Takes fields from other owners.
    pub force: bool,
    /// RFC 3339 to the second.
    pub now: &'a str,
}

/// An object after an apply, its owners written into it.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The object. Members that the configuration sets to null may be null; the object is still to
    /// be brought into the form of its schema and defaulted.
    pub object: Object,
    /// Whether anything but the owners changed.
    pub changed: bool,
}

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq)]
pub enum ApplyError {
    /// The configuration cannot be applied: 400.
    BadRequest(String),
    /// Others own what the configuration changes: 409.
    Conflict(Conflicts),
    /// What upstream answers with a bare error: 500 with the text.
    Bare(String),
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApplyError::BadRequest(text) | ApplyError::Bare(text) => f.write_str(text),
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
            ApplyError::Bare(text) => Status::new(Reason::Unknown, text),
        }
    }
}

/// Applies `config` to `live`; an object that does not exist yet is [`Object::new`].
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
    let owners = config.at(&["metadata", "managedFields"]);
    if owners.is_some_and(|owners| owners.as_array().is_some() && are_readable_owners(owners)) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let Value::Object(config_root) = config else {
        return Err(ApplyError::BadRequest(format!("invalid object type: {kind}")));
    };
    typed::check(scope.schema, config).map_err(|misfits| {
        let about = about(config, &kind);
        ApplyError::Bare(format!("failed to create typed patch object ({about}): {misfits}"))
    })?;
    let mut managers = managers_of(scope, request, live)?;
    reconcile_all(scope, &mut managers, live);
    let merged = typed::merge(scope.schema, &live.root, config_root)
        .map_err(|misfits| ApplyError::Bare(format!("failed to merge config: {misfits}")))?;
    let mut work = Work { scope, request, managers, object: Object { root: merged } };
    let applier = work.own(config_root);
    work.settle(live, &applier)?;
    let changed = !equal_maps(live, &work.object);
    let mut object = if changed { work.object } else { live.clone() };
    let mut managers = work.managers;
    if changed {
        managers.stamp(&applier, request.now);
    }
    if request.manager == KUBECTL {
        last_applied::refresh(&mut object, config);
    }
    managers.store(&mut object);
    Ok(Applied { object, changed })
}

/// Whether entries of managedFields have the types that they should have. Upstream does not see those that it
/// cannot read: they are refused with the rest of the object.
pub fn are_readable_owners(entries: &Value) -> bool {
    let is_readable = |entry: &Value| {
        let Value::Object(members) = entry else { return entry.is_null() };
        members.iter().all(|(name, value)| match (name.as_str(), value) {
            (_, Value::Null) | ("fieldsV1", _) => true,
            ("time", Value::String(text)) => keelson_meta::Timestamp::parse(text).is_ok(),
            (_, value) => value.as_str().is_some(),
        })
    };
    entries.as_array().is_none_or(|entries| entries.iter().all(is_readable))
}

/// The owners of the live object. Their entries stay in it, as they stay in what is merged: nobody owns
/// them, and they are written anew at the end.
fn managers_of(
    scope: &Scope<'_>,
    request: &Request<'_>,
    live: &Object,
) -> Result<Managers, ApplyError> {
    let managers = Managers::decode(live.array_at(&["metadata", "managedFields"]))
        .map_err(|error| ApplyError::Bare(format!("failed to decode managed fields: {error}")))?;
    if !managers.is_empty() {
        return Ok(managers);
    }
    Ok(track_before_apply(scope, request.now, live))
}

/// An apply under way.
struct Work<'a> {
    scope: &'a Scope<'a>,
    request: &'a Request<'a>,
    managers: Managers,
    object: Object,
}

impl Work<'_> {
    /// Makes the applier own what the configuration sets, and takes out of the merged object what
    /// it owned before, does not set any more, and nobody else owns. Gives back the applier.
    fn own(&mut self, config: &Map) -> Manager {
        let mut fields = typed::owned(self.scope.schema, Form::Written, config);
        if let Some(filter) = self.scope.filter {
            filter.run(&mut fields);
        }
        fields.subtract(&UNOWNED);
        let applier = new_manager(self.scope, self.request.manager, Operation::Apply);
        let last = self.managers.replace(&applier, fields);
        if let Some((version, last)) = last {
            prune::prune(self.scope, &self.managers, &mut self.object, &version, last);
        }
        applier
    }

    /// Takes what changed from the other owners.
    fn settle(&mut self, live: &Object, applier: &Manager) -> Result<(), ApplyError> {
        let is_forced = self.request.force;
        let objects = (live, &self.object);
        let taken = disown(self.scope, &mut self.managers, objects, Some(applier), is_forced);
        let Err(mut lost) = taken else { return Ok(()) };
        if self.request.manager == KUBECTL
            && let Some(allowed) = last_applied::agreed_fields(self.scope, live)
        {
            lost.retain_mut(|(_, fields)| {
                fields.subtract(&allowed);
                !fields.is_empty()
            });
            if lost.is_empty() {
                let objects = (live, &self.object);
                let forced = disown(self.scope, &mut self.managers, objects, Some(applier), true);
                debug_assert!(forced.is_ok(), "a forced change has no conflicts");
                return Ok(());
            }
        }
        Err(ApplyError::Conflict(Conflicts::new(&lost)))
    }
}

fn equal_maps(live: &Object, merged: &Object) -> bool {
    live.root.len() == merged.root.len()
        && live.root.iter().all(|(key, value)| {
            merged.root.get(key).is_some_and(|other| equal_values(value, other))
        })
}

/// What an object says it is; a version that cannot be read makes all of it unknown.
fn gvk(object: &Value) -> GroupVersionKind {
    let kind = object.str_at(&["kind"]).unwrap_or_default();
    let api_version = object.str_at(&["apiVersion"]).unwrap_or_default();
    match GroupVersion::parse(api_version) {
        Some(version) => version.kind(kind),
        None => GroupVersionKind::default(),
    }
}

/// Which object a message is about: `namespace/name; group/version, Kind=kind`.
fn about(object: &Value, kind: &GroupVersionKind) -> String {
    let text = |name: &str| object.str_at(&["metadata", name]).unwrap_or_default();
    format!("{}/{}; {kind}", text("namespace"), text("name"))
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
