//! Who asks for administrative access to devices does so in a namespace that allows it. No plug-in
//! upstream, but a rule of the kinds that looks at the namespace; it cannot be switched off.

use crate::request::{Operation, Request};
use keelson_meta::status::{ErrorList, FieldError};
use keelson_meta::{Failure, Object, Path, Status, Value};

const LABEL: &str = "resource.kubernetes.io/admin-access";
const GROUP: &str = "resource.k8s.io";

/// Refuses a new claim or template with `adminAccess` in a namespace without the label.
pub(crate) fn validate(req: &Request<'_>, obj: &Object) -> Result<(), Failure> {
    if req.operation != Operation::Create || req.gvr.group != GROUP || !req.subresource.is_empty() {
        return Ok(());
    }
    let (kind, path): (_, &[&str]) = match req.gvr.resource.as_str() {
        "resourceclaims" => ("ResourceClaim", &["spec", "devices", "requests"]),
        "resourceclaimtemplates" => {
            ("ResourceClaimTemplate", &["spec", "spec", "devices", "requests"])
        }
        _ => return Ok(()),
    };
    let asks = |request: &Value| {
        request.at(&["exactly", "adminAccess"]).and_then(Value::as_bool) == Some(true)
    };
    let Some(first) = obj.array_at(path).iter().position(asks) else { return Ok(()) };
    let labels = req.stored.labels_of(req.namespace);
    if labels.iter().any(|(key, value)| key == LABEL && value == "true") {
        return Ok(());
    }
    let why = format!(
        "admin access to devices requires the `{LABEL}: true` label on the containing namespace"
    );
    // Upstream names the place so in templates, too.
    let (spec, mut errors) = (Path::new("spec"), ErrorList::new());
    let (devices, field) = (spec.field("devices"), "adminAccess");
    let requests = devices.field("requests");
    errors.push(FieldError::forbidden(&requests.index(first).field(field), &why));
    Err(Status::invalid(GROUP, kind, obj.name(), errors))
}
