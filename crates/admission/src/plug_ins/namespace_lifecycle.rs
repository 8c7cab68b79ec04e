//! NamespaceLifecycle: namespaced objects require an existing namespace, new ones a namespace that
//! is not being deleted; some namespaces cannot be deleted.

use crate::attributes::Recorder;
use crate::request::{Operation, Request};
use keelson_meta::{Cause, Failure, GroupVersionResource, Object, Status};

/// The plug-in's name.
pub const NAME: &str = "NamespaceLifecycle";

/// Namespaces that cannot be deleted.
pub const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(crate) fn admit(
    req: &Request<'_>,
    obj: &mut Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    if req.namespace.is_empty() || req.operation == Operation::Delete {
        return Ok(());
    }
    let Some(is_terminating) = req.stored.is_terminating(req.namespace) else {
        let namespaces = GroupVersionResource::new("", "v1", "namespaces");
        return Err(Status::not_found(&namespaces, req.namespace));
    };
    if req.operation != Operation::Create || !is_terminating {
        return Ok(());
    }
    let name = req.namespace;
    let why =
        format!("unable to create new content in namespace {name} because it is being terminated");
    let mut status = req.forbidden(obj, &why);
    if let Some(details) = &mut status.details {
        details.causes = vec![Cause {
            reason: "NamespaceTerminating".into(),
            message: format!("namespace {name} is being terminated"),
            field: "metadata.namespace".into(),
        }];
    }
    Err(status)
}

pub(crate) fn validate(
    req: &Request<'_>,
    obj: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    let deletes = req.operation == Operation::Delete && req.is("", "namespaces");
    if deletes && IMMORTAL.contains(&req.name) {
        return Err(req.forbidden(obj, "this namespace may not be deleted"));
    }
    Ok(())
}
