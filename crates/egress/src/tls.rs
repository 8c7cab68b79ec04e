//! TLS configuration for a peer.

use crate::peer::{Identity, Peer, Trust};
use crate::verify::{NoVerifier, Verifier};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Maximum certificates in a bundle.
const BUNDLE_CERTIFICATES_MAX: usize = 4096;

/// Why no client can be created for a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The bundle has no valid certificate.
    NoRoots {
        /// Whether it contains PEM.
        is_pem: bool,
    },
    /// The client certificate or its key is invalid.
    Identity(String),
    /// The host is neither a DNS name nor an IP address.
    ServerName(String),
    /// The value of `Authorization` is not a valid header value.
    Authorization,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::NoRoots { is_pem } => {
                let pem = "unable to parse bytes as PEM block";
                let why = if *is_pem { "no valid certificate data seen" } else { pem };
                write!(f, "unable to load root certificates: {why}")
            }
            ConfigError::Identity(why) => f.write_str(why),
            ConfigError::ServerName(name) => write!(f, "invalid server name {name:?}"),
            ConfigError::Authorization => f.write_str("the credentials cannot stand in a header"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Returns the name that the peer's certificate must have.
pub(crate) fn server_name(peer: &Peer) -> Result<ServerName<'static>, ConfigError> {
    let name = peer.server_name.as_ref().unwrap_or(&peer.host);
    let parsed = ServerName::try_from(name.trim_end_matches('.').to_owned());
    parsed.map_err(|_| ConfigError::ServerName(name.clone()))
}

/// The protocols of exchanges: HTTP/2 if the peer speaks it.
pub(crate) const ANY_HTTP: &[&str] = &["h2", "http/1.1"];
/// The protocol of upgrades.
pub(crate) const HTTP1: &[&str] = &["http/1.1"];

/// Returns protocols as TLS names them.
pub(crate) fn alpn(protocols: &[&str]) -> Vec<Vec<u8>> {
    protocols.iter().map(|name| name.as_bytes().to_vec()).collect()
}

/// Returns the TLS configuration for a peer.
pub(crate) fn config(peer: &Peer, protocols: &[&str]) -> Result<ClientConfig, ConfigError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| ConfigError::Identity(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier(&peer.trust, provider)?);
    let mut config = match &peer.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = parsed(identity)?;
            let config = builder.with_client_auth_cert(chain, key);
            config.map_err(|error| ConfigError::Identity(format!("tls: {error}")))?
        }
    };
    config.alpn_protocols = alpn(protocols);
    Ok(config)
}

fn verifier(
    trust: &Trust,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, ConfigError> {
    let roots = match trust {
        Trust::Anyone => return Ok(Arc::new(NoVerifier(provider))),
        Trust::System => system_roots().to_vec(),
        Trust::Bundle(pem) => {
            let found = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
            found.take(BUNDLE_CERTIFICATES_MAX).collect()
        }
    };
    let mut store = RootCertStore::empty();
    // Skip invalid certificates, as Go does.
    let (added, _) = store.add_parsable_certificates(roots.iter().cloned());
    if added == 0 {
        return Err(ConfigError::NoRoots { is_pem: !roots.is_empty() });
    }
    let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone())
        .build()
        .map_err(|_| ConfigError::NoRoots { is_pem: true })?;
    Ok(Arc::new(Verifier { chain, roots, provider }))
}

/// Returns the CAs of the system, loaded once.
fn system_roots() -> &'static [CertificateDer<'static>] {
    static ROOTS: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();
    ROOTS.get_or_init(|| rustls_native_certs::load_native_certs().certs)
}

/// Certificate chain and key.
type Parsed = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn parsed(identity: &Identity) -> Result<Parsed, ConfigError> {
    let why = |text: &str| ConfigError::Identity(format!("tls: failed to find {text}"));
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(&identity.chain).filter_map(Result::ok).collect();
    if chain.is_empty() {
        return Err(why("any PEM data in certificate input"));
    }
    let key = PrivateKeyDer::from_pem_slice(&identity.key);
    Ok((chain, key.map_err(|_| why("any PEM data in key input"))?))
}
