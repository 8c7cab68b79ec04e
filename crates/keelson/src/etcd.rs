//! Data in an etcd cluster instead of a folder: the options, and opening the store.

use crate::etcd_overrides::EtcdOverride;
use crate::etcd_stand_in::{self, DataBehind};
use crate::start_error::StartError;
use crate::supervisor::Loops;
use keelson_egress::Tunneler;
use keelson_registry::Registry;
use keelson_store_etcd::{
    Compactor, DialedStream, Dialer, EtcdOptions, EtcdStore, EtcdTls, OpenError,
};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Interval of the connection attempts at the start.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// How long a connection through a proxy may take.
const DIAL_TIME_MAX: Duration = Duration::from_secs(30);
/// Interval of the log line about waiting for etcd.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// An etcd cluster that stores the data. Any number of servers may share one.
#[derive(Clone, Debug)]
pub struct Etcd {
    /// `--etcd-servers`: URLs of the members.
    pub servers: Vec<String>,
    /// `--etcd-cafile`: CA bundle for the members' certificates; `None`: that of this host.
    pub ca_file: Option<PathBuf>,
    /// `--etcd-certfile` and `--etcd-keyfile`: the client certificate and its key.
    pub identity_files: Option<(PathBuf, PathBuf)>,
    /// `--etcd-prefix`: the prefix of all keys.
    pub prefix: String,
    /// How long the start waits for the cluster.
    pub start_timeout: Duration,
    /// `--lease-reuse-duration-seconds`: how long a key with a time to live may live longer at
    /// most, so that keys share a lease.
    pub lease_reuse: Duration,
    /// `--etcd-servers-overrides`: the clusters of single resources.
    pub overrides: Vec<EtcdOverride>,
    /// `--etcd-compaction-interval`: the interval of compaction; zero: this server never compacts.
    pub compaction_interval: Duration,
}

/// What answers at the URLs of `--etcd-servers`.
pub(crate) enum Answering {
    /// A cluster.
    Cluster(Arc<EtcdStore>),
    /// The program in etcd's place, and where the data is.
    StandIn(DataBehind),
}

impl Etcd {
    /// Returns the options for a cluster at these URLs, with the defaults of kube-apiserver.
    #[must_use]
    pub fn new(servers: Vec<String>) -> Self {
        Etcd {
            servers,
            ca_file: None,
            identity_files: None,
            prefix: "/registry".to_owned(),
            start_timeout: Duration::from_secs(60),
            lease_reuse: Duration::from_secs(60),
            overrides: vec![],
            compaction_interval: Duration::from_secs(300),
        }
    }

    /// Waits for a cluster, through a proxy if there is one, or for the program in etcd's place,
    /// whose folder is used instead.
    pub(crate) async fn open(
        &self,
        tunneler: Option<&Arc<Tunneler>>,
    ) -> Result<Answering, StartError> {
        if tunneler.is_some() {
            // What is behind a proxy is not on this host.
            return self.open_cluster(tunneler).await.map(Answering::Cluster);
        }
        let options = self.options(None)?;
        self.retry(async || {
            if let Some(data) = etcd_stand_in::data_behind(&self.servers).await {
                return Ok(Answering::StandIn(data));
            }
            EtcdStore::open(options.clone()).await.map(Answering::Cluster)
        })
        .await
    }

    /// Waits for what speaks etcd's protocol, whatever program it is.
    pub(crate) async fn open_cluster(
        &self,
        tunneler: Option<&Arc<Tunneler>>,
    ) -> Result<Arc<EtcdStore>, StartError> {
        let options = self.options(tunneler)?;
        self.retry(async || EtcdStore::open(options.clone()).await).await
    }

    fn options(&self, tunneler: Option<&Arc<Tunneler>>) -> Result<EtcdOptions, StartError> {
        Ok(EtcdOptions {
            dialer: tunneler.map(dialer),
            tls: self.tls()?,
            prefix: self.key_prefix()?,
            lease_reuse: self.lease_reuse,
            ..EtcdOptions::new(self.servers.clone())
        })
    }

