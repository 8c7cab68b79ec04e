//! [`LogFile`]: the file or stream that events are written to, by a thread of its own, in the order
//! in which they come.

use super::Pace;
use super::rotation::{RotatedFile, Rotation};
use crate::encoded::Format;
use bytes::Bytes;
use keelson_meta::Timestamp;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};

/// Maximum writes that wait for the thread; their senders wait, too.
const WRITES_MAX: usize = 1024;
/// Nobody waits for events in batches: for so long their lines are gathered.
pub(super) const PACE: Pace = Pace { pause: Duration::from_millis(5), events_max: WRITES_MAX };
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

/// Where the lines go.
enum Output {
    /// Standard output, and the lines that are not written yet.
    Stdout(Vec<u8>),
    File(RotatedFile),
}

impl Output {
    /// Adds a line. It is written at the latest by [`Output::flush`].
    fn add(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Output::Stdout(lines) => {
                lines.extend_from_slice(line);
                Ok(())
            }
            Output::File(file) => file.add(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Stdout(lines) => {
                let mut out = io::stdout().lock();
                let written = out.write_all(lines).and_then(|()| out.flush());
                lines.clear();
                written
            }
            Output::File(file) => file.flush(),
        }
    }

    /// Returns why a line is never written.
    fn refuses(&self, line: &[u8]) -> Option<String> {
        match self {
            Output::Stdout(_) => None,
            Output::File(file) => file.refuses(line),
        }
    }

    /// Writes what waits together. Each hears whether its own lines are written; an error of the
    /// file may have cut any of them.
    fn write(&mut self, writes: &mut Vec<LogWrite>) {
        let mut failure = None;
        let mut refused = vec![];
        for write in writes.iter() {
            let why = write.texts.iter().find_map(|text| self.refuses(text));
            if why.is_none() {
                let added = write.texts.iter().try_for_each(|text| self.add(text));
                failure = failure.or(added.err());
            }
            refused.push(why);
        }
        let failure = failure.or(self.flush().err()).map(|error| error.to_string());
        for (write, why) in writes.drain(..).zip(refused) {
            let why = why.or_else(|| failure.clone());
            // Whoever does not wait any more does not need to know.
            let _ = write.done.send(why.map_or(Ok(()), Err));
        }
    }
}

/// Lines to write.
struct LogWrite {
    texts: Vec<Bytes>,
    done: oneshot::Sender<Result<(), String>>,
}

impl LogFile {
    /// Opens the file and starts the thread.
    pub fn open(options: LogFileOptions) -> io::Result<LogFile> {
        let format = options.format;
        let mut output = if options.path.as_os_str() == STDOUT {
            Output::Stdout(vec![])
        } else {
            let rotation = Rotation {
                bytes: options.rotate_bytes,
                days_max: options.days_max,
                backups_max: options.backups_max,
                compresses: options.compresses,
            };
            Output::File(RotatedFile::open(options.path, rotation, now)?)
        };
        let (writes, mut receiver) = mpsc::channel::<LogWrite>(WRITES_MAX);
        let run = move || {
            let mut waiting = vec![];
            while receiver.blocking_recv_many(&mut waiting, WRITES_MAX) > 0 {
                output.write(&mut waiting);
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
