//! Servers whose responses are compared with recordings ([`Recorded`]).

use crate::world::{Options, Server, without_accounts};
use keelson_auth::{MASTERS, TokenFile, User};
use keelson_testkit::recorded::TOKEN;
use std::path::Path;

pub use keelson_testkit::recorded::{Recorded, outcome, without_generated};

/// Starts a server, or connects to the kube-apiserver to be recorded.
pub fn start() -> Recorded {
    start_with(|_| {})
}

/// The same with other options of the server.
pub fn start_with(change: impl FnOnce(&mut Options)) -> Recorded {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/files");
    Recorded::start(&files, || {
        let mut tokens = TokenFile::default();
        let user = User { name: "admin".into(), uid: "admin-uid".into(), ..User::default() };
        tokens.insert(TOKEN, user.with_group(MASTERS));
        let mut options = without_accounts();
        options.tokens = tokens;
        change(&mut options);
        let server = Server::start(options);
        (server.address(), Box::new(move || server.stop()))
    })
}
