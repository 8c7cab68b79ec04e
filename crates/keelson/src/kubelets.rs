//! How the server meets kubelets, for logs, streams and proxies ([`KubeletOptions`]), and the servers
//! behind it.

use crate::start_error::StartError;
use crate::supervisor::Loops;
use keelson_egress::Identity;
use keelson_server::{Current, KubeletAccess};
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
    /// Reads the files, and reads them again when `interval` has passed.
    pub(crate) fn start(
        &self,
        interval: Duration,
        loops: &mut Loops,
    ) -> Result<Arc<Current<KubeletAccess>>, StartError> {
        let has_files = self.certificate_authority.is_some() || self.client_certificate.is_some();
        let options = self.clone();
        let read = move || options.access();
        reloading("kubelet-certificates", read, interval, has_files.then_some(loops))
    }

    fn access(&self) -> Result<KubeletAccess, StartError> {
        let authority = self.certificate_authority.as_ref();
        let authority = authority.map(|path| read_file("--kubelet-certificate-authority", path));
        let flags = ("--kubelet-client-certificate", "--kubelet-client-key");
        let identity = self.client_certificate.as_ref().map(|files| identity(flags, files));
        Ok(KubeletAccess { authority: authority.transpose()?, identity: identity.transpose()? })
    }
}

/// Reads the client certificate for servers behind this one, and reads it again when `interval` has
/// passed.
pub(crate) fn start_aggregator(
    files: Option<&(PathBuf, PathBuf)>,
    interval: Duration,
    loops: &mut Loops,
) -> Result<Arc<Current<Option<Identity>>>, StartError> {
    let Some(files) = files.cloned() else { return Ok(Arc::new(Current::new(None))) };
    let flags = ("--proxy-client-cert-file", "--proxy-client-key-file");
    let read = move || identity(flags, &files).map(Some);
    reloading("proxy-client-certificate", read, interval, Some(loops))
}

/// Returns the present value of files. A loop reads them again, if there is any; files that cannot be
/// read later leave the value as it is.
fn reloading<T: Send + Sync + 'static>(
    name: &'static str,
    read: impl Fn() -> Result<T, StartError> + Clone + Send + Sync + 'static,
    interval: Duration,
    loops: Option<&mut Loops>,
) -> Result<Arc<Current<T>>, StartError> {
    let current = Arc::new(Current::new(read()?));
    if let Some(loops) = loops {
        let reloaded = current.clone();
        loops.run(name, move || {
            let (read, reloaded) = (read.clone(), reloaded.clone());
            async move {
                loop {
                    tokio::time::sleep(interval).await;
                    match read() {
                        Ok(value) => reloaded.set(value),
                        Err(error) => tracing::warn!(%error, name, "certificates not reloaded"),
                    }
                }
            }
        });
    }
    Ok(current)
}

fn identity(flags: (&str, &str), files: &(PathBuf, PathBuf)) -> Result<Identity, StartError> {
    Ok(Identity { chain: read_file(flags.0, &files.0)?, key: read_file(flags.1, &files.1)? })
}

fn read_file(flag: &str, path: &PathBuf) -> Result<Arc<[u8]>, StartError> {
    let bytes = std::fs::read(path)
        .map_err(|error| StartError(format!("{flag}: {}: {error}", path.display())))?;
    Ok(bytes.into())
}
