//! TLS, and the client certificates that come with it. As in kube-apiserver a certificate of an unknown
//! authority does not end the handshake: the client gets its 401 as an answer.

use crate::listen::Opening;
use crate::socket::Wire;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, ServerConnection,
    SignatureScheme,
};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The server's side of TLS.
#[derive(Clone)]
pub struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    clients: Arc<dyn ClientCertVerifier>,
}

/// A connection after its handshake. When the server ends it before anything was asked, the client is told
/// that this is the end, and that nobody cut it. An answer that breaks off must not look complete, and no
/// such thing is said there.
pub(crate) struct Secured {
    // In a box, so that it is small wherever it goes.
    stream: Box<TlsStream<Wire>>,
    opening: Opening,
}

impl Secured {
    pub fn new(stream: TlsStream<Wire>, opening: Opening) -> Secured {
        Secured { stream: Box::new(stream), opening }
    }

    pub fn get_ref(&self) -> (&Wire, &ServerConnection) {
        self.stream.get_ref()
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        if self.opening.is_asked() {
            return;
        }
        let (wire, session) = self.stream.get_mut();
        session.send_close_notify();
        let mut last = vec![];
        // A client that is gone, or takes nothing, need not be told.
        let _ = session.write_tls(&mut last).and_then(|_| wire.socket().write_now(&last));
    }
}

/// The certificate that a client showed.
#[derive(Clone, Debug)]
pub enum PeerCertificate {
    /// In DER; the client has its key, and a known authority signed it.
    Verified(Arc<[u8]>),
    /// Not by an authority that is known, expired, or not for clients.
    Refused,
}

impl Tls {
    /// Shows `chain`, and takes clients that show a certificate of one of the `roots`, or none.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        roots: RootCertStore,
    ) -> Result<Tls, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::new(Lenient(clients.clone())))
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), clients })
    }

    /// What is to be made of the certificates that a client showed in its handshake.
    pub(crate) fn peer(&self, shown: Option<&[CertificateDer<'_>]>) -> Option<PeerCertificate> {
        let (own, between) = shown?.split_first()?;
        Some(match self.clients.verify_client_cert(own, between, UnixTime::now()) {
            Ok(_) => PeerCertificate::Verified(Arc::from(own.as_ref())),
            Err(error) => {
                tracing::debug!(%error, "a client certificate was refused");
                PeerCertificate::Refused
            }
        })
    }
}

/// Lets every certificate through the handshake whose key the client has; [`Tls::peer`] looks at the
/// rest.
#[derive(Debug)]
struct Lenient(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Lenient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _own: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, own, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, own, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
