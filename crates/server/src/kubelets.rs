//! [`KubeletAccess`]: how this server meets kubelets.

use keelson_egress::Identity;
use std::sync::Arc;

/// How this server meets kubelets.
#[derive(Clone, Default)]
pub struct KubeletAccess {
    /// The authorities of their certificates (`--kubelet-certificate-authority`); `None`: their
    /// certificates are not verified.
    pub authority: Option<Arc<[u8]>>,
    /// The server's certificate for them (`--kubelet-client-certificate`, `--kubelet-client-key`).
    pub identity: Option<Identity>,
}
