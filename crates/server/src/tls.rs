//! TLS with client certificates. As in kube-apiserver, a certificate of an unknown authority does
//! not fail the handshake: the client gets a 401 response.

use crate::peer::FirstRequest;
use crate::peer_certificate::{ClientAuthorities, ClientVerifiers, PeerCertificate, Verifiers};
use crate::socket::ClientStream;
use crate::tls_options::TlsOptions;
use arc_swap::ArcSwap;
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
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The TLS configuration of the server. Clones share it; changes apply from the next handshake or
/// request on.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ArcSwap<ServerConfig>>,
    options: TlsOptions,
    serving: Arc<ServingCertificate>,
    clients: Arc<ClientVerifiers>,
}

/// A TLS connection after its handshake. If the server drops it before the first request, it sends
/// `close_notify`. It does not do so later, because a truncated response must not look complete.
pub(crate) struct TlsConnection {
    // Boxed, so that it is cheap to move.
    stream: Box<TlsStream<ClientStream>>,
    first_request: FirstRequest,
}

impl TlsConnection {
    pub fn new(stream: TlsStream<ClientStream>, first_request: FirstRequest) -> TlsConnection {
        TlsConnection { stream: Box::new(stream), first_request }
    }

    pub fn get_ref(&self) -> (&ClientStream, &ServerConnection) {
        self.stream.get_ref()
    }
}

impl Drop for TlsConnection {
    fn drop(&mut self) {
        if self.first_request.has_arrived() {
            return;
        }
        let (wire, session) = self.stream.get_mut();
        session.send_close_notify();
        let mut last = vec![];
        // Ignored, because the client may be gone.
        let _ = session.write_tls(&mut last).and_then(|_| wire.socket().write_now(&last));
    }
}

/// What the server presents in handshakes.
pub struct ServingCertificates {
    /// The certificate of clients that name no host, or one that no other certificate has.
    pub default: CertificateAndKey,
    /// Certificates for single hosts.
    pub named: Vec<NamedCertificate>,
}

/// A certificate with those of its authorities, and its key.
pub type CertificateAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A certificate for hosts with these names.
pub struct NamedCertificate {
    /// The names, in lower case; `*.example.com` means all names with one label more. Of equal
    /// names the first counts.
    pub names: Vec<String>,
    /// The certificate and key.
    pub pair: CertificateAndKey,
}

impl Tls {
    /// Creates a configuration that presents `certificates`, and verifies client certificates with
    /// `authorities`.
    pub fn new(
        certificates: ServingCertificates,
        authorities: &ClientAuthorities,
        options: &TlsOptions,
    ) -> Result<Tls, Error> {
        let serving = Arc::new(ServingCertificate(RwLock::new(certificates.try_into()?)));
        let clients = Arc::new(ClientVerifiers::new(Verifiers::new(authorities)?));
        let config = configuration(options, serving.clone(), authorities.names())?;
        let config = Arc::new(ArcSwap::from_pointee(config));
        Ok(Tls { config, options: options.clone(), serving, clients })
    }

    /// Returns what does the handshake of a new connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.load_full())
    }

    /// Replaces the serving certificates, from the next handshake on.
    pub fn set_serving(&self, certificates: ServingCertificates) -> Result<(), Error> {
        let certified = certificates.try_into()?;
        *self.serving.0.write().unwrap_or_else(PoisonError::into_inner) = certified;
        Ok(())
    }

    /// Replaces the authorities of client certificates, from the next request on, also on open
    /// connections. The names that clients see change with the next handshake.
    pub fn set_clients(&self, authorities: &ClientAuthorities) -> Result<(), Error> {
        let verifiers = Verifiers::new(authorities)?;
        let config = configuration(&self.options, self.serving.clone(), authorities.names())?;
        self.clients.set(verifiers);
        self.config.store(Arc::new(config));
        Ok(())
    }

    /// Does the handshake of a connection whose requests are all refused.
    pub(crate) async fn accept_plainly(
        &self,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        self.acceptor().accept(stream).await
    }

    /// Returns the certificate that a client presented in its handshake.
    pub(crate) fn peer(&self, shown: Option<&[CertificateDer<'_>]>) -> Option<PeerCertificate> {
        let shown = shown.filter(|chain| !chain.is_empty())?;
        let chain = shown.iter().map(|one| one.clone().into_owned()).collect();
        Some(PeerCertificate::new(chain, self.clients.clone()))
    }
}

/// Returns a configuration whose handshakes tell clients the names of authorities.
fn configuration(
    options: &TlsOptions,
    serving: Arc<ServingCertificate>,
    authorities: Vec<DistinguishedName>,
) -> Result<ServerConfig, Error> {
    let provider = Arc::new(options.provider());
    let algorithms = provider.signature_verification_algorithms;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(options.versions())?
        .with_client_cert_verifier(Arc::new(AcceptAnyCertificate { algorithms, authorities }))
        .with_cert_resolver(serving);
    config.alpn_protocols = match options.is_http1_only {
        true => vec![b"http/1.1".to_vec()],
        false => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    Ok(config)
}

fn certified((chain, key): CertificateAndKey) -> Result<Arc<CertifiedKey>, Error> {
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map(Arc::new)
}

/// The certificates that the server presents.
#[derive(Debug)]
struct ServingCertificate(RwLock<CertifiedKeys>);

#[derive(Debug)]
struct CertifiedKeys {
    default: Arc<CertifiedKey>,
    named: HashMap<String, Arc<CertifiedKey>>,
}

impl TryFrom<ServingCertificates> for CertifiedKeys {
    type Error = Error;

    fn try_from(certificates: ServingCertificates) -> Result<CertifiedKeys, Error> {
        let mut named = HashMap::new();
        for certificate in certificates.named {
            let certified = certified(certificate.pair)?;
            for name in certificate.names {
                named.entry(name).or_insert_with(|| certified.clone());
            }
        }
        Ok(CertifiedKeys { default: certified(certificates.default)?, named })
    }
}

impl CertifiedKeys {
    /// Returns the certificate for a host: of its name, else of the wildcard above it, else the
    /// default.
    fn of(&self, host: Option<&str>) -> &Arc<CertifiedKey> {
        let Some(host) = host.filter(|_| !self.named.is_empty()) else { return &self.default };
        let host = host.to_ascii_lowercase();
        let wildcard = || format!("*.{}", host.split_once('.').map_or("", |(_, above)| above));
        let found = self.named.get(&host).or_else(|| self.named.get(&wildcard()));
        found.unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certificates = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(certificates.of(hello.server_name()).clone())
    }
}

/// Accepts every certificate in the handshake if the client has its key; [`PeerCertificate`]
/// verifies it later. Clients with several certificates choose by the names of the authorities.
#[derive(Debug)]
struct AcceptAnyCertificate {
    algorithms: WebPkiSupportedAlgorithms,
    authorities: Vec<DistinguishedName>,
}

impl ClientCertVerifier for AcceptAnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.authorities
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
        verify_tls12_signature(message, own, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, own, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl AsyncRead for TlsConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for TlsConnection {
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
