//! Each package is made, installed into a clean folder, and used from there for what it is for.

use keelson_testkit::prerequisites::{DPKG, NPM, PIP, Prerequisite, prerequisite};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const XTASK: &str = env!("CARGO_BIN_EXE_xtask");
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How long the hundred tests with a server each may take with a program that is not optimised, on
/// a machine that does much else; alone they take some 12 s.
const HUNDRED_TESTS_TIME_MAX: Duration = Duration::from_secs(150);

/// A clean folder, and the packages that are made in it.
struct Workshop {
    dir: TempDir,
}

impl Workshop {
    fn new() -> Workshop {
        Workshop { dir: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes a package of the program that the tests were built with. Returns the files of one
    /// ending.
    fn package(&self, kind: &str, ending: &str) -> Vec<PathBuf> {
        let built = Path::new(XTASK).with_file_name("keelson");
        assert!(built.exists(), "{}: cargo build -p keelson", built.display());
        // Without symbols there is half as much to compress.
        let program = self.path("keelson");
        run(Command::new("strip").arg("-o").arg(&program).arg(&built));
        let out = self.path("out");
        let mut xtask = Command::new(XTASK);
        xtask.args(["package", kind, "--program"]).arg(&program).arg("--out").arg(&out);
        let said = run(xtask.current_dir(WORKSPACE));
        let mut files: Vec<PathBuf> = fs::read_dir(&out)
            .expect("a folder")
            .map(|entry| entry.expect("a file").path())
            .collect();
        files.retain(|path| path.extension() == Some(OsStr::new(ending)));
        files.sort();
        for path in &files {
            assert!(said.contains(&path.display().to_string()), "{said}");
            let parts = PathBuf::from(format!("{}.cdx.json", path.display()));
            let parts = fs::read_to_string(&parts).expect("the parts of the program");
            assert!(parts.contains("\"bomFormat\": \"CycloneDX\""), "{parts}");
        }
        files
    }
}

/// Runs a command and returns what it printed.
fn run(command: &mut Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}\n{errors}", output.status);
    text
}

/// Returns whether a command succeeds; records the test as not run otherwise.
fn has(needed: Prerequisite, command: &[&str]) -> bool {
    let mut probe = Command::new(command[0]);
    probe.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let found = probe.status().is_ok_and(|status| status.success());
    prerequisite(needed, found.then_some(())).is_some()
}

/// Returns the PATH with one folder before it.
fn path_with(folder: &Path) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [folder.to_owned()].into_iter().chain(std::env::split_paths(&path));
    std::env::join_paths(folders).expect("a path")
}

/// Checks what `keelson --version` prints.
fn check_version(program: &mut Command) {
    let line = run(program.arg("--version"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, version, "(commit", commit, "Kubernetes", kubernetes] = words[..] else {
        panic!("{line}");
    };
    assert_eq!((name, version), ("keelson", VERSION));
    assert!(commit.ends_with(',') && kubernetes.starts_with("v1.36."), "{line}");
}

#[test]
fn a_wheel_installs_the_program_and_a_pytest_plugin() {
    if !has(PIP, &["python3", "-c", "import pip, venv, pytest"]) {
        return;
    }
    let workshop = Workshop::new();
    let [wheel] = &workshop.package("wheel", "whl")[..] else { panic!("one wheel") };
    let venv = workshop.path("venv");
    let temporary = workshop.path("tmp");
    fs::create_dir(&temporary).expect("a folder");
    let mut make = Command::new("python3");
    run(make.args(["-m", "venv", "--without-pip", "--system-site-packages"]).arg(&venv));
    let python = venv.join("bin/python");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "--disable-pip-version-check", "--python"]).arg(&python);
    run(pip.args(["install", "--quiet", "--no-index", "--no-deps", "--no-compile"]).arg(wheel));
    check_version(Command::new("keelson").env("PATH", path_with(&venv.join("bin"))));
    let began = Instant::now();
    let mut pytest = Command::new(&python);
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).current_dir(&temporary);
    pytest.arg(Path::new(WORKSPACE).join("packages/python/tests"));
    pytest
        .env("TMPDIR", &temporary)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("KEELSON_PROGRAM");
    if let Some(packages) = official_client() {
        pytest.env("PYTHONPATH", packages);
    }
    let report = run(&mut pytest);
    assert!(report.contains("109 passed") || report.contains("108 passed, 1 skipped"), "{report}");
    assert!(began.elapsed() < HUNDRED_TESTS_TIME_MAX, "{:?}", began.elapsed());
    let left: Vec<_> = fs::read_dir(&temporary)
        .expect("a folder")
        .map(|entry| entry.expect("a file").file_name())
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// Returns the folder with the Kubernetes client for Python that `cargo xtask ci` installs.
fn official_client() -> Option<PathBuf> {
    let versions = fs::read_dir(Path::new(WORKSPACE).join("target/clients/lib")).ok()?;
    let folders = versions.map_while(Result::ok).map(|entry| entry.path().join("site-packages"));
    folders.into_iter().find(|folder| folder.join("kubernetes").is_dir())
}

