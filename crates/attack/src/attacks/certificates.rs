//! Client certificates that are wrong. Each names a member of `system:masters`, so that a certificate that
//! is taken shows.

use super::{Line, Outcome};
use crate::client::{Connection, config};
use crate::target::{Authority, Target};
use anyhow::{Context, Result, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, date_time_ymd,
};
use rustls::client::ResolvesClientCert;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, SignatureScheme};
use std::sync::Arc;
use std::time::Instant;

/// Rounds of all certificates.
const ROUNDS_MAX: usize = 50;

pub const ATTACKS: [Line; 1] =
    [("certificates", "client certificates that are wrong in twelve ways", None, certificates)];

/// A certificate and the key that the client signs with.
type Shown = (Vec<u8>, KeyPair);
/// How one is made, by its name.
type Way = (&'static str, fn(&Authority) -> Result<Shown>);

const WAYS: [Way; 12] = [
    ("expired", |ca| made(ca, |p| p.not_after = date_time_ymd(2020, 1, 2))),
    ("not yet valid", |ca| {
        made(ca, |p| {
            p.not_before = date_time_ymd(2120, 1, 1);
            p.not_after = date_time_ymd(2121, 1, 1);
        })
    }),
    ("for servers only", |ca| {
        made(ca, |p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth])
    }),
    ("without a name", |ca| {
        made(ca, |p| {
            p.distinguished_name.remove(DnType::CommonName);
        })
    }),
    ("with an unknown critical extension", |ca| {
        made(ca, |p| {
            let mut odd = CustomExtension::from_oid_content(&[1, 3, 9, 9], vec![5, 0]);
            odd.set_criticality(true);
            p.custom_extensions.push(odd);
        })
    }),
    ("of another authority of that name", |_| made(&Authority::new()?, |_| {})),
    ("signed by itself", |_| {
        let key = KeyPair::generate()?;
        Ok((params().self_signed(&key)?.der().to_vec(), key))
    }),
    ("with a broken signature", |ca| {
        let (mut der, key) = made(ca, |_| {})?;
        if let Some(last) = der.last_mut() {
            *last ^= 1;
        }
        Ok((der, key))
    }),
    ("cut off", |ca| {
        let (mut der, key) = made(ca, |_| {})?;
        der.truncate(der.len() / 2);
        Ok((der, key))
    }),
    ("without its key", |ca| Ok((made(ca, |_| {})?.0, KeyPair::generate()?))),
    ("that is the authority itself", |ca| Ok((ca.der.clone(), KeyPair::generate()?))),
    ("signed by a client", |ca| {
        let (_, key) = made(ca, |_| {})?;
        let between = Authority { der: vec![], issuer: Issuer::new(params(), key) };
        made(&between, |_| {})
    }),
];

fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "mallory");
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn made(ca: &Authority, change: impl Fn(&mut CertificateParams)) -> Result<Shown> {
    let key = KeyPair::generate()?;
    let mut params = params();
    change(&mut params);
    Ok((params.signed_by(&key, &ca.issuer)?.der().to_vec(), key))
}

impl Authority {
    /// An authority of its own.
    pub fn new() -> Result<Authority> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "attack");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let der = params.self_signed(&key)?.der().to_vec();
        Ok(Authority { der, issuer: Issuer::new(params, key) })
    }
}

fn certificates(target: &Target, end: Instant) -> Result<Outcome> {
    let Some(ca) = &target.clients else {
        let note = "skipped: the authority's key is known only where --program started the server";
        return Ok(Outcome { sent: 0, note: note.to_owned() });
    };
    let good = ask(target, made(ca, |_| {})?).context("a good certificate")?;
    ensure!(good == 200, "a good certificate is answered {good}");
    let mut sent = 0;
    while sent < ROUNDS_MAX * WAYS.len() && Instant::now() < end {
        for (what, way) in WAYS {
            // A handshake that fails is right too.
            if let Ok(status) = ask(target, way(ca)?) {
                ensure!(matches!(status, 401 | 403), "a certificate {what} is answered {status}");
            }
            sent += 1;
        }
    }
    Ok(Outcome { sent, note: format!("{} ways", WAYS.len()) })
}

/// The status of what only an administrator may do, asked with a certificate.
fn ask(target: &Target, (der, key): Shown) -> Result<u16> {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let shown = CertifiedKey::new(vec![CertificateDer::from(der)], any_supported_type(&key)?);
    let config: ClientConfig =
        config(&target.roots).with_client_cert_resolver(Arc::new(Shows(Arc::new(shown))));
    Ok(Connection::open(target.address, Arc::new(config))?.get("/api/v1/namespaces")?.status)
}

/// Shows a certificate, whether or not it makes sense.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
