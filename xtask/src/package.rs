//! `cargo xtask package`: the packages that people install Keelson from. Each is made from one
//! program, with the version of the workspace, and has a list of the program's parts beside it.

mod deb;
mod elf;
mod npm;
mod sbom;
mod static_program;
mod wheel;
mod zip;

use crate::commands;
use anyhow::{Context, Result, bail};
use elf::Elf;
pub use static_program::compile;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the packages: `keelson` is another project's among those of cargo and pip.
const NAME: &str = "keelson-apiserver";
/// The name of the program.
const PROGRAM: &str = "keelson";
/// The version of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const DESCRIPTION: &str = "The Kubernetes API as one small, fast server";
/// Where the packages go by default.
const OUT: &str = "target/packages";
/// The sources of the packages.
const SOURCES: &str = "packages";
/// The versions and hashes of the program's crates.
const LOCK: &str = "Cargo.lock";
const USAGE: &str = "cargo xtask package wheel|npm|deb|static|sbom|all [--program FILE] \
                     [--out DIR], or --check-static";
const PROGRAM_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// What a package is made from.
struct Parts {
    /// The program's bytes.
    program: Vec<u8>,
    elf: Elf,
    /// The parts of the program, as CycloneDX.
    sbom: String,
    /// Where the package goes.
    out: PathBuf,
}

impl Parts {
    /// Returns the name of the architecture as Linux has it: `x86_64`.
    fn machine(&self) -> &'static str {
        self.elf.machine
    }
}

/// Makes the packages that the arguments name.
pub fn run(args: &[String]) -> Result<()> {
    // The other packages have tests; this one needs another build.
    if args == ["--check-static"] {
        return static_program::check();
    }
    let Request { kinds, program, out } = Request::read(args)?;
    fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
    let lock = fs::read_to_string(LOCK).context(LOCK)?;
    let sbom = sbom::document(&sbom::metadata()?, &lock)?;
    for kind in kinds {
        if kind == "sbom" {
            let path = out.join(format!("{NAME}-{VERSION}.cdx.json"));
            write(&path, sbom.as_bytes(), FILE_MODE)?;
            say(&path)?;
            continue;
        }
        let path = match (&program, kind) {
            (Some(path), _) => path.clone(),
            (None, "static") => static_program::build()?,
            (None, _) => build()?,
        };
        let context = || path.display().to_string();
        let bytes = fs::read(&path).with_context(context)?;
        let elf = Elf::read(&bytes).with_context(context)?;
        let parts = Parts { program: bytes, elf, sbom: sbom.clone(), out: out.clone() };
        let made = match kind {
            "wheel" => vec![wheel::make(&parts)?],
            "npm" => npm::make(&parts)?,
            "deb" => vec![deb::make(&parts)?],
            _ => vec![static_program::make(&parts)?],
        };
        for path in &made {
            let name = path.file_name().and_then(|name| name.to_str()).context("a name")?;
            write(&path.with_file_name(format!("{name}.cdx.json")), sbom.as_bytes(), FILE_MODE)?;
            say(path)?;
        }
    }
    Ok(())
}

/// What the arguments ask for.
#[derive(Debug, PartialEq)]
struct Request {
    kinds: Vec<&'static str>,
    /// A program that is already built.
    program: Option<PathBuf>,
    out: PathBuf,
}

impl Request {
    fn read(args: &[String]) -> Result<Request> {
        let all = ["wheel", "npm", "deb", "static", "sbom"];
        let mut request = Request { kinds: vec![], program: None, out: PathBuf::from(OUT) };
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            match arg.as_str() {
                "all" => request.kinds = all.to_vec(),
                "--program" => {
                    request.program = Some(rest.next().context("--program needs a file")?.into());
                }
                "--out" => request.out = rest.next().context("--out needs a folder")?.into(),
                other => match all.iter().find(|kind| **kind == other) {
                    Some(kind) => request.kinds.push(kind),
                    None => bail!("{other:?} is unknown; {USAGE}"),
                },
            }
        }
        if request.kinds.is_empty() {
            bail!("{USAGE}");
        }
        Ok(request)
    }
}

/// Builds the program that packages contain.
pub fn build() -> Result<PathBuf> {
    writeln!(std::io::stdout(), "building the profile dist")?;
    commands::run(Command::new("cargo").args(["build", "--profile", "dist", "-p", PROGRAM]))?;
    Ok(target_folder().join("dist").join(PROGRAM))
}

fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

/// Writes a file with its mode, and the folders above it.
fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let context = || path.display().to_string();
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(context)?;
    }
    fs::write(path, bytes).with_context(context)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).with_context(context)
}

/// Prints a package's path and size.
fn say(path: &Path) -> Result<()> {
    let bytes = path.metadata().with_context(|| path.display().to_string())?.len();
    let megabytes = bytes as f64 / 1e6;
    writeln!(std::io::stdout(), "{} ({megabytes:.1} MB)", path.display()).context("standard output")
}

/// Returns the files below a folder of sources with their paths in it, sorted.
fn sources(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = vec![];
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| next.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                // What Python leaves after a run.
                if path.file_name().is_none_or(|name| name != "__pycache__") {
                    folders.push(path);
                }
                continue;
            }
            let name = path.strip_prefix(folder)?.to_str().context("a name")?.to_owned();
            files.push((name, fs::read(&path)?));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_name_kinds_program_and_folder() {
        let read = |args: &str| {
            let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
            Request::read(&args).ok()
        };
        let request = |kinds: &[&'static str], program: Option<&str>, out: &str| Request {
            kinds: kinds.to_vec(),
            program: program.map(PathBuf::from),
            out: PathBuf::from(out),
        };
        for (args, expected) in [
            ("wheel", Some(request(&["wheel"], None, OUT))),
            ("deb npm --out o --program p", Some(request(&["deb", "npm"], Some("p"), "o"))),
            ("all", Some(request(&["wheel", "npm", "deb", "static", "sbom"], None, OUT))),
            ("", None),
            ("rpm", None),
            ("wheel --out", None),
        ] {
            assert_eq!(read(args), expected, "{args}");
        }
    }
}
