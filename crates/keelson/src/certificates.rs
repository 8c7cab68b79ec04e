//! The server's own certificate authority, its serving certificate and the administrator's client
//! certificate. Made on the first start, kept in a folder, read again on the next, renewed before they
//! end.

use crate::private_files::{self, FileError};
use keelson_auth::{CertificateAuthority, x509};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;

const DAY_SECONDS: i64 = 24 * 60 * 60;
/// Lifetime of the authority.
const AUTHORITY_SECONDS: i64 = 10 * 365 * DAY_SECONDS;
/// Lifetime of other certificates.
const CERTIFICATE_SECONDS: i64 = 365 * DAY_SECONDS;
/// Backdating of the start of validity, for clocks that are behind.
const BACKDATED_SECONDS: i64 = 60 * 60;
/// A certificate is renewed when less than this part of its life is left.
const RENEWED_PART: i64 = 3;
/// The common name of an authority that was made here.
const AUTHORITY_NAME: &str = "keelson-ca";
/// The common name of the administrator's certificate.
pub(crate) const ADMIN_NAME: &str = "kubernetes-admin";

/// Why certificates could not be made or read.
#[derive(Debug)]
pub enum CertificateError {
    /// A file could not be read or written.
    File {
        /// The operation and its error.
        source: FileError,
    },
    /// A certificate could not be made.
    Make {
        /// Why.
        source: rcgen::Error,
    },
    /// Only one file of the authority exists.
    Incomplete {
        /// The file that is there.
        present: PathBuf,
        /// The file that is not.
        missing: PathBuf,
    },
    /// The authority's key is not that of its certificate, or one of them cannot be read.
    Mismatch {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
    },
}

impl std::fmt::Display for CertificateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CertificateError::File { source } => write!(f, "{source}: {}", source.source),
            CertificateError::Make { source } => write!(f, "make a certificate: {source}"),
            CertificateError::Incomplete { present, missing } => write!(
                f,
                "{} is missing beside {}: put it back, or move the other file away to have a new \
                 authority made (clients of the old one will not trust it)",
                missing.display(),
                present.display()
            ),
            CertificateError::Mismatch { certificate, key } => {
                write!(f, "{} is not the key of {}", key.display(), certificate.display())
            }
        }
    }
}

impl std::error::Error for CertificateError {}

impl From<rcgen::Error> for CertificateError {
    fn from(source: rcgen::Error) -> Self {
        CertificateError::Make { source }
    }
}

impl From<FileError> for CertificateError {
    fn from(source: FileError) -> Self {
        CertificateError::File { source }
    }
}

/// A certificate and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

/// Everything that TLS needs.
#[derive(Clone, PartialEq, Eq)]
pub struct Pki {
    /// The authority's certificate, in PEM.
    pub ca: String,
    /// The serving certificate.
    pub serving: Pair,
    /// The administrator's client certificate: group `system:masters`.
    pub admin: Pair,
    ca_key: String,
}

/// The existing files.
#[derive(Default)]
struct Found {
    ca: Option<Pair>,
    serving: Option<Pair>,
    admin: Option<Pair>,
}

impl Pki {
    /// Makes all of it, in memory only.
    pub fn make(names: &[String]) -> Result<Pki, CertificateError> {
        Pki::complete(Found::default(), names, now())
    }

    /// The own authority, to sign certificates.
    pub(crate) fn authority(&self) -> Result<CertificateAuthority, String> {
        CertificateAuthority::read(&self.ca, &self.ca_key)
    }

    /// Renews the certificates that are about to expire, by the same authority.
    pub(crate) fn renewed(&self, names: &[String]) -> Result<Pki, CertificateError> {
        let ca = Pair { certificate: self.ca.clone(), key: self.ca_key.clone() };
        let (serving, admin) = (Some(self.serving.clone()), Some(self.admin.clone()));
        Pki::complete(Found { ca: Some(ca), serving, admin }, names, now())
    }

