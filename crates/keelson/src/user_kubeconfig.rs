//! `keelson kubeconfig --user`: client certificates for other users than the administrator, signed
//! by the server's own authority.

use crate::kubeconfig::Kubeconfig;
use crate::pki::Pair;
use crate::private_files;
use keelson_auth::service_account::SigningKey;
use keelson_auth::x509::{ClientCertificate, Validity};
use rcgen::{KeyPair, PublicKeyData};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::path::Path;
use std::time::Duration;

/// Maximum lifetime of a user's certificate.
pub const USER_CERTIFICATE_DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Backdating of the start of validity, for clocks that are behind.
const BACKDATED_SECONDS: i64 = 300;
const LABEL: &str = "CERTIFICATE";

/// A client certificate to make.
#[derive(Clone, Debug)]
pub struct UserCertificate {
    /// The user name.
    pub user: String,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// The lifetime.
    pub duration: Duration,
}

impl UserCertificate {
    /// Signs the certificate with the authority in the folder `dir`, and returns a kubeconfig for
    /// the server at `url`. `now` is in seconds since 1970.
    pub fn kubeconfig(&self, dir: &Path, url: &str, now: i64) -> Result<Kubeconfig, String> {
        if self.user.is_empty() {
            return Err("the user needs a name".to_owned());
        }
        if self.duration.is_zero() || self.duration > USER_CERTIFICATE_DURATION_MAX {
            return Err("the duration must be more than 0 and at most a year".to_owned());
        }
        let read = |name: &str| {
            let path = dir.join(name);
            let text =
                private_files::read(&path).map_err(|error| format!("{error}: {}", error.source))?;
            text.ok_or_else(|| format!("{} is not there; `keelson serve` makes it", path.display()))
        };
        let ca = read("ca.crt")?;
        let ca_key = read("ca.key")?;
        let pair = self.sign(&ca, &ca_key, now)?;
        Ok(Kubeconfig::for_user(url, &ca, &self.user, &pair))
    }

    fn sign(&self, ca: &str, ca_key: &str, now: i64) -> Result<Pair, String> {
        let authority = CertificateDer::from_pem_slice(ca.as_bytes())
            .map_err(|error| format!("ca.crt: {error}"))?;
        let ca_key = SigningKey::read(ca_key).map_err(|error| format!("ca.key: {error}"))?;
        let key = KeyPair::generate().map_err(|error| format!("make a key: {error}"))?;
        let mut serial = [0; 16];
        getrandom::fill(&mut serial).map_err(|error| format!("random bytes: {error}"))?;
        let seconds = i64::try_from(self.duration.as_secs()).unwrap_or(i64::MAX);
        let certificate = ClientCertificate {
            user: &self.user,
            groups: &self.groups,
            public_key: &key.subject_public_key_info(),
            serial,
            validity: Validity { not_before: now - BACKDATED_SECONDS, not_after: now + seconds },
        };
        let der = certificate.sign(&authority, &ca_key).ok_or("ca.crt cannot be read")?;
        Ok(Pair { certificate: pem(&der), key: key.serialize_pem() })
    }
}

fn pem(der: &[u8]) -> String {
    use base64::Engine;
    const LINE_CHARACTERS: usize = 64;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut lines = format!("-----BEGIN {LABEL}-----\n");
    for line in text.as_bytes().chunks(LINE_CHARACTERS) {
        lines.push_str(&String::from_utf8_lossy(line));
        lines.push('\n');
    }
    lines + &format!("-----END {LABEL}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::Pki;
    use keelson_auth::{
        Authenticator, Certificate, CertificateUser, CredentialNotes, Credentials, x509,
    };
    use keelson_meta::Timestamp;

    const NOW: i64 = 1_800_000_000;

    fn certificate(groups: &[&str], seconds: u64) -> UserCertificate {
        UserCertificate {
            user: "jürgen \"x\"".to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            duration: Duration::from_secs(seconds),
        }
    }

    #[tokio::test]
    async fn a_certificate_has_the_user_the_groups_and_the_duration() {
        let dir = tempfile::tempdir().expect("a folder");
        Pki::load_or_make(dir.path(), &["localhost".to_owned()]).expect("an authority");
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("a file");
        let ca = read("ca.crt");
        let ca_key = read("ca.key");
        let authority = CertificateDer::from_pem_slice(ca.as_bytes()).expect("a certificate");
        for (groups, now) in [(&["devs", "ops", "qa"][..], NOW), (&[], 2_600_000_000)] {
            let pair = certificate(groups, 600).sign(&ca, &ca_key, now).expect("a certificate");
            let der = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("PEM");
            assert!(x509::is_signed_by(&der, &authority));
            let not_before = now - BACKDATED_SECONDS;
            let not_after = now + 600;
            assert_eq!(x509::validity(&der), Some(Validity { not_before, not_after }));
            let key = KeyPair::from_pem(&pair.key).expect("a key");
            assert!(x509::has_public_key(&der, &key.subject_public_key_info()));
            let shown = CertificateUser::read(&der);
            let certificate = Certificate::Verified(&shown);
            let credentials = Credentials { certificate, ..Credentials::default() };
            let authenticator = Authenticator::default();
            let notes = &mut CredentialNotes::default();
            let user = authenticator.authenticate(credentials, Timestamp::new(0, 0), notes).await;
            let user = user.expect("a user");
            assert_eq!(user.name, "jürgen \"x\"");
            let groups = [groups, &["system:authenticated"]].concat();
            assert_eq!(&*user.groups, groups);
        }
        let kubeconfig = certificate(&[], 1).kubeconfig(dir.path(), "https://x", NOW);
        let kubeconfig = kubeconfig.expect("a kubeconfig");
        assert!(kubeconfig.text().contains("user: \"jürgen \\\"x\\\"\""), "{}", kubeconfig.text());
        for seconds in [0, 366 * 24 * 60 * 60] {
            assert!(certificate(&[], seconds).kubeconfig(dir.path(), "https://x", NOW).is_err());
        }
        assert!(
            certificate(&[], 1).kubeconfig(&dir.path().join("none"), "https://x", NOW).is_err()
        );
    }
}
