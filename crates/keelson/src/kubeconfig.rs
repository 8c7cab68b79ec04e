//! The administrator's kubeconfig.

use crate::certificates::Pki;
use crate::private_files::{self, FileError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::path::Path;

/// What a client needs to reach this server as its administrator.
pub struct Kubeconfig {
    text: String,
}

impl Kubeconfig {
    /// For a server at `url` with these certificates.
    pub fn new(url: &str, pki: &Pki) -> Kubeconfig {
        let encode = |text: &str| STANDARD.encode(text);
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: keelson\n  cluster:\n    \
             server: {url}\n    certificate-authority-data: {}\ncontexts:\n- name: keelson\n  \
             context:\n    cluster: keelson\n    user: keelson-admin\ncurrent-context: keelson\n\
             users:\n- name: keelson-admin\n  user:\n    client-certificate-data: {}\n    \
             client-key-data: {}\n",
            encode(&pki.ca),
            encode(&pki.admin.certificate),
            encode(&pki.admin.key),
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
