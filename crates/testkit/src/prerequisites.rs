//! What a test needs beside the workspace: missing, the test fails, unless `KEELSON_ALLOW_SKIP` names it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names that are allowed to be missing, with commas between them.
const ALLOWED: &str = "KEELSON_ALLOW_SKIP";
/// A folder with programs of Kubernetes, bare or packed (`NAME.xz`).
const FOLDER: &str = "KEELSON_REFERENCE_BIN";
/// A folder with recordings of kube-apiserver.
const SHARED: &str = "KEELSON_SHARED";

/// Passes on what was found. A missing prerequisite fails the test with the way to get it, unless it may be missing.
pub fn prerequisite<T>(name: &str, found: Option<T>, way_to_get: &str) -> Option<T> {
    let allowed = std::env::var(ALLOWED).unwrap_or_default();
    assert!(
        found.is_some() || allowed.split(',').any(|word| word == name),
        "{name} is missing: {way_to_get}, or skip what needs it by {ALLOWED}={name}"
    );
    found
}

/// A path below the folder with what was recorded of kube-apiserver: the one that `KEELSON_SHARED` names (from the
/// workspace's), or `../shared` beside the workspace.
pub fn reference_data(path: &str) -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = std::env::var(SHARED).unwrap_or_else(|_| "../shared".to_owned());
    let found = workspace.join(shared).join(path);
    let way_to_get = format!("set {SHARED} to the folder that has {path}");
    prerequisite("reference-data", found.exists().then_some(found), &way_to_get)
}

/// Passes on an etcd that was started; `None`: there is no such program.
pub fn etcd<T>(started: Option<T>) -> Option<T> {
    prerequisite("etcd", started, "install etcd 3.5 or newer")
}

/// The path of a program of Kubernetes from the folder that `KEELSON_REFERENCE_BIN` names, or from
/// `../shared/reference/bin` beside the workspace. A packed one is unpacked into `cache` once.
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
    // Several tests may do this at once: each makes a file of its own, and the last rename wins.
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
