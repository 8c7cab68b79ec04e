//! `cargo xtask release`: a release build by the profile of a run (profile-guided optimization): what a server does
//! often is made fast, and all else small.

use anyhow::{Context, Result, bail};
use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What the load generator does with the server whose profile is taken.
const TRAINING: [&str; 10] =
    ["create", "get", "update", "patch", "apply", "delete", "lease", "list", "watch", "mixed"];
/// Seconds of each part of the training.
const TRAINING_SECONDS: &str = "2";
const TOKEN: &str = "training";
/// How long the server may take to listen, and the pause between two looks.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);

/// Builds a server that counts what it does, puts load on it, and builds the server again by these counts.
pub fn run(args: &[String]) -> Result<()> {
    if !args.is_empty() {
        bail!("cargo xtask release");
    }
    let sysroot = text(Command::new("rustc").args(["--print", "sysroot"]))?;
    let host = text(Command::new("rustc").args(["--print", "host-tuple"]))?;
    let merge = Path::new(&sysroot).join("lib/rustlib").join(&host).join("bin/llvm-profdata");
    if !merge.is_file() {
        bail!("{} is missing: rustup component add llvm-tools", merge.display());
    }
    let folder = std::env::current_dir()?.join("target/profile");
    let (counts, profile) = (folder.join("counts"), folder.join("merged.profdata"));
    if counts.exists() {
        fs::remove_dir_all(&counts).with_context(|| counts.display().to_string())?;
    }
    say("building the server that counts, and the load generator")?;
    let counting =
        build(&host, &folder, &format!("-Cprofile-generate={}", counts.display()), |cargo| {
            // Counts belong to functions, however these are linked.
            cargo.env("CARGO_PROFILE_RELEASE_LTO", "off")
        })?;
    done(Command::new("cargo").args(["build", "--release", "-p", "keelson-bench"]))?;
    say("putting load on it")?;
    train(&counting, &folder.join("data"))?;
    done(Command::new(&merge).arg("merge").arg("-o").args([&profile, &counts]))?;
    say("building the server by its profile")?;
    let built =
        build(&host, &folder, &format!("-Cprofile-use={}", profile.display()), |cargo| cargo)?;
    writeln!(std::io::stdout(), "{}", built.display()).context("standard output")
}

/// Runs the server on an empty folder under load. It writes its counts when it ends.
fn train(server: &Path, data: &Path) -> Result<()> {
    if data.exists() {
        fs::remove_dir_all(data).with_context(|| data.display().to_string())?;
    }
    fs::create_dir_all(data)?;
    let tokens = data.join("tokens.csv");
    fs::write(&tokens, format!("{TOKEN},training,training,system:masters\n"))?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let mut command = Command::new(server);
    command.args(["serve", "--bind-address", "127.0.0.1", "--secure-port", &port]);
    command.arg("--data-dir").arg(data).arg("--token-auth-file").arg(&tokens);
    let mut running = command.stderr(Stdio::null()).spawn().context("the server that counts")?;
    let url = format!("https://127.0.0.1:{port}");
    let mut load = Command::new("target/release/keelson-bench");
    load.arg("run").args(TRAINING).args(["--seconds", TRAINING_SECONDS, "--server", &url]);
    load.args(["--token", TOKEN, "--insecure-skip-tls-verify"]).stdout(Stdio::null());
    let began = Instant::now();
    // A tool without a runtime has no timers.
    #[allow(clippy::disallowed_methods)]
    while TcpStream::connect(("127.0.0.1", port.parse()?)).is_err() && began.elapsed() < PATIENCE {
        std::thread::sleep(LOOK);
    }
    let loaded = done(&mut load);
    done(Command::new("kill").arg(running.id().to_string()))?;
    let status = running.wait()?;
    loaded?;
    if !status.success() {
        bail!("the server that counts ended with {status}");
    }
    Ok(())
}

/// Builds the server with flags of its own, for a named target: build scripts and macros do without the flags.
fn build(
    host: &str,
    folder: &Path,
    flags: &str,
    also: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "-p", "keelson", "--target", host, "--target-dir"]);
    cargo.arg(folder).env("RUSTFLAGS", flags);
    done(also(&mut cargo))?;
    Ok(folder.join(host).join("release/keelson"))
}

fn say(text: &str) -> Result<()> {
    writeln!(std::io::stderr(), "{text}").context("standard error")
}

fn done(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

fn text(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