    /// Reads what is in the folder, and makes what is missing or has to be renewed. The serving
    /// certificate is made anew when the names it has to stand for have changed; an authority is never
    /// made anew over one that is there.
    pub fn load_or_make(dir: &Path, names: &[String]) -> Result<Pki, CertificateError> {
        let names_path = dir.join("serving.names");
        let wanted = names.join("\n");
        let same = private_files::read(&names_path)?.is_some_and(|known| known == wanted);
        let found = Found {
            ca: authority_in(dir)?,
            serving: pair_in(dir, "serving")?.filter(|_| same),
            admin: pair_in(dir, "admin")?,
        };
        let was = [found.ca.clone(), found.serving.clone(), found.admin.clone()];
        let pki = Pki::complete(found, names, now())?;
        let ca = Pair { certificate: pki.ca.clone(), key: pki.ca_key.clone() };
        let is = [("ca", &ca), ("serving", &pki.serving), ("admin", &pki.admin)];
        let mut files = vec![];
        for ((name, pair), was) in is.into_iter().zip(&was) {
            if was.as_ref() != Some(pair) {
                files.push((dir.join(format!("{name}.key")), pair.key.as_str()));
                files.push((dir.join(format!("{name}.crt")), pair.certificate.as_str()));
            }
        }
        if !same {
            files.push((names_path, wanted.as_str()));
        }
        if !files.is_empty() {
            private_files::write_all(dir, &files)?;
        }
        Ok(pki)
    }

    /// Makes what is not found, and what ends soon or lasts longer than it may.
    fn complete(found: Found, names: &[String], now: i64) -> Result<Pki, CertificateError> {
        let ca = match found.ca {
            None => {
                let key = KeyPair::generate()?;
                let certificate = authority(now)?.self_signed(&key)?.pem();
                Pair { certificate, key: key.serialize_pem() }
            }
            // The same key: what it has signed stays good.
            Some(ca) if is_own(&ca) && is_due(&ca, AUTHORITY_SECONDS, now) => {
                let key = KeyPair::from_pem(&ca.key)?;
                tracing::info!("renewing the certificate of the own authority");
                Pair { certificate: authority(now)?.self_signed(&key)?.pem(), key: ca.key }
            }
            Some(ca) => ca,
        };
        let issuer = Issuer::from_ca_cert_pem(&ca.certificate, KeyPair::from_pem(&ca.key)?)?;
        let good = |pair: &Pair| !is_due(pair, CERTIFICATE_SECONDS, now) && is_signed_by(pair, &ca);
        let serving = match found.serving.filter(good) {
            Some(pair) => pair,
            None => serving(&issuer, names, now)?,
        };
        let admin = match found.admin.filter(good) {
            Some(pair) => pair,
            None => admin(&issuer, now)?,
        };
        Ok(Pki { ca: ca.certificate, serving, admin, ca_key: ca.key })
    }
}

/// Seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn pair_in(dir: &Path, name: &str) -> Result<Option<Pair>, CertificateError> {
    let read = |ending: &str| private_files::read(&dir.join(format!("{name}.{ending}")));
    Ok(match (read("crt")?, read("key")?) {
        (Some(certificate), Some(key)) => Some(Pair { certificate, key }),
        _ => None,
    })
}

/// The authority in a folder; an error when only half of it is there, or the halves do not fit.
fn authority_in(dir: &Path) -> Result<Option<Pair>, CertificateError> {
    let (certificate, key) = (dir.join("ca.crt"), dir.join("ca.key"));
    let pair = match (private_files::read(&certificate)?, private_files::read(&key)?) {
        (None, None) => return Ok(None),
        (Some(_), None) => {
            return Err(CertificateError::Incomplete { present: certificate, missing: key });
        }
        (None, Some(_)) => {
            return Err(CertificateError::Incomplete { present: key, missing: certificate });
        }
        (Some(certificate), Some(key)) => Pair { certificate, key },
    };
    let public = KeyPair::from_pem(&pair.key).ok().map(|key| key.subject_public_key_info());
    let fits = der(&pair).zip(public).is_some_and(|(der, key)| x509::has_public_key(&der, &key));
    if fits { Ok(Some(pair)) } else { Err(CertificateError::Mismatch { certificate, key }) }
}

