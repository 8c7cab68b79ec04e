//! `cargo xtask peers`: builds the stock programs that tests drive, from the Go modules in
//! `tests/go`, into `target/peers`.

use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime};

/// The folder of the programs.
pub const FOLDER: &str = "target/peers";
const KUBERNETES: &str = "tests/go/peers";
const ETCD: &str = "tests/go/etcd";
const HELM: &str = "tests/go/helm";
/// The oldest and the newest kubectl that are tested, beside that of [`KUBERNETES`].
const KUBECTL_OLDEST: &str = "tests/go/kubectl132";
const KUBECTL_NEWEST: &str = "tests/go/kubectl137";
const METRICS: &str = "tests/go/metrics";

/// A program that is built from a Go module.
struct Peer {
    name: &'static str,
    /// The folder of the module that pins its version.
    module: &'static str,
    package: &'static str,
    /// Arguments that print its version.
    version: &'static [&'static str],
}

const PEERS: &[Peer] = &[
    Peer {
        name: "etcd",
        module: KUBERNETES,
        package: "go.etcd.io/etcd/server/v3",
        version: &["--version"],
    },
    Peer {
        name: "kube-apiserver",
        module: KUBERNETES,
        package: "k8s.io/kubernetes/cmd/kube-apiserver",
        version: &["--version"],
    },
    Peer {
        name: "kubectl",
        module: KUBERNETES,
        package: "k8s.io/kubernetes/cmd/kubectl",
        version: &["version", "--client"],
    },
    Peer {
        name: "kube-controller-manager",
        module: KUBERNETES,
        package: "k8s.io/kubernetes/cmd/kube-controller-manager",
        version: &["--version"],
    },
    Peer {
        name: "kube-scheduler",
        module: KUBERNETES,
        package: "k8s.io/kubernetes/cmd/kube-scheduler",
        version: &["--version"],
    },
    Peer {
        name: "sample-apiserver",
        module: KUBERNETES,
        package: "k8s.io/sample-apiserver",
        version: &["--help"],
    },
    Peer {
        name: "helm4",
        module: HELM,
        package: "helm.sh/helm/v4/cmd/helm",
        version: &["version", "--short"],
    },
];

/// Programs that are built only if they are named: tools for comparisons by hand, and, because
/// their builds take minutes, Helm 3, other kubectls and metrics-server, which tests drive if they
/// are there.
const NAMED: &[Peer] = &[
    Peer {
        name: "kubectl-1.32",
        module: KUBECTL_OLDEST,
        package: ".",
        version: &["version", "--client"],
    },
    Peer {
        name: "kubectl-1.37",
        module: KUBECTL_NEWEST,
        package: ".",
        version: &["version", "--client"],
    },
    Peer {
        name: "metrics-server",
        module: METRICS,
        package: "sigs.k8s.io/metrics-server/cmd/metrics-server",
        version: &["--help"],
    },
    Peer {
        name: "helm3",
        module: HELM,
        package: "helm.sh/helm/v3/cmd/helm",
        version: &["version", "--short"],
    },
    Peer {
        name: "etcdctl",
        module: ETCD,
        package: "go.etcd.io/etcd/etcdctl/v3",
        version: &["version"],
    },
    Peer {
        name: "etcdutl",
        module: ETCD,
        package: "go.etcd.io/etcd/etcdutl/v3",
        version: &["version"],
    },
];

/// Builds all programs that tests drive, or those that are named, unless they are newer than their
/// modules' versions.
pub fn run(names: &[String]) -> Result<()> {
    let all = || PEERS.iter().chain(NAMED);
    if let Some(unknown) = names.iter().find(|name| all().all(|peer| peer.name != **name)) {
        let known: Vec<_> = all().map(|peer| peer.name).collect();
        bail!("there is no peer {unknown:?}; there are {}", known.join(", "));
    }
    std::fs::create_dir_all(FOLDER).context(FOLDER)?;
    let wanted: Vec<&Peer> = match names.is_empty() {
        true => PEERS.iter().collect(),
        false => all().filter(|peer| names.iter().any(|name| name == peer.name)).collect(),
    };
    for (number, peer) in wanted.iter().enumerate() {
        let started = Instant::now();
        let is_built = is_current(peer);
        if !is_built {
            say(&format!("{}/{} {}: building", number + 1, wanted.len(), peer.name))?;
            build(peer).with_context(|| format!("build {}", peer.name))?;
        }
        let how = if is_built {
            "built before".to_owned()
        } else {
            format!("built in {} s", started.elapsed().as_secs())
        };
        say(&format!(
            "{}/{} {}: {how}, {}",
            number + 1,
            wanted.len(),
            peer.name,
            version_of(peer)?
        ))?;
    }
    Ok(())
}

