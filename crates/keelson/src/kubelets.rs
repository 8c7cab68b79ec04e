//! How the server meets kubelets, for logs, streams and proxies ([`KubeletOptions`]), and the
//! servers behind it.

use crate::files::{changed, fingerprint};
use crate::start_error::StartError;
use crate::supervisor::Loops;
use arc_swap::ArcSwap;
use keelson_egress::Identity;
use keelson_server::KubeletAccess;
use std::path::{Path, PathBuf};
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
    /// Reads the files, and reads them again when they change.
    pub(crate) fn start(
        &self,
        interval: Duration,
        loops: &mut Loops,
    ) -> Result<Arc<ArcSwap<KubeletAccess>>, StartError> {
        let (chain, key) = self.client_certificate.clone().unzip();
        let files = self.certificate_authority.iter().cloned().chain(chain).chain(key);
        let options = self.clone();
        let read = move || options.access();
        reloading("kubelet-certificates", files.collect(), read, interval, loops)
    }

    fn access(&self) -> Result<KubeletAccess, StartError> {
        let authority = self
            .certificate_authority
            .as_ref()
            .map(|path| read_file("--kubelet-certificate-authority", path));
        let flags = ("--kubelet-client-certificate", "--kubelet-client-key");
        let identity = self.client_certificate.as_ref().map(|files| identity(flags, files));
        Ok(KubeletAccess { authority: authority.transpose()?, identity: identity.transpose()? })
    }
}

/// Reads the client certificate for servers behind this one, and reads it again when it changes.
pub(crate) fn start_aggregator(
    files: Option<&(PathBuf, PathBuf)>,
    interval: Duration,
    loops: &mut Loops,
) -> Result<Arc<ArcSwap<Option<Identity>>>, StartError> {
    let files = files.cloned();
    let paths = files.iter().flat_map(|(chain, key)| [chain.clone(), key.clone()]).collect();
    let flags = ("--proxy-client-cert-file", "--proxy-client-key-file");
    let read = move || files.as_ref().map(|files| identity(flags, files)).transpose();
    reloading("proxy-client-certificate", paths, read, interval, loops)
}

/// Returns what `read` makes of files. A loop reads them again when they change, if there is any;
/// files that cannot be read then leave the value as it is.
fn reloading<T: Send + Sync + 'static>(
    name: &'static str,
    files: Vec<PathBuf>,
    read: impl Fn() -> Result<T, StartError> + Clone + Send + Sync + 'static,
    interval: Duration,
    loops: &mut Loops,
) -> Result<Arc<ArcSwap<T>>, StartError> {
    let last = fingerprint(&files);
    let current = Arc::new(ArcSwap::from_pointee(read()?));
    if files.is_empty() {
        return Ok(current);
    }
    let reloaded = current.clone();
    loops.run(name, move || {
        let files = files.clone();
        let read = read.clone();
        let reloaded = reloaded.clone();
        let mut last = last.clone();
        async move {
            loop {
                changed(&mut last, interval, || fingerprint(&files)).await;
                match read() {
                    Ok(value) => reloaded.store(Arc::new(value)),
                    Err(error) => {
                        tracing::warn!(%error, name, "certificates not reloaded; keeping those before");
                    }
                }
            }
        }
    });
    Ok(current)
}

fn identity(flags: (&str, &str), files: &(PathBuf, PathBuf)) -> Result<Identity, StartError> {
    Ok(Identity { chain: read_file(flags.0, &files.0)?, key: read_file(flags.1, &files.1)? })
}

fn read_file(flag: &str, path: &Path) -> Result<Arc<[u8]>, StartError> {
    let bytes = std::fs::read(path)
        .map_err(|error| StartError(format!("{flag}: {}: {error}", path.display())))?;
    Ok(bytes.into())
}
