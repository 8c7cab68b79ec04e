//! The version of this program.

use std::sync::LazyLock;

/// The version of the package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit that it was built from; `unknown` in builds that are not optimised.
pub const COMMIT: &str = env!("KEELSON_COMMIT");

/// What `--version` prints after the name.
pub static LINE: LazyLock<String> = LazyLock::new(|| {
    format!("{VERSION} (commit {COMMIT}, Kubernetes {})", keelson::KUBERNETES_VERSION)
});
