//! [`CertificateUser`]: the user of a client's certificate (apiserver
//! `authentication/request/x509`).

use crate::AUTHENTICATED;
use keelson_meta::{Str, User};
use sha2::{Digest, Sha256};
use x509_parser::der_parser::{Oid, oid};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The attribute of a subject that holds the user's UID (apimachinery `asn1.X509UID`).
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);
const CREDENTIAL_ID: Str = Str::new_static("authentication.kubernetes.io/credential-id");

/// The user of a certificate. It is read once for all requests of a connection.
#[derive(Debug)]
pub struct CertificateUser {
    /// Common name, organizations as groups, and the digest of the certificate; without the UID.
    /// `None`: the subject has no common name, or is unreadable.
    named: Option<User>,
    /// The UID, or empty; `None`: it is given twice, empty or unreadable.
    uid: Option<Str>,
    /// Whether there is a common name, even an unreadable one.
    has_name: bool,
}

impl CertificateUser {
    /// Reads a certificate in DER.
    pub fn read(der: &[u8]) -> CertificateUser {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else {
            return CertificateUser { named: None, uid: None, has_name: true };
        };
        // The last one counts, as in Go.
        let name = certificate.subject().iter_common_name().last();
        CertificateUser {
            named: named(&certificate, der),
            uid: uid(&certificate),
            has_name: name.is_some_and(|name| !name.as_slice().is_empty()),
        }
    }

    /// Returns the user; `None`: the certificate has none, or one that is an error. Without
    /// `reads_uid` the UID does not count (AllowParsingUserUIDFromCertAuth).
    pub(crate) fn user(&self, reads_uid: bool) -> Option<User> {
        let uid = if reads_uid { self.uid.clone()? } else { Str::default() };
        Some(User { uid, ..self.named.clone()? })
    }

    /// Returns whether a certificate without a user is an error, and not as good as none.
    pub(crate) fn has_name(&self) -> bool {
        self.has_name
    }
}

fn named(certificate: &X509Certificate<'_>, der: &[u8]) -> Option<User> {
    let subject = certificate.subject();
    let name = subject.iter_common_name().last()?.as_str().ok().filter(|n| !n.is_empty())?;
    // An unreadable group must not count as absent.
    let groups = subject
        .iter_organization()
        .map(|organization| organization.as_str().map(Str::new))
        .collect::<Result<_, _>>()
        .ok()?;
    let digest = Sha256::digest(der);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let extra = vec![(CREDENTIAL_ID, vec![Str::from(format!("X509SHA256={hex}"))])];
    let user = User { name: name.into(), uid: Str::default(), groups, extra };
    Some(user.with_group(AUTHENTICATED))
}

fn uid(certificate: &X509Certificate<'_>) -> Option<Str> {
    let mut uids = certificate.subject().iter_attributes().filter(|at| *at.attr_type() == UID);
    let Some(first) = uids.next() else { return Some(Str::default()) };
    let text = first.as_str().ok().filter(|text| !text.is_empty())?;
    uids.next().is_none().then(|| Str::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    /// Returns a certificate with a common name and attributes below 1.3.6.1.4.1.57683. Those named
    /// 3 are UIDs, too: a subject of the library has each attribute once.
    fn certificate(attributes: &[(u64, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "alice");
        for (last, text) in attributes {
            let oid = vec![1, 3, 6, 1, 4, 1, 57683, *last];
            params.distinguished_name.push(DnType::CustomDnType(oid), *text);
        }
        let key = KeyPair::generate().expect("a key");
        let mut der = params.self_signed(&key).expect("a certificate").der().to_vec();
        let uid = UID;
        let (_, prefix) = uid.as_bytes().split_last().expect("an oid");
        for at in 0..der.len() - prefix.len() {
            if der[at..].starts_with(prefix) {
                der[at + prefix.len()] = 2;
            }
        }
        der
    }

    #[test]
    fn the_uid_of_a_certificate_counts_unless_its_gate_is_off() {
        let check = |attributes: &[(u64, &str)], expected: Option<&str>| {
            let read = CertificateUser::read(&certificate(attributes));
            let user = |reads_uid| read.user(reads_uid).map(|user| (user.name, user.uid));
            let alice = |uid: &str| ("alice".into(), Str::new(uid));
            assert_eq!(user(true), expected.map(alice), "{attributes:?}");
            assert_eq!(user(false), Some(alice("")), "{attributes:?}");
            assert!(read.has_name());
        };
        check(&[], Some(""));
        check(&[(2, "u-1")], Some("u-1"));
        check(&[(2, "")], None);
        check(&[(2, "u-1"), (3, "u-2")], None);
    }
}
