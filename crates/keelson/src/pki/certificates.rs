//! The server's own certificate authority, its serving certificate and the administrator's client
//! certificate. They are generated at the first start, kept in a folder, and renewed before they
//! expire.

use crate::private_files::{self, FileError};
use crate::start_error::StartError;
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
/// A certificate is renewed when less than a third of its lifetime is left.
const RENEWAL_DIVISOR: i64 = 3;
/// The common name of a generated authority.
const AUTHORITY_NAME: &str = "keelson-ca";
/// The common name of the administrator's certificate.
pub(crate) const ADMIN_NAME: &str = "kubernetes-admin";

/// An error while certificates are read or generated.
#[derive(Debug)]
pub enum CertificateError {
    /// A file could not be read or written.
    File {
        /// The operation and its error.
        source: FileError,
    },
    /// A certificate could not be generated.
    Make {
        /// The error of the library.
        source: rcgen::Error,
    },
    /// Only one file of the authority exists.
    Incomplete {
        /// The file that exists.
        present: PathBuf,
        /// The file that does not.
        missing: PathBuf,
    },
    /// The authority's key does not belong to its certificate, or one of them cannot be parsed.
    Mismatch {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
    },
}

impl From<CertificateError> for StartError {
    fn from(error: CertificateError) -> Self {
        StartError(error.to_string())
    }
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

/// The authority and the certificates that it has signed.
#[derive(Clone, PartialEq, Eq)]
pub struct Pki {
    /// The authority's certificate, in PEM.
    pub ca: String,
    /// The serving certificate.
    pub serving: Pair,
    /// The administrator's client certificate, of the group `system:masters`.
    pub admin: Pair,
    ca_key: String,
}

/// The certificates that exist already.
#[derive(Default)]
struct Existing {
    ca: Option<Pair>,
    serving: Option<Pair>,
    admin: Option<Pair>,
}

impl Pki {
    /// Generates an authority and certificates, in memory only.
    pub fn make(names: &[String]) -> Result<Pki, CertificateError> {
        Pki::complete(Existing::default(), names, now())
    }

    /// Returns the authority for signing further certificates.
    pub(crate) fn authority(&self) -> Result<CertificateAuthority, String> {
        CertificateAuthority::read(&self.ca, &self.ca_key)
    }

    /// Renews the certificates that expire soon. The authority keeps its key.
    pub(crate) fn renewed(&self, names: &[String]) -> Result<Pki, CertificateError> {
        let ca = Pair { certificate: self.ca.clone(), key: self.ca_key.clone() };
        let serving = Some(self.serving.clone());
        let admin = Some(self.admin.clone());
        Pki::complete(Existing { ca: Some(ca), serving, admin }, names, now())
    }

    /// Reads the certificates in a folder, and generates those that are missing or need renewal. A
    /// changed list of `names` (DNS names and addresses) renews the serving certificate. The key of
    /// an existing authority is never replaced.
    pub fn load_or_make(dir: &Path, names: &[String]) -> Result<Pki, CertificateError> {
        let names_path = dir.join("serving.names");
        let wanted = names.join("\n");
        let same_names = private_files::read(&names_path)?.is_some_and(|known| known == wanted);
        let existing = Existing {
            ca: read_authority(dir)?,
            serving: read_pair(dir, "serving")?.filter(|_| same_names),
            admin: read_pair(dir, "admin")?,
        };
        let old = [existing.ca.clone(), existing.serving.clone(), existing.admin.clone()];
        let pki = Pki::complete(existing, names, now())?;
        let ca = Pair { certificate: pki.ca.clone(), key: pki.ca_key.clone() };
        let new = [("ca", &ca), ("serving", &pki.serving), ("admin", &pki.admin)];
        let mut files = vec![];
        for ((name, pair), old) in new.into_iter().zip(&old) {
            if old.as_ref() != Some(pair) {
                files.push((dir.join(format!("{name}.key")), pair.key.as_str()));
                files.push((dir.join(format!("{name}.crt")), pair.certificate.as_str()));
            }
        }
        if !same_names {
            files.push((names_path, wanted.as_str()));
        }
        if !files.is_empty() {
            private_files::write_all(dir, &files)?;
        }
        Ok(pki)
    }

