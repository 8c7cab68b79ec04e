//! [`KubeletOptions`]: how the server meets kubelets, for logs, streams and proxies.

use crate::start_error::StartError;
use crate::supervisor::Loops;
use keelson_egress::Identity;
use keelson_server::{KubeletAccess, Kubelets};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The types of node addresses, if no flag says others (`--kubelet-preferred-address-types`).
pub(crate) const ADDRESS_TYPES: [&str; 5] =
    ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];

/// How the server meets kubelets.
#[derive(Clone, Debug)]
pub struct KubeletOptions {
    /// `--kubelet-certificate-authority`; `None`: their certificates are not verified.
    pub certificate_authority: Option<PathBuf>,
    /// `--kubelet-client-certificate` and `--kubelet-client-key`.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// `--kubelet-preferred-address-types`.
    pub address_types: Vec<String>,
}

impl Default for KubeletOptions {
    fn default() -> Self {
        let address_types = ADDRESS_TYPES.map(str::to_owned).to_vec();
        KubeletOptions { certificate_authority: None, client_certificate: None, address_types }
    }
}

impl KubeletOptions {
    /// Reads the files.
    fn access(&self) -> Result<KubeletAccess, StartError> {
        let read = |flag: &str, path: &PathBuf| -> Result<Arc<[u8]>, StartError> {
            let bytes = std::fs::read(path)
                .map_err(|error| StartError(format!("{flag}: {}: {error}", path.display())))?;
            Ok(bytes.into())
        };
        let authority = self.certificate_authority.as_ref();
        let authority = authority.map(|path| read("--kubelet-certificate-authority", path));
        let identity = self.client_certificate.as_ref().map(|(certificate, key)| {
            Ok::<_, StartError>(Identity {
                chain: read("--kubelet-client-certificate", certificate)?,
                key: read("--kubelet-client-key", key)?,
            })
        });
        Ok(KubeletAccess { authority: authority.transpose()?, identity: identity.transpose()? })
    }

    /// Reads the files, and starts the loop that reads them again if there are any. Files that cannot
    /// be read later leave the access as it is.
    pub(crate) fn start(
        &self,
        interval: Duration,
        loops: &mut Loops,
    ) -> Result<Arc<Kubelets>, StartError> {
        let kubelets = Arc::new(Kubelets::new(self.access()?));
        if self.certificate_authority.is_some() || self.client_certificate.is_some() {
            let (options, reloaded) = (self.clone(), kubelets.clone());
            loops.run("kubelet-certificates", move || {
                options.clone().reload(reloaded.clone(), interval)
            });
        }
        Ok(kubelets)
    }

    async fn reload(self, kubelets: Arc<Kubelets>, interval: Duration) {
        loop {
            tokio::time::sleep(interval).await;
            match self.access() {
                Ok(access) => kubelets.set(access),
                Err(error) => tracing::warn!(%error, "certificates for kubelets not reloaded"),
            }
        }
    }
}
