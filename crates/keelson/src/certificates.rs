//! The server's own certificate authority, its serving certificate and the administrator's client
//! certificate. Made on the first start, kept in a folder, read again on the next.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Why certificates could not be made or read.
#[derive(Debug)]
pub enum CertificateError {
    /// A file could not be read or written.
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A certificate could not be made.
    Make {
        /// Why.
        source: rcgen::Error,
    },
}

impl std::fmt::Display for CertificateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CertificateError::File { path, source } => write!(f, "{}: {source}", path.display()),
            CertificateError::Make { source } => write!(f, "make a certificate: {source}"),
        }
    }
}

impl std::error::Error for CertificateError {}

impl From<rcgen::Error> for CertificateError {
    fn from(source: rcgen::Error) -> Self {
        CertificateError::Make { source }
    }
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

/// Everything that TLS needs.
#[derive(Clone)]
pub struct Pki {
    /// The authority's certificate, in PEM.
    pub ca: String,
    /// What the server shows.
    pub serving: Pair,
    /// What the administrator shows: group `system:masters`.
    pub admin: Pair,
}

impl Pki {
    /// Makes all of it, in memory only.
    pub fn make(names: &[String]) -> Result<Pki, CertificateError> {
        let key = KeyPair::generate()?;
        let certificate = authority()?.self_signed(&key)?.pem();
        let issuer = Issuer::new(authority()?, key);
        Ok(Pki { ca: certificate, serving: serving(&issuer, names)?, admin: admin(&issuer)? })
    }

    /// Reads what is in the folder and makes what is missing. The serving certificate is made anew when
    /// the names it has to stand for have changed.
    pub fn load_or_make(dir: &Path, names: &[String]) -> Result<Pki, CertificateError> {
        let file = |source, path: &Path| CertificateError::File { path: path.to_owned(), source };
        fs::create_dir_all(dir).map_err(|source| file(source, dir))?;
        let pair = |name: &str| {
            let read = |ending: &str| {
                let path = dir.join(format!("{name}.{ending}"));
                match fs::read_to_string(&path) {
                    Ok(text) => Ok(Some(text)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(file(error, &path)),
                }
            };
            Ok::<_, CertificateError>(match (read("crt")?, read("key")?) {
                (Some(certificate), Some(key)) => Some(Pair { certificate, key }),
                _ => None,
            })
        };
        let ca = match pair("ca")? {
            Some(ca) => ca,
            None => {
                let key = KeyPair::generate()?;
                let certificate = authority()?.self_signed(&key)?.pem();
                let ca = Pair { certificate, key: key.serialize_pem() };
                save(dir, "ca", &ca)?;
                ca
            }
        };
        let issuer = Issuer::new(authority()?, KeyPair::from_pem(&ca.key)?);
        let names_path = dir.join("serving.names");
        let wanted = names.join("\n");
        let same = fs::read_to_string(&names_path).is_ok_and(|known| known == wanted);
        let serving = match pair("serving")?.filter(|_| same) {
            Some(pair) => pair,
            None => {
                let pair = serving(&issuer, names)?;
                save(dir, "serving", &pair)?;
                fs::write(&names_path, wanted).map_err(|source| file(source, &names_path))?;
                pair
            }
        };
        let admin = match pair("admin")? {
            Some(pair) => pair,
            None => {
                let pair = admin(&issuer)?;
                save(dir, "admin", &pair)?;
                pair
            }
        };
        Ok(Pki { ca: ca.certificate, serving, admin })
    }
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

fn authority() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec![])?;
    params.distinguished_name = named("keelson-ca", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
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

fn serving(issuer: &Issuer<'_, KeyPair>, names: &[String]) -> Result<Pair, rcgen::Error> {
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = named("keelson", None);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    signed(params, issuer)
}

fn admin(issuer: &Issuer<'_, KeyPair>) -> Result<Pair, rcgen::Error> {
    let mut params = CertificateParams::new(vec![])?;
    params.distinguished_name = named("kubernetes-admin", Some("system:masters"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    signed(params, issuer)
}

fn signed(params: CertificateParams, issuer: &Issuer<'_, KeyPair>) -> Result<Pair, rcgen::Error> {
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}

fn save(dir: &Path, name: &str, pair: &Pair) -> Result<(), CertificateError> {
    write_private(&dir.join(format!("{name}.key")), &pair.key)?;
    write_private(&dir.join(format!("{name}.crt")), &pair.certificate)
}

/// Writes a file that only its owner reads; whole or not at all.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), CertificateError> {
    let fail = |source| CertificateError::File { path: path.to_owned(), source };
    let temporary = path.with_extension("tmp");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&temporary).map_err(fail)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(fail)?;
    fs::rename(&temporary, path).map_err(fail)
}
