//! [`LogFile`]: the file or stream that events are written to, by a thread of its own, in the order in
//! which they come.

use super::rotation::{RotatedFile, Rotation};
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
    /// `None` when it is dropped.
    writes: Option<mpsc::Sender<LogWrite>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Writes one line.
type Output = Box<dyn FnMut(&[u8]) -> io::Result<()> + Send>;

/// Lines to write.
struct LogWrite {
    texts: Vec<Bytes>,
    done: oneshot::Sender<Result<(), String>>,
}

impl LogFile {
    /// Opens the file and starts the thread.
    pub fn open(options: LogFileOptions) -> io::Result<LogFile> {
        let format = options.format;
        let mut output: Output = if options.path.as_os_str() == STDOUT {
            Box::new(|text| {
                let mut out = io::stdout().lock();
                out.write_all(text)?;
                out.flush()
            })
        } else {
            let rotation = Rotation {
                bytes: options.rotate_bytes,
                days_max: options.days_max,
                backups_max: options.backups_max,
                compresses: options.compresses,
            };
            let mut file = RotatedFile::open(options.path, rotation, now)?;
            Box::new(move |text| file.write(text))
        };
        let (writes, mut receiver) = mpsc::channel::<LogWrite>(WRITES_MAX);
        let run = move || {
            while let Some(LogWrite { texts, done }) = receiver.blocking_recv() {
                let result = texts.iter().try_for_each(|text| output(text));
                // Whoever does not wait any more does not need to know.
                let _ = done.send(result.map_err(|error| error.to_string()));
            }
        };
        let thread = thread::Builder::new().name("audit-log".to_owned()).spawn(run)?;
        Ok(LogFile { format, writes: Some(writes), thread: Mutex::new(Some(thread)) })
    }

    /// Returns the form of the lines.
    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Writes lines. Returns when they are written, not when they are on the disk.
    pub(super) async fn write(&self, texts: Vec<Bytes>) -> Result<(), String> {
        const GONE: &str = "the thread of the audit log has ended";
        let writes = self.writes.as_ref().ok_or(GONE)?;
        let (done, written) = oneshot::channel();
        writes.send(LogWrite { texts, done }).await.map_err(|_| GONE)?;
        written.await.map_err(|_| GONE)?
    }
}

impl Drop for LogFile {
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
