//! Passes linker flags that reduce the resident memory of an idle server. The functions that run
//! during the start are placed next to each other: the kernel maps 64 kB around each page that is
//! touched, so in any other order most of the program is resident after the start. The relocations,
//! all of which are read at the start, are packed: 20 kB instead of 770 kB. What unwinds a panic is
//! linked in, as a shared library of its own is mapped for it. Tells the program the commit that it
//! was built from.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The symbols of the functions that run during the start, from `cargo xtask startup-order`.
const ORDER: &str = "startup-order.txt";
/// The profile whose programs are ordered: others are built and changed too often.
const PROFILE: &str = "dist";
/// The target for which rustc links with its own `lld`, which supports symbol ordering files.
const LLD_TARGET: &str = "x86_64-unknown-linux-gnu";
/// The first glibc whose loader supports packed relocations. A program built with them does not run
/// on an older one.
const PACKED_GLIBC: (u32, u32) = (2, 36);

/// Environment variable: the commit, for builds without a repository.
const COMMIT: &str = "KEELSON_COMMIT";

fn main() {
    println!("cargo::rustc-env={COMMIT}={}", commit());
    println!("cargo::rerun-if-changed={ORDER}");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let flags = variable("CARGO_ENCODED_RUSTFLAGS");
    let has_own_linker = !variable("RUSTC_LINKER").is_empty()
        || ["linker", "fuse-ld", "link-self-contained"].iter().any(|word| flags.contains(word));
    let order = Path::new(&variable("CARGO_MANIFEST_DIR")).join(ORDER);
    let is_dist = profile_folder(&variable("OUT_DIR")) == Some(PROFILE);
    if is_dist && variable("TARGET") == LLD_TARGET && !has_own_linker {
        let order = format!("--symbol-ordering-file={}", order.display());
        // Another compiler mangles the symbols differently; symbols that are missing are no error.
        let mut arguments = vec![order.as_str(), "--no-warn-symbol-ordering"];
        if variable("HOST") == LLD_TARGET && glibc().is_some_and(|version| version >= PACKED_GLIBC)
        {
            arguments.extend(["-z", "pack-relative-relocs"]);
        }
        for argument in arguments {
            println!("cargo::rustc-link-arg-bins=-Xlinker");
            println!("cargo::rustc-link-arg-bins={argument}");
        }
        if let Some(folder) = static_unwinder(Path::new(&variable("OUT_DIR"))) {
            println!("cargo::rustc-link-search=native={}", folder.display());
        }
    }
}

/// Makes a folder in which the static library that unwinds has the name of the shared one, so that
/// the linker finds it first. `None` if the C compiler has none.
fn static_unwinder(out: &Path) -> Option<PathBuf> {
    let asked = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output().ok()?;
    let archive = PathBuf::from(String::from_utf8(asked.stdout).ok()?.trim());
    let folder = out.join("unwinder");
    std::fs::create_dir_all(&folder).ok()?;
    // The name alone means that there is none, and no such file is here.
    std::fs::copy(archive, folder.join("libgcc_s.a")).ok()?;
    Some(folder)
}

/// Returns the commit that is checked out, or `unknown`. Only optimised builds have it: with every
/// commit the library is compiled again.
fn commit() -> String {
    println!("cargo::rerun-if-env-changed={COMMIT}");
    let given = std::env::var(COMMIT).unwrap_or_default();
    if !given.is_empty() {
        return given;
    }
    let asked = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !text.is_empty()).then_some(text)
    };
    if std::env::var("PROFILE").as_deref() == Ok("release") {
        // It has a line for each change of what is checked out.
        if let Some(log) = asked(&["rev-parse", "--git-path", "logs/HEAD"]) {
            println!("cargo::rerun-if-changed={log}");
        }
        if let Some(commit) = asked(&["rev-parse", "HEAD"]) {
            return commit;
        }
    }
    "unknown".to_owned()
}

/// Returns the folder of the profile in a path such as `target/dist/build/keelson-0123/out`: cargo
/// tells a build script only whether a profile inherits from `release`.
fn profile_folder(out_dir: &str) -> Option<&str> {
    Path::new(out_dir).ancestors().nth(3)?.file_name()?.to_str()
}

/// Returns the version of this machine's glibc. `getconf` prints `glibc 2.36`.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
