//! [`RotatedFile`]: a file that gets another name when it is large, as lumberjack does it: of
//! `audit.log` comes `audit-2006-01-02T15-04-05.000.log`, in UTC, and `.gz` behind it when it is
//! compressed.

use flate2::Compression;
use flate2::write::GzEncoder;
use keelson_meta::Timestamp;
use keelson_meta::time::GoDuration;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

/// Only the server's user reads what was audited.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
const COMPRESSED: &str = ".gz";
const DAY_NANOS: i64 = 86_400_000_000_000;
/// Maximum files of one moment.
const SAME_NAMES_MAX: u32 = 1000;

/// When files are rotated, and how long they are kept.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rotation {
    /// Size at which a file is rotated; 0: never.
    pub bytes: u64,
    /// Days that rotated files are kept; 0: no limit.
    pub days_max: u64,
    /// Rotated files that are kept; 0: no limit.
    pub backups_max: usize,
    /// Whether rotated files are compressed.
    pub compresses: bool,
}

/// A file that gets another name when it is large.
pub(super) struct RotatedFile {
    path: PathBuf,
    rotation: Rotation,
    now: fn() -> Timestamp,
    file: File,
    size: u64,
    /// Whether the last line may be cut off, because a write failed.
    is_torn: bool,
    cleaning: Option<JoinHandle<()>>,
}

impl RotatedFile {
    /// Opens the file, with its folder.
    pub fn open(
        path: PathBuf,
        rotation: Rotation,
        now: fn() -> Timestamp,
    ) -> io::Result<RotatedFile> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
        }
        let file = open(&path)?;
        let size = file.metadata()?.len();
        let is_torn = size > 0 && !ends_with_newline(&path)?;
        let mut opened = RotatedFile { path, rotation, now, file, size, is_torn, cleaning: None };
        opened.clean_up();
        Ok(opened)
    }

    /// Maximum length of a line: no file has room for more.
    pub fn line_bytes_max(&self) -> u64 {
        if self.rotation.bytes == 0 { u64::MAX } else { self.rotation.bytes }
    }

    /// Writes lines of these lengths, into a new file when one has no room in the present one.
    /// After an error the last one that was written may be cut off.
    pub fn write(
        &mut self,
        text: &[u8],
        lengths: impl IntoIterator<Item = usize>,
    ) -> io::Result<()> {
        let bytes_max = self.line_bytes_max();
        let mut begin = 0;
        if self.size + text.len() as u64 > bytes_max {
            let mut end = 0;
            for length in lengths {
                let size = self.size + (end - begin) as u64;
                if size > 0 && size + length as u64 > bytes_max {
                    self.append(&text[begin..end])?;
                    self.rotate()?;
                    begin = end;
                }
                end += length;
            }
        }
        self.append(&text[begin..])
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        if self.is_torn {
            self.file.write_all(b"\n")?;
            self.size += 1;
        }
        self.is_torn = true;
        self.file.write_all(lines)?;
        self.is_torn = false;
        self.size += lines.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let backup = self.backup_path()?;
        fs::rename(&self.path, backup)?;
        self.file = open(&self.path)?;
        self.size = self.file.metadata()?.len();
        self.is_torn = false;
        self.clean_up();
        Ok(())
    }

    /// Returns a name for the present file.
    fn backup_path(&self) -> io::Result<PathBuf> {
        let mut time = (self.now)();
        for _ in 0..SAME_NAMES_MAX {
            let path = self.path.with_file_name(Names::of(&self.path).backup(time));
            let compressed = PathBuf::from(format!("{}{COMPRESSED}", path.display()));
            if !path.try_exists()? && !compressed.try_exists()? {
                return Ok(path);
            }
            time = time.plus(GoDuration(1_000_000));
        }
        Err(io::Error::other("too many rotated files of one moment"))
    }

    /// Starts the thread that compresses and removes old files, unless it runs: then the next
    /// rotation does what is left.
    fn clean_up(&mut self) {
        let Rotation { days_max, backups_max, compresses, .. } = self.rotation;
        let is_running = self.cleaning.as_ref().is_some_and(|thread| !thread.is_finished());
        if is_running || (days_max == 0 && backups_max == 0 && !compresses) {
            return;
        }
        let path = self.path.clone();
        let rotation = self.rotation;
        let now = (self.now)();
        let run = move || {
            if let Err(error) = clean_up(&path, rotation, now) {
                let path = path.display();
                tracing::error!(%error, %path, "old audit logs not removed or compressed");
            }
        };
        self.cleaning = thread::Builder::new().name("audit-rotation".to_owned()).spawn(run).ok();
    }
}

