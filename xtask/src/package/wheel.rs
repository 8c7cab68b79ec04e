//! The wheel: the program as a script, and the modules of `packages/python`.

use super::zip::Zip;
use super::{DESCRIPTION, FILE_MODE, NAME, PROGRAM, PROGRAM_MODE, Parts, SOURCES, VERSION};
use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The oldest glibc for which there is a tag.
const GLIBC_MIN: u32 = 17;
const MODULE: &str = "keelson_apiserver";
const PYTHON_MIN: &str = "3.9";

/// Makes the wheel.
pub fn make(parts: &Parts) -> Result<PathBuf> {
    let sources = Path::new(SOURCES).join("python");
    let tag = format!("py3-none-{}", platform(parts.machine(), parts.elf.glibc));
    let info = format!("{MODULE}-{VERSION}.dist-info");
    let readme = sources.join("README.md");
    let readme = fs::read_to_string(&readme).with_context(|| readme.display().to_string())?;
    let mut files: Vec<(String, Vec<u8>, u32)> = vec![];
    for (name, bytes) in super::sources(&sources.join(MODULE))? {
        files.push((format!("{MODULE}/{name}"), bytes, FILE_MODE));
    }
    let script = format!("{MODULE}-{VERSION}.data/scripts/{PROGRAM}");
    files.push((script, parts.program.clone(), PROGRAM_MODE));
    let texts = [
        ("METADATA", metadata(&readme)),
        ("WHEEL", wheel(&tag)),
        ("entry_points.txt", format!("[pytest11]\n{MODULE} = {MODULE}.pytest_plugin\n")),
        ("licenses/LICENSE", fs::read_to_string("LICENSE").context("LICENSE")?),
        ("sboms/sbom.cdx.json", parts.sbom.clone()),
    ];
    for (name, text) in texts {
        files.push((format!("{info}/{name}"), text.into_bytes(), FILE_MODE));
    }
    let record = format!("{info}/RECORD");
    let mut lines = String::new();
    for (name, bytes, _) in &files {
        let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(bytes));
        let _ = writeln!(lines, "{name},sha256={hash},{}", bytes.len());
    }
    let _ = writeln!(lines, "{record},,");
    files.push((record, lines.into_bytes(), FILE_MODE));
    let mut zip = Zip::default();
    for (name, bytes, mode) in &files {
        zip.add(name, bytes, *mode)?;
    }
    let path = parts.out.join(format!("{MODULE}-{VERSION}-{tag}.whl"));
    super::write(&path, &zip.finish()?, FILE_MODE)?;
    Ok(path)
}

/// Returns the platforms on which pip installs the program.
fn platform(machine: &str, glibc: Option<u32>) -> String {
    let minor = glibc.unwrap_or(GLIBC_MIN).max(GLIBC_MIN);
    let with_glibc = format!("manylinux_2_{minor}_{machine}");
    match glibc {
        Some(_) => with_glibc,
        None => format!("{with_glibc}.musllinux_1_1_{machine}"),
    }
}

fn metadata(readme: &str) -> String {
    format!(
        "Metadata-Version: 2.4\nName: {NAME}\nVersion: {VERSION}\nSummary: {DESCRIPTION}\n\
         License-Expression: Apache-2.0\nLicense-File: LICENSE\n\
         Keywords: kubernetes,apiserver,testing,pytest\nClassifier: Framework :: Pytest\n\
         Classifier: Operating System :: POSIX :: Linux\nClassifier: Typing :: Typed\n\
         Requires-Python: >={PYTHON_MIN}\n\
         Provides-Extra: client\nRequires-Dist: kubernetes; extra == 'client'\n\
         Description-Content-Type: text/markdown\n\n{readme}"
    )
}

fn wheel(tag: &str) -> String {
    let mut text = "Wheel-Version: 1.0\nGenerator: keelson\nRoot-Is-Purelib: false\n".to_owned();
    // A tag for each platform of a compressed set.
    if let Some((head, platforms)) = tag.rsplit_once('-') {
        for platform in platforms.split('.') {
            let _ = writeln!(text, "Tag: {head}-{platform}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_platform_is_that_of_the_program() {
        for (machine, glibc, expected) in [
            ("x86_64", Some(36), "manylinux_2_36_x86_64"),
            ("aarch64", Some(3), "manylinux_2_17_aarch64"),
            ("x86_64", None, "manylinux_2_17_x86_64.musllinux_1_1_x86_64"),
        ] {
            assert_eq!(platform(machine, glibc), expected);
        }
    }
}
