//! Certificates and authorities for TLS, from files and from the server's own authority, and the
//! loop that reloads changed files and renews own certificates before they expire.

use super::certificates::{ADMIN_NAME, Pki};
use crate::files::{Fingerprint, fingerprint};
use crate::private_files;
use crate::start_error::StartError;
use keelson_auth::{FrontProxy, x509};
use keelson_controllers::ClientTrust;
use keelson_server::{CertificateAndKey, ClientAuthorities, ServingCertificates, Tls, TlsOptions};
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Interval of the checks for own certificates that expire soon.
const RENEWAL_CHECK_INTERVAL: Duration = Duration::from_secs(60 * 60);

const FRONT_PROXY_CA: &str = "--requestheader-client-ca-file";

/// File names of the serving certificate and its key in `--cert-dir` of kube-apiserver.
const PAIR: [&str; 2] = ["apiserver.crt", "apiserver.key"];
const SNI: &str = "--tls-sni-cert-key";

/// A serving certificate for single host names (`--tls-sni-cert-key`).
#[derive(Clone, Debug)]
pub struct NamedCertificate {
    /// The file of the certificate.
    pub certificate: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
    /// The names, possibly with a wildcard; empty: those in the certificate.
    pub names: Vec<String>,
}

/// The certificates that were loaded last.
#[derive(Clone)]
pub(crate) struct CurrentFiles {
    /// The own certificates.
    pub pki: watch::Sender<Pki>,
    /// Authorities of client certificates.
    pub trust: watch::Sender<ClientTrust>,
}

impl CurrentFiles {
    pub fn new(pki: Pki, trust: ClientTrust) -> CurrentFiles {
        CurrentFiles { pki: watch::Sender::new(pki), trust: watch::Sender::new(trust) }
    }
}

/// The files that certificates and authorities come from.
#[derive(Clone)]
pub(crate) struct TlsFiles {
    /// Folder of the own authority; `None` keeps it in memory.
    pub dir: Option<PathBuf>,
    /// Whether the folder is for this server alone.
    pub is_own_dir: bool,
    /// Subject alternative names of the own serving certificate.
    pub names: Vec<String>,
    /// `--tls-cert-file`, `--tls-private-key-file`.
    pub serving: Option<(PathBuf, PathBuf)>,
    /// `--tls-sni-cert-key`.
    pub named: Vec<NamedCertificate>,
    /// Versions, cipher suites and groups.
    pub options: TlsOptions,
    /// `--client-ca-file`.
    pub client_ca: Option<PathBuf>,
    /// `--requestheader-client-ca-file`, and the headers of the front proxy.
    pub front_proxy: Option<(PathBuf, Arc<FrontProxy>)>,
}

/// The serving certificates with their keys, and the authorities of client certificates.
struct TlsMaterial {
    serving: ServingCertificates,
    clients: ClientAuthorities,
    trust: ClientTrust,
}

impl TlsFiles {
    /// Reads or generates the own certificates.
    pub fn pki(&self) -> Result<Pki, StartError> {
        let Some(dir) = &self.dir else { return Ok(Pki::make(&self.names)?) };
        let checked = match self.is_own_dir {
            true => private_files::ensure_private_folder(dir),
            false => private_files::ensure_folder_with_private_keys(dir),
        };
        checked
            .map_err(|error| StartError::new(format!("--cert-dir: {error}: {}", error.source)))?;
        Pki::load_or_make(dir, &self.names)
            .map_err(|error| StartError::new(format!("--cert-dir: {error}")))
    }

    /// Returns the TLS configuration from the current files and own certificates.
    pub fn tls(&self, pki: &Pki) -> Result<Tls, StartError> {
        let TlsMaterial { serving, clients, .. } = self.material(pki)?;
        let tls = Tls::new(serving, &clients, &self.options);
        tls.map_err(|error| StartError::new(format!("--tls-cert-file: {error}")))
    }

    fn material(&self, pki: &Pki) -> Result<TlsMaterial, StartError> {
        let flags = ["--tls-cert-file", "--tls-private-key-file"];
        let default = match &self.serving {
            None => pair(flags, [&pki.serving.certificate, &pki.serving.key])?,
            Some(files) => read_pair(flags, files)?,
        };
        let serving = ServingCertificates { default, named: self.named()? };
        let trust = self.trust(pki)?;
        Ok(TlsMaterial { serving, clients: self.clients(pki, &trust)?, trust })
    }

