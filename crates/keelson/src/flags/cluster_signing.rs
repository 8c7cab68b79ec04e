//! The flags of certificate signing. kube-controller-manager has the same.

use super::duration;
use anyhow::Result;
use keelson::{AuthorityFiles, SigningOptions};
use std::path::PathBuf;

/// `--cluster-signing-*`.
#[derive(clap::Args, Debug)]
pub struct ClusterSigningFlags {
    /// Authority that signs certificates of all signers [default: the server's own].
    #[arg(long, value_name = "FILE", requires = "cluster_signing_key_file")]
    cluster_signing_cert_file: Option<PathBuf>,
    /// Key of that authority.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_cert_file")]
    cluster_signing_key_file: Option<PathBuf>,
    /// Authority that signs certificates of kubernetes.io/kube-apiserver-client.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_kube_apiserver_client_key_file")]
    cluster_signing_kube_apiserver_client_cert_file: Option<PathBuf>,
    /// Key of that authority.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_kube_apiserver_client_cert_file")]
    cluster_signing_kube_apiserver_client_key_file: Option<PathBuf>,
    /// Authority that signs certificates of kubernetes.io/kube-apiserver-client-kubelet.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_kubelet_client_key_file")]
    cluster_signing_kubelet_client_cert_file: Option<PathBuf>,
    /// Key of that authority.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_kubelet_client_cert_file")]
    cluster_signing_kubelet_client_key_file: Option<PathBuf>,
    /// Authority that signs certificates of kubernetes.io/kubelet-serving.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_kubelet_serving_key_file")]
    cluster_signing_kubelet_serving_cert_file: Option<PathBuf>,
    /// Key of that authority.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_kubelet_serving_cert_file")]
    cluster_signing_kubelet_serving_key_file: Option<PathBuf>,
    /// Authority that signs certificates of kubernetes.io/legacy-unknown.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_legacy_unknown_key_file")]
    cluster_signing_legacy_unknown_cert_file: Option<PathBuf>,
    /// Key of that authority.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_legacy_unknown_cert_file")]
    cluster_signing_legacy_unknown_key_file: Option<PathBuf>,
    /// Maximum and default lifetime of signed certificates: `8760h0m0s`.
    #[arg(long, value_name = "DURATION", default_value = "8760h0m0s")]
    cluster_signing_duration: String,
}

impl ClusterSigningFlags {
    /// Returns the signers that the flags describe.
    pub fn options(&self) -> Result<SigningOptions> {
        let files = |certificate: &Option<PathBuf>,
                     key: &Option<PathBuf>|
         -> Option<AuthorityFiles> { certificate.clone().zip(key.clone()) };
        Ok(SigningOptions {
            all: files(&self.cluster_signing_cert_file, &self.cluster_signing_key_file),
            api_server_client: files(
                &self.cluster_signing_kube_apiserver_client_cert_file,
                &self.cluster_signing_kube_apiserver_client_key_file,
            ),
            kubelet_client: files(
                &self.cluster_signing_kubelet_client_cert_file,
                &self.cluster_signing_kubelet_client_key_file,
            ),
            kubelet_serving: files(
                &self.cluster_signing_kubelet_serving_cert_file,
                &self.cluster_signing_kubelet_serving_key_file,
            ),
            legacy_unknown: files(
                &self.cluster_signing_legacy_unknown_cert_file,
                &self.cluster_signing_legacy_unknown_key_file,
            ),
            duration: duration(
                "--cluster-signing-duration",
                &self.cluster_signing_duration,
                "8760h0m0s",
            )?,
        })
    }
}
