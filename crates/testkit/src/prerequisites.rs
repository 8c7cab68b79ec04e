//! Prerequisites of tests outside the workspace. A test whose prerequisite is missing records that
//! it did not run, and `cargo xtask ci` lists it at the end. It fails instead if `KEELSON_REQUIRE`
//! names the prerequisite.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Environment variable: names of prerequisites, separated by commas, that must not be missing;
/// `all` means each of them.
const REQUIRED: &str = "KEELSON_REQUIRE";
/// Environment variable: the file to which tests that did not run are added, one per line.
const NOT_RUN: &str = "KEELSON_NOT_RUN";
/// Environment variable: a folder with programs of Kubernetes 1.36.
const PROGRAMS: &str = "KEELSON_REFERENCE_BIN";
/// Environment variable: a folder with recordings of kube-apiserver.
const SHARED: &str = "KEELSON_SHARED";
/// The folder into which `cargo xtask ci` unpacks promtool.
const PROMTOOL_FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/promtool/usr/bin");
/// The folder of the programs that `cargo xtask peers` builds.
const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers");

/// Something outside the workspace that tests need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prerequisite {
    /// The name in `KEELSON_REQUIRE`.
    pub name: &'static str,
    /// Where to get it.
    pub needs: &'static str,
}

/// Recordings of a kube-apiserver 1.36, and descriptions of its API.
pub const REFERENCE_DATA: Prerequisite = Prerequisite {
    name: "reference-data",
    needs: "recordings of a kube-apiserver 1.36 in the folder KEELSON_SHARED",
};
/// An etcd server.
pub const ETCD: Prerequisite =
    Prerequisite { name: "etcd", needs: "Go 1.26, or etcd 3.5 or newer on the PATH" };
/// The command line client.
pub const KUBECTL: Prerequisite =
    Prerequisite { name: "kubectl", needs: "Go 1.26, or kubectl on the PATH" };
/// The oldest kubectl that is tested.
pub const KUBECTL_OLDEST: Prerequisite =
    Prerequisite { name: "kubectl-1.32", needs: "kubectl 1.32: `cargo xtask peers kubectl-1.32`" };
/// The newest kubectl that is tested.
pub const KUBECTL_NEWEST: Prerequisite =
    Prerequisite { name: "kubectl-1.37", needs: "kubectl 1.37: `cargo xtask peers kubectl-1.37`" };
/// The official client for Python.
pub const PYTHON_CLIENT: Prerequisite = Prerequisite {
    name: "python-client",
    needs: "Python 3 with the packages kubernetes and PyYAML",
};
/// The official client for JavaScript.
pub const JAVASCRIPT_CLIENT: Prerequisite =
    Prerequisite { name: "javascript-client", needs: "Node 20, and `npm ci` in tests/js" };
/// kube-controller-manager and kube-scheduler.
pub const CONTROLLERS: Prerequisite = Prerequisite {
    name: "kube-controller-manager",
    needs: "kube-controller-manager and kube-scheduler: Go 1.26 or KEELSON_REFERENCE_BIN",
};
/// The server that Keelson is compared with.
pub const API_SERVER: Prerequisite =
    Prerequisite { name: "kube-apiserver", needs: "Go 1.26 or KEELSON_REFERENCE_BIN" };
/// A server behind another one.
pub const SAMPLE_APISERVER: Prerequisite = Prerequisite {
    name: "sample-apiserver",
    needs: "sample-apiserver: Go 1.26 or KEELSON_REFERENCE_BIN",
};
/// What measures nodes and pods for `kubectl top`; its build takes minutes.
pub const METRICS_SERVER: Prerequisite = Prerequisite {
    name: "metrics-server",
    needs: "metrics-server: `cargo xtask peers metrics-server` or KEELSON_REFERENCE_BIN",
};
/// Helm 4.
pub const HELM: Prerequisite =
    Prerequisite { name: "helm4", needs: "Helm 4: Go 1.26 or KEELSON_REFERENCE_BIN" };
/// Helm 3, whose build takes minutes: it is made when it is named.
pub const HELM_3: Prerequisite = Prerequisite {
    name: "helm3",
    needs: "Helm 3: `cargo xtask peers helm3` or KEELSON_REFERENCE_BIN",
};
/// What fills a small disk.
pub const MOUNT: Prerequisite =
    Prerequisite { name: "mount", needs: "root, to mount a file system of its own" };
/// What `all` does not require: it takes long to build, or a machine may not have Debian's
/// packages, or rights.
const NOT_IN_ALL: [&str; 6] =
    ["helm3", "kubectl-1.32", "kubectl-1.37", "metrics-server", "promtool", "mount"];