#[test]
fn packages_of_npm_start_servers_for_tests() {
    if !has(NPM, &["npm", "--version"]) {
        return;
    }
    let workshop = Workshop::new();
    let packages = workshop.package("npm", "tgz");
    assert_eq!(packages.len(), 2, "{packages:?}");
    let project = workshop.path("project");
    fs::create_dir(&project).expect("a folder");
    fs::write(project.join("package.json"), "{\"type\": \"module\"}").expect("a file");
    for example in ["server.test.js", "simulation.test.js"] {
        let source = Path::new(WORKSPACE).join("packages/npm/example").join(example);
        fs::copy(source, project.join(example)).expect("the example");
    }
    let mut install = Command::new("npm");
    install.args(["install", "--offline", "--no-audit", "--no-fund", "--ignore-scripts"]);
    install.env("npm_config_cache", workshop.path("cache"));
    run(install.args(&packages).current_dir(&project));
    check_version(&mut Command::new(project.join("node_modules/.bin/keelson")));
    let mut tests = Command::new("node");
    tests.args(["--test", "--test-reporter=tap"]).current_dir(&project);
    tests.env_remove("KEELSON_PROGRAM").env_remove("NODE_OPTIONS");
    let report = run(&mut tests);
    assert!(report.contains("\n# pass 7\n") && report.contains("\n# fail 0\n"), "{report}");
}

#[test]
fn a_debian_package_has_a_service_that_serves() {
    if !has(DPKG, &["dpkg-deb", "--version"]) {
        return;
    }
    let workshop = Workshop::new();
    let [package] = &workshop.package("deb", "deb")[..] else { panic!("one package") };
    let root = workshop.path("root");
    fs::create_dir_all(root.join("var/lib/dpkg/info")).expect("a folder");
    fs::create_dir_all(root.join("var/lib/dpkg/updates")).expect("a folder");
    fs::write(root.join("var/lib/dpkg/status"), "").expect("a file");
    let dpkg = |arguments: &[&str]| {
        let mut dpkg = Command::new("dpkg");
        // The root has no C library and no shell, and the packages of this machine are left alone.
        dpkg.arg(format!("--root={}", root.display())).arg("--log=/dev/null");
        dpkg.args(["--force-depends", "--force-script-chrootless", "--force-not-root"]);
        run(dpkg.args(arguments))
    };
    dpkg(&["--install", &package.display().to_string()]);
    let program = root.join("usr/bin/keelson");
    check_version(&mut Command::new(&program));
    let data = workshop.path("data");
    let arguments = service_arguments(&root, &data);
    let server = Service::start(&program, &arguments);
    let kubeconfig = data.join("admin.kubeconfig");
    let mut version = Command::new(&program);
    let answer = run(version.arg("version").arg("--kubeconfig").arg(&kubeconfig));
    assert!(answer.contains("\nServer Version: v1.36."), "{answer}");
    drop(server);
    let listed = dpkg(&["--listfiles", "keelson-apiserver"]);
    for file in ["/usr/share/man/man1/keelson.1.gz", "/etc/default/keelson"] {
        assert!(listed.lines().any(|line| line == file), "{listed}");
    }
    dpkg(&["--purge", "keelson-apiserver"]);
    assert!(!program.exists() && !root.join("etc/default/keelson").exists());
}

/// Returns the arguments with which the service starts the program: those of its unit, with the
/// flags of its file, and a folder and port of the test.
fn service_arguments(root: &Path, data: &Path) -> Vec<String> {
    let read = |name: &str| fs::read_to_string(root.join(name)).expect(name);
    let unit = read("usr/lib/systemd/system/keelson.service");
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/keelson "));
    let defaults = read("etc/default/keelson");
    let flags = defaults
        .lines()
        .find_map(|line| line.strip_prefix("KEELSON_FLAGS="))
        .expect("flags")
        .trim_matches('"');
    let command = command
        .expect("a command")
        .replace("$KEELSON_FLAGS", flags)
        .replace("/var/lib/keelson", &data.display().to_string());
    let arguments = command.split_whitespace().map(str::to_owned);
    arguments.chain(["--secure-port=0".to_owned()]).collect()
}

/// The program as a service would run it. Dropping it ends it.
struct Service(Child);

impl Service {
    /// Starts it and waits until it serves.
    fn start(program: &Path, arguments: &[String]) -> Service {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a process");
        let output = child.stdout.take().expect("its output");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert!(line.contains(" serves the Kubernetes API "), "{line}");
        Service(child)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
