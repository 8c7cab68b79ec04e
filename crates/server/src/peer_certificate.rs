//! Client certificates. One is verified for each request, not once a connection: it expires, and the
//! authorities that count may change, while a connection stays open.

use keelson_auth::x509;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{Error, RootCertStore};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// How long a refusal is cached, in seconds.
const REFUSED_SECONDS: u64 = 1;

/// Authorities of client certificates.
#[derive(Clone, Debug)]
pub struct ClientAuthorities {
    /// Authorities whose certificates count.
    pub roots: RootCertStore,
    /// Authorities of which only the certificates with one of these common names count.
    pub restricted: Option<(RootCertStore, Vec<String>)>,
    /// Authorities of front proxies, whose headers name users, and the common names that count; no name: all
    /// do.
    pub front_proxy: Option<(RootCertStore, Vec<String>)>,
}

/// The authorities of client certificates, which may be replaced.
#[derive(Debug)]
pub(crate) struct Clients {
    verifiers: RwLock<Arc<Verifiers>>,
    /// Grows with each replacement.
    generation: AtomicU64,
}

/// The authorities of client certificates as they are at one time.
#[derive(Debug)]
pub(crate) struct Verifiers {
    all: Option<Arc<dyn ClientCertVerifier>>,
    restricted: Option<Named>,
    front_proxy: Option<Named>,
}

/// Authorities, and the common names that count.
type Named = (Arc<dyn ClientCertVerifier>, Vec<String>);

impl Clients {
    pub fn new(verifiers: Verifiers) -> Clients {
        Clients { verifiers: RwLock::new(Arc::new(verifiers)), generation: AtomicU64::new(1) }
    }

    pub fn set(&self, verifiers: Verifiers) {
        let mut current = self.verifiers.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(verifiers);
        self.generation.fetch_add(1, Ordering::Release);
    }

    fn verifiers(&self) -> Arc<Verifiers> {
        self.verifiers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Verifiers {
    pub fn new(authorities: &ClientAuthorities) -> Result<Verifiers, Error> {
        let named = |given: &Option<(RootCertStore, Vec<String>)>| -> Result<Option<Named>, Error> {
            let Some((roots, names)) = given else { return Ok(None) };
            Ok(verifier(roots)?.map(|verifier| (verifier, names.clone())))
        };
        Ok(Verifiers {
            all: verifier(&authorities.roots)?,
            restricted: named(&authorities.restricted)?,
            front_proxy: named(&authorities.front_proxy)?,
        })
    }

    /// Whether a chain is that of a front proxy.
    fn is_front_proxy(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> bool {
        let (Some((verifier, names)), Some((own, between))) =
            (&self.front_proxy, chain.split_first())
        else {
            return false;
        };
        let is_allowed =
            names.is_empty() || x509::common_name(own).is_some_and(|name| names.contains(&name));
        is_allowed && verifier.verify_client_cert(own, between, now).is_ok()
    }

    fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let Some((own, between)) = chain.split_first() else {
            return Err(Error::NoCertificatesPresented);
        };
        let refused = match &self.all {
            Some(all) => match all.verify_client_cert(own, between, now) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            },
            None => Error::General("no authority of client certificates is known".to_owned()),
        };
        match &self.restricted {
            Some((verifier, names))
                if x509::common_name(own).is_some_and(|n| names.contains(&n)) =>
            {
                verifier.verify_client_cert(own, between, now).map(drop)
            }
            _ => Err(refused),
        }
    }
}

/// `None` for no authorities.
fn verifier(roots: &RootCertStore) -> Result<Option<Arc<dyn ClientCertVerifier>>, Error> {
    if roots.is_empty() {
        return Ok(None);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots.clone()), provider)
        .allow_unauthenticated()
        .build()
        .map(Some)
        .map_err(|error| Error::General(error.to_string()))
}

/// The certificate that a client showed; it has its key.
#[derive(Debug)]
pub struct PeerCertificate {
    /// The client's certificate, and intermediates.
    chain: Vec<CertificateDer<'static>>,
    clients: Arc<Clients>,
    verdict: Mutex<Verdict>,
}

/// A cached verdict and its expiry.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    is_verified: bool,
    is_front_proxy: bool,
    /// Of [`Clients`]; 0 for none.
    generation: u64,
    /// Seconds since 1970.
    until: u64,
}

impl PeerCertificate {
    pub(crate) fn new(chain: Vec<CertificateDer<'static>>, clients: Arc<Clients>) -> Self {
        let verdict =
            Verdict { is_verified: false, is_front_proxy: false, generation: 0, until: 0 };
        PeerCertificate { chain, clients, verdict: Mutex::new(verdict) }
    }

    /// The client's own certificate in DER, when an authority that counts vouches for it now.
    pub fn verified(&self) -> Option<&[u8]> {
        let is_verified = self.verdict().is_verified;
        is_verified.then(|| self.chain.first().map(|own| own.as_ref())).flatten()
    }

    /// Whether the client is a front proxy now, whose headers name users.
    pub fn is_front_proxy(&self) -> bool {
        self.verdict().is_front_proxy
    }

    fn verdict(&self) -> Verdict {
        let now = UnixTime::now();
        let generation = self.clients.generation.load(Ordering::Acquire);
        let mut verdict = self.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        if verdict.generation != generation || now.as_secs() > verdict.until {
            *verdict = self.verify(generation, now);
        }
        *verdict
    }

    fn verify(&self, generation: u64, now: UnixTime) -> Verdict {
        let verifiers = self.clients.verifiers();
        let is_front_proxy = verifiers.is_front_proxy(&self.chain, now);
        let verified = verifiers.verify(&self.chain, now);
        let until = match &verified {
            Ok(()) => self.ends_at(),
            Err(_) if is_front_proxy => self.ends_at(),
            Err(error) => {
                tracing::debug!(%error, "client certificate refused");
                now.as_secs() + REFUSED_SECONDS
            }
        };
        Verdict { is_verified: verified.is_ok(), is_front_proxy, generation, until }
    }

    /// The last second in which every certificate of the chain counts.
    fn ends_at(&self) -> u64 {
        let ends = self.chain.iter().map(|one| x509::validity(one).map_or(0, |v| v.not_after));
        ends.min().and_then(|end| u64::try_from(end).ok()).unwrap_or(0)
    }
}
