//! [`Kubeconfig`]: the administrator's, and those of other users.

use crate::pki::{Pair, Pki};
use crate::private_files::{self, FileError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::path::Path;

/// A kubeconfig with one cluster and one user.
pub struct Kubeconfig {
    text: String,
}

impl Kubeconfig {
    /// Returns the administrator's kubeconfig for a server at `url`.
    pub fn new(url: &str, pki: &Pki) -> Kubeconfig {
        Kubeconfig::for_user(url, &pki.ca, "keelson-admin", &pki.admin)
    }

    /// Returns the kubeconfig of a user with a client certificate.
    pub(crate) fn for_user(url: &str, ca: &str, user: &str, pair: &Pair) -> Kubeconfig {
        // A name may contain any character. A JSON string is also a YAML string.
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

    /// Returns the kubeconfig as YAML.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Writes the kubeconfig atomically, with mode 0600.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            private_files::create_folder(dir)?;
        }
        private_files::write(path, &self.text)
    }
}
