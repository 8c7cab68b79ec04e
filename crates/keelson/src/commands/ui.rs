//! `keelson ui`: serves the explorer on this host, and forwards its requests to the server of a
//! kubeconfig with the user's credentials. Whoever sends a request must know the token that the
//! printed address has ([`gate`]); what is forwarded is in [`forward`].

mod answers;
mod browser;
mod connections;
mod exec_plugin;
mod forward;
mod gate;
mod target;

use crate::flags::UiFlags;
use crate::stop_signals;
use anyhow::{Context, Result, bail};
use connections::Shared;
use forward::Forwarder;
use gate::Gate;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use target::Target;
use tokio::net::TcpListener;

/// How long the process may take to end after a signal.
const STOP_TIME_MAX: Duration = Duration::from_secs(2);

/// Runs the command until a signal.
pub fn run(flags: &UiFlags) -> Result<()> {
    if !flags.address.is_loopback() && !flags.allow_remote {
        bail!(
            "--address {}: it is no loopback address. The page is served without TLS, and whoever sees \
             its token can act as you; --allow-remote permits it",
            flags.address
        );
    }
    let (forwarder, server_url) = Forwarder::new(Target::read(flags)?)?;
    let mut stop = stop_signals::listen(STOP_TIME_MAX)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let wanted = SocketAddr::new(flags.address, flags.port);
        let listener = TcpListener::bind(wanted).await.with_context(|| wanted.to_string())?;
        let address = listener.local_addr()?;
        let token = super::new_token()?;
        let url = format!("http://{address}{}#token={token}", keelson_explorer::PATH);
        writeln!(std::io::stdout(), "{url}").context("write to standard output")?;
        let _ = writeln!(std::io::stderr(), "the explorer of {}; Ctrl-C ends it", server_url);
        // A pipe gets the address only: a program reads it, and opens it itself if it wants to.
        let opened = match !flags.no_open && std::io::stdout().is_terminal() {
            true => browser::open(&url),
            false => None,
        };
        let shared = Arc::new(Shared { gate: Gate::new(token, address), forwarder });
        tokio::select! {
            () = stop.received() => {}
            () = connections::accept(listener, shared) => {}
        }
        drop(opened);
        Ok(())
    })
}
