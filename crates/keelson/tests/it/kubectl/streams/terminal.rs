//! Commands on a pseudo terminal.

use super::world::{World, without_races};
use crate::http::POLL_TIMEOUT;
use keelson_testkit::poll;
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;

/// The columns and rows of the terminal.
const SIZE: (u16, u16) = (91, 37);

/// Runs a line on a terminal in raw mode. Types the input when the node knows the size of the
/// terminal. Returns all that the terminal shows, and the exit code.
pub fn run(world: &World, line: &str, input: &str) -> (String, Option<i32>) {
    let sizes_before = world.node.terminal_sizes().len();
    let mut command = world.home.shell(line);
    let controller =
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&controller).expect("a terminal");
    unlockpt(&controller).expect("a terminal");
    let name = ptsname(&controller, vec![]).expect("a name").into_string().expect("a name");
    let terminal = File::options().read(true).write(true).open(name).expect("a terminal");
    // The input is passed on as it is, also before kubectl sets the mode itself.
    let mut mode = tcgetattr(&terminal).expect("a mode");
    mode.make_raw();
    tcsetattr(&terminal, OptionalActions::Now, &mode).expect("a mode");
    let size = Winsize { ws_col: SIZE.0, ws_row: SIZE.1, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).expect("a size");
    command.stdin(terminal.try_clone().expect("a file"));
    command.stdout(terminal.try_clone().expect("a file")).stderr(terminal);
    command.process_group(0);
    let mut child = command.spawn().expect("a shell");
    // The terminal ends with the child: this process keeps no end of it.
    drop(command);
    let mut controller = File::from(controller);
    if !input.is_empty() {
        let has_size = || world.node.terminal_sizes()[sizes_before..].contains(&SIZE).then_some(());
        assert!(poll(POLL_TIMEOUT, has_size).is_some(), "{line}: the node learns no size");
    }
    controller.write_all(input.as_bytes()).expect("the input");
    let reading = std::thread::spawn(move || {
        let mut shown = vec![];
        // A terminal that nobody has open ends with an error.
        let _ = controller.read_to_end(&mut shown);
        without_races(&String::from_utf8_lossy(&shown))
    });
    let status = poll(POLL_TIMEOUT, || child.try_wait().expect("a child"));
    if status.is_none() {
        // kubectl, too, which has the terminal open.
        let group = Pid::from_child(&child);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = child.wait();
    }
    let shown = reading.join().expect("what is shown");
    (shown, status.and_then(|status| status.code()))
}
