//! CertificateSubjectRestriction: rejects signing requests for the group `system:masters`.

use crate::attributes::Recorder;
use crate::request::Request;
use base64::Engine;
use keelson_auth::MASTERS;
use keelson_meta::{Failure, Object};
use x509_parser::prelude::{FromDer, Pem, X509CertificationRequest};

const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

pub(crate) fn validate_subject(
    req: &Request<'_>,
    signing: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    if !req.creates("certificates.k8s.io", "certificatesigningrequests")
        || signing.str_at(&["spec", "signerName"]) != SIGNER
    {
        return Ok(());
    }
    match organizations(signing.str_at(&["spec", "request"])) {
        Err(why) => Err(req.forbidden(signing, &format!("failed to parse CSR: {why}"))),
        Ok(names) if names.iter().any(|name| name == MASTERS) => {
            let why = format!("use of {SIGNER} signer with system:masters group is not allowed");
            Err(req.forbidden(signing, &why))
        }
        Ok(_) => Ok(()),
    }
}

/// Returns the organizations in the subject of a certificate signing request (base64 of PEM).
fn organizations(text: &str) -> Result<Vec<String>, String> {
    let pem = base64::engine::general_purpose::STANDARD.decode(text).map_err(|e| e.to_string())?;
    let (pem, _) = Pem::read(std::io::Cursor::new(pem)).map_err(|e| e.to_string())?;
    if pem.label != "CERTIFICATE REQUEST" {
        return Err("PEM block type must be CERTIFICATE REQUEST".to_owned());
    }
    let (_, request) =
        X509CertificationRequest::from_der(&pem.contents).map_err(|e| e.to_string())?;
    let subject = &request.certification_request_info.subject;
    Ok(subject
        .iter_organization()
        .filter_map(|name| name.as_str().ok().map(str::to_owned))
        .collect())
}
