//! The program without shared libraries, for hosts of any kind and for container images: an archive that is
//! also a context for `docker build`.

use super::{FILE_MODE, PROGRAM, PROGRAM_MODE, Parts, SOURCES, VERSION};
use crate::commands;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rust's targets for the two C libraries that can be linked in.
const MUSL: &str = "x86_64-unknown-linux-musl";
const GNU: &str = "x86_64-unknown-linux-gnu";

/// Builds the program: with musl if its target is installed, else with glibc.
pub fn build() -> Result<PathBuf> {
    let target = if is_installed(MUSL)? { MUSL } else { GNU };
    writeln!(std::io::stdout(), "building the profile dist, static, for {target}")?;
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--profile", "dist", "-p", PROGRAM, "--target", target]);
    commands::run(cargo.env("RUSTFLAGS", "-C target-feature=+crt-static"))?;
    Ok(super::target_folder().join(target).join("dist").join(PROGRAM))
}

fn is_installed(target: &str) -> Result<bool> {
    let mut rustc = Command::new("rustc");
    let folder = commands::output(rustc.args(["--print", "target-libdir", "--target", target]))?;
    Ok(Path::new(folder.trim()).exists())
}

/// Makes the archive.
pub fn make(parts: &Parts) -> Result<PathBuf> {
    if !parts.elf.is_static {
        bail!("the program needs shared libraries; build it with -C target-feature=+crt-static");
    }
    let staged = tempfile::tempdir().context("a folder")?;
    let root = staged.path();
    super::write(&root.join(PROGRAM), &parts.program, PROGRAM_MODE)?;
    for (from, name) in [
        (Path::new(SOURCES).join("container/Dockerfile"), "Dockerfile"),
        (PathBuf::from("LICENSE"), "LICENSE"),
    ] {
        let bytes = fs::read(&from).with_context(|| from.display().to_string())?;
        super::write(&root.join(name), &bytes, FILE_MODE)?;
    }
    // The image gets its folder for data from it: nothing in an empty image can make one.
    fs::create_dir(root.join("data")).context("data")?;
    let name = format!("{PROGRAM}-{VERSION}-linux-{}-static.tar.gz", parts.machine());
    let path = parts.out.join(name);
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--sort=name", "--mtime=@0", "--numeric-owner"]);
    tar.args(["--owner=0", "--group=0", "--file"]).arg(&path).arg("-C").arg(root);
    commands::run(tar.args(["Dockerfile", "LICENSE", "data", PROGRAM]))?;
    Ok(path)
}