    /// Generates the certificates that are missing, expire soon or live too long.
    fn complete(existing: Existing, names: &[String], now: i64) -> Result<Pki, CertificateError> {
        let ca = match existing.ca {
            None => {
                let key = KeyPair::generate()?;
                let certificate = authority_params(now)?.self_signed(&key)?.pem();
                Pair { certificate, key: key.serialize_pem() }
            }
            // The key stays, so that the certificates it has signed stay valid.
            Some(ca) if is_generated(&ca) && needs_renewal(&ca, AUTHORITY_SECONDS, now) => {
                let key = KeyPair::from_pem(&ca.key)?;
                tracing::info!("renewing the certificate of the own authority");
                Pair { certificate: authority_params(now)?.self_signed(&key)?.pem(), key: ca.key }
            }
            Some(ca) => ca,
        };
        let issuer = Issuer::from_ca_cert_pem(&ca.certificate, KeyPair::from_pem(&ca.key)?)?;
        let is_usable =
            |pair: &Pair| !needs_renewal(pair, CERTIFICATE_SECONDS, now) && is_signed_by(pair, &ca);
        let serving = match existing.serving.filter(is_usable) {
            Some(pair) => pair,
            None => serving_certificate(&issuer, names, now)?,
        };
        let admin = match existing.admin.filter(is_usable) {
            Some(pair) => pair,
            None => admin_certificate(&issuer, now)?,
        };
        Ok(Pki { ca: ca.certificate, serving, admin, ca_key: ca.key })
    }
}

/// Returns the time in seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn read_pair(dir: &Path, name: &str) -> Result<Option<Pair>, CertificateError> {
    let read = |extension: &str| private_files::read(&dir.join(format!("{name}.{extension}")));
    Ok(match (read("crt")?, read("key")?) {
        (Some(certificate), Some(key)) => Some(Pair { certificate, key }),
        _ => None,
    })
}

/// Reads the authority in a folder. It is an error when only one of its two files exists, or when
/// the key does not belong to the certificate.
fn read_authority(dir: &Path) -> Result<Option<Pair>, CertificateError> {
    let certificate = dir.join("ca.crt");
    let key = dir.join("ca.key");
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
    let matches = der(&pair).zip(public).is_some_and(|(der, key)| x509::has_public_key(&der, &key));
    if matches { Ok(Some(pair)) } else { Err(CertificateError::Mismatch { certificate, key }) }
}

fn der(pair: &Pair) -> Option<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(pair.certificate.as_bytes()).ok()
}

/// Whether Keelson generated the authority. Otherwise an operator put it into the folder.
fn is_generated(ca: &Pair) -> bool {
    der(ca).and_then(|der| x509::common_name(&der)).is_some_and(|name| name == AUTHORITY_NAME)
}

fn is_signed_by(pair: &Pair, ca: &Pair) -> bool {
    der(pair).zip(der(ca)).is_some_and(|(own, ca)| x509::is_signed_by(&own, &ca))
}

/// Whether a certificate must be replaced: it expires soon, is not valid yet, lives longer than
/// `lifetime` seconds, or cannot be parsed.
fn needs_renewal(pair: &Pair, lifetime: i64, now: i64) -> bool {
    let Some(validity) = der(pair).and_then(|der| x509::validity(&der)) else { return true };
    let own_lifetime = validity.not_after.saturating_sub(validity.not_before);
    now < validity.not_before
        || validity.not_after.saturating_sub(now) < own_lifetime / RENEWAL_DIVISOR
        || own_lifetime > lifetime + BACKDATED_SECONDS
}

/// Returns the subject alternative names of the serving certificate: names and addresses of this
/// host, and those of the `kubernetes` service.
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

fn authority_params(now: i64) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec![])?;
    params.distinguished_name = distinguished_name(AUTHORITY_NAME, None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    set_validity(&mut params, now, AUTHORITY_SECONDS);
    Ok(params)
}

fn distinguished_name(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name
}

fn serving_certificate(
    issuer: &Issuer<'_, KeyPair>,
    names: &[String],
    now: i64,
) -> Result<Pair, rcgen::Error> {
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = distinguished_name("keelson", None);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    sign(params, issuer, now)
}

fn admin_certificate(issuer: &Issuer<'_, KeyPair>, now: i64) -> Result<Pair, rcgen::Error> {
    let mut params = CertificateParams::new(vec![])?;
    params.distinguished_name = distinguished_name(ADMIN_NAME, Some(keelson_auth::MASTERS));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    sign(params, issuer, now)
}

fn sign(
    mut params: CertificateParams,
    issuer: &Issuer<'_, KeyPair>,
    now: i64,
) -> Result<Pair, rcgen::Error> {
    let key = KeyPair::generate()?;
    set_validity(&mut params, now, CERTIFICATE_SECONDS);
    let certificate = params.signed_by(&key, issuer)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}

