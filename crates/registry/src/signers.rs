//! CertificateApproval and CertificateSigning: who approves or signs a request for a certificate must be
//! allowed to do so for its signer.

use crate::admission::Write;
use crate::registry::Registry;
use keelson_auth::MASTERS;
use keelson_meta::status::quote;
use keelson_meta::{Failure, Object, Status};

impl Registry {
    /// Refuses to approve or sign for a signer that the writer has no right to. The signer is that of the
    /// stored request.
    pub(crate) async fn check_signer(
        &self,
        write: &Write<'_>,
        new: &Object,
    ) -> Result<(), Failure> {
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
        if is_exempt || !self.options.admission.has(plug_in) {
            return Ok(());
        }
        let signer = old.str_at(&["spec", "signerName"]);
        if self.options.authorizer.allows_signer(user, verb, signer).await {
            return Ok(());
        }
        let signer = quote(signer);
        let why = format!("user not permitted to {verb} requests with signerName {signer}");
        Err(Status::forbidden(write.target.gvr(), &write.target.name, &why))
    }
}
