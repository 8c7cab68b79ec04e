//! Bodies of creates and updates: what is made of them, and checks that both share.

use crate::kind::{Source, Target};
use keelson_meta::{ErrorList, Failure, Object, Reason, Status, Str};

/// What a change makes of the stored object, in the version of the target.
pub struct Updated {
    /// The object as it shall be.
    pub object: Object,
    /// Its managedFields are set already (server-side apply does that itself).
    pub owned: bool,
    /// What the client is warned of.
    pub warnings: Vec<Str>,
}

/// Makes the wished object from the stored one. Called again when another write came first.
pub type Change<'a> = &'a (dyn Fn(Option<&Object>) -> Result<Updated, Failure> + Send + Sync);

/// The namespace in the body must be that of the URL; an absent one is filled in.
pub(crate) fn check_namespace(target: &Target, obj: &mut Object) -> Result<(), Failure> {
    if !target.kind.namespaced {
        if obj.namespace().is_empty() {
            return Ok(());
        }
        obj.set_meta("namespace", "");
        return Ok(());
    }
    if obj.namespace().is_empty() {
        obj.set_meta("namespace", &target.namespace);
        return Ok(());
    }
    if obj.namespace() == target.namespace {
        return Ok(());
    }
    Err(Status::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    ))
}

/// 422 with the object's faults, if there are any.
pub(crate) fn invalid(target: &Target, obj: &Object, errors: ErrorList) -> Result<(), Failure> {
    let name = if obj.name().is_empty() { obj.generate_name() } else { obj.name() };
    // A kind that stands in several groups is called by that in which it is stored.
    let gvk = &target.kind.storage.gvk;
    errors.into_result(&gvk.group, &gvk.kind, name)
}

/// An object that a write worked on, in the version of the target.
pub(crate) fn shown_object(target: &Target, object: Object) -> Object {
    match target.kind.source {
        Source::BuiltIn => target.kind.convert(object, &target.kind.storage, target.schema()),
        Source::Custom => object,
    }
}

/// Whether a valid object was not given what it needs, which upstream asks for before it warns of anything.
pub(crate) fn is_refused_claim<T>(stored: &Result<T, Failure>) -> bool {
    stored.as_ref().is_err_and(|failure| failure.reason == Reason::Invalid)
}
