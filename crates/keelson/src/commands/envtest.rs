//! `keelson envtest`: the programs that controller-runtime's envtest starts, as a folder or an
//! archive.

use crate::flags::EnvtestFlags;
use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use ring::digest::{SHA512, digest};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The names under which envtest starts this program.
const OWN_NAMES: [&str; 2] = ["kube-apiserver", "etcd"];
const KUBECTL: &str = "kubectl";
/// The name of the index that setup-envtest reads.
const INDEX: &str = "envtest-releases.yaml";
/// The folder in the archive; setup-envtest takes files by their base names.
const ARCHIVE_FOLDER: &str = "controller-tools/envtest";
/// Size of the blocks of a tar archive.
const BLOCK_BYTES: usize = 512;
const PROGRAM_MODE: u32 = 0o755;

/// Runs the command.
pub fn run(flags: &EnvtestFlags) -> Result<()> {
    let own = std::env::current_exe().context("the path of this program")?;
    let kubectl = kubectl();
    if kubectl.is_none() {
        let _ =
            writeln!(io::stderr(), "keelson: there is no kubectl in PATH; the programs lack it");
    }
    match (&flags.archive, &flags.dir) {
        (Some(archive), _) => {
            write_archive(archive, &own, kubectl.as_deref(), flags.url.as_deref())
        }
        (None, Some(dir)) => {
            let dir = write_folder(dir, &own, kubectl.as_deref())?;
            let mut out = io::stdout();
            writeln!(out, "export KUBEBUILDER_ASSETS={}", quoted(&dir.to_string_lossy()))?;
            Ok(())
        }
        (None, None) => bail!("name a folder, or an archive with --archive"),
    }
}

/// Returns the kubectl of this host, or of a checkout that has built one.
fn kubectl() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path)
        .collect::<Vec<_>>()
        .into_iter()
        .chain([PathBuf::from("target/peers")]);
    let found = folders.map(|folder| folder.join(KUBECTL)).find(|file| file.is_file())?;
    found.canonicalize().ok()
}

/// Makes the folder of programs. Returns its absolute path.
fn write_folder(dir: &Path, own: &Path, kubectl: Option<&Path>) -> Result<PathBuf> {
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
    for name in OWN_NAMES {
        link(own, &dir.join(name))?;
    }
    if let Some(kubectl) = kubectl {
        link(kubectl, &dir.join(KUBECTL))?;
    }
    Ok(dir)
}

/// Links a program, or copies it where that is not possible.
fn link(program: &Path, name: &Path) -> Result<()> {
    let context = || name.display().to_string();
    match fs::remove_file(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(context);
        }
        _ => {}
    }
    let linked = fs::hard_link(program, name).or_else(|_| fs::copy(program, name).map(drop));
    linked.or_else(|_| std::os::unix::fs::symlink(program, name)).with_context(context)
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Writes the archive, and the index beside it.
fn write_archive(
    archive: &Path,
    own: &Path,
    kubectl: Option<&Path>,
    url: Option<&str>,
) -> Result<()> {
    let name = archive.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let version = version_of(name).with_context(|| {
        format!("--archive: {name:?} is not like envtest-v1.36.2-linux-amd64.tar.gz")
    })?;
    let own = fs::read(own).context("read this program")?;
    let mut files: Vec<(&str, Vec<u8>)> = OWN_NAMES.map(|name| (name, own.clone())).into();
    if let Some(kubectl) = kubectl {
        files.push((KUBECTL, fs::read(kubectl).context("read kubectl")?));
    }
    let bytes = tar_gz(&files).context("--archive")?;
    fs::write(archive, &bytes).with_context(|| format!("--archive: {}", archive.display()))?;
    let folder = archive.parent().unwrap_or(Path::new(""));
    let index = index(version, name, &bytes, url.unwrap_or_default());
    let path = folder.join(INDEX);
    fs::write(&path, index).with_context(|| path.display().to_string())?;
    writeln!(io::stdout(), "{}\n{}", archive.display(), path.display())?;
    Ok(())
}