    /// Reads the certificates of single hosts. Names on the command line go before those in
    /// certificates.
    fn named(&self) -> Result<Vec<keelson_server::NamedCertificate>, StartError> {
        let mut explicit = vec![];
        let mut extracted = vec![];
        for NamedCertificate { certificate, key, names } in &self.named {
            let pair = read_pair([SNI, SNI], &(certificate.clone(), key.clone()))?;
            let own = pair.0.first().map(|leaf| x509::dns_names(leaf)).unwrap_or_default();
            match names.is_empty() {
                true => {
                    extracted.push(keelson_server::NamedCertificate { names: own, pair });
                }
                false => {
                    let names = names.iter().map(|name| name.to_ascii_lowercase()).collect();
                    explicit.push(keelson_server::NamedCertificate { names, pair });
                }
            }
        }
        explicit.extend(extracted);
        Ok(explicit)
    }

    /// Returns the CA bundle that clients in the cluster verify this server with: the own
    /// authority. If the serving certificate is given, the bundle of client certificates if it
    /// signed that, else the file of the serving certificate itself.
    pub fn root_ca(&self, pki: &Pki) -> Result<String, StartError> {
        let Some((certificate, _)) = &self.serving else { return Ok(pki.ca.clone()) };
        let serving = read("--tls-cert-file", certificate)?;
        let Some(path) = &self.client_ca else { return Ok(serving) };
        let bundle = read("--client-ca-file", path)?;
        let leaf = x509::certificates(&serving).into_iter().next().unwrap_or_default();
        let authorities = x509::certificates(&bundle);
        let is_signed = authorities.iter().any(|ca| x509::is_signed_by(&leaf, ca));
        Ok(if is_signed { bundle } else { serving })
    }

    /// Returns the authorities of client certificates, as they are published for extension API
    /// servers: those of `--client-ca-file` if it is given, as upstream, and not the own one.
    pub fn trust(&self, pki: &Pki) -> Result<ClientTrust, StartError> {
        let client_ca = match &self.client_ca {
            Some(path) => read("--client-ca-file", path)?,
            None => pki.ca.clone(),
        };
        let front_proxy = match &self.front_proxy {
            Some((path, headers)) => Some((read(FRONT_PROXY_CA, path)?, headers.clone())),
            None => None,
        };
        Ok(ClientTrust { client_ca, front_proxy })
    }

    /// Returns the authorities that TLS verifies client certificates with. With `--client-ca-file`
    /// the own authority is trusted only for the administrator's certificate.
    fn clients(&self, pki: &Pki, trust: &ClientTrust) -> Result<ClientAuthorities, StartError> {
        let own = roots("--cert-dir", &pki.ca)?;
        let front_proxy = front_proxy_authorities(trust)?;
        let Some(path) = &self.client_ca else {
            return Ok(ClientAuthorities { roots: own, restricted: None, front_proxy });
        };
        let roots = nonempty_roots("--client-ca-file", &read("--client-ca-file", path)?)?;
        let restricted = Some((own, vec![ADMIN_NAME.to_owned()]));
        Ok(ClientAuthorities { roots, restricted, front_proxy })
    }

    /// Reloads changed files and renews own certificates until the task is aborted. A file that
    /// cannot be read is logged, and the certificates before it stay.
    pub async fn reload_when_changed(self, tls: Tls, current: CurrentFiles, interval: Duration) {
        let mut last = self.fingerprint();
        let mut renewal_due = Instant::now() + RENEWAL_CHECK_INTERVAL;
        loop {
            tokio::time::sleep(interval).await;
            let new = self.fingerprint();
            if new == last && Instant::now() < renewal_due {
                continue;
            }
            renewal_due = Instant::now() + RENEWAL_CHECK_INTERVAL;
            match self.reload(&tls, &current) {
                Ok(()) => {}
                Err(error) => {
                    tracing::error!(%error, "certificates not reloaded; keeping those before");
                }
            }
            // Taken before the reload, so that the next check finds changes made during it.
            last = new;
        }
    }

    fn reload(&self, tls: &Tls, current: &CurrentFiles) -> Result<(), StartError> {
        let renewed = match &self.dir {
            Some(_) => self.pki()?,
            None => current.pki.borrow().renewed(&self.names)?,
        };
        let TlsMaterial { serving, clients, trust } = self.material(&renewed)?;
        let failed = |flag: &str, error: rustls::Error| StartError::new(format!("{flag}: {error}"));
        tls.set_serving(serving).map_err(|error| failed("--tls-cert-file", error))?;
        tls.set_clients(&clients).map_err(|error| failed("--client-ca-file", error))?;
        let is_new = set_if_changed(&current.pki, renewed);
        set_if_changed(&current.trust, trust);
        tracing::info!(own_certificates_changed = is_new, "certificates reloaded");
        Ok(())
    }

