//! What the errors of hyper mean.

use crate::error::Cause;
use crate::wire::{AddrPair, io_cause, tls_cause};
use std::error::Error as _;
use std::io;

/// Maps an error of hyper.
pub(crate) fn hyper_cause(error: &hyper::Error, addrs: AddrPair) -> Cause {
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return Cause::Closed;
    }
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(inner) = inner.downcast_ref::<io::Error>() {
            let tls = inner.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            return match tls {
                Some(tls) => tls_cause(tls),
                None => io_cause(copy_error(inner), addrs),
            };
        }
        if let Some(inner) = inner.downcast_ref::<h2::Error>() {
            return h2_cause(inner, addrs);
        }
        source = inner.source();
    }
    Cause::Protocol("malformed HTTP response".to_owned())
}

fn h2_cause(error: &h2::Error, addrs: AddrPair) -> Cause {
    match error.get_io() {
        Some(inner) => io_cause(copy_error(inner), addrs),
        None if error.is_reset() => {
            let reason = error.reason().unwrap_or(h2::Reason::INTERNAL_ERROR);
            let by = if error.is_remote() { "; received from peer" } else { "" };
            Cause::Handshake(format!("stream error: {reason:?}{by}"))
        }
        None => Cause::Handshake(format!("http2: {error}")),
    }
}

/// Copies an error: those of the operating system by their code, others by their text.
fn copy_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// Returns whether the peer refused the request without processing it.
pub(crate) fn was_refused(error: &hyper::Error) -> bool {
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(inner) = inner.downcast_ref::<h2::Error>() {
            let is_refused = inner.reason() == Some(h2::Reason::REFUSED_STREAM);
            let leaves = inner.is_go_away() && inner.reason() == Some(h2::Reason::NO_ERROR);
            return inner.is_remote() && (is_refused || leaves);
        }
        source = inner.source();
    }
    false
}
