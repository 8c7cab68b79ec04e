//! Kubeconfigs: the administrator's, and those of others.

use crate::certificates::{Pair, Pki};
use crate::private_files::{self, FileError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::path::Path;

/// Server, authority and credentials of a kubeconfig.
pub struct Kubeconfig {
    text: String,
}

impl Kubeconfig {
    /// The administrator's kubeconfig for a server at `url` with these certificates.
    pub fn new(url: &str, pki: &Pki) -> Kubeconfig {
        Kubeconfig::of_user(url, &pki.ca, "keelson-admin", &pki.admin)
    }

    /// The kubeconfig of a user with a certificate of its own.
    pub(crate) fn of_user(url: &str, ca: &str, user: &str, pair: &Pair) -> Kubeconfig {
        // In quotes of JSON, which YAML reads: a name may have any character.
        let user = keelson_meta::status::quote(user);
        let encode = |text: &str| STANDARD.encode(text);
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: keelson\n  cluster:\n    \
             server: {url}\n    certificate-authority-data: {}\ncontexts:\n- name: keelson\n  \
             context:\n    cluster: keelson\n    user: {user}\ncurrent-context: keelson\n\
             users:\n- name: {user}\n  user:\n    client-certificate-data: {}\n    \
             client-key-data: {}\n",
            encode(ca),
            encode(&pair.certificate),
            encode(&pair.key),
        );
        Kubeconfig { text }
    }

    /// YAML.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Writes it, readable by the owner only, whole or not at all.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            private_files::create(dir)?;
        }
        private_files::write(path, &self.text)
    }
}
