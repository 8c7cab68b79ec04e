//! The preconditions of writes: the uid and the resourceVersion that a client expects the stored
//! object to have.
//!
//! Each way to send them has its own messages in upstream, and its own meaning of an empty text.

use crate::options::DeleteOptions;
use crate::target::Target;
use keelson_meta::go_numbers::parse_uint;
use keelson_meta::{ErrorList, Failure, FieldError, GroupVersionResource, Object, Path};
use keelson_meta::{Reason, Status};
use keelson_records::Entry;
use keelson_store::Revision;

/// Checks the options of a delete. An empty text matches no object.
pub(crate) fn check_deletion(
    target: &Target,
    options: &DeleteOptions,
    obj: &Object,
) -> Result<(), Failure> {
    let uid = options.uid.as_deref();
    check_deleted_text(target, "UID", uid, obj.uid(), "deleted and then recreated")?;
    let version = options.resource_version.as_deref();
    check_deleted_text(target, "ResourceVersion", version, obj.resource_version(), "modified")
}

/// Checks the options of an eviction before the pod is changed. Empty texts are left to the
/// deletion.
pub fn check_eviction(
    target: &Target,
    options: &DeleteOptions,
    pod: &Object,
) -> Result<(), Failure> {
    let mut options = options.clone();
    options.uid = options.uid.filter(|uid| !uid.is_empty());
    options.resource_version = options.resource_version.filter(|version| !version.is_empty());
    check_deletion(target, &options, pod)
}

fn check_deleted_text(
    target: &Target,
    what: &str,
    expected: Option<&str>,
    stored: &str,
    fate: &str,
) -> Result<(), Failure> {
    let Some(expected) = expected.filter(|expected| *expected != stored) else {
        return Ok(());
    };
    // Upstream marks namespaces and definitions in a transaction of their own, with its own
    // messages.
    if target.kind.strategy.early_preconditions {
        let why = format!(
            "Precondition failed: {what} in precondition: {expected}, {what} in object meta: {stored}"
        );
        return Err(Status::conflict(target.gvr(), &target.name, &why));
    }
    // Kinds of several groups are named by the group in which they are stored.
    let gvr = GroupVersionResource {
        group: target.kind.storage.gvk.group.clone(),
        resource: target.schema().gvk.kind.clone(),
        ..target.gvr().clone()
    };
    let why = format!(
        "the {what} in the precondition ({expected}) does not match the {what} in record \
         ({stored}). The object might have been {fate}"
    );
    Err(Status::conflict(&gvr, &target.name, &why))
}

/// Parses the resourceVersion of an object that a client sent; 0 if there is none.
pub(crate) fn requested_version(object: &Object) -> Result<u64, Failure> {
    let text = object.resource_version();
    if text.is_empty() {
        return Ok(0);
    }
    parse_uint(text).map_err(|why| Status::new(Reason::Unknown, why))
}

/// Checks that the resourceVersion of an object that a client sent is that of the stored object.
pub(crate) fn check_version(
    target: &Target,
    object: &Object,
    entry: &Entry,
) -> Result<(), Failure> {
    let given = requested_version(object)?;
    if given == 0 && !target.kind.strategy.unconditional_update {
        let metadata = Path::new("metadata");
        let path = metadata.field("resourceVersion");
        let mut errors = ErrorList::new();
        errors.push(FieldError::invalid(&path, 0, "must be specified for an update"));
        let gvr = target.gvr();
        return errors.into_result(&gvr.group, &gvr.resource, object.name());
    }
    if given != 0 && Revision(given) != entry.modified() {
        return Err(Status::modified(target.gvr(), &target.name));
    }
    Ok(())
}

/// Checks that the uid of an object that a client sent is that of the stored object; `stored` is
/// empty if there is none.
pub(crate) fn check_uid(
    target: &Target,
    object: &Object,
    stored: &str,
    dry_run: bool,
) -> Result<(), Failure> {
    check_stored_text(target, "UID", object.uid(), stored, dry_run)
}

/// Checks the uid and the resourceVersion of a body that acts on an object, such as a Binding. The
/// resourceVersion is compared as a text.
pub fn check_action(
    target: &Target,
    body: &Object,
    stored: &Object,
    dry_run: bool,
) -> Result<(), Failure> {
    check_uid(target, body, stored.uid(), dry_run)?;
    let given = body.resource_version();
    let version = stored.resource_version();
    check_stored_text(target, "ResourceVersion", given, version, dry_run)
}

fn check_stored_text(
    target: &Target,
    what: &str,
    given: &str,
    stored: &str,
    dry_run: bool,
) -> Result<(), Failure> {
    if given.is_empty() || given == stored {
        return Ok(());
    }
    let key = target.kind.store_key(&target.namespace, &target.name);
    let key = String::from_utf8_lossy(&key);
    // In a dry run upstream's message has the key without `/registry`.
    let key = key.strip_prefix("/registry").filter(|_| dry_run).unwrap_or(&key);
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: {what} in precondition: {given}, {what} in object meta: {stored}"
    );
    Err(Status::conflict(target.gvr(), &target.name, &why))
}

/// Checks the uid of a Scale whose object is of a built-in kind.
pub(crate) fn check_scale(target: &Target, scale: &Object, stored: &str) -> Result<(), Failure> {
    let given = scale.uid();
    if given.is_empty() || given == stored {
        return Ok(());
    }
    let resource = format!("{}/scale", target.gvr().resource);
    let gvr = GroupVersionResource { resource: resource.into(), ..target.gvr().clone() };
    let why =
        format!("Precondition failed: UID in precondition: {given}, UID in object meta: {stored}");
    Err(Status::conflict(&gvr, &target.name, &why))
}
