//! [`LogFile`]: the file or stream that events are written to. [`LogWriter`]: writes those that
//! requests wait for, in the order in which they come.

use super::rotation::{RotatedFile, Rotation, check_length};
use crate::encoded::Format;
use bytes::Bytes;
use keelson_meta::Timestamp;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};

/// Maximum writes that wait for the thread; their senders wait, too.
const WRITES_MAX: usize = 1024;
/// Room for lines that is kept.
pub(super) const TEXT_BYTES_MAX: usize = 1 << 20;
/// The path of standard output.
const STDOUT: &str = "-";

/// What a [`LogFile`] is made of.
#[derive(Clone, Debug)]
pub struct LogFileOptions {
    /// The file; `-` is standard output.
    pub path: PathBuf,
    /// The form of the lines.
    pub format: Format,
    /// Size at which a file is rotated; 0: never.
    pub rotate_bytes: u64,
    /// Days that rotated files are kept; 0: no limit.
    pub days_max: u64,
    /// Rotated files that are kept; 0: no limit.
    pub backups_max: usize,
    /// Whether rotated files are compressed.
    pub compresses: bool,
}

/// The file or stream that events are written to.
pub struct LogFile {
    format: Format,
    output: Output,
}

/// Where the lines go.
pub(super) enum Output {
    Stdout,
    File(RotatedFile),
}

impl Output {
    /// Writes lines of these lengths. After an error the last one may be cut off.
    pub fn write(
        &mut self,
        text: &[u8],
        lengths: impl IntoIterator<Item = usize>,
    ) -> io::Result<()> {
        match self {
            Output::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(text)?;
                out.flush()
            }
            Output::File(file) => file.write(text, lengths),
        }
    }

    /// Maximum length of a line. A longer one is never written.
    fn line_bytes_max(&self) -> u64 {
        match self {
            Output::Stdout => u64::MAX,
            Output::File(file) => file.line_bytes_max(),
        }
    }
}

impl LogFile {
    /// Opens the file.
    pub fn open(options: LogFileOptions) -> io::Result<LogFile> {
        let format = options.format;
        let output = if options.path.as_os_str() == STDOUT {
            Output::Stdout
        } else {
            let rotation = Rotation {
                bytes: options.rotate_bytes,
                days_max: options.days_max,
                backups_max: options.backups_max,
                compresses: options.compresses,
            };
            Output::File(RotatedFile::open(options.path, rotation, now)?)
        };
        Ok(LogFile { format, output })
    }

    /// Returns the form of the lines.
    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Returns the maximum length of a line. A longer one is never written.
    pub(super) fn line_bytes_max(&self) -> u64 {
        self.output.line_bytes_max()
    }

    /// Returns what writes.
    pub(super) fn into_output(self) -> Output {
        self.output
    }
}

/// The thread that writes the events that requests wait for. Those that wait at the same time are
/// written together.
pub(super) struct LogWriter {
    line_bytes_max: u64,
    /// `None` when it is dropped.
    writes: Option<mpsc::Sender<LogWrite>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A line to write.
struct LogWrite {
    line: Bytes,
    done: oneshot::Sender<Result<(), String>>,
}

impl LogWriter {
    /// Starts the thread.
    pub fn start(log: LogFile) -> io::Result<LogWriter> {
        let line_bytes_max = log.line_bytes_max();
        let mut output = log.into_output();
        let (writes, mut receiver) = mpsc::channel::<LogWrite>(WRITES_MAX);
        let run = move || {
            let mut waiting = vec![];
            let mut text = vec![];
            while receiver.blocking_recv_many(&mut waiting, WRITES_MAX) > 0 {
                text.clear();
                waiting.iter().for_each(|write| text.extend_from_slice(&write.line));
                let written = output.write(&text, waiting.iter().map(|write| write.line.len()));
                text.shrink_to(TEXT_BYTES_MAX);
                let result = written.map_err(|error| error.to_string());
                for write in waiting.drain(..) {
                    // Whoever does not wait any more does not need to know.
                    let _ = write.done.send(result.clone());
                }
            }
        };
        let thread = thread::Builder::new().name("audit-log".to_owned()).spawn(run)?;
        Ok(LogWriter { line_bytes_max, writes: Some(writes), thread: Mutex::new(Some(thread)) })
    }

    /// Writes a line. Returns when it is written, not when it is on the disk. An error of the file
    /// may have cut any of those that are written together, so all of them have it.
    pub async fn write(&self, line: Bytes) -> Result<(), String> {
        const GONE: &str = "the thread of the audit log has ended";
        check_length(line.len(), self.line_bytes_max)?;
        let writes = self.writes.as_ref().ok_or(GONE)?;
        let (done, written) = oneshot::channel();
        writes.send(LogWrite { line, done }).await.map_err(|_| GONE)?;
        written.await.map_err(|_| GONE)?
    }
}

impl Drop for LogWriter {
    /// Writes what waits.
    fn drop(&mut self) {
        drop(self.writes.take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::new(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}
