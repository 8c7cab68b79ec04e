//! `keelson backup`: a backup from the running server, from the data folder when none runs, or from
//! an etcd cluster.

use super::CHUNK_BYTES;
use super::output::{self, Progress};
use crate::flags::{BackupFlags, STDIO};
use anyhow::{Context, Result, anyhow, bail};
use keelson::EtcdData;
use keelson_store::OpenError;
use keelson_store::backup::{BackupReader, BackupSummary};
use keelson_store::embedded::Offline;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout of a server that sends nothing.
const STALL_TIME_MAX: Duration = Duration::from_secs(60);

/// Runs `keelson backup`.
pub fn run(flags: &BackupFlags) -> Result<()> {
    let source = Source::open(flags)?;
    let mut progress = Progress::start();
    let mut target = Target::open(&flags.file)?;
    let result = match source {
        Source::Server(server) => receive(server, &mut target, &mut progress),
        Source::Folder(dir) => read(&dir, &mut target),
        Source::Etcd(data) => {
            let backup = data.backup(&mut target.out, &mut |so_far| progress.show(&so_far));
            backup.map_err(anyhow::Error::msg)
        }
    };
    let seconds = progress.end();
    let summary = result?;
    target.finish()?;
    let line = output::summary("backed up", &flags.file, &summary, seconds, flags.output);
    if flags.file == STDIO {
        // Standard output holds the backup itself.
        let _ = writeln!(std::io::stderr(), "{line}");
        return Ok(());
    }
    output::print(&line)
}

/// Where the objects come from.
enum Source {
    /// The server that uses the data folder.
    Server(UnixStream),
    /// A data folder that no server uses.
    Folder(PathBuf),
    Etcd(Box<EtcdData>),
}

impl Source {
    fn open(flags: &BackupFlags) -> Result<Source> {
        if let Some(data) = flags.etcd.data()? {
            return Ok(Source::Etcd(Box::new(data)));
        }
        let dir = flags.data.dir()?;
        Ok(match connect(&dir)? {
            Some(server) => Source::Server(server),
            None => Source::Folder(dir),
        })
    }
}

/// Connects to the server that uses the data folder; `None` when there is none.
fn connect(dir: &Path) -> Result<Option<UnixStream>> {
    let path = keelson::backup_socket(dir);
    match UnixStream::connect(&path) {
        Ok(stream) => {
            stream.set_read_timeout(Some(STALL_TIME_MAX)).context("ask the server")?;
            Ok(Some(stream))
        }
        // No server, a socket that a killed server left, or a path too long for a socket.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::InvalidInput
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| format!("ask the server at {}", path.display())),
    }
}

fn receive(
    server: UnixStream,
    target: &mut Target,
    progress: &mut Progress,
) -> Result<BackupSummary> {
    let mut write_error = None;
    let input = BufReader::with_capacity(CHUNK_BYTES, server);
    let summary = read_all(Tee { input, target, write_error: &mut write_error }, progress);
    match write_error {
        Some(error) => Err(error).context("write the backup"),
        None => summary.context("the server broke the backup off (its log says why)"),
    }
}

/// Reads a backup to its end and verifies its checksum.
fn read_all(input: impl Read, progress: &mut Progress) -> Result<BackupSummary> {
    let mut reader = BackupReader::new(input)?;
    while reader.next_key()?.is_some() {
        progress.show(&reader.summary());
    }
    Ok(reader.summary())
}

fn read(dir: &Path, target: &mut Target) -> Result<BackupSummary> {
    let store = dir.join("store");
    let offline = Offline::open(&store).map_err(|error| match error {
        OpenError::Locked { .. } => anyhow!(
            "--data-dir: a server uses {} and offers no backup of it yet, or cannot (its log says \
             why)",
            dir.display()
        ),
        error => super::check::open_error(&error, "--data-dir"),
    })?;
    offline.backup(&mut target.out).context("--data-dir")
}

/// The output of a backup. A file is renamed to its final name when it is complete.
struct Target {
    out: BufWriter<Box<dyn Write>>,
    /// The temporary path and the final path; `None` for pipes, devices and standard output.
    paths: Option<(PathBuf, PathBuf)>,
    is_complete: bool,
}

impl Target {
    fn open(file: &str) -> Result<Target> {
        let target = |out: Box<dyn Write>, paths| {
            let out = BufWriter::with_capacity(CHUNK_BYTES, out);
            Ok(Target { out, paths, is_complete: false })
        };
        if file == STDIO {
            return target(Box::new(std::io::stdout()), None);
        }
        let path = PathBuf::from(file);
        let failed = || format!("write {file}");
        match path.metadata() {
            Ok(metadata) if metadata.is_dir() => bail!("{file} is a folder; name a file"),
            // A rename would replace the pipe or device with a file.
            Ok(metadata) if !metadata.is_file() => {
                let out = OpenOptions::new().write(true).open(&path).with_context(failed)?;
                return target(Box::new(out), None);
            }
            _ => {}
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".partial-{}", std::process::id()));
        let temporary = path.with_file_name(name);
        let out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
        target(Box::new(out.with_context(failed)?), Some((temporary, path)))
    }

    fn finish(&mut self) -> Result<()> {
        self.out.flush().context("write the backup")?;
        let Some((temporary, path)) = &self.paths else { return Ok(()) };
        let renamed = File::open(temporary).and_then(|file| file.sync_all()).and_then(|()| {
            std::fs::rename(temporary, path)?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        });
        renamed.with_context(|| format!("write {}", path.display()))?;
        self.is_complete = true;
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let (false, Some((temporary, _))) = (self.is_complete, &self.paths) {
            // The error that led here is reported; this one is not.
            let _ = std::fs::remove_file(temporary);
        }
    }
}

/// A reader that also writes what it reads to the target.
struct Tee<'a, R> {
    input: R,
    target: &'a mut Target,
    /// The write error, kept apart from read errors so that the server is not blamed for it.
    write_error: &'a mut Option<std::io::Error>,
}

impl<R: Read> Read for Tee<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.input.read(into)?;
        if let Err(error) = self.target.out.write_all(&into[..count]) {
            *self.write_error = Some(error);
            return Err(ErrorKind::Other.into());
        }
        Ok(count)
    }
}
