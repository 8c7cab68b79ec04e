//! The new object of a create or an update, and checks that both share.

use crate::target::Target;
use keelson_meta::{ErrorList, Failure, Object, Status, Str};
use keelson_resources::api_table::Source;

/// The new object of a write, in the version of the target.
pub struct NewObject {
    /// The new object.
    pub object: Object,
    /// managedFields are set already, as server-side apply does.
    pub managed: bool,
    /// Texts of Warning headers.
    pub warnings: Vec<Str>,
}

/// Computes the new object from the stored one. Called again when another write came first.
pub type UpdateFn<'a> = &'a (dyn Fn(Option<&Object>) -> Result<NewObject, Failure> + Send + Sync);

/// Checks that the namespace in the body is that of the URL, and sets it if it is absent.
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

/// Returns 422 if there are errors.
pub(crate) fn invalid(target: &Target, obj: &Object, errors: ErrorList) -> Result<(), Failure> {
    let name = if obj.name().is_empty() { obj.generate_name() } else { obj.name() };
    // Kinds of several groups are named by the group in which they are stored.
    let gvk = &target.kind.storage.gvk;
    errors.into_result(&gvk.group, &gvk.kind, name)
}

/// Converts an object of a write to the version of the target.
pub(crate) fn for_target(target: &Target, object: Object) -> Object {
    match target.kind.source {
        Source::BuiltIn => target.kind.convert(object, &target.kind.storage, target.schema()),
        Source::Custom => object,
    }
}