fn der(pair: &Pair) -> Option<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(pair.certificate.as_bytes()).ok()
}

/// Whether an authority was made here, and not by whoever put it into the folder.
fn is_own(ca: &Pair) -> bool {
    der(ca).and_then(|der| x509::common_name(&der)).is_some_and(|name| name == AUTHORITY_NAME)
}

fn is_signed_by(pair: &Pair, ca: &Pair) -> bool {
    der(pair).zip(der(ca)).is_some_and(|(own, ca)| x509::is_signed_by(&own, &ca))
}

/// Whether a certificate has to be made anew: little of its life is left, it has not begun, it lasts
/// longer than it may, or it cannot be read.
fn is_due(pair: &Pair, lasts: i64, now: i64) -> bool {
    let Some(validity) = der(pair).and_then(|der| x509::validity(&der)) else { return true };
    let life = validity.not_after.saturating_sub(validity.not_before);
    now < validity.not_before
        || validity.not_after.saturating_sub(now) < life / RENEWED_PART
        || life > lasts + BACKDATED_SECONDS
}

/// Names that the serving certificate stands for: this host, its addresses, the service.
pub(crate) fn host_names(service: Option<IpAddr>, more: &[IpAddr]) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "kubernetes", "kubernetes.default"]
        .into_iter()
        .chain(["kubernetes.default.svc", "kubernetes.default.svc.cluster.local"])
        .map(str::to_owned)
        .collect();
    if let Ok(host) = fs::read_to_string("/proc/sys/kernel/hostname") {
        let host = host.trim().to_ascii_lowercase();
        if !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
        {
            names.push(host);
        }
    }
    let own = if_addrs::get_if_addrs().unwrap_or_default().into_iter().map(|i| i.ip());
    let loopback = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])];
    let mut addresses: Vec<IpAddr> = loopback
        .into_iter()
        .chain(own)
        .chain(service)
        .chain(more.iter().copied())
        .filter(|address| !address.is_unspecified())
        .collect();
    addresses.sort();
    addresses.dedup();
    names.extend(addresses.iter().map(ToString::to_string));
    names
}

fn authority(now: i64) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec![])?;
    params.distinguished_name = named(AUTHORITY_NAME, None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    lasting(&mut params, now, AUTHORITY_SECONDS);
    Ok(params)
}

fn named(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name
}

fn serving(issuer: &Issuer<'_, KeyPair>, names: &[String], now: i64) -> Result<Pair, rcgen::Error> {
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = named("keelson", None);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    signed(params, issuer, now)
}

fn admin(issuer: &Issuer<'_, KeyPair>, now: i64) -> Result<Pair, rcgen::Error> {
    let mut params = CertificateParams::new(vec![])?;
    params.distinguished_name = named(ADMIN_NAME, Some(keelson_auth::MASTERS));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    signed(params, issuer, now)
}

fn signed(
    mut params: CertificateParams,
    issuer: &Issuer<'_, KeyPair>,
    now: i64,
) -> Result<Pair, rcgen::Error> {
    let key = KeyPair::generate()?;
    lasting(&mut params, now, CERTIFICATE_SECONDS);
    let certificate = params.signed_by(&key, issuer)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}

