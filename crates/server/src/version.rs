//! The version of the server.

/// The document at `/version`.
#[derive(Clone, Debug)]
pub struct VersionInfo {
    /// The Kubernetes version: `v1.36.2`.
    pub git_version: String,
    /// The commit of that version, 40 hexadecimal digits.
    pub git_commit: String,
    /// The version of this build.
    pub build: String,
}
