//! The packages for npm: `keelson-apiserver` has the modules, and depends on a package of each
//! platform, which has the program. No script runs at an installation.

use super::{NAME, PROGRAM, PROGRAM_MODE, Parts, SOURCES, VERSION};
use crate::commands;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const MANIFEST: &str = "package.json";
const FILE_MODE: u32 = 0o644;

/// Packs both packages: the main one, and that of the program's platform.
pub fn make(parts: &Parts) -> Result<Vec<PathBuf>> {
    let staged = tempfile::tempdir().context("a folder")?;
    let sources = Path::new(SOURCES).join("npm");
    let platform = format!("{NAME}-linux-{}", cpu(parts.machine()));
    let main = staged.path().join("main");
    for (name, bytes) in super::sources(&sources.join(NAME))? {
        let mode = if name.starts_with("bin/") { PROGRAM_MODE } else { FILE_MODE };
        super::write(&main.join(name), &bytes, mode)?;
    }
    let manifest = main.join(MANIFEST);
    let text = fs::read(&manifest).with_context(|| manifest.display().to_string())?;
    let mut value: Value = serde_json::from_slice(&text).context(MANIFEST)?;
    value["version"] = VERSION.into();
    for dependency in value["optionalDependencies"].as_object_mut().into_iter().flatten() {
        *dependency.1 = VERSION.into();
    }
    let is_known = value["optionalDependencies"].get(&platform).is_some();
    anyhow::ensure!(is_known, "{MANIFEST}: optionalDependencies lacks {platform}");
    write_manifest(&main, &value)?;
    let of_platform = staged.path().join("platform");
    let program = of_platform.join("bin").join(PROGRAM);
    super::write(&program, &parts.program, PROGRAM_MODE)?;
    write_manifest(&of_platform, &platform_manifest(&platform, parts))?;
    let readme = format!("# {platform}\n\nThe program of `{NAME}` for one platform.\n");
    super::write(&of_platform.join("README.md"), readme.as_bytes(), FILE_MODE)?;
    let mut packed = vec![];
    for (folder, name) in [(main, NAME), (of_platform, platform.as_str())] {
        let license = fs::read("LICENSE").context("LICENSE")?;
        super::write(&folder.join("LICENSE"), &license, FILE_MODE)?;
        let out = fs::canonicalize(&parts.out).context("the output folder")?;
        let mut pack = Command::new("npm");
        pack.args(["pack", "--silent", "--pack-destination"]).arg(out).current_dir(folder);
        commands::output(&mut pack)?;
        packed.push(parts.out.join(format!("{name}-{VERSION}.tgz")));
    }
    Ok(packed)
}

/// Returns an architecture as Node names it.
fn cpu(machine: &str) -> &str {
    match machine {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn platform_manifest(name: &str, parts: &Parts) -> Value {
    let mut manifest = json!({
        "name": name, "version": VERSION, "license": "Apache-2.0",
        "description": format!("The program of {NAME} for one platform"),
        "os": ["linux"], "cpu": [cpu(parts.machine())], "files": ["bin"],
        "preferUnplugged": true,
    });
    if !parts.elf.is_static {
        manifest["libc"] = json!(["glibc"]);
    }
    manifest
}

fn write_manifest(folder: &Path, value: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    super::write(&folder.join(MANIFEST), text.as_bytes(), FILE_MODE)
}