fn set_validity(params: &mut CertificateParams, now: i64, seconds: i64) {
    let time = |seconds: i64| {
        OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    };
    params.not_before = time(now - BACKDATED_SECONDS);
    params.not_after = time(now + seconds);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn names() -> Vec<String> {
        vec!["localhost".to_owned()]
    }

    fn renew(pki: &Pki, now: i64) -> Pki {
        let ca = Pair { certificate: pki.ca.clone(), key: pki.ca_key.clone() };
        let serving = Some(pki.serving.clone());
        let admin = Some(pki.admin.clone());
        let existing = Existing { ca: Some(ca), serving, admin };
        Pki::complete(existing, &names(), now).expect("certificates")
    }

    /// Returns the first and the last second of validity, relative to [`NOW`].
    fn validity(certificate: &str) -> (i64, i64) {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM");
        let validity = x509::validity(&der).expect("a certificate");
        (validity.not_before - NOW, validity.not_after - NOW)
    }

    #[test]
    fn certificates_are_valid_for_a_year_and_the_authority_for_ten() {
        let pki = Pki::complete(Existing::default(), &names(), NOW).expect("certificates");
        assert_eq!(validity(&pki.ca), (-3_600, 10 * 365 * DAY_SECONDS));
        assert_eq!(validity(&pki.serving.certificate), (-3_600, 365 * DAY_SECONDS));
        assert_eq!(validity(&pki.admin.certificate), (-3_600, 365 * DAY_SECONDS));
    }

    #[test]
    fn certificates_are_renewed_in_the_last_third_of_their_lives() {
        let pki = Pki::complete(Existing::default(), &names(), NOW).expect("certificates");
        assert!(renew(&pki, NOW + 240 * DAY_SECONDS) == pki);
        let renewed = renew(&pki, NOW + 250 * DAY_SECONDS);
        assert!(renewed.ca == pki.ca && renewed.ca_key == pki.ca_key);
        assert_eq!(validity(&renewed.serving.certificate).1, (250 + 365) * DAY_SECONDS);
        assert_eq!(validity(&renewed.admin.certificate).1, (250 + 365) * DAY_SECONDS);
        let late = renew(&renewed, NOW + 7 * 365 * DAY_SECONDS);
        assert!(late.ca != pki.ca && late.ca_key == pki.ca_key);
        assert_eq!(validity(&late.ca).1, 17 * 365 * DAY_SECONDS);
    }

    /// Early versions of Keelson made certificates that were valid until 4096.
    #[test]
    fn certificates_that_live_too_long_are_replaced() {
        let key = KeyPair::generate().expect("a key");
        let mut params = authority_params(NOW).expect("parameters");
        params.not_after = OffsetDateTime::from_unix_timestamp(60_000_000_000).expect("a time");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        let ca = Pair { certificate, key: key.serialize_pem() };
        let existing = Existing { ca: Some(ca.clone()), ..Existing::default() };
        let pki = Pki::complete(existing, &names(), NOW).expect("certificates");
        assert_eq!(validity(&pki.ca).1, 10 * 365 * DAY_SECONDS);
        assert!(pki.ca_key == ca.key, "the certificates that it has signed stay valid");
    }

    #[test]
    fn certificates_of_another_authority_are_replaced() {
        let one = Pki::complete(Existing::default(), &names(), NOW).expect("certificates");
        let other = Pki::complete(Existing::default(), &names(), NOW).expect("certificates");
        let mixed = Pki { ca: one.ca.clone(), ca_key: one.ca_key.clone(), ..other.clone() };
        let pki = renew(&mixed, NOW);
        assert!(pki.ca == one.ca && pki.serving != other.serving && pki.admin != other.admin);
    }

    #[test]
    fn an_existing_authority_is_never_replaced() {
        let dir = tempfile::tempdir().expect("a folder");
        let made = Pki::load_or_make(dir.path(), &names()).expect("certificates");
        let key = fs::read_to_string(dir.path().join("ca.key")).expect("a key");
        fs::remove_file(dir.path().join("ca.key")).expect("it was there");
        let error = Pki::load_or_make(dir.path(), &names()).err().expect("the key is missing");
        let text = error.to_string();
        assert!(
            text.contains("ca.key is missing beside") && text.contains("put it back"),
            "{text}"
        );
        let other = KeyPair::generate().expect("a key").serialize_pem();
        fs::write(dir.path().join("ca.key"), other).expect("a file");
        let error = Pki::load_or_make(dir.path(), &names()).err().expect("another key");
        assert!(error.to_string().contains("is not the key of"), "{error}");
        fs::write(dir.path().join("ca.key"), key).expect("a file");
        assert!(Pki::load_or_make(dir.path(), &names()).expect("certificates") == made);
    }
}
