//! Who owns which field: `metadata.managedFields`, kept by the apply crate's rules.

use crate::kind::Target;
use crate::options::WriteOptions;
use crate::verbs::Part;
use keelson_meta::{Failure, Object, Status, Timestamp, Value};

/// Notes the owner of all fields of an object that is made.
pub(crate) fn created(target: &Target, obj: &mut Object, manager: &str, now: Timestamp) {
    let _ = (target, obj, manager, now);
}

/// Notes the owner of the fields that an update changed.
pub(crate) fn updated(
    target: &Target,
    part: Part,
    old: &Object,
    new: &mut Object,
    manager: &str,
    now: Timestamp,
) {
    let _ = (target, part, old, new, manager, now);
}

/// Server-side apply.
pub(crate) fn apply(
    target: &Target,
    part: Part,
    live: Option<&Object>,
    config: &Value,
    options: &WriteOptions,
    now: Timestamp,
) -> Result<Object, Failure> {
    let _ = (target, part, live, options, now);
    Object::from_value(config.clone()).ok_or_else(|| Status::bad_request("not an object"))
}