fn lasting(params: &mut CertificateParams, now: i64, seconds: i64) {
    let at = |second: i64| {
        OffsetDateTime::from_unix_timestamp(second).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    };
    params.not_before = at(now - BACKDATED_SECONDS);
    params.not_after = at(now + seconds);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn names() -> Vec<String> {
        vec!["localhost".to_owned()]
    }

    fn again(pki: &Pki, now: i64) -> Pki {
        let ca = Pair { certificate: pki.ca.clone(), key: pki.ca_key.clone() };
        let (serving, admin) = (Some(pki.serving.clone()), Some(pki.admin.clone()));
        let made = Pki::complete(Found { ca: Some(ca), serving, admin }, &names(), now);
        made.expect("certificates")
    }

    /// First and last second, relative to [`NOW`].
    fn lasts(certificate: &str) -> (i64, i64) {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM");
        let validity = x509::validity(&der).expect("a certificate");
        (validity.not_before - NOW, validity.not_after - NOW)
    }

    #[test]
    fn certificates_last_a_year_and_the_authority_ten() {
        let pki = Pki::complete(Found::default(), &names(), NOW).expect("certificates");
        assert_eq!(lasts(&pki.ca), (-3_600, 10 * 365 * DAY_SECONDS));
        assert_eq!(lasts(&pki.serving.certificate), (-3_600, 365 * DAY_SECONDS));
        assert_eq!(lasts(&pki.admin.certificate), (-3_600, 365 * DAY_SECONDS));
    }

    #[test]
    fn certificates_are_renewed_in_the_last_third_of_their_lives() {
        let pki = Pki::complete(Found::default(), &names(), NOW).expect("certificates");
        assert!(again(&pki, NOW + 240 * DAY_SECONDS) == pki);
        let renewed = again(&pki, NOW + 250 * DAY_SECONDS);
        assert!(renewed.ca == pki.ca && renewed.ca_key == pki.ca_key);
        assert_eq!(lasts(&renewed.serving.certificate).1, (250 + 365) * DAY_SECONDS);
        assert_eq!(lasts(&renewed.admin.certificate).1, (250 + 365) * DAY_SECONDS);
        let late = again(&renewed, NOW + 7 * 365 * DAY_SECONDS);
        assert!(late.ca != pki.ca && late.ca_key == pki.ca_key);
        assert_eq!(lasts(&late.ca).1, 17 * 365 * DAY_SECONDS);
    }

    /// Certificates of versions before this rule lasted until 4096.
    #[test]
    fn certificates_that_last_too_long_are_made_anew() {
        let key = KeyPair::generate().expect("a key");
        let mut params = authority(NOW).expect("parameters");
        params.not_after = OffsetDateTime::from_unix_timestamp(60_000_000_000).expect("a time");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        let ca = Pair { certificate, key: key.serialize_pem() };
        let found = Found { ca: Some(ca.clone()), ..Found::default() };
        let pki = Pki::complete(found, &names(), NOW).expect("certificates");
        assert_eq!(lasts(&pki.ca).1, 10 * 365 * DAY_SECONDS);
        assert!(pki.ca_key == ca.key, "what it has signed stays good");
    }

    #[test]
    fn certificates_of_another_authority_are_made_anew() {
        let one = Pki::complete(Found::default(), &names(), NOW).expect("certificates");
        let other = Pki::complete(Found::default(), &names(), NOW).expect("certificates");
        let mixed = Pki { ca: one.ca.clone(), ca_key: one.ca_key.clone(), ..other.clone() };
        let pki = again(&mixed, NOW);
        assert!(pki.ca == one.ca && pki.serving != other.serving && pki.admin != other.admin);
    }

    #[test]
    fn an_authority_is_never_made_over_one_that_is_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let made = Pki::load_or_make(dir.path(), &names()).expect("certificates");
        let key = fs::read_to_string(dir.path().join("ca.key")).expect("a key");
        fs::remove_file(dir.path().join("ca.key")).expect("it was there");
        let error = Pki::load_or_make(dir.path(), &names()).err().expect("half is missing");
        let said = error.to_string();
        assert!(
            said.contains("ca.key is missing beside") && said.contains("put it back"),
            "{said}"
        );
        let other = KeyPair::generate().expect("a key").serialize_pem();
        fs::write(dir.path().join("ca.key"), other).expect("a file");
        let error = Pki::load_or_make(dir.path(), &names()).err().expect("another key");
        assert!(error.to_string().contains("is not the key of"), "{error}");
        fs::write(dir.path().join("ca.key"), key).expect("a file");
        assert!(Pki::load_or_make(dir.path(), &names()).expect("certificates") == made);
    }
}