/// What installs wheels and runs their tests.
pub const PIP: Prerequisite =
    Prerequisite { name: "pip", needs: "Python 3.9 with pip, venv and pytest" };
/// What installs packages of npm and runs their tests.
pub const NPM: Prerequisite = Prerequisite { name: "npm", needs: "Node 20 with npm" };
/// What checks rules of Prometheus.
pub const PROMTOOL: Prerequisite =
    Prerequisite { name: "promtool", needs: "promtool, of Debian's package prometheus" };
/// What makes and installs Debian packages.
pub const DPKG: Prerequisite = Prerequisite { name: "dpkg", needs: "dpkg and dpkg-deb" };

/// Returns `found`. If it is `None`, the running test is recorded as not run.
///
/// # Panics
///
/// If it is `None` and `KEELSON_REQUIRE` names the prerequisite.
pub fn prerequisite<T>(prerequisite: Prerequisite, found: Option<T>) -> Option<T> {
    if found.is_none() {
        let Prerequisite { name, needs } = prerequisite;
        let required = std::env::var(REQUIRED).unwrap_or_default();
        assert!(
            !is_required(name, &required),
            "{name} is missing, and {REQUIRED}={required} names it: it needs {needs}"
        );
        record_not_run(needs);
    }
    found
}

fn is_required(name: &str, required: &str) -> bool {
    let is_in_all = !NOT_IN_ALL.contains(&name);
    let mut words = required.split(',').map(str::trim);
    words.any(|word| word == name || word == "all" && is_in_all)
}

/// Adds the running test to the file that `KEELSON_NOT_RUN` names, and prints it.
fn record_not_run(needs: &str) {
    let line = format!("{} (needs {needs})\n", running_test());
    // The output of a test runner that shows it.
    let _ = write!(std::io::stderr(), "not run: {line}");
    let Some(path) = std::env::var_os(NOT_RUN) else { return };
    // Tests run in many processes. A short line is appended as a whole.
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    let added = file.and_then(|mut file| file.write_all(line.as_bytes()));
    added.expect("the file that KEELSON_NOT_RUN names can be written");
}

/// Returns the name of the running test: libtest names its thread so, nextest its process.
fn running_test() -> String {
    let thread = std::thread::current();
    let of_process = std::env::var("NEXTEST_TEST_NAME").ok();
    of_process.or_else(|| thread.name().map(str::to_owned)).unwrap_or_else(|| "a test".to_owned())
}

/// Returns a path in the folder with recordings of kube-apiserver: `KEELSON_SHARED`, relative to
/// the workspace, or else `../shared`.
pub fn reference_data(path: &str) -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = std::env::var(SHARED).unwrap_or_else(|_| "../shared".to_owned());
    let found = workspace.join(shared).join(path);
    prerequisite(REFERENCE_DATA, found.exists().then_some(found))
}

/// Returns a started etcd; `None` means that etcd is not installed.
pub fn etcd<T>(started: Option<T>) -> Option<T> {
    prerequisite(ETCD, started)
}

/// Returns the path of a program that only comes with `cargo xtask peers` or
/// `KEELSON_REFERENCE_BIN`.
pub fn kubernetes_program(of: Prerequisite, name: &str) -> Option<PathBuf> {
    prerequisite(of, peer(name))
}

/// Returns the path of a program that was built elsewhere (`KEELSON_REFERENCE_BIN`) or by
/// `cargo xtask peers`.
pub fn peer(name: &str) -> Option<PathBuf> {
    let elsewhere = std::env::var_os(PROGRAMS).map(PathBuf::from);
    let folders = elsewhere.into_iter().chain([PathBuf::from(PEERS)]);
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Returns the path of promtool: that of `cargo xtask ci` in target/promtool, or one on the PATH.
pub fn promtool() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = PathBuf::from(PROMTOOL_FOLDER);
    let folders = [own].into_iter().chain(std::env::split_paths(&path));
    let found = folders.map(|folder| folder.join("promtool")).find(|path| path.is_file());
    prerequisite(PROMTOOL, found)
}

/// Returns the path of a peer, or else its name, which stands for the program on the PATH.
pub fn peer_or_installed(name: &str) -> PathBuf {
    peer(name).unwrap_or_else(|| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prerequisite_is_required_by_name_or_by_all() {
        for (required, expected) in [
            ("", false),
            ("etcd", true),
            ("kubectl, etcd", true),
            ("all", true),
            ("etcdctl", false),
        ] {
            assert_eq!(is_required("etcd", required), expected, "{required:?}");
        }
        assert!(!is_required("helm3", "all") && is_required("helm3", "all,helm3"));
    }

    #[test]
    fn what_is_found_runs() {
        assert_eq!(prerequisite(ETCD, Some(1)), Some(1));
    }
}
