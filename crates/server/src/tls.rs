//! TLS, and the client certificates that come with it. As in kube-apiserver a certificate of an unknown
//! authority does not end the handshake: the client gets its 401 as an answer.

use crate::opening::Opening;
use crate::peer_certificate::{ClientAuthorities, Clients, PeerCertificate, Verifiers};
use crate::socket::Wire;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, ServerConnection,
    SignatureScheme,
};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The server's side of TLS. A clone is the same: what is set on one counts for all, from the next
/// handshake or request on.
#[derive(Clone)]
pub struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    serving: Arc<Serving>,
    clients: Arc<Clients>,
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

impl Tls {
    /// Shows `chain`, and takes clients that show a certificate of one of the authorities, or none.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        authorities: &ClientAuthorities,
    ) -> Result<Tls, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let serving = Arc::new(Serving::new(certified(chain, key)?));
        let clients = Arc::new(Clients::new(Verifiers::new(authorities)?));
        let schemes = provider.signature_verification_algorithms;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::new(Lenient(schemes)))
            .with_cert_resolver(serving.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), serving, clients })
    }

    /// Shows another certificate from the next handshake on.
    pub fn set_serving(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<(), Error> {
        let certified = certified(chain, key)?;
        *self.serving.0.write().unwrap_or_else(PoisonError::into_inner) = certified;
        Ok(())
    }

    /// Takes the certificates of other authorities from the next request on, also on connections that are
    /// open.
    pub fn set_clients(&self, authorities: &ClientAuthorities) -> Result<(), Error> {
        self.clients.set(Verifiers::new(authorities)?);
        Ok(())
    }

    /// The certificate that a client showed in its handshake.
    pub(crate) fn peer(&self, shown: Option<&[CertificateDer<'_>]>) -> Option<PeerCertificate> {
        let shown = shown.filter(|chain| !chain.is_empty())?;
        let chain = shown.iter().map(|one| one.clone().into_owned()).collect();
        Some(PeerCertificate::new(chain, self.clients.clone()))
    }
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, Error> {
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map(Arc::new)
}

/// The certificate that the server shows.
#[derive(Debug)]
struct Serving(RwLock<Arc<CertifiedKey>>);

impl Serving {
    fn new(certified: Arc<CertifiedKey>) -> Serving {
        Serving(RwLock::new(certified))
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// Lets every certificate through the handshake whose key the client has; [`PeerCertificate`] looks at
/// the rest. Which authorities count is not told to clients: it may change.
#[derive(Debug)]
struct Lenient(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for Lenient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
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
        verify_tls12_signature(message, own, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, own, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
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
