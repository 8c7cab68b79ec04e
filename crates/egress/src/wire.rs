//! What connections are made of, how they are secured, and the causes of their failures.

use crate::error::Cause;
use crate::verify::GoCertificateError;
use rustls::{AlertDescription, CertificateError, ClientConfig, InvalidMessage};
use rustls_pki_types::ServerName;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The local and the remote address; `None` through a proxy.
pub(crate) type AddrPair = Option<(SocketAddr, SocketAddr)>;

/// What a connection can be made of.
pub trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

/// What a connection is made of: a TCP stream, or one through a proxy.
pub type Wire = Pin<Box<dyn Duplex>>;

/// How a connection is secured.
#[derive(Clone)]
pub(crate) enum Security {
    /// With TLS; the peer's certificate must have the name.
    Tls(Arc<ClientConfig>, ServerName<'static>),
    /// Not at all.
    None,
}

/// A stream that remembers the first bytes that it has received, as many as the header of a TLS
/// record has: they say what a peer speaks that does not speak TLS.
pub(crate) struct FirstBytes {
    wire: Wire,
    received: [u8; 5],
    /// How many bytes of `received` have been received.
    len: u8,
}

impl FirstBytes {
    pub fn of(wire: Wire) -> FirstBytes {
        FirstBytes { wire, received: [0; 5], len: 0 }
    }

    /// Whether the first bytes are these.
    pub fn are(&self, bytes: &[u8]) -> bool {
        self.received.get(..self.len.into()) == Some(bytes)
    }
}

impl AsyncRead for FirstBytes {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = this.wire.as_mut().poll_read(cx, buf);
        let missing = this.received.iter_mut().skip(this.len.into());
        for (place, byte) in missing.zip(&buf.filled()[before..]) {
            *place = *byte;
            this.len += 1;
        }
        polled
    }
}

impl AsyncWrite for FirstBytes {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().wire.as_mut().poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().wire.as_mut().poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().wire.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().wire.as_mut().poll_shutdown(cx)
    }
}

/// Maps a transport error.
pub(crate) fn io_cause(error: io::Error, addrs: AddrPair) -> Cause {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(tls) => tls_cause(tls),
        None if error.kind() == io::ErrorKind::UnexpectedEof => Cause::Closed,
        None => Cause::Transport { addrs, error },
    }
}

pub(crate) fn tls_cause(error: &rustls::Error) -> Cause {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
            let why = other.0.downcast_ref::<GoCertificateError>();
            Cause::Certificate(why.map_or_else(|| other.to_string(), ToString::to_string))
        }
        rustls::Error::InvalidCertificate(why) => Cause::Certificate(format!("x509: {why}")),
        rustls::Error::AlertReceived(alert) => Cause::Alert(alert_text(*alert)),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Cause::NotTls,
        other => Cause::Handshake(format!("tls: {other}")),
    }
}

fn alert_text(alert: AlertDescription) -> String {
    let known = match alert {
        AlertDescription::HandshakeFailure => "handshake failure",
        AlertDescription::BadCertificate => "bad certificate",
        AlertDescription::UnsupportedCertificate => "unsupported certificate",
        AlertDescription::CertificateRevoked => "revoked certificate",
        AlertDescription::CertificateExpired => "expired certificate",
        AlertDescription::CertificateUnknown => "unknown certificate",
        AlertDescription::CertificateRequired => "certificate required",
        AlertDescription::UnknownCA => "unknown certificate authority",
        AlertDescription::AccessDenied => "access denied",
        AlertDescription::ProtocolVersion => "protocol version not supported",
        AlertDescription::InternalError => "internal error",
        AlertDescription::UnrecognisedName => "unrecognized name",
        AlertDescription::NoApplicationProtocol => "no application protocol",
        other => return format!("{other:?}"),
    };
    known.to_owned()
}
