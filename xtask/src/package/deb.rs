//! The Debian package: the program, a hardened unit of systemd, a manual page and completions.

use super::{DESCRIPTION, FILE_MODE, NAME, PROGRAM, PROGRAM_MODE, Parts, SOURCES, VERSION};
use crate::commands;
use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where completions go, by the shell that reads them.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/keelson"),
    ("zsh", "usr/share/zsh/vendor-completions/_keelson"),
    ("fish", "usr/share/fish/vendor_completions.d/keelson.fish"),
];
/// The folder of the package's description.
const CONTROL: &str = "DEBIAN";
const MAINTAINER: &str = "The Keelson authors <keelson@example.invalid>";

/// Makes the package.
pub fn make(parts: &Parts) -> Result<PathBuf> {
    let staged = tempfile::tempdir().context("a folder")?;
    let root = staged.path().join("root");
    stage(parts, &root)?;
    let architecture = architecture(parts.machine());
    let control = control(architecture, parts.elf.glibc, installed_kilobytes(&root)?);
    super::write(&root.join(CONTROL).join("control"), control.as_bytes(), FILE_MODE)?;
    let path = parts.out.join(format!("{NAME}_{VERSION}_{architecture}.deb"));
    // Folders must not depend on the umask of who makes the package.
    commands::run(Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(&root))?;
    let mut build = Command::new("dpkg-deb");
    // Every dpkg reads gzip, and it takes a tenth of xz's time.
    build.args(["-Zgzip", "--root-owner-group", "--build"]).arg(&root).arg(&path);
    commands::output(&mut build)?;
    Ok(path)
}

/// Makes the tree of files.
fn stage(parts: &Parts, root: &Path) -> Result<()> {
    let sources = Path::new(SOURCES).join("debian");
    let program = root.join("usr/bin").join(PROGRAM);
    super::write(&program, &parts.program, PROGRAM_MODE)?;
    for (shell, path) in COMPLETIONS {
        let text = commands::output(Command::new(&program).args(["completion", shell]))?;
        super::write(&root.join(path), text.as_bytes(), FILE_MODE)?;
    }
    let read = |name: &str| {
        let path = sources.join(name);
        fs::read(&path).with_context(|| path.display().to_string())
    };
    let documents = root.join("usr/share/doc").join(NAME);
    for (name, path) in [
        ("keelson.service", root.join("usr/lib/systemd/system/keelson.service")),
        ("keelson.default", root.join("etc/default/keelson")),
        ("copyright", documents.join("copyright")),
        ("conffiles", root.join(CONTROL).join("conffiles")),
    ] {
        super::write(&path, &read(name)?, FILE_MODE)?;
    }
    for name in ["postinst", "prerm", "postrm"] {
        super::write(&root.join(CONTROL).join(name), &read(name)?, PROGRAM_MODE)?;
    }
    let page = String::from_utf8(read("keelson.1")?)?.replace("@VERSION@", VERSION);
    let page = gzip(page.as_bytes())?;
    super::write(&root.join("usr/share/man/man1/keelson.1.gz"), &page, FILE_MODE)?;
    let changes = gzip(&fs::read("CHANGELOG.md").context("CHANGELOG.md")?)?;
    super::write(&documents.join("changelog.gz"), &changes, FILE_MODE)?;
    super::write(&documents.join("sbom.cdx.json"), parts.sbom.as_bytes(), FILE_MODE)?;
    let mut sums = String::new();
    for (name, _) in super::sources(root)? {
        if !name.starts_with(CONTROL) && !name.starts_with("etc/") {
            let mut sum = Command::new("md5sum");
            sums += &commands::output(sum.arg(&name).current_dir(root))?;
        }
    }
    super::write(&root.join(CONTROL).join("md5sums"), sums.as_bytes(), FILE_MODE)
}

/// Returns an architecture as Debian names it.
fn architecture(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Returns the description of the package.
fn control(architecture: &str, glibc: Option<u32>, kilobytes: u64) -> String {
    let depends = match glibc {
        Some(minor) => format!("Depends: libc6 (>= 2.{minor}), libgcc-s1\n"),
        None => String::new(),
    };
    format!(
        "Package: {NAME}\nVersion: {VERSION}\nArchitecture: {architecture}\n\
         Maintainer: {MAINTAINER}\nInstalled-Size: {kilobytes}\n{depends}\
         Section: admin\nPriority: optional\nDescription: {DESCRIPTION}\n \
         Keelson is a drop-in kube-apiserver that needs no etcd. The service is installed\n \
         but not started: systemctl enable --now keelson.\n"
    )
}

fn installed_kilobytes(root: &Path) -> Result<u64> {
    let files = super::sources(root)?;
    Ok(files.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>().div_ceil(1024))
}

/// Compresses a text; the result has no date and no name.
fn gzip(text: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(vec![], Compression::best());
    encoder.write_all(text).context("compress")?;
    encoder.finish().context("compress")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_names_the_c_library_that_the_program_needs() {
        let dynamic = control("amd64", Some(34), 20_000);
        assert!(dynamic.contains("\nDepends: libc6 (>= 2.34), libgcc-s1\n"), "{dynamic}");
        assert!(dynamic.contains("\nArchitecture: amd64\nMaintainer: "), "{dynamic}");
        assert!(!control("arm64", None, 1).contains("Depends"));
    }
}