fn path_of(peer: &Peer) -> PathBuf {
    Path::new(FOLDER).join(peer.name)
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

/// Returns whether the program is newer than the files that pin its version.
fn is_current(peer: &Peer) -> bool {
    let Some(built) = modified(&path_of(peer)) else { return false };
    let pins = ["go.mod", "go.sum"].map(|name| Path::new(peer.module).join(name));
    pins.iter().all(|pin| modified(pin).is_some_and(|changed| changed <= built))
}

/// Builds a program under another name and renames it: a build that is interrupted leaves none.
fn build(peer: &Peer) -> Result<()> {
    let target = std::env::current_dir()?.join(path_of(peer));
    let unfinished = target.with_extension("unfinished");
    let status = Command::new("go")
        .args(["build", "-mod=readonly", "-trimpath", "-ldflags", &linker_flags(peer)?, "-o"])
        .arg(&unfinished)
        .arg(peer.package)
        .current_dir(peer.module)
        .env("CGO_ENABLED", "0")
        .stdin(Stdio::null())
        .status()
        .context("run go")?;
    if !status.success() {
        bail!("go build ended with {status}");
    }
    std::fs::rename(&unfinished, &target).context("rename the program")
}

/// Programs of Kubernetes learn their version from the linker: that of their module.
fn linker_flags(peer: &Peer) -> Result<String> {
    let pins = Path::new(peer.module).join("go.mod");
    let text = std::fs::read_to_string(&pins).with_context(|| pins.display().to_string())?;
    let mut flags = "-s -w".to_owned();
    if let Some((major, minor, patch)) = kubernetes_version(&text)? {
        for (name, value) in [
            ("gitVersion", format!("v{major}.{minor}.{patch}")),
            ("gitMajor", major.to_string()),
            ("gitMinor", minor.to_string()),
            ("gitTreeState", "clean".to_owned()),
        ] {
            flags += &format!(" -X k8s.io/component-base/version.{name}={value}");
        }
    }
    Ok(flags)
}

/// Returns the version of Kubernetes whose program a go.mod pins, if it pins one. The module
/// `k8s.io/kubectl` v0.32.3 is a part of Kubernetes v1.32.3; for Helm it is only a library.
fn kubernetes_version(pins: &str) -> Result<Option<(u32, u32, u32)>> {
    for module in ["k8s.io/kubernetes ", "k8s.io/kubectl "] {
        let is_library = |line: &&str| line.contains("/kubectl ") && line.contains("// indirect");
        let lines = pins.lines().filter(|line| !is_library(line));
        let mut versions = lines.filter_map(|line| line.trim().strip_prefix(module));
        let Some(version) = versions.next().and_then(|rest| rest.split_whitespace().next()) else {
            continue;
        };
        let numbers = version.trim_start_matches('v').split('.').map(str::parse::<u32>);
        let numbers: Vec<u32> =
            numbers.collect::<Result<_, _>>().with_context(|| format!("version {version}"))?;
        let [_, minor, patch] = numbers[..] else { bail!("{version} is not a version") };
        return Ok(Some((1, minor, patch)));
    }
    Ok(None)
}

/// Returns the first line that the program prints about its version.
fn version_of(peer: &Peer) -> Result<String> {
    let output = Command::new(path_of(peer)).args(peer.version).output().context(peer.name)?;
    let printed = String::from_utf8_lossy(&output.stdout);
    match printed.lines().next() {
        Some(line) if output.status.success() => Ok(line.to_owned()),
        _ => bail!("{} does not print its version", peer.name),
    }
}

fn say(text: &str) -> Result<()> {
    writeln!(std::io::stdout(), "peers: {text}").context("write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_of_kubernetes_pins_its_version() {
        for (pins, expected) in [
            ("require (\n\tk8s.io/kubernetes v1.36.3 // indirect\n)", Some((1, 36, 3))),
            ("k8s.io/kubectl v0.36.3\nk8s.io/kubernetes v1.36.4", Some((1, 36, 4))),
            ("\tk8s.io/kubectl v0.32.3", Some((1, 32, 3))),
            ("helm.sh/helm/v4 v4.0.0\nk8s.io/kubectl v0.37.2 // indirect", None),
        ] {
            assert_eq!(kubernetes_version(pins).expect("a version"), expected, "{pins}");
        }
        assert!(kubernetes_version("k8s.io/kubectl v0.x.3").is_err());
    }
}