/// Returns the version in the name of an archive: `v1.36.2`.
fn version_of(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("envtest-")?.strip_suffix(".tar.gz")?;
    let (version, platform) = rest.split_once('-')?;
    let numbers: Vec<&str> = version.strip_prefix('v')?.split('.').collect();
    let is_version = numbers.len() == 3 && numbers.iter().all(|n| n.parse::<u32>().is_ok());
    (is_version && platform.contains('-')).then_some(version)
}

/// Returns the index of one archive.
fn index(version: &str, name: &str, archive: &[u8], url: &str) -> String {
    let hash: String =
        digest(&SHA512, archive).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let url = match url.trim_end_matches('/') {
        "" => name.to_owned(),
        folder => format!("{folder}/{name}"),
    };
    format!("releases:\n  {version}:\n    {name}:\n      hash: {hash}\n      selfLink: {url}\n")
}

/// Packs programs into a compressed tar archive.
fn tar_gz(files: &[(&str, Vec<u8>)]) -> io::Result<Vec<u8>> {
    let mut out = GzEncoder::new(vec![], Compression::default());
    for (name, bytes) in files {
        out.write_all(&tar_header(&format!("{ARCHIVE_FOLDER}/{name}"), bytes.len()))?;
        out.write_all(bytes)?;
        let rest = bytes.len().next_multiple_of(BLOCK_BYTES) - bytes.len();
        out.write_all(&vec![0; rest])?;
    }
    // Two empty blocks end the archive.
    out.write_all(&[0; 2 * BLOCK_BYTES])?;
    out.finish()
}

/// Returns the header of a file in the format `ustar`.
fn tar_header(name: &str, bytes: usize) -> [u8; BLOCK_BYTES] {
    let mut header = [0; BLOCK_BYTES];
    let mut put = |at: usize, text: &str| {
        header[at..at + text.len()].copy_from_slice(text.as_bytes());
    };
    put(0, name);
    put(100, &format!("{PROGRAM_MODE:07o}"));
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{bytes:011o}"));
    put(136, "00000000000");
    // The checksum is computed with spaces in its place.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\0");
    put(263, "00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn versions_come_from_names() {
        for (name, version) in [
            ("envtest-v1.36.2-linux-amd64.tar.gz", Some("v1.36.2")),
            ("envtest-1.36.2-linux-amd64.tar.gz", None),
            ("envtest-v1.36-linux-amd64.tar.gz", None),
            ("keelson.tar.gz", None),
        ] {
            assert_eq!(version_of(name), version, "{name}");
        }
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("/a/b-c"), "/a/b-c");
        assert_eq!(quoted("/a b's"), "'/a b'\\''s'");
    }

    #[test]
    fn a_folder_has_the_program_under_both_names() {
        let dir = tempfile::tempdir().expect("a folder");
        let program = dir.path().join("program");
        fs::write(&program, "text").expect("a program");
        fs::set_permissions(&program, fs::Permissions::from_mode(PROGRAM_MODE)).expect("a mode");
        let assets = dir.path().join("assets");
        for _ in 0..2 {
            let made = write_folder(&assets, &program, Some(&program)).expect("a folder");
            for name in ["kube-apiserver", "etcd", "kubectl"] {
                assert_eq!(fs::read_to_string(made.join(name)).expect("a file"), "text");
            }
        }
    }

    #[test]
    fn an_archive_is_unpacked_by_tar() {
        let dir = tempfile::tempdir().expect("a folder");
        let archive = dir.path().join("a.tar.gz");
        let files = [("etcd", vec![7; 1000]), ("kubectl", vec![8; 512])];
        fs::write(&archive, tar_gz(&files).expect("an archive")).expect("a file");
        let tar = std::process::Command::new("tar")
            .arg("-xzf")
            .arg(&archive)
            .arg("-C")
            .arg(dir.path())
            .status();
        assert!(tar.expect("tar runs").success());
        for (name, bytes) in files {
            let path = dir.path().join(ARCHIVE_FOLDER).join(name);
            assert_eq!(fs::read(&path).expect("a file"), bytes);
            let mode = path.metadata().expect("a file").permissions().mode();
            assert_eq!(mode & 0o111, 0o111);
        }
    }
}
