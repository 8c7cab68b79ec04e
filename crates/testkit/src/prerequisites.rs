//! Prerequisites of tests outside the workspace. A missing one fails the test, unless
//! `KEELSON_ALLOW_SKIP` names it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Environment variable: comma-separated names of prerequisites that may be missing.
const ALLOWED: &str = "KEELSON_ALLOW_SKIP";
/// Environment variable: a folder with Kubernetes programs, plain or compressed (`NAME.xz`).
const FOLDER: &str = "KEELSON_REFERENCE_BIN";
/// Environment variable: a folder with recordings of kube-apiserver.
const SHARED: &str = "KEELSON_SHARED";

/// Returns `found`. Panics with `way_to_get` if it is `None` and the prerequisite may not be missing.
pub fn prerequisite<T>(name: &str, found: Option<T>, way_to_get: &str) -> Option<T> {
    let allowed = std::env::var(ALLOWED).unwrap_or_default();
    assert!(
        found.is_some() || allowed.split(',').any(|word| word == name),
        "{name} is missing: {way_to_get}, or skip what needs it by {ALLOWED}={name}"
    );
    found
}

/// Returns a path in the folder with recordings of kube-apiserver: `KEELSON_SHARED`, relative to the
/// workspace, or else `../shared`.
pub fn reference_data(path: &str) -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = std::env::var(SHARED).unwrap_or_else(|_| "../shared".to_owned());
    let found = workspace.join(shared).join(path);
    let way_to_get = format!("set {SHARED} to the folder that has {path}");
    prerequisite("reference-data", found.exists().then_some(found), &way_to_get)
}

/// Returns a started etcd; `None` means that etcd is not installed.
pub fn etcd<T>(started: Option<T>) -> Option<T> {
    prerequisite("etcd", started, "install etcd 3.5 or newer")
}

/// Returns the path of a Kubernetes program in the folder `KEELSON_REFERENCE_BIN`, or else in
/// `../shared/reference/bin` beside the workspace. A compressed one is unpacked into `cache` once.
pub fn kubernetes_program(name: &str, cache: &Path) -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/reference/bin");
    let folder = std::env::var_os(FOLDER).unwrap_or_else(|| beside.into());
    let folder = PathBuf::from(folder);
    let (bare, packed) = (folder.join(name), folder.join(format!("{name}.xz")));
    let found = if bare.is_file() {
        Some(bare)
    } else if packed.is_file() {
        Some(unpack(&packed, name, cache))
    } else {
        None
    };
    let way_to_get = format!("set {FOLDER} to a folder with the programs of Kubernetes 1.36");
    prerequisite(name, found, &way_to_get)
}

fn unpack(packed: &Path, name: &str, cache: &Path) -> PathBuf {
    let program = cache.join(name);
    let modified = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    if modified(&program).is_some_and(|at| modified(packed).is_some_and(|of| at >= of)) {
        return program;
    }
    std::fs::create_dir_all(cache).expect("a folder for programs");
    // Several tests may do this at once: each writes its own file, and the last rename wins.
    let own = cache.join(format!("{name}.{}", std::process::id()));
    let file = std::fs::File::create(&own).expect("a file in the folder for programs");
    let xz: [&OsStr; 3] = ["xz".as_ref(), "-dc".as_ref(), packed.as_ref()];
    let python: [&OsStr; 4] = [
        "python3".as_ref(),
        "-c".as_ref(),
        "import lzma,shutil,sys; shutil.copyfileobj(lzma.open(sys.argv[1]), sys.stdout.buffer)"
            .as_ref(),
        packed.as_ref(),
    ];
    let done = [&xz[..], &python[..]].iter().any(|words| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stderr(Stdio::null());
        command.stdout(file.try_clone().expect("a file twice"));
        command.status().is_ok_and(|status| status.success())
    });
    assert!(done, "neither xz nor python3 can unpack {}", packed.display());
    let mut permissions = file.metadata().expect("what the file may").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
    file.set_permissions(permissions).expect("a program that may run");
    drop(file);
    std::fs::rename(&own, &program).expect("a program in its place");
    program
}
