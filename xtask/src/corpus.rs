//! `cargo xtask corpus`: manifests of public projects, sent to a kube-apiserver and to Keelson. The
//! packages come from registries, at the versions that the list pins; nothing of them is kept here.

use crate::commands;
use crate::peers;
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const LIST: &str = "crates/testkit/compare/corpus.txt";
const SCRIPT: &str = "crates/testkit/compare/corpus.py";
/// The folder of npm's and Python's packages, and of what the servers write.
const FOLDER: &str = "target/corpus";
const TOKEN: &str = "admintoken";
/// How often kube-apiserver is asked whether it is ready, once a second.
const START_TRIES_MAX: &str = "60";

/// A package of the list.
#[derive(Debug, PartialEq, Eq)]
struct Package<'a> {
    registry: Registry,
    name: &'a str,
    version: &'a str,
    /// Which files of it are read; all when there are none.
    globs: Vec<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Registry {
    Go,
    Npm,
    Python,
}

/// Downloads the packages, starts both servers, and compares them. Arguments are those of the
/// script.
pub fn run(args: &[String]) -> Result<()> {
    let list = std::fs::read_to_string(LIST).context(LIST)?;
    let only = args.iter().position(|arg| arg == "--only").and_then(|at| args.get(at + 1));
    let packages = parse(&list)?;
    let wanted =
        packages.iter().filter(|package| only.is_none_or(|only| package.name.contains(only)));
    std::fs::create_dir_all(FOLDER).context(FOLDER)?;
    let mut sources = String::new();
    for package in wanted {
        let folder = download(package).with_context(|| package.name.to_owned())?;
        let globs = if package.globs.is_empty() { vec!["**/*"] } else { package.globs.clone() };
        let name = format!("{} {}", package.name, package.version);
        let source = serde_json::json!({"name": name, "folder": folder, "globs": globs});
        writeln!(sources, "{source}").context("a line")?;
    }
    let sources_file = Path::new(FOLDER).join("sources.jsonl");
    std::fs::write(&sources_file, sources).context("sources.jsonl")?;
    peers::run(&["etcd", "kube-apiserver", "kubectl"].map(str::to_owned))?;
    commands::build_tests()?;
    let servers = Servers::start()?;
    let mut script = Command::new(python());
    script.arg(SCRIPT).arg(&servers.reference).arg(&servers.keelson).arg(TOKEN);
    script.arg(&sources_file).arg("--kubectl").arg(Path::new(peers::FOLDER).join("kubectl"));
    commands::run(script.args(args).env("PYTHONDONTWRITEBYTECODE", "1"))
}

/// The Python that `cargo xtask ci` prepares, which has PyYAML, or that of the system.
fn python() -> &'static str {
    if Path::new(crate::ci::PYTHON).exists() { crate::ci::PYTHON } else { "python3" }
}

/// Reads the list: a registry, a name, a version and globs, separated by spaces.
fn parse(list: &str) -> Result<Vec<Package<'_>>> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parse_line = |line| {
        let mut words = str::split_whitespace(line);
        let registry = words.next();
        let name = words.next();
        let version = words.next();
        let registry = match registry {
            Some("go") => Registry::Go,
            Some("npm") => Registry::Npm,
            Some("pip") => Registry::Python,
            _ => bail!("{LIST}: {line:?} names no registry"),
        };
        let (Some(name), Some(version)) = (name, version) else {
            bail!("{LIST}: {line:?} needs a name and a version");
        };
        Ok(Package { registry, name, version, globs: words.collect() })
    };
    lines.map(parse_line).collect()
}

/// Downloads a package unless it is there. Returns the folder of its files.
fn download(package: &Package<'_>) -> Result<PathBuf> {
    let Package { registry, name, version, .. } = package;
    if *registry == Registry::Go {
        let mut command = Command::new("go");
        command.args(["mod", "download", "-json", &format!("{name}@{version}")]);
        // Outside of any module, so that none is changed.
        command.current_dir(FOLDER).env("GOFLAGS", "-mod=mod").env("GO111MODULE", "on");
        let printed = commands::output(&mut command)?;
        let printed: serde_json::Value = serde_json::from_str(&printed).context("go's output")?;
        let folder = printed["Dir"].as_str().context("the folder of a module")?;
        return Ok(folder.into());
    }
    let folder = Path::new(FOLDER).join(format!("{}@{version}", name.replace('/', "_")));
    if folder.exists() {
        return Ok(folder);
    }
    let unfinished = tempfile::tempdir_in(FOLDER).context("a folder")?;
    let mut command = match registry {
        Registry::Npm => {
            let mut npm = Command::new("npm");
            npm.args(["pack", "--silent", &format!("{name}@{version}"), "--pack-destination"]);
            npm
        }
        _ => {
            let mut pip = Command::new("python3");
            // A wheel runs nothing when it is downloaded.
            let wanted = format!("{name}=={version}");
            pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]);
            pip.args([&wanted, "-d"]);
            pip
        }
    };
    commands::run(command.arg(unfinished.path()).stdout(Stdio::null()))?;
    let mut files = std::fs::read_dir(unfinished.path()).context("the archive")?;
    let archive = files.next().context("an archive")?.context("the archive")?.path();
    let mut unpack = Command::new("python3");
    unpack.args(["-m", if *registry == Registry::Npm { "tarfile" } else { "zipfile" }, "-e"]);
    commands::run(unpack.arg(&archive).arg(unfinished.path()))?;
    std::fs::remove_file(archive).context("the archive")?;
    std::fs::rename(unfinished.keep(), &folder).context("rename the folder")?;
    Ok(folder)
}

