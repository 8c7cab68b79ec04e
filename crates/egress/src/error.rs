//! Errors of exchanges, with the texts of Go's `net/http`.

use std::fmt;
use std::io;
use std::net::SocketAddr;

/// The stage at which an exchange failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before the connection for an upgrade was open, with the handshake of TLS.
    Connect,
    /// Before the response.
    Head,
    /// After status and headers, within the body.
    Body,
}

/// A failed exchange. Displays its cause.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct Error {
    /// The stage.
    pub phase: Phase,
    /// The cause.
    pub cause: Cause,
}

impl Error {
    pub(crate) fn connect(cause: Cause) -> Error {
        Error { phase: Phase::Connect, cause }
    }

    pub(crate) fn head(cause: Cause) -> Error {
        Error { phase: Phase::Head, cause }
    }

    pub(crate) fn body(cause: Cause) -> Error {
        Error { phase: Phase::Body, cause }
    }
}

/// The cause of an error.
#[derive(Debug)]
pub enum Cause {
    /// The name has no address; the complete text.
    Resolve(String),
    /// The name resolves to a forbidden address.
    Forbidden(SocketAddr),
    /// A proxy may not reach an address of the name.
    NotAllowed,
    /// The connection could not be opened.
    Connect {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The proxy of the peer's network could not be reached, or did not connect; the complete text.
    Tunnel(String),
    /// The peer's certificate is invalid.
    Certificate(String),
    /// The peer sent a TLS alert.
    Alert(String),
    /// The peer speaks HTTP without TLS.
    PlainHttp,
    /// The peer does not speak TLS.
    NotTls,
    /// Another TLS handshake error.
    Handshake(String),
    /// The connection failed.
    Transport {
        /// The local and the remote address.
        addrs: Option<(SocketAddr, SocketAddr)>,
        /// Why.
        error: io::Error,
    },
    /// The peer closed the connection before the response.
    Closed,
    /// The peer closed the connection within the response.
    Cut,
    /// The response is not valid HTTP.
    Protocol(String),
    /// The deadline was exceeded.
    Deadline,
    /// The response is too large.
    TooLarge {
        /// The limit, in bytes.
        bytes_max: usize,
    },
}

impl Cause {
    /// Returns the cause for a Unix domain socket to which no connection could be made.
    pub(crate) fn socket(path: &str, error: &io::Error) -> Cause {
        Cause::Tunnel(format!("dial unix {path}: connect: {}", errno(error)))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Resolve(text) | Cause::Handshake(text) | Cause::Tunnel(text) => {
                f.write_str(text)
            }
            Cause::Forbidden(address) => {
                write!(f, "dial tcp {address}: the name leads to a local address")
            }
            Cause::NotAllowed => f.write_str("address not allowed"),
            Cause::Connect { address, error } => {
                write!(f, "dial tcp {address}: connect: {}", errno(error))
            }
            Cause::Certificate(why) => write!(f, "tls: failed to verify certificate: {why}"),
            Cause::Alert(text) => write!(f, "remote error: tls: {text}"),
            Cause::PlainHttp => f.write_str("http: server gave HTTP response to HTTPS client"),
            Cause::NotTls => f.write_str("tls: first record does not look like a TLS handshake"),
            Cause::Transport { addrs: Some((local, peer)), error } => {
                write!(f, "read tcp {local}->{peer}: read: {}", errno(error))
            }
            Cause::Transport { addrs: None, error } => f.write_str(&errno(error)),
            Cause::Closed => f.write_str("EOF"),
            Cause::Cut => f.write_str("unexpected EOF"),
            Cause::Protocol(text) => {
                write!(f, "net/http: HTTP/1.x transport connection broken: {text}")
            }
            Cause::Deadline => f.write_str("context deadline exceeded"),
            Cause::TooLarge { bytes_max } => {
                write!(f, "http: response body is larger than {bytes_max} bytes")
            }
        }
    }
}

/// Returns Go's text for an error of the operating system.
fn errno(error: &io::Error) -> String {
    let known = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::ConnectionReset => "connection reset by peer",
        io::ErrorKind::BrokenPipe => "broken pipe",
        io::ErrorKind::HostUnreachable => "no route to host",
        io::ErrorKind::NetworkUnreachable => "network is unreachable",
        io::ErrorKind::TimedOut => "connection timed out",
        _ => {
            let text = error.to_string().to_lowercase();
            let end = text.find(" (os error").unwrap_or(text.len());
            return text[..end].to_owned();
        }
    };
    known.to_owned()
}
