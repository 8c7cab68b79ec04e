//! How to reach a cluster and use it, and why it cannot be used.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keelson_store::DiskError;

use crate::values::{SameValues, Values};

/// Certificates for the connections to etcd, as PEM.
#[derive(Clone, Default)]
pub struct EtcdTls {
    /// Authorities that may have signed the servers' certificates; `None`: those of this host.
    pub authorities: Option<Vec<u8>>,
    /// The client's certificate and key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = if self.identity.is_some() { "a" } else { "no" };
        write!(f, "EtcdTls with {own} certificate of its own")
    }
}

/// How to reach a cluster, and which part of it to use.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// Addresses of members, `http://` or `https://`.
    pub servers: Vec<String>,
    /// Certificates, for `https://`.
    pub tls: EtcdTls,
    /// The folder that all keys of the contract lie in, with a slash at its end.
    pub root: String,
    /// The folder of the cluster that holds them, with a slash at its end; not empty.
    pub prefix: String,
    /// How values look in the cluster.
    pub values: Arc<dyn Values>,
    /// How long a watch may lie behind the newest known revision before it asks etcd how far it is.
    pub progress_after: Duration,
}

impl EtcdOptions {
    /// A cluster that holds the contract's `/registry/` under the same name.
    #[must_use]
    pub fn new(servers: Vec<String>) -> Self {
        let root = String::from("/registry/");
        let progress_after = Duration::from_millis(20);
        let values = Arc::new(SameValues);
        let (tls, prefix) = (EtcdTls::default(), root.clone());
        Self { servers, tls, root, prefix, values, progress_after }
    }
}

/// Why a cluster cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// An address is none, or does not go with the certificates.
    #[error("{url:?}: {why}")]
    Server {
        /// The address.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// No member answered as etcd does.
    #[error("no etcd server answers")]
    Unreachable {
        /// The last error.
        source: DiskError,
        /// Whether another try may help: not when certificates do not fit.
        may_pass: bool,
    },
}
