//! Invalid client certificates. All name the group `system:masters`, so that a certificate that the
//! server accepts gives access.

use super::{Entry, Outcome};
use crate::client::{Connection, tls_config};
use crate::target::{CertificateAuthority, Target};
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

/// How often all certificates are sent at most.
const ROUNDS_MAX: usize = 50;

pub const ATTACKS: [Entry; 1] =
    [("certificates", "client certificates with twelve defects", None, certificates)];

/// A certificate in DER, and the key that the client signs with.
type ClientCertificate = (Vec<u8>, KeyPair);
/// A description, which completes the sentence "a certificate ...", and a function that creates the
/// certificate.
type Defect = (&'static str, fn(&CertificateAuthority) -> Result<ClientCertificate>);

const DEFECTS: [Defect; 12] = [
    ("expired", |ca| issue(ca, |p| p.not_after = date_time_ymd(2020, 1, 2))),
    ("not yet valid", |ca| {
        issue(ca, |p| {
            p.not_before = date_time_ymd(2120, 1, 1);
            p.not_after = date_time_ymd(2121, 1, 1);
        })
    }),
    ("for servers only", |ca| {
        issue(ca, |p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth])
    }),
    ("without a name", |ca| {
        issue(ca, |p| {
            p.distinguished_name.remove(DnType::CommonName);
        })
    }),
    ("with an unknown critical extension", |ca| {
        issue(ca, |p| {
            let mut unknown = CustomExtension::from_oid_content(&[1, 3, 9, 9], vec![5, 0]);
            unknown.set_criticality(true);
            p.custom_extensions.push(unknown);
        })
    }),
    ("of another authority of the same name", |_| issue(&CertificateAuthority::new()?, |_| {})),
    ("that is self-signed", |_| {
        let key = KeyPair::generate()?;
        Ok((params().self_signed(&key)?.der().to_vec(), key))
    }),
    ("with a broken signature", |ca| {
        let (mut der, key) = issue(ca, |_| {})?;
        if let Some(last) = der.last_mut() {
            *last ^= 1;
        }
        Ok((der, key))
    }),
    ("cut off", |ca| {
        let (mut der, key) = issue(ca, |_| {})?;
        der.truncate(der.len() / 2);
        Ok((der, key))
    }),
    ("without its key", |ca| Ok((issue(ca, |_| {})?.0, KeyPair::generate()?))),
    ("that is the authority itself", |ca| Ok((ca.der.clone(), KeyPair::generate()?))),
    ("signed by a client", |ca| {
        let (_, key) = issue(ca, |_| {})?;
        let client = CertificateAuthority { der: vec![], issuer: Issuer::new(params(), key) };
        issue(&client, |_| {})
    }),
];

fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "mallory");
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// Issues a client certificate. `change` makes it invalid.
fn issue(
    ca: &CertificateAuthority,
    change: impl Fn(&mut CertificateParams),
) -> Result<ClientCertificate> {
    let key = KeyPair::generate()?;
    let mut params = params();
    change(&mut params);
    Ok((params.signed_by(&key, &ca.issuer)?.der().to_vec(), key))
}

impl CertificateAuthority {
    /// Creates an authority with a new key.
    pub fn new() -> Result<CertificateAuthority> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "attack");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let der = params.self_signed(&key)?.der().to_vec();
        Ok(CertificateAuthority { der, issuer: Issuer::new(params, key) })
    }
}

fn certificates(target: &Target, end: Instant) -> Result<Outcome> {
    let Some(ca) = &target.client_ca else {
        let note = "skipped: needs --program, which starts a server with a known client CA";
        return Ok(Outcome { sent: 0, note: note.to_owned() });
    };
    let status = get_with_certificate(target, issue(ca, |_| {})?).context("a valid certificate")?;
    ensure!(status == 200, "a valid certificate gets {status}");
    let mut sent = 0;
    while sent < ROUNDS_MAX * DEFECTS.len() && Instant::now() < end {
        for (description, create) in DEFECTS {
            // The handshake may fail too.
            if let Ok(status) = get_with_certificate(target, create(ca)?) {
                ensure!(matches!(status, 401 | 403), "a certificate {description} gets {status}");
            }
            sent += 1;
        }
    }
    Ok(Outcome { sent, note: format!("{} defects", DEFECTS.len()) })
}

/// Sends a request that only an administrator may send, with a client certificate. Returns the
/// status.
fn get_with_certificate(target: &Target, (der, key): ClientCertificate) -> Result<u16> {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let certificate = CertifiedKey::new(vec![CertificateDer::from(der)], any_supported_type(&key)?);
    let resolver = Arc::new(FixedCertificate(Arc::new(certificate)));
    let config: ClientConfig = tls_config(&target.roots).with_client_cert_resolver(resolver);
    Ok(Connection::open(target.address, Arc::new(config))?.get("/api/v1/namespaces")?.status)
}

/// Sends the certificate in every handshake, even if the server does not accept its issuer.
#[derive(Debug)]
struct FixedCertificate(Arc<CertifiedKey>);

impl ResolvesClientCert for FixedCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
