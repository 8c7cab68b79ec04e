//! [`Kubelets`]: how this server meets kubelets.

use keelson_egress::Identity;
use std::sync::{Arc, PoisonError, RwLock};

/// How this server meets kubelets.
#[derive(Clone)]
pub struct KubeletAccess {
    /// The authorities of their certificates (`--kubelet-certificate-authority`); `None`: their
    /// certificates are not verified.
    pub authority: Option<Arc<[u8]>>,
    /// The server's certificate for them (`--kubelet-client-certificate`, `--kubelet-client-key`).
    pub identity: Option<Identity>,
}

/// The present [`KubeletAccess`], which changes with its files.
pub struct Kubelets(RwLock<Arc<KubeletAccess>>);

impl Kubelets {
    /// Starts with an access.
    pub fn new(access: KubeletAccess) -> Kubelets {
        Kubelets(RwLock::new(Arc::new(access)))
    }

    /// Replaces the access, for connections from now on.
    pub fn set(&self, access: KubeletAccess) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(access);
    }

    /// Returns the present access.
    pub(crate) fn get(&self) -> Arc<KubeletAccess> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
