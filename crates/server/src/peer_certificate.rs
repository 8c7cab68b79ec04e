//! Client certificates. They are verified for each request instead of once per connection, because
//! they may expire, and the trusted authorities may change, while a connection is open.

use keelson_auth::{CertificateUser, x509};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{DistinguishedName, Error, RootCertStore};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// How long a failed verification is cached, in seconds.
const REJECTION_SECONDS: u64 = 1;
/// Maximum length of the names of all authorities in a handshake; TLS has room for 64 KiB.
const NAMES_BYTES_MAX: usize = 48 << 10;

/// Authorities of client certificates.
#[derive(Clone, Debug)]
pub struct ClientAuthorities {
    /// Authorities of all client certificates.
    pub roots: RootCertStore,
    /// Authorities whose certificates are accepted only with one of these common names.
    pub restricted: Option<(RootCertStore, Vec<String>)>,
    /// Authorities of front proxies, and their allowed common names; if empty, all are allowed.
    pub front_proxy: Option<(RootCertStore, Vec<String>)>,
}

impl ClientAuthorities {
    /// Returns the names of all authorities, each once; none if they are too long for a handshake,
    /// which lets clients present any certificate.
    pub(crate) fn names(&self) -> Vec<DistinguishedName> {
        let more = [&self.restricted, &self.front_proxy];
        let more = more.into_iter().flatten().map(|(roots, _)| roots);
        let mut names: Vec<DistinguishedName> = vec![];
        let mut seen: HashSet<Vec<u8>> = HashSet::new();
        for name in [&self.roots].into_iter().chain(more).flat_map(RootCertStore::subjects) {
            if seen.insert(name.as_ref().to_vec()) {
                names.push(name);
            }
        }
        let length: usize = names.iter().map(|name| name.as_ref().len() + 2).sum();
        if length <= NAMES_BYTES_MAX { names } else { vec![] }
    }
}

/// The verifiers of client certificates, which can be replaced.
#[derive(Debug)]
pub(crate) struct ClientVerifiers {
    verifiers: RwLock<Arc<Verifiers>>,
    /// Incremented by each replacement.
    generation: AtomicU64,
}

/// The verifiers of client certificates at one time.
#[derive(Debug)]
pub(crate) struct Verifiers {
    all: Option<Arc<dyn ClientCertVerifier>>,
    restricted: Option<NamedVerifier>,
    front_proxy: Option<NamedVerifier>,
}

/// A verifier, and the allowed common names.
type NamedVerifier = (Arc<dyn ClientCertVerifier>, Vec<String>);

impl ClientVerifiers {
    pub fn new(verifiers: Verifiers) -> ClientVerifiers {
        ClientVerifiers {
            verifiers: RwLock::new(Arc::new(verifiers)),
            generation: AtomicU64::new(1),
        }
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
        let named =
            |given: &Option<(RootCertStore, Vec<String>)>| -> Result<Option<NamedVerifier>, Error> {
                let Some((roots, names)) = given else { return Ok(None) };
                Ok(verifier(roots)?.map(|verifier| (verifier, names.clone())))
            };
        Ok(Verifiers {
            all: verifier(&authorities.roots)?,
            restricted: named(&authorities.restricted)?,
            front_proxy: named(&authorities.front_proxy)?,
        })
    }

    /// Returns whether a chain is that of a front proxy.
    fn is_front_proxy(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> bool {
        let (Some((verifier, names)), Some((leaf, intermediates))) =
            (&self.front_proxy, chain.split_first())
        else {
            return false;
        };
        let is_allowed =
            names.is_empty() || x509::common_name(leaf).is_some_and(|name| names.contains(&name));
        is_allowed && verifier.verify_client_cert(leaf, intermediates, now).is_ok()
    }

    fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let Some((leaf, intermediates)) = chain.split_first() else {
            return Err(Error::NoCertificatesPresented);
        };
        let error_of_all = match &self.all {
            Some(all) => match all.verify_client_cert(leaf, intermediates, now) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            },
            None => Error::General("no authority of client certificates is known".to_owned()),
        };
        match &self.restricted {
            Some((verifier, names))
                if x509::common_name(leaf).is_some_and(|n| names.contains(&n)) =>
            {
                verifier.verify_client_cert(leaf, intermediates, now).map(drop)
            }
            _ => Err(error_of_all),
        }
    }
}

/// Creates a verifier; `None` if there are no authorities.
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

/// The certificate that a client presented; the handshake has proven that it has the key.
#[derive(Debug)]
pub struct PeerCertificate {
    /// The client's certificate, and intermediates.
    chain: Vec<CertificateDer<'static>>,
    clients: Arc<ClientVerifiers>,
    verdict: Mutex<Verdict>,
    /// The last second of the certificate, in seconds since 1970, once somebody has asked for it.
    not_after: OnceLock<Option<i64>>,
    /// The user, once there was a request.
    user: OnceLock<CertificateUser>,
}

/// A cached verdict and its expiry.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    is_verified: bool,
    is_front_proxy: bool,
    /// The generation of [`ClientVerifiers`]; 0 for none.
    generation: u64,
    /// Seconds since 1970.
    until: u64,
}

impl PeerCertificate {
    pub(crate) fn new(chain: Vec<CertificateDer<'static>>, clients: Arc<ClientVerifiers>) -> Self {
        let verdict =
            Verdict { is_verified: false, is_front_proxy: false, generation: 0, until: 0 };
        let verdict = Mutex::new(verdict);
        PeerCertificate {
            chain,
            clients,
            verdict,
            not_after: OnceLock::new(),
            user: OnceLock::new(),
        }
    }

    /// Returns the last second of the client's certificate, in seconds since 1970; `None`: it
    /// cannot be parsed.
    pub(crate) fn not_after(&self) -> Option<i64> {
        *self.not_after.get_or_init(|| {
            let first = self.chain.first()?;
            x509::validity(first).map(|validity| validity.not_after)
        })
    }

    /// Returns the user of the client's certificate, if that is currently valid.
    pub fn verified(&self) -> Option<&CertificateUser> {
        let leaf = self.chain.first().filter(|_| self.verdict().is_verified)?;
        Some(self.user.get_or_init(|| CertificateUser::read(leaf)))
    }

    /// Returns whether the client is a front proxy, whose headers name users.
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
            Ok(()) => self.valid_until(),
            Err(_) if is_front_proxy => self.valid_until(),
            Err(error) => {
                tracing::debug!(%error, "client certificate refused");
                now.as_secs() + REJECTION_SECONDS
            }
        };
        Verdict { is_verified: verified.is_ok(), is_front_proxy, generation, until }
    }

    /// Returns the last second in which every certificate of the chain is valid.
    fn valid_until(&self) -> u64 {
        let expiries = self.chain.iter().map(|one| x509::validity(one).map_or(0, |v| v.not_after));
        expiries.min().and_then(|end| u64::try_from(end).ok()).unwrap_or(0)
    }
}
