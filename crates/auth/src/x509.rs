//! X.509 certificates: fields other than the user, and signing of client certificates.

use crate::der;
use crate::service_account::{Algorithm, SigningKey};
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The validity period of a certificate, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: i64,
    /// The last second.
    pub not_after: i64,
}

/// Returns the validity period of a DER certificate; `None` when it cannot be parsed.
pub fn validity(der: &[u8]) -> Option<Validity> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let validity = certificate.validity();
    Some(Validity {
        not_before: validity.not_before.timestamp(),
        not_after: validity.not_after.timestamp(),
    })
}

/// Returns the certificates of a PEM bundle in DER. Other content is skipped.
pub fn certificates(pem: &str) -> Vec<Vec<u8>> {
    let parts = Pem::iter_from_buffer(pem.as_bytes()).filter_map(Result::ok);
    parts.filter(|part| part.label == "CERTIFICATE").map(|part| part.contents).collect()
}

/// Encodes a certificate as PEM.
pub fn pem(der: &[u8]) -> String {
    use base64::Engine;
    const LINE_CHARACTERS: usize = 64;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut lines = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in text.as_bytes().chunks(LINE_CHARACTERS) {
        lines.push_str(&String::from_utf8_lossy(line));
        lines.push('\n');
    }
    lines + "-----END CERTIFICATE-----\n"
}

/// Returns the common name of a certificate's subject.
pub fn common_name(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    certificate.subject().iter_common_name().last()?.as_str().ok().map(str::to_owned)
}

/// Returns the DNS names of a certificate for a server, in lower case: its alternative names, or
/// its common name if it has none.
pub fn dns_names(der: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return vec![] };
    let names: Vec<String> = certificate
        .subject_alternative_name()
        .ok()
        .flatten()
        .map(|names| names.value.general_names.as_slice())
        .unwrap_or_default()
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        })
        .collect();
    match names.is_empty() {
        true => common_name(der).map(|name| name.to_ascii_lowercase()).into_iter().collect(),
        false => names,
    }
}

/// Returns whether the key of `authority` signed `certificate`, both in DER.
pub fn is_signed_by(certificate: &[u8], authority: &[u8]) -> bool {
    let parsed = (X509Certificate::from_der(certificate), X509Certificate::from_der(authority));
    let (Ok((_, certificate)), Ok((_, authority))) = parsed else { return false };
    certificate.issuer() == authority.subject()
        && certificate.verify_signature(Some(authority.public_key())).is_ok()
}

/// Returns whether a DER certificate has this public key (SubjectPublicKeyInfo in DER).
pub fn has_public_key(certificate: &[u8], public_key: &[u8]) -> bool {
    X509Certificate::from_der(certificate)
        .is_ok_and(|(_, certificate)| certificate.public_key().raw == public_key)
}

/// A client certificate to be signed.
#[derive(Clone, Copy, Debug)]
pub struct ClientCertificate<'a> {
    /// The common name: the user.
    pub user: &'a str,
    /// The organizations: the groups.
    pub groups: &'a [String],
    /// The public key in DER (SubjectPublicKeyInfo).
    pub public_key: &'a [u8],
    /// Sixteen random bytes.
    pub serial: [u8; 16],
    /// The validity period.
    pub validity: Validity,
}

impl ClientCertificate<'_> {
    /// Signs a certificate and returns it in DER; `None` when the authority's certificate cannot be
    /// parsed. By hand, because rcgen writes at most one organization.
    pub fn sign(&self, authority: &[u8], key: &SigningKey) -> Option<Vec<u8>> {
        let name = |oid: &[u8], text: &str| {
            let pair =
                [der::wrap(der::OBJECT_ID, oid), der::wrap(der::UTF8_STRING, text.as_bytes())];
            der::wrap(der::SET, &der::wrap(der::SEQUENCE, &der::concat(&pair)))
        };
        let mut subject: Vec<Vec<u8>> =
            self.groups.iter().map(|group| name(ORGANIZATION, group)).collect();
        subject.push(name(COMMON_NAME, self.user));
        let usage = der::wrap(der::BIT_STRING, &[7, 0x80]);
        let client = der::wrap(der::SEQUENCE, &der::wrap(der::OBJECT_ID, CLIENT_AUTH));
        let unsigned = Unsigned {
            subject: &der::wrap(der::SEQUENCE, &der::concat(&subject)),
            public_key: self.public_key,
            serial: self.serial,
            validity: self.validity,
            extensions: vec![
                extension(KEY_USAGE, true, &usage),
                extension(EXTENDED_KEY_USAGE, false, &client),
            ],
        };
        unsigned.sign(authority, key)
    }
}

