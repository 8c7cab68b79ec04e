//! The version of the server.

/// The Kubernetes version that the server implements.
pub const KUBERNETES_VERSION: &str = "v1.36.2";
/// The commit of that version, by which `kubectl --match-server-version` compares releases.
const KUBERNETES_COMMIT: &str = "24e2b02af5543d7910c2bb074c7264df5a8f0467";

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

impl VersionInfo {
    /// Returns the version of this build.
    pub fn current() -> VersionInfo {
        VersionInfo::reported(KUBERNETES_VERSION)
    }

    /// Returns the version of this build under another name of the Kubernetes version.
    pub fn reported(git_version: &str) -> VersionInfo {
        VersionInfo {
            git_version: git_version.to_owned(),
            git_commit: KUBERNETES_COMMIT.to_owned(),
            build: format!("keelson-{}", env!("CARGO_PKG_VERSION")),
        }
    }
}
