//! Opens the page in the browser of the user. The address has the token, and other users of this
//! host can read the arguments of processes. So the browser is given a file that only the user can
//! read, and that leads to the address.

use std::io::Write;
use std::process::{Command, Stdio};
use tempfile::NamedTempFile;

/// What opens a file on the systems that Keelson runs on.
const OPENERS: [&str; 3] = ["xdg-open", "open", "wslview"];

/// Opens an address. The file is removed when the result is dropped; `None`: nothing was opened.
pub fn open(url: &str) -> Option<NamedTempFile> {
    // Created with mode 0600.
    let created = tempfile::Builder::new().prefix("keelson-ui-").suffix(".html").tempfile();
    let mut file = created.ok()?;
    let page = format!(
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0; url={url}\"><title>Keelson</title>"
    );
    file.write_all(page.as_bytes()).ok()?;
    let mut openers = OPENERS.iter().map(|opener| {
        let mut command = Command::new(opener);
        command.arg(file.path()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    });
    openers.any(|spawned| spawned.is_ok()).then_some(file)
}