/// A certificate to be signed.
pub(crate) struct Unsigned<'a> {
    /// The subject in DER.
    pub subject: &'a [u8],
    /// The public key in DER (SubjectPublicKeyInfo).
    pub public_key: &'a [u8],
    /// Sixteen random bytes.
    pub serial: [u8; 16],
    /// The validity period.
    pub validity: Validity,
    /// The extensions in DER.
    pub extensions: Vec<Vec<u8>>,
}

impl Unsigned<'_> {
    /// Signs a certificate and returns it in DER; `None` when the authority's cannot be parsed.
    pub fn sign(&self, authority: &[u8], key: &SigningKey) -> Option<Vec<u8>> {
        let (_, authority) = X509Certificate::from_der(authority).ok()?;
        let algorithm = signature_algorithm(key.verifying.algorithm);
        let times = [self.validity.not_before, self.validity.not_after].map(time);
        let [not_before, not_after] = times;
        // A serial number is positive and has no superfluous bytes.
        let mut serial = self.serial;
        serial[0] = (serial[0] & 0x3f) | 0x40;
        let extensions = der::wrap(der::SEQUENCE, &der::concat(&self.extensions));
        let certificate = der::wrap(
            der::SEQUENCE,
            &der::concat(&[
                der::wrap(VERSION, &der::wrap(der::INTEGER, &[2])),
                der::wrap(der::INTEGER, &serial),
                algorithm.clone(),
                authority.subject().as_raw().to_vec(),
                der::wrap(der::SEQUENCE, &der::concat(&[not_before?, not_after?])),
                self.subject.to_vec(),
                self.public_key.to_vec(),
                der::wrap(EXTENSIONS, &extensions),
            ]),
        );
        let signature = key.sign(&certificate)?;
        let signature = match key.verifying.algorithm {
            Algorithm::RS256 => signature,
            Algorithm::ES256 | Algorithm::ES384 | Algorithm::ES512 => {
                let (r, s) = signature.split_at(signature.len() / 2);
                der::wrap(der::SEQUENCE, &der::concat(&[unsigned(r), unsigned(s)]))
            }
        };
        let bits = [&[0], &*signature].concat();
        let parts = der::concat(&[certificate, algorithm, der::wrap(der::BIT_STRING, &bits)]);
        Some(der::wrap(der::SEQUENCE, &parts))
    }
}

const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const BOOLEAN: u8 = 0x01;
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
pub(crate) const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
pub(crate) const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];

/// Encodes an extension.
pub(crate) fn extension(oid: &[u8], is_critical: bool, value: &[u8]) -> Vec<u8> {
    let critical = if is_critical { der::wrap(BOOLEAN, &[0xff]) } else { vec![] };
    let oid = der::wrap(der::OBJECT_ID, oid);
    let parts = der::concat(&[oid, critical, der::wrap(der::OCTET_STRING, value)]);
    der::wrap(der::SEQUENCE, &parts)
}

fn signature_algorithm(algorithm: Algorithm) -> Vec<u8> {
    const RSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
    const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
    const ECDSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03];
    const ECDSA_SHA512: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04];
    let name = |oid: &[u8]| der::wrap(der::OBJECT_ID, oid);
    let parts = match algorithm {
        Algorithm::RS256 => der::concat(&[name(RSA_SHA256), der::wrap(der::NULL, &[])]),
        Algorithm::ES256 => name(ECDSA_SHA256),
        Algorithm::ES384 => name(ECDSA_SHA384),
        Algorithm::ES512 => name(ECDSA_SHA512),
    };
    der::wrap(der::SEQUENCE, &parts)
}

/// Encodes a non-negative integer in as few bytes as possible.
fn unsigned(bytes: &[u8]) -> Vec<u8> {
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    let bytes = &bytes[first..];
    match bytes.first() {
        Some(first) if *first < 0x80 => der::wrap(der::INTEGER, bytes),
        _ => der::wrap(der::INTEGER, &[&[0], bytes].concat()),
    }
}

/// Encodes a time: UTCTime with two-digit years until 2049, then GeneralizedTime.
fn time(seconds: i64) -> Option<Vec<u8>> {
    const UTC_TIME: u8 = 0x17;
    const GENERALIZED_TIME: u8 = 0x18;
    let text = keelson_meta::Timestamp::new(seconds, 0).text();
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let year: i32 = digits.get(..4)?.parse().ok()?;
    Some(if (1950..2050).contains(&year) {
        der::wrap(UTC_TIME, format!("{}Z", digits.get(2..14)?).as_bytes())
    } else {
        der::wrap(GENERALIZED_TIME, format!("{}Z", digits.get(..14)?).as_bytes())
    })
}
