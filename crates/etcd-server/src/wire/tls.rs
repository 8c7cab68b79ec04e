//! TLS of clients, with etcd's rules: a file of authorities means that every client needs a
//! certificate of one of them. Files that were replaced are read again for the next connection, as
//! in etcd.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The files of `--cert-file`, `--key-file` and `--trusted-ca-file`.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The serving certificate, with its chain.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities of client certificates; `None` asks clients for none.
    pub authorities: Option<PathBuf>,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("{flag}: {}: {why}", path.display())]
pub struct TlsError {
    /// The flag that names the file.
    flag: &'static str,
    path: PathBuf,
    why: String,
}

/// The current configuration.
pub(crate) struct Tls {
    files: TlsFiles,
    current: Mutex<Current>,
}

struct Current {
    stamp: Stamp,
    config: Arc<ServerConfig>,
}

/// Changes when one of the files does.
type Stamp = [Option<(SystemTime, u64)>; 3];

impl Tls {
    pub(crate) fn new(files: TlsFiles) -> Result<Self, TlsError> {
        let stamp = files.stamp();
        let config = Arc::new(files.config()?);
        Ok(Self { files, current: Mutex::new(Current { stamp, config }) })
    }

    /// Returns the configuration of the current files; of the last ones that could be read while
    /// they cannot.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = self.files.stamp();
        if stamp != current.stamp {
            current.stamp = stamp;
            match self.files.config() {
                Ok(config) => current.config = Arc::new(config),
                Err(error) => tracing::warn!(%error, "the changed files of TLS are not used"),
            }
        }
        Arc::clone(&current.config)
    }
}

impl TlsFiles {
    fn stamp(&self) -> Stamp {
        let stamp = |path: &Path| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        let authorities = self.authorities.as_deref().and_then(stamp);
        [stamp(&self.certificate), stamp(&self.key), authorities]
    }

    fn config(&self) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certificates = certificates("--cert-file", &self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| TlsError::new("--key-file", &self.key, error))?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::new("--cert-file", &self.certificate, error))?;
        let builder = match &self.authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let failed = |why: String| TlsError::new("--trusted-ca-file", path, why);
                let mut roots = RootCertStore::empty();
                for authority in self::certificates("--trusted-ca-file", path)? {
                    roots.add(authority).map_err(|error| failed(error.to_string()))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = verifier.build().map_err(|error| failed(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder
            .with_single_cert(certificates, key)
            .map_err(|error| TlsError::new("--key-file", &self.key, error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl TlsError {
    fn new(flag: &'static str, path: &Path, why: impl ToString) -> Self {
        Self { flag, path: path.to_owned(), why: why.to_string() }
    }
}

fn certificates(flag: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |why: String| TlsError::new(flag, path, why);
    let all: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?.collect();
    let all = all.map_err(|error| failed(error.to_string()))?;
    if all.is_empty() { Err(failed("no certificate is in it".to_owned())) } else { Ok(all) }
}
