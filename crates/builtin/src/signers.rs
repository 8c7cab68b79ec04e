//! CertificateApproval and CertificateSigning: approving or signing a CertificateSigningRequest
//! requires that permission for its signer.

use keelson_auth::MASTERS;
use keelson_meta::status::quote;
use keelson_meta::{Failure, Object, Status};
use keelson_registry::hooks::Guard;
use keelson_registry::{Registry, Write};
use keelson_store::BoxFuture;

/// The guard of CertificateSigningRequests.
pub(crate) struct Signers;

impl Guard for Signers {
    fn check<'a>(
        &'a self,
        registry: &'a Registry,
        write: &'a Write<'a>,
        obj: &'a Object,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(check_signer(registry, write, obj))
    }
}

/// Rejects the write if the user may not approve or sign for the signer. The signer is that of the
/// stored object.
async fn check_signer(registry: &Registry, write: &Write<'_>, new: &Object) -> Result<(), Failure> {
    let Some(old) = write.old else { return Ok(()) };
    let same = |field: &str| old.at(&["status", field]) == new.at(&["status", field]);
    let (plug_in, verb) = match write.subresource {
        "approval" => ("CertificateApproval", "approve"),
        "status" if same("certificate") && same("conditions") => return Ok(()),
        "status" => ("CertificateSigning", "sign"),
        _ => return Ok(()),
    };
    let user = write.permit.user();
    let is_exempt = write.permit.attributes().is_none() || user.is_in(MASTERS);
    if is_exempt || !registry.options.admission.has(plug_in) {
        return Ok(());
    }
    let signer = old.str_at(&["spec", "signerName"]);
    if registry.options.authorizer.allows_signer(user, verb, signer).await {
        return Ok(());
    }
    let signer = quote(signer);
    let why = format!("user not permitted to {verb} requests with signerName {signer}");
    Err(Status::forbidden(write.target.gvr(), &write.target.name, &why))
}