    fn fingerprint(&self) -> Fingerprint {
        let own = self.dir.iter().flat_map(|dir| {
            let names =
                ["ca.crt", "ca.key", "serving.crt", "serving.key", "admin.crt", "admin.key"];
            names.map(|name| dir.join(name))
        });
        let serving =
            self.serving.iter().flat_map(|(certificate, key)| [certificate.clone(), key.clone()]);
        let named = self.named.iter().flat_map(|one| [one.certificate.clone(), one.key.clone()]);
        let serving = serving.chain(named);
        let front_proxy = self.front_proxy.as_ref().map(|(path, _)| path.clone());
        let files = own.chain(serving).chain(self.client_ca.clone()).chain(front_proxy);
        fingerprint(files)
    }
}

/// Returns the serving pair in `--cert-dir` of kube-apiserver. If there is none, one is generated
/// with an authority of its own, which the file of the certificate also holds: clients can verify
/// the server with it.
pub(crate) fn pair_of_folder(
    dir: &Path,
    names: &[String],
) -> Result<(PathBuf, PathBuf), StartError> {
    let [certificate, key] = PAIR.map(|name| dir.join(name));
    if certificate.exists() && key.exists() {
        return Ok((certificate, key));
    }
    let failed = |error: private_files::FileError| {
        StartError::new(format!("--cert-dir: {error}: {}", error.source))
    };
    private_files::ensure_folder_with_private_keys(dir).map_err(failed)?;
    let pki = Pki::make(names)?;
    let chain = format!("{}{}", pki.serving.certificate, pki.ca);
    let files = [(certificate.clone(), chain.as_str()), (key.clone(), pki.serving.key.as_str())];
    private_files::write_all(dir, &files).map_err(failed)?;
    Ok((certificate, key))
}

fn read_pair(
    flags: [&str; 2],
    files: &(PathBuf, PathBuf),
) -> Result<CertificateAndKey, StartError> {
    let (certificate, key) = files;
    let [certificate_flag, key_flag] = flags;
    pair(flags, [&read(certificate_flag, certificate)?, &read(key_flag, key)?])
}

/// Parses a certificate, with those of its authorities, and its key.
fn pair(
    [certificate_flag, key_flag]: [&str; 2],
    [certificate, key]: [&str; 2],
) -> Result<CertificateAndKey, StartError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| StartError::new(format!("{certificate_flag}: {error}")))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| StartError::new(format!("{key_flag}: {error}")))?;
    Ok((chain, key))
}

/// Sets a value and notifies receivers, if it differs from the current one. Returns whether it
/// does.
fn set_if_changed<T: PartialEq>(sender: &watch::Sender<T>, value: T) -> bool {
    sender.send_if_modified(|current| {
        let is_new = *current != value;
        *current = value;
        is_new
    })
}

/// Returns the authorities and the allowed names of front proxies. An authority of user
/// certificates is accepted only together with allowed names: otherwise every user could
/// impersonate every other.
fn front_proxy_authorities(
    trust: &ClientTrust,
) -> Result<Option<(RootCertStore, Vec<String>)>, StartError> {
    let Some((pem, headers)) = &trust.front_proxy else { return Ok(None) };
    let roots = nonempty_roots(FRONT_PROXY_CA, pem)?;
    let client_cas = x509::certificates(&trust.client_ca);
    let is_shared = x509::certificates(pem).iter().any(|ca| client_cas.contains(ca));
    if is_shared && headers.allowed_names.is_empty() {
        return Err(StartError::new(format!(
            "{FRONT_PROXY_CA} and --client-ca-file contain overlapping certificates; \
             --requestheader-allowed-names must be specified to ensure regular client certificates \
             cannot set authenticating proxy headers for arbitrary users"
        )));
    }
    Ok(Some((roots, headers.allowed_names.clone())))
}

/// Parses a CA bundle. It must contain at least one certificate.
fn nonempty_roots(flag: &str, pem: &str) -> Result<RootCertStore, StartError> {
    let roots = roots(flag, pem)?;
    if roots.is_empty() {
        return Err(StartError::new(format!("{flag}: no certificate in it")));
    }
    Ok(roots)
}

fn roots(flag: &str, pem: &str) -> Result<RootCertStore, StartError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate =
            certificate.map_err(|error| StartError::new(format!("{flag}: {error}")))?;
        roots.add(certificate).map_err(|error| StartError::new(format!("{flag}: {error}")))?;
    }
    Ok(roots)
}

fn read(flag: &str, path: &Path) -> Result<String, StartError> {
    std::fs::read_to_string(path)
        .map_err(|error| StartError::new(format!("{flag}: {}: {error}", path.display())))
}