/// A kube-apiserver with its etcd, and a Keelson. Dropping it ends them.
struct Servers {
    reference: String,
    keelson: String,
    _programs: Vec<Running>,
    _dir: tempfile::TempDir,
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Servers {
    fn start() -> Result<Servers> {
        let dir = tempfile::tempdir_in(FOLDER).context("a folder")?;
        let tokens = dir.path().join("tokens.csv");
        std::fs::write(&tokens, format!("{TOKEN},admin,admin,system:masters\n"))?;
        let (keelson, keelson_url) = start_keelson(dir.path(), &tokens)?;
        let (etcd, etcd_url) = start_etcd(dir.path())?;
        let (reference, reference_url) = start_reference(dir.path(), &tokens, &etcd_url)?;
        Ok(Servers {
            reference: reference_url,
            keelson: keelson_url,
            _programs: vec![reference, etcd, keelson],
            _dir: dir,
        })
    }
}

fn start_keelson(dir: &Path, tokens: &Path) -> Result<(Running, String)> {
    let data = dir.join("keelson");
    let mut command = Command::new(commands::SERVER);
    command.args(["serve", "--secure-port=0", "--bind-address=127.0.0.1", "--controllers=-*"]);
    command.args(["--durability=memory", "--service-cluster-ip-range=10.0.0.0/24", "--data-dir"]);
    command.arg(data).arg("--token-auth-file").arg(tokens);
    let mut child = spawn(command.stdout(Stdio::piped()), &dir.join("keelson.log"))?;
    let output = child.0.stdout.take().context("the output of the server")?;
    let mut banner = BufReader::new(output).lines().map_while(Result::ok);
    let line = banner.find(|line| line.contains("https://")).context("Keelson did not start")?;
    let (_, url) = line.split_once("https://").context("a URL")?;
    let end = url.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':').unwrap_or(url.len());
    Ok((child, format!("https://{}", &url[..end])))
}

fn start_etcd(dir: &Path) -> Result<(Running, String)> {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let client = url(free_port()?);
    let peer = url(free_port()?);
    let mut command = Command::new(Path::new(peers::FOLDER).join("etcd"));
    command.arg("--data-dir").arg(dir.join("etcd"));
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--unsafe-no-fsync"]);
    Ok((spawn(command.stdout(Stdio::null()), &dir.join("etcd.log"))?, client))
}

fn start_reference(dir: &Path, tokens: &Path, etcd: &str) -> Result<(Running, String)> {
    let port = free_port()?;
    // A pair that Keelson has generated: nothing that is compared is signed with it.
    let pair = dir.join("keelson/pki/admin");
    let mut command = Command::new(Path::new(peers::FOLDER).join("kube-apiserver"));
    command.args(["--etcd-servers", etcd, "--secure-port", &port.to_string()]);
    command.args(["--bind-address=127.0.0.1", "--advertise-address=10.1.1.1", "--cert-dir"]);
    command.arg(dir.join("certs")).arg("--token-auth-file").arg(tokens);
    command.args(["--service-cluster-ip-range=10.0.0.0/24", "--authorization-mode=Node,RBAC"]);
    command.args(["--enable-admission-plugins=NodeRestriction", "--allow-privileged=true"]);
    command.arg("--service-account-issuer=https://kubernetes.default.svc");
    command.arg("--service-account-key-file").arg(pair.with_extension("crt"));
    command.arg("--service-account-signing-key-file").arg(pair.with_extension("key"));
    let mut child = spawn(command.stdout(Stdio::null()), &dir.join("kube-apiserver.log"))?;
    let url = format!("https://127.0.0.1:{port}");
    let mut curl = Command::new("curl");
    curl.args(["-skf", "-H", &format!("Authorization: Bearer {TOKEN}"), "-o", "/dev/null"]);
    curl.args(["--retry", START_TRIES_MAX, "--retry-delay", "1", "--retry-all-errors"]);
    let is_ready = curl.arg(format!("{url}/readyz")).status().context("run curl")?;
    if !is_ready.success() || child.0.try_wait()?.is_some() {
        let log = std::fs::read_to_string(dir.join("kube-apiserver.log")).unwrap_or_default();
        bail!("kube-apiserver did not start: {log}");
    }
    Ok((child, url))
}

fn spawn(command: &mut Command, log: &Path) -> Result<Running> {
    let log = std::fs::File::create(log).context("a log")?;
    let child = command.stdin(Stdio::null()).stderr(log).spawn();
    child.map(Running).with_context(|| format!("run {command:?}"))
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0").context("a port")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_pins_sixty_projects_once() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(LIST);
        let list = std::fs::read_to_string(path).expect("the list");
        let packages = parse(&list).expect("packages");
        let mut names: Vec<_> = packages.iter().map(|package| package.name).collect();
        names.sort_unstable();
        names.dedup();
        assert!(names.len() >= 60 && names.len() == packages.len(), "{} packages", names.len());
        let latest = packages.iter().find(|package| !package.version.contains('.'));
        assert_eq!(latest, None, "a package without a pinned version");
    }

    #[test]
    fn a_line_names_a_package_and_its_files() {
        let list = "# a comment\n\nnpm @a/b 1.2.3 x/*.yaml y/**/*\n";
        let globs = vec!["x/*.yaml", "y/**/*"];
        let package = Package { registry: Registry::Npm, name: "@a/b", version: "1.2.3", globs };
        assert_eq!(parse(list).expect("a list"), [package]);
        for bad in ["cargo a 1.0", "go", "go example.com/a"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