impl Drop for RotatedFile {
    fn drop(&mut self) {
        if let Some(cleaning) = self.cleaning.take() {
            let _ = cleaning.join();
        }
    }
}

/// Checks that a line of this length can be written.
pub(super) fn check_length(length: usize, bytes_max: u64) -> Result<(), String> {
    match length as u64 > bytes_max {
        true => Err(format!("write length {length} exceeds maximum file size {bytes_max}")),
        false => Ok(()),
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(FILE_MODE).open(path)
}

fn ends_with_newline(path: &Path) -> io::Result<bool> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = File::open(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// The parts of the name of a log.
struct Names {
    /// `audit-`.
    prefix: String,
    /// `.log`.
    extension: String,
}

impl Names {
    fn of(path: &Path) -> Names {
        let text = |part: Option<&std::ffi::OsStr>| {
            part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let extension = text(path.extension());
        let extension = if extension.is_empty() { extension } else { format!(".{extension}") };
        Names { prefix: format!("{}-", text(path.file_stem())), extension }
    }

    /// Returns the name of a file that was rotated at a time.
    fn backup(&self, time: Timestamp) -> String {
        let seconds = time.truncated().text().trim_end_matches('Z').replace(':', "-");
        let millis = time.nanos / 1_000_000;
        format!("{}{seconds}.{millis:03}{}", self.prefix, self.extension)
    }

    /// Returns the time in the name of a rotated file, and whether it is compressed.
    fn time_of(&self, name: &str) -> Option<(Timestamp, bool)> {
        let plain = name.strip_suffix(COMPRESSED);
        let middle = plain.unwrap_or(name).strip_prefix(&self.prefix)?;
        let time = middle.strip_suffix(&self.extension)?;
        let (date, clock) = time.split_once('T')?;
        let time = Timestamp::parse(&format!("{date}T{}Z", clock.replace('-', ":"))).ok()?;
        Some((time, plain.is_some()))
    }
}

/// Removes the files that are too old or too many, and compresses the others.
fn clean_up(path: &Path, rotation: Rotation, now: Timestamp) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let names = Names::of(path);
    let mut backups = vec![];
    for entry in fs::read_dir(folder.unwrap_or(Path::new(".")))? {
        let entry = entry?;
        if let Some((time, is_compressed)) = names.time_of(&entry.file_name().to_string_lossy()) {
            backups.push((time, is_compressed, entry.path()));
        }
    }
    backups.sort();
    backups.reverse();
    let age_max =
        i64::try_from(rotation.days_max).ok().and_then(|days| days.checked_mul(DAY_NANOS));
    for (at, (time, is_compressed, path)) in backups.into_iter().enumerate() {
        let is_old = rotation.days_max > 0 && age_max.is_some_and(|age| now.since(time).0 > age);
        if is_old || (rotation.backups_max > 0 && at >= rotation.backups_max) {
            fs::remove_file(path)?;
        } else if rotation.compresses && !is_compressed {
            compress(&path)?;
        }
    }
    Ok(())
}

/// Replaces a file by its compressed form. A crash leaves the file, or both.
fn compress(path: &Path) -> io::Result<()> {
    let compressed = PathBuf::from(format!("{}{COMPRESSED}", path.display()));
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(true).mode(FILE_MODE);
    let mut encoder = GzEncoder::new(options.open(&compressed)?, Compression::default());
    let copied = io::copy(&mut File::open(path)?, &mut encoder);
    let finished = copied.and_then(|_| encoder.finish()).and_then(|file| file.sync_all());
    if finished.is_err() {
        fs::remove_file(&compressed)?;
    }
    finished?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests;
