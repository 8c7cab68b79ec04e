//! What X.509 certificates say, beside the user whom they name.

use x509_parser::prelude::{FromDer, X509Certificate};

/// From when to when a certificate counts, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Its first second.
    pub not_before: i64,
    /// Its last second.
    pub not_after: i64,
}

/// From when to when a certificate in DER counts; `None` when it cannot be read.
pub fn validity(der: &[u8]) -> Option<Validity> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let validity = certificate.validity();
    Some(Validity {
        not_before: validity.not_before.timestamp(),
        not_after: validity.not_after.timestamp(),
    })
}

/// The common name of a certificate's subject.
pub fn common_name(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    certificate.subject().iter_common_name().last()?.as_str().ok().map(str::to_owned)
}

/// Whether the key of `authority` signed `certificate`, both in DER.
pub fn is_signed_by(certificate: &[u8], authority: &[u8]) -> bool {
    let parsed = (X509Certificate::from_der(certificate), X509Certificate::from_der(authority));
    let (Ok((_, certificate)), Ok((_, authority))) = parsed else { return false };
    certificate.issuer() == authority.subject()
        && certificate.verify_signature(Some(authority.public_key())).is_ok()
}

/// Whether a certificate in DER is one of this public key, in DER too (SubjectPublicKeyInfo).
pub fn has_public_key(certificate: &[u8], public_key: &[u8]) -> bool {
    X509Certificate::from_der(certificate)
        .is_ok_and(|(_, certificate)| certificate.public_key().raw == public_key)
}
