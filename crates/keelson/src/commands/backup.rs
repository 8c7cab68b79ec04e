//! `keelson backup`: from the running server where there is one, else from the folder itself.

use super::CHUNK_BYTES;
use super::output::{self, Progress};
use crate::flags::{BackupAsk, STDIO};
use anyhow::{Context, Result, anyhow, bail};
use keelson_store::OpenError;
use keelson_store::backup::{BackupReader, BackupSummary};
use keelson_store::embedded::Offline;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout of a silent server.
const STALL_TIME_MAX: Duration = Duration::from_secs(60);

/// Makes a backup.
pub fn run(ask: &BackupAsk) -> Result<()> {
    let dir = ask.place.dir()?;
    let server = connect(&dir)?;
    let mut progress = Progress::start();
    let mut target = Target::open(&ask.file)?;
    let made = match server {
        Some(server) => receive(server, &mut target, &mut progress),
        None => read(&dir, &mut target),
    };
    let seconds = progress.end();
    let made = made?;
    target.finish()?;
    let line = output::closing("backed up", &ask.file, &made, seconds, ask.output);
    if ask.file == STDIO {
        // Standard output is the backup.
        let _ = writeln!(std::io::stderr(), "{line}");
        return Ok(());
    }
    output::print(&line)
}

fn connect(dir: &Path) -> Result<Option<UnixStream>> {
    let path = keelson::backup_socket(dir);
    match UnixStream::connect(&path) {
        Ok(stream) => {
            stream.set_read_timeout(Some(STALL_TIME_MAX)).context("ask the server")?;
            Ok(Some(stream))
        }
        // No server, one that ended without a word, or a path that no socket can have.
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
    let mut failed = None;
    let input = BufReader::with_capacity(CHUNK_BYTES, server);
    let taken = take(Tee { input, target, failed: &mut failed }, progress);
    match failed {
        Some(error) => Err(error).context("write the backup"),
        None => taken.context("the server broke the backup off (its log says why)"),
    }
}

fn take(input: impl Read, progress: &mut Progress) -> Result<BackupSummary> {
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
        error => super::check::no_data(&error, "--data-dir"),
    })?;
    offline.backup(&mut target.out).context("--data-dir")
}

/// The output of a backup. The file gets its name only when it is whole.
struct Target {
    out: BufWriter<Box<dyn Write>>,
    /// The file under its first name and its last; none for what is no file.
    names: Option<(PathBuf, PathBuf)>,
    is_whole: bool,
}

impl Target {
    fn open(file: &str) -> Result<Target> {
        let place = |out: Box<dyn Write>, names| {
            let out = BufWriter::with_capacity(CHUNK_BYTES, out);
            Ok(Target { out, names, is_whole: false })
        };
        if file == STDIO {
            return place(Box::new(std::io::stdout()), None);
        }
        let path = PathBuf::from(file);
        let failed = || format!("write {file}");
        match path.metadata() {
            Ok(there) if there.is_dir() => bail!("{file} is a folder; name a file"),
            // A pipe or a device must not be replaced.
            Ok(there) if !there.is_file() => {
                let out = OpenOptions::new().write(true).open(&path).with_context(failed)?;
                return place(Box::new(out), None);
            }
            _ => {}
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".partial-{}", std::process::id()));
        let first = path.with_file_name(name);
        let out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&first);
        place(Box::new(out.with_context(failed)?), Some((first, path)))
    }

    fn finish(&mut self) -> Result<()> {
        self.out.flush().context("write the backup")?;
        let Some((first, last)) = &self.names else { return Ok(()) };
        let named = File::open(first).and_then(|file| file.sync_all()).and_then(|()| {
            std::fs::rename(first, last)?;
            let folder = last.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        });
        named.with_context(|| format!("write {}", last.display()))?;
        self.is_whole = true;
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let (false, Some((first, _))) = (self.is_whole, &self.names) {
            // The failure that led here is the one to tell.
            let _ = std::fs::remove_file(first);
        }
    }
}

/// Writes on what is read.
struct Tee<'a, R> {
    input: R,
    target: &'a mut Target,
    /// Why it could not be written on: no fault of who is read from.
    failed: &'a mut Option<std::io::Error>,
}

impl<R: Read> Read for Tee<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.input.read(into)?;
        if let Err(error) = self.target.out.write_all(&into[..count]) {
            *self.failed = Some(error);
            return Err(ErrorKind::Other.into());
        }
        Ok(count)
    }
}
