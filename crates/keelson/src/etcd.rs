//! Data in an etcd cluster instead of a folder: what the flags say, and the store made of it.

use crate::start_error::StartError;
use bytes::Bytes;
use keelson_builtin::EtcdCodec;
use keelson_meta::Features;
use keelson_store::DiskError;
use keelson_store_etcd::{Compactor, EtcdOptions, EtcdStore, EtcdTls, OpenError, ValueCodec};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks for a cluster that does not answer at the start.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Interval of the log line about waiting for etcd.
const TELL_INTERVAL: Duration = Duration::from_secs(5);

/// An etcd cluster that holds the data. Any number of servers may share one.
#[derive(Clone, Debug)]
pub struct Etcd {
    /// `--etcd-servers`: addresses of its members.
    pub servers: Vec<String>,
    /// `--etcd-cafile`: authorities of its certificates; `None`: those of this host.
    pub ca_file: Option<PathBuf>,
    /// `--etcd-certfile` and `--etcd-keyfile`: the certificate to show to it.
    pub identity_files: Option<(PathBuf, PathBuf)>,
    /// `--etcd-prefix`: the folder of the cluster that holds the data.
    pub prefix: String,
    /// Timeout of the first connection at the start.
    pub patience: Duration,
    /// `--etcd-compaction-interval`: how often history is forgotten; zero: never, by this server.
    pub compaction_interval: Duration,
}

impl Etcd {
    /// A cluster at these addresses, used as kube-apiserver does without further flags.
    #[must_use]
    pub fn new(servers: Vec<String>) -> Self {
        Etcd {
            servers,
            ca_file: None,
            identity_files: None,
            prefix: "/registry".to_owned(),
            patience: Duration::from_secs(60),
            compaction_interval: Duration::from_secs(300),
        }
    }

    pub(crate) async fn open(
        &self,
        runtime_config: &[(String, bool)],
        features: Features,
    ) -> Result<Arc<EtcdStore>, StartError> {
        let options = EtcdOptions {
            tls: self.tls()?,
            prefix: folder(&self.prefix)?,
            codec: Arc::new(StoredObjects(EtcdCodec::new(runtime_config, features))),
            ..EtcdOptions::new(self.servers.clone())
        };
        let began = Instant::now();
        let mut told = None;
        loop {
            let error = match EtcdStore::open(options.clone()).await {
                Ok(store) => return Ok(store),
                Err(error) => error,
            };
            let is_retryable = matches!(&error, OpenError::Unreachable { is_retryable: true, .. });
            let line = self.line(&error);
            if !is_retryable || began.elapsed() >= self.patience {
                return Err(StartError::new(line));
            }
            if told.is_none_or(|at: Instant| at.elapsed() >= TELL_INTERVAL) {
                tracing::warn!("{line}; waiting for it");
                told = Some(Instant::now());
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// The fault and its flag, in one line.
    fn line(&self, error: &OpenError) -> String {
        let flags = match error {
            OpenError::Unreachable { .. } if self.is_secure() => {
                "--etcd-servers/--etcd-cafile/--etcd-certfile"
            }
            _ => "--etcd-servers",
        };
        let why = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        format!("{flags}: {}: {error}{why}", self.servers.join(","))
    }

    fn is_secure(&self) -> bool {
        self.servers.iter().any(|server| server.starts_with("https://"))
    }

    fn tls(&self) -> Result<EtcdTls, StartError> {
        let certificates = |text: &[u8]| {
            let mut found = CertificateDer::pem_slice_iter(text);
            found.next().unwrap_or(Err(pem::Error::NoItemsFound)).map(drop)
        };
        let key = |text: &[u8]| PrivateKeyDer::from_pem_slice(text).map(drop);
        let authorities = self.ca_file.as_ref();
        let authorities =
            authorities.map(|path| read("--etcd-cafile", path, certificates)).transpose()?;
        let identity = match &self.identity_files {
            None => None,
            Some((certificate, key_file)) => Some((
                read("--etcd-certfile", certificate, certificates)?,
                read("--etcd-keyfile", key_file, key)?,
            )),
        };
        Ok(EtcdTls { authorities, identity })
    }
}

/// Objects as kube-apiserver stores them.
#[derive(Debug)]
struct StoredObjects(EtcdCodec);

impl ValueCodec for StoredObjects {
    fn encode(&self, key: &[u8], value: &Bytes) -> Result<Bytes, DiskError> {
        self.0.encode(key, value).map_err(|error| Arc::new(error) as DiskError)
    }

    fn decode(&self, key: &[u8], value: Bytes) -> Bytes {
        self.0.decode(key, value)
    }
}

/// The bytes of a PEM file, in which `check` finds what it should hold.
fn read(
    flag: &str,
    path: &Path,
    check: impl Fn(&[u8]) -> Result<(), pem::Error>,
) -> Result<Vec<u8>, StartError> {
    let bad = |why: String| StartError::new(format!("{flag}: {}: {why}", path.display()));
    let text = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
    check(&text).map_err(|error| bad(error.to_string()))?;
    Ok(text)
}

/// A prefix as a folder: one slash before and one behind it.
fn folder(prefix: &str) -> Result<String, StartError> {
    let name = prefix.trim_matches('/');
    if name.is_empty() {
        return Err(StartError::new("--etcd-prefix: it must not be empty".to_owned()));
    }
    Ok(format!("/{name}/"))
}

/// Takes part in the compaction of the cluster; `forgotten` is told how far the history is gone.
pub(crate) async fn compact(
    store: Arc<EtcdStore>,
    interval: Duration,
    forgotten: impl Fn(keelson_store::Revision),
) {
    let mut compactor = Compactor::new(store);
    loop {
        match compactor.run_once().await {
            Ok(through) => through.into_iter().for_each(&forgotten),
            Err(error) => tracing::warn!(%error, source = error.source(), "compaction failed"),
        }
        tokio::time::sleep(interval).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_becomes_a_folder() {
        for (prefix, expected) in [("/registry", "/registry/"), ("a/b/", "/a/b/")] {
            assert_eq!(folder(prefix).expect("a folder"), expected);
        }
        assert!(folder("/").is_err());
    }
}