    /// Repeats an attempt until it succeeds, cannot succeed, or the time for the start is over.
    async fn retry<T>(
        &self,
        attempt: impl AsyncFn() -> Result<T, OpenError>,
    ) -> Result<T, StartError> {
        let began = Instant::now();
        let mut last_logged = None;
        loop {
            let error = match attempt().await {
                Ok(opened) => return Ok(opened),
                Err(error) => error,
            };
            let is_retryable = matches!(&error, OpenError::Unreachable { is_retryable: true, .. });
            let message = self.error_message(&error);
            if !is_retryable || began.elapsed() >= self.start_timeout {
                return Err(StartError::new(message));
            }
            if last_logged.is_none_or(|at: Instant| at.elapsed() >= LOG_INTERVAL) {
                tracing::warn!("{message}; waiting for it");
                last_logged = Some(Instant::now());
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Returns the prefix of all keys, which begins and ends with one slash.
    pub(crate) fn key_prefix(&self) -> Result<String, StartError> {
        let name = self.prefix.trim_matches('/');
        if name.is_empty() {
            return Err(StartError::new("--etcd-prefix: it must not be empty".to_owned()));
        }
        Ok(format!("/{name}/"))
    }

    /// Returns the error with the flags it concerns, in one line.
    fn error_message(&self, error: &OpenError) -> String {
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

/// Returns what connects to members through a proxy.
fn dialer(tunneler: &Arc<Tunneler>) -> Dialer {
    let tunneler = tunneler.clone();
    Dialer::new(move |address| {
        let tunneler = tunneler.clone();
        Box::pin(async move {
            let deadline = tokio::time::Instant::now() + DIAL_TIME_MAX;
            let dialed = tunneler.dial(&address, deadline).await;
            let dialed = dialed.map_err(|cause| std::io::Error::other(cause.to_string()))?;
            Ok(Box::pin(dialed) as DialedStream)
        })
    })
}

/// Reads a PEM file and validates it with `check`.
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

/// Takes part in the compaction of the cluster: one of the servers that share it compacts. Calls
/// `on_compacted` with the compacted revision.
pub(crate) async fn compact(
    store: Arc<EtcdStore>,
    interval: Duration,
    on_compacted: impl Fn(keelson_store::Revision),
) {
    let mut compactor = Compactor::new(store);
    loop {
        match compactor.run_once().await {
            Ok(through) => through.into_iter().for_each(&on_compacted),
            Err(error) => tracing::warn!(%error, source = error.source(), "compaction failed"),
        }
        tokio::time::sleep(interval).await;
    }
}

/// Starts the loop that compacts the stores of single resources.
pub(crate) fn start_compaction_of_others(
    stores: Vec<Arc<EtcdStore>>,
    registry: &Arc<Registry>,
    interval: Duration,
    loops: &mut Loops,
) {
    if stores.is_empty() {
        return;
    }
    let registry = registry.clone();
    loops.run("compaction-of-overrides", move || {
        let mut compactions = JoinSet::new();
        for (number, store) in stores.iter().enumerate() {
            let registry = registry.clone();
            // The first source of the cache is the main store.
            let on_compacted = move |through| registry.cache.compact(number + 1, through);
            compactions.spawn(compact(store.clone(), interval, on_compacted));
        }
        async move { while compactions.join_next().await.is_some() {} }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_begins_and_ends_with_one_slash() {
        let etcd = |prefix: &str| Etcd { prefix: prefix.to_owned(), ..Etcd::new(vec![]) };
        for (prefix, expected) in [("/registry", "/registry/"), ("a/b/", "/a/b/")] {
            assert_eq!(etcd(prefix).key_prefix().expect("a prefix"), expected);
        }
        assert!(etcd("/").key_prefix().is_err());
    }
}
