//! The program without shared libraries, for hosts of any kind and for container images: an archive
//! that is also a context for `docker build`.

use super::{FILE_MODE, PROGRAM, PROGRAM_MODE, Parts, SOURCES, VERSION};
use crate::commands;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::SystemTime;

/// Rust's targets for the two C libraries that can be linked in.
const MUSL: &str = "x86_64-unknown-linux-musl";
const GNU: &str = "x86_64-unknown-linux-gnu";
/// The source whose change makes cargo link the program again.
const MAIN: &str = "crates/keelson/src/main.rs";
/// What makes the compiler link without shared libraries.
const STATIC: &str = "target-feature=+crt-static";
/// Says to this program that cargo calls it instead of the compiler.
const WRAPPED: &str = "KEELSON_LINK_STATIC";
/// The user and group of the Dockerfile.
const IMAGE_USER: &str = "65532:65532";

/// Builds the program: with musl if its target is installed, else with glibc.
pub fn build() -> Result<PathBuf> {
    let target = if is_installed(MUSL)? { MUSL } else { GNU };
    writeln!(std::io::stdout(), "building the profile dist, static, for {target}")?;
    let mut cargo = Command::new("cargo");
    cargo.args(["rustc", "--quiet", "-p", PROGRAM, "--bin", PROGRAM]);
    cargo.args(["--profile", "dist", "--target", target]);
    commands::run(cargo.args(["--", "-C", STATIC]))?;
    Ok(super::target_folder().join(target).join("dist").join(PROGRAM))
}

/// Links the program of the tests again with its libraries linked in, and leaves it in `to`. Cargo
/// can pass arguments to one crate only if it selects the features of this crate alone, which means
/// to build everything once more; so it calls this program instead of the compiler.
fn link_tested(to: &Path) -> Result<()> {
    let touch = || -> Result<()> {
        let main = File::options().write(true).open(MAIN).context(MAIN)?;
        main.set_modified(SystemTime::now()).context(MAIN)
    };
    touch()?;
    // A copy: the build may replace the file of this program.
    let xtask = to.with_file_name("compiler");
    fs::copy("/proc/self/exe", &xtask).context("copy this program")?;
    let mut cargo = commands::tests(&["test", "--quiet", "--no-run"]);
    let linked = commands::run(cargo.env("RUSTC_WRAPPER", xtask).env(WRAPPED, "1"));
    // What is built next is the program with its shared libraries.
    touch()?;
    linked?;
    commands::run(Command::new("strip").arg("-o").arg(to).arg(commands::SERVER))
}

/// Runs the compiler as `link_tested` wants it, if cargo called this program instead.
pub fn compile(arguments: &[String]) -> Option<ExitCode> {
    std::env::var_os(WRAPPED)?;
    let (compiler, rest) = arguments.split_first()?;
    let follows = |flag: &str, value: &str| rest.windows(2).any(|pair| pair == [flag, value]);
    let is_program = follows("--crate-name", PROGRAM) && follows("--crate-type", "bin");
    let added: &[&str] = if is_program { &["-C", STATIC] } else { &[] };
    let status = Command::new(compiler).args(rest).args(added).status().ok()?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Some(code.map_or(ExitCode::FAILURE, ExitCode::from))
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

/// Links the program of the tests without shared libraries, packs it, unpacks it into an empty
/// root, runs the command of the image there, and asks the server its version. Needs root.
pub fn check() -> Result<()> {
    let folder = tempfile::tempdir().context("a folder")?;
    let out = folder.path().join("out");
    let program = folder.path().join(PROGRAM);
    link_tested(&program)?;
    let program = program.to_string_lossy();
    let arguments = ["static", "--program", &program, "--out"].into_iter().map(str::to_owned);
    super::run(&arguments.chain([out.to_string_lossy().into_owned()]).collect::<Vec<_>>())?;
    let archive = fs::read_dir(&out)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .into_iter()
        .find(|path| path.extension().is_some_and(|e| e == "gz"));
    let root = folder.path().join("root");
    // What every container has of /dev; the program takes its randomness from there.
    fs::create_dir_all(root.join("dev")).context("/dev")?;
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(archive.context("no archive")?).arg("-C").arg(&root);
    commands::run(&mut tar)?;
    for (name, minor) in [("random", "8"), ("urandom", "9")] {
        let node = root.join("dev").join(name);
        commands::run(Command::new("mknod").args(["-m", "666"]).arg(node).args(["c", "1", minor]))?;
    }
    commands::run(Command::new("chown").arg(IMAGE_USER).arg(root.join("data")))?;
    let inside = |arguments: &[&str]| {
        let mut command = Command::new("chroot");
        command.arg(format!("--userspec={IMAGE_USER}")).arg(&root).arg("/keelson").args(arguments);
        command
    };
    let mut serve = inside(&["serve", "--data-dir=/data", "--secure-port=0"]);
    let mut server =
        serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("chroot")?;
    let mut banner = String::new();
    let output = server.stdout.take().context("the output of the server")?;
    let read = BufReader::new(output).read_line(&mut banner);
    let asked = inside(&["version", "--kubeconfig", "/data/admin.kubeconfig"]).output();
    server.kill().and_then(|()| server.wait()).context("stop the server")?;
    read.context("the output of the server")?;
    let answer = String::from_utf8(asked.context("chroot")?.stdout)?;
    if !answer.contains("\nServer Version: v") {
        bail!("the static program does not serve in an empty root: {banner}{answer}");
    }
    writeln!(std::io::stdout(), "in an empty root: {}", banner.trim_end()).context("output")
}
