//! How this server meets kubelets, and the values that change with files.

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

/// A value that changes with files, and is read for each connection.
pub struct Current<T>(RwLock<Arc<T>>);

impl<T> Current<T> {
    /// Starts with a value.
    pub fn new(value: T) -> Current<T> {
        Current(RwLock::new(Arc::new(value)))
    }

    /// Replaces the value, for connections from now on.
    pub fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }

    /// Returns the present value.
    pub fn get(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
