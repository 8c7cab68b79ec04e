//! Signers of CertificateSigningRequests (`--cluster-signing-*`).

use super::certificates::Pki;
use crate::private_files;
use crate::start_error::StartError;
use keelson_auth::CertificateAuthority;
use keelson_controllers::Signing;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Default lifetime of signed certificates.
const DURATION_DEFAULT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The certificate file and the key file of an authority.
pub type AuthorityFiles = (PathBuf, PathBuf);

/// The authorities of the signers, and the lifetime of certificates. Without any files the server's
/// own authority serves all signers except `kubernetes.io/legacy-unknown`.
#[derive(Clone, Debug)]
pub struct SigningOptions {
    /// `--cluster-signing-cert-file`: for all signers.
    pub all: Option<AuthorityFiles>,
    /// `--cluster-signing-kube-apiserver-client-cert-file`.
    pub api_server_client: Option<AuthorityFiles>,
    /// `--cluster-signing-kubelet-client-cert-file`.
    pub kubelet_client: Option<AuthorityFiles>,
    /// `--cluster-signing-kubelet-serving-cert-file`.
    pub kubelet_serving: Option<AuthorityFiles>,
    /// `--cluster-signing-legacy-unknown-cert-file`.
    pub legacy_unknown: Option<AuthorityFiles>,
    /// `--cluster-signing-duration`: the maximum lifetime, and the default of requests without one.
    pub duration: Duration,
}

impl Default for SigningOptions {
    fn default() -> Self {
        SigningOptions {
            all: None,
            api_server_client: None,
            kubelet_client: None,
            kubelet_serving: None,
            legacy_unknown: None,
            duration: DURATION_DEFAULT,
        }
    }
}

impl SigningOptions {
    /// Reads the authorities.
    pub(crate) fn signing(&self, pki: &Pki) -> Result<Signing, StartError> {
        let specific = [
            ("kube-apiserver-client", &self.api_server_client),
            ("kubelet-client", &self.kubelet_client),
            ("kubelet-serving", &self.kubelet_serving),
            ("legacy-unknown", &self.legacy_unknown),
        ];
        let has_specific = specific.iter().any(|(_, files)| files.is_some());
        if has_specific && self.all.is_some() {
            let why = "--cluster-signing-cert-file: no more specific --cluster-signing-* flag may be given";
            return Err(StartError::new(why.to_owned()));
        }
        let all = match &self.all {
            Some(files) => Some(read("--cluster-signing-cert-file", files)?),
            None if has_specific => None,
            None => Some(Arc::new(pki.authority().map_err(StartError::new)?)),
        };
        let mut signers = vec![];
        for (name, files) in specific {
            let flag = format!("--cluster-signing-{name}-cert-file");
            let authority = files.as_ref().map(|files| read(&flag, files)).transpose()?;
            signers.push(authority.or_else(|| all.clone()));
        }
        if self.all.is_none() && self.legacy_unknown.is_none() {
            // This signer does not restrict certificates at all; an operator must enable it.
            signers[3] = None;
        }
        let mut signers = signers.into_iter();
        let mut next = || signers.next().flatten();
        Ok(Signing {
            api_server_client: next(),
            kubelet_client: next(),
            kubelet_serving: next(),
            legacy_unknown: next(),
            duration: self.duration,
        })
    }
}

fn read(flag: &str, files: &AuthorityFiles) -> Result<Arc<CertificateAuthority>, StartError> {
    let text = |path: &Path| {
        let text =
            private_files::read(path).map_err(|error| format!("{error}: {}", error.source))?;
        text.ok_or_else(|| format!("{} is not there", path.display()))
    };
    let authority = text(&files.0)
        .and_then(|certificate| CertificateAuthority::read(&certificate, &text(&files.1)?))
        .map_err(|error| StartError::new(format!("{flag}: {error}")))?;
    Ok(Arc::new(authority))
}
