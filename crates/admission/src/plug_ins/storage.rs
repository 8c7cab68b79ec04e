//! DefaultStorageClass, StorageObjectInUseProtection and PersistentVolumeClaimResize.

use crate::attributes::Recorder;
use crate::plug_ins::ingress_class::newest;
use crate::plug_ins::pod::quantity;
use crate::request::{Operation, Request};
use keelson_meta::{Failure, Object, Value};

const CLAIMS: &str = "persistentvolumeclaims";
const DEFAULT_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];
/// The deprecated annotation for the class of a claim.
const LEGACY_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Returns the class of a claim; absent differs from empty.
pub(crate) fn class_of(claim: &Object) -> Option<&str> {
    claim
        .annotation(LEGACY_CLASS)
        .or_else(|| claim.at(&["spec", "storageClassName"]).and_then(Value::as_str))
}

pub(crate) fn set_default_class(
    req: &Request<'_>,
    claim: &mut Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    if !req.creates("", CLAIMS) || class_of(claim).is_some() {
        return Ok(());
    }
    let classes = req.stored.list_with("storage.k8s.io", "storageclasses", "", &DEFAULT_CLASS)?;
    if let Some(class) = newest(classes, &DEFAULT_CLASS) {
        claim.object_mut("spec").insert("storageClassName", class.name());
    }
    Ok(())
}

/// Adds the protection finalizer to new volumes, claims and attribute classes.
pub(crate) fn protect(
    req: &Request<'_>,
    obj: &mut Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    let finalizer = if req.creates("", CLAIMS) {
        "kubernetes.io/pvc-protection"
    } else if req.creates("", "persistentvolumes") {
        "kubernetes.io/pv-protection"
    } else if req.creates("storage.k8s.io", "volumeattributesclasses") {
        "kubernetes.io/vac-protection"
    } else {
        return Ok(());
    };
    add_finalizer(obj, finalizer);
    Ok(())
}

/// Adds a finalizer unless it is present.
pub(crate) fn add_finalizer(obj: &mut Object, finalizer: &'static str) {
    if obj.finalizers().any(|known| known == finalizer) {
        return;
    }
    match obj.metadata_mut().entry_or("finalizers", || Value::Array(vec![])) {
        Value::Array(finalizers) => finalizers.push(finalizer.into()),
        other => *other = Value::Array(vec![finalizer.into()]),
    }
}

pub(crate) fn validate_resize(
    req: &Request<'_>,
    claim: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    let Some(old) = req.old.filter(|_| req.operation == Operation::Update && req.is("", CLAIMS))
    else {
        return Ok(());
    };
    let size = |claim: &Object| quantity(claim.at(&["spec", "resources", "requests", "storage"]));
    if size(claim) <= size(old) {
        return Ok(());
    }
    if old.str_at(&["status", "phase"]) != "Bound" {
        return Err(req.forbidden(claim, "Only bound persistent volume claims can be expanded"));
    }
    let class = class_of(claim).filter(|name| !name.is_empty() && class_of(old) == Some(name));
    let class = match class {
        Some(name) => req.stored.get("storage.k8s.io", "storageclasses", "", name)?,
        None => None,
    };
    let allows = class.is_some_and(|class| {
        class.at(&["allowVolumeExpansion"]).and_then(Value::as_bool) == Some(true)
    });
    if allows {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions \
               the pvc must support resize";
    Err(req.forbidden(claim, why))
}
