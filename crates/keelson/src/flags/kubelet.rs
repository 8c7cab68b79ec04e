//! Flags of the connections to kubelets: `--kubelet-*`.

use keelson::KubeletOptions;
use std::path::PathBuf;

/// The connections to kubelets, for logs, exec, attach, port-forward and proxies.
#[derive(Debug, clap::Args)]
pub struct KubeletFlags {
    /// Authorities of the certificates of kubelets [default: they are not verified].
    #[arg(long, value_name = "FILE")]
    kubelet_certificate_authority: Option<PathBuf>,
    /// Client certificate for kubelets; reloaded when it changes.
    #[arg(long, value_name = "FILE", requires = "kubelet_client_key")]
    kubelet_client_certificate: Option<PathBuf>,
    /// Key of the client certificate for kubelets.
    #[arg(long, value_name = "FILE", requires = "kubelet_client_certificate")]
    kubelet_client_key: Option<PathBuf>,
    /// Types of the node addresses at which kubelets are reached, the preferred one first.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "TYPES",
        default_value = "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP"
    )]
    kubelet_preferred_address_types: Vec<String>,
}

impl KubeletFlags {
    /// Returns the options that the flags describe.
    pub fn options(&self) -> KubeletOptions {
        let key = self.kubelet_client_key.clone();
        KubeletOptions {
            certificate_authority: self.kubelet_certificate_authority.clone(),
            client_certificate: self.kubelet_client_certificate.clone().zip(key),
            address_types: self.kubelet_preferred_address_types.clone(),
        }
    }
}
