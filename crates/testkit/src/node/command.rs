//! Commands as processes of this machine.

use bytes::{Bytes, BytesMut};
use keelson_streams::channels::{STDERR, STDOUT};
use keelson_streams::outcome::Outcome;
use rustix::process::{Pid, Signal, kill_process_group};
use std::future::pending;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc::{Receiver, Sender};

/// Most bytes that are read from a process at once.
const READ_BYTES_MAX: usize = 32 << 10;
/// What a terminal takes as the end of the input, and as an interrupt.
const END_OF_INPUT: u8 = 4;
const INTERRUPT: u8 = 3;

/// The streams of a command.
pub(super) struct CommandIo {
    /// The input; it ends when the sender is dropped. `None`: the command has none.
    pub stdin: Option<Receiver<Bytes>>,
    /// The output, each piece with its channel.
    pub output: Sender<(u8, Bytes)>,
    /// Acts like a terminal: echoes the input, ends lines with CR LF, and has one output.
    pub tty: bool,
}

/// Runs a command until it has ended and its output is read. Dropping the future kills it.
pub(super) async fn run(command: &[&str], folder: Option<&Path>, io: CommandIo) -> Outcome {
    let failed =
        |why: String| Outcome::Failed(format!("error executing command in container: {why}"));
    let Some((program, arguments)) = command.split_first() else {
        return failed("no command".to_owned());
    };
    let mut prepared = Command::new(program);
    prepared.args(arguments).process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    prepared.stdin(if io.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
    if let Some(folder) = folder {
        prepared.current_dir(folder);
    }
    let mut child = match prepared.spawn() {
        Ok(child) => child,
        Err(error) => return failed(format!("{program}: {error}")),
    };
    let group = Group::of(&child);
    let tty = io.tty;
    let error_channel = if tty { STDOUT } else { STDERR };
    let stdout = copy_output(child.stdout.take(), STDOUT, tty, &io.output);
    let stderr = copy_output(child.stderr.take(), error_channel, tty, &io.output);
    let input = async {
        if let (Some(receiver), Some(stdin)) = (io.stdin, child.stdin.take()) {
            copy_input(receiver, stdin, tty, &io.output, &group).await;
        }
        pending::<()>().await;
    };
    tokio::select! {
        _ = async { tokio::join!(stdout, stderr) } => {}
        () = input => {}
    }
    let status = child.wait().await;
    match status.map(|status| status.code().or(status.signal().map(|signal| 128 + signal))) {
        Ok(Some(0)) => Outcome::Success,
        Ok(Some(code)) => Outcome::ExitCode(code as u8),
        Ok(None) => failed(format!("{program}: no exit code")),
        Err(error) => failed(format!("{program}: {error}")),
    }
}

/// The processes of a command, which are killed when it is dropped.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Group {
        Group(child.id().and_then(|id| Pid::from_raw(id as i32)))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

async fn copy_output(
    from: Option<impl AsyncRead + Unpin>,
    channel: u8,
    tty: bool,
    to: &Sender<(u8, Bytes)>,
) {
    let Some(mut from) = from else { return };
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(READ_BYTES_MAX);
        match from.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let mut data = buffer.split().freeze();
        if tty {
            data = with_carriage_returns(&data);
        }
        if to.send((channel, data)).await.is_err() {
            return;
        }
    }
}

async fn copy_input(
    mut from: Receiver<Bytes>,
    mut to: ChildStdin,
    tty: bool,
    echo: &Sender<(u8, Bytes)>,
    group: &Group,
) {
    while let Some(data) = from.recv().await {
        if !tty {
            // A process may close its input before it ends.
            if to.write_all(&data).await.is_err() {
                return;
            }
            continue;
        }
        let data: Vec<u8> =
            data.iter().map(|byte| if *byte == b'\r' { b'\n' } else { *byte }).collect();
        let _ = echo.send((STDOUT, with_carriage_returns(&data))).await;
        let end = data.iter().position(|byte| matches!(*byte, END_OF_INPUT | INTERRUPT));
        if to.write_all(&data[..end.unwrap_or(data.len())]).await.is_err() {
            return;
        }
        match end.map(|end| data[end]) {
            Some(INTERRUPT) => group.signal(Signal::INT),
            Some(_) => return,
            None => {}
        }
    }
}

fn with_carriage_returns(data: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(data.len() + 16);
    for byte in data {
        if *byte == b'\n' {
            out.push(b'\r');
        }
        out.push(*byte);
    }
    out.into()
}
