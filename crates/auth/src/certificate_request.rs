//! Certificate signing requests (PKCS #10), and the certificates that are signed for them.

use crate::der;
use crate::service_account::SigningKey;
use crate::x509::{EXTENDED_KEY_USAGE, KEY_USAGE, Unsigned, Validity, extension};
use std::fmt;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{
    FromDer, ParsedCriAttribute, ParsedExtension, Pem, X509CertificationRequest,
};

const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const AUTHORITY_KEY_ID: &[u8] = &[0x55, 0x1d, 0x23];

/// Usages of `certificates.k8s.io` that are bits of the extension KeyUsage (RFC 5280, 4.2.1.3).
const KEY_USAGES: [(&str, usize); 10] = [
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];
/// Usages of `certificates.k8s.io` that are object identifiers of the extension ExtendedKeyUsage.
const EXTENDED_USAGES: [(&str, &[u8]); 13] = [
    ("any", &[0x55, 0x1d, 0x25, 0x00]),
    ("server auth", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01]),
    ("client auth", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02]),
    ("code signing", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x03]),
    ("email protection", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x04]),
    ("s/mime", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x04]),
    ("ipsec end system", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x05]),
    ("ipsec tunnel", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x06]),
    ("ipsec user", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x07]),
    ("timestamping", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x08]),
    ("ocsp signing", &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x09]),
    ("microsoft sgc", &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x0a, 0x03, 0x03]),
    ("netscape sgc", &[0x60, 0x86, 0x48, 0x01, 0x86, 0xf8, 0x42, 0x04, 0x01]),
];

/// A certificate signing request with a verified signature.
#[derive(Clone, Debug, Default)]
pub struct CertificateRequest {
    /// The common name of the subject.
    pub common_name: String,
    /// The organizations of the subject.
    pub organizations: Vec<String>,
    /// The numbers of subject alternative names.
    pub names: NameCounts,
    subject: Vec<u8>,
    public_key: Vec<u8>,
    /// The extension SubjectAlternativeName, in DER.
    alternative_names: Option<Vec<u8>>,
}

/// The numbers of subject alternative names in a request, by type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameCounts {
    /// DNS names.
    pub dns: usize,
    /// IP addresses.
    pub ip: usize,
    /// Email addresses.
    pub email: usize,
    /// URIs.
    pub uri: usize,
}

impl CertificateRequest {
    /// Parses a request in PEM and verifies its signature.
    pub fn read(pem: &[u8]) -> Result<CertificateRequest, String> {
        let (pem, _) = Pem::read(std::io::Cursor::new(pem)).map_err(|error| error.to_string())?;
        if pem.label != "CERTIFICATE REQUEST" {
            return Err("PEM block type must be CERTIFICATE REQUEST".to_owned());
        }
        let (_, request) =
            X509CertificationRequest::from_der(&pem.contents).map_err(|error| error.to_string())?;
        request.verify_signature().map_err(|error| error.to_string())?;
        let info = &request.certification_request_info;
        let mut out = CertificateRequest {
            subject: info.subject.as_raw().to_vec(),
            public_key: info.subject_pki.raw.to_vec(),
            ..CertificateRequest::default()
        };
        let text = |name: &x509_parser::prelude::AttributeTypeAndValue<'_>| {
            name.as_str().map(str::to_owned).unwrap_or_default()
        };
        out.common_name = info.subject.iter_common_name().last().map(text).unwrap_or_default();
        out.organizations = info.subject.iter_organization().map(text).collect();
        for attribute in info.iter_attributes() {
            let ParsedCriAttribute::ExtensionRequest(request) = attribute.parsed_attribute() else {
                continue;
            };
            for requested in &request.extensions {
                let ParsedExtension::SubjectAlternativeName(names) = requested.parsed_extension()
                else {
                    continue;
                };
                names.general_names.iter().for_each(|name| out.names.count(name));
                let oid = SUBJECT_ALTERNATIVE_NAME;
                let critical = requested.critical;
                out.alternative_names = Some(extension(oid, critical, requested.value));
            }
        }
        Ok(out)
    }
}

impl NameCounts {
    fn count(&mut self, name: &GeneralName<'_>) {
        match name {
            GeneralName::DNSName(_) => self.dns += 1,
            GeneralName::IPAddress(_) => self.ip += 1,
            GeneralName::RFC822Name(_) => self.email += 1,
            GeneralName::URI(_) => self.uri += 1,
            _ => {}
        }
    }
}

/// A certificate authority.
pub struct CertificateAuthority {
    /// The certificate in DER.
    certificate: Vec<u8>,
    key: SigningKey,
    /// The `notAfter` of the certificate in Unix seconds.
    not_after: i64,
}

impl fmt::Debug for CertificateAuthority {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority")
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// Parses the certificate and the key of an authority, both in PEM.
    pub fn read(certificate: &str, key: &str) -> Result<CertificateAuthority, String> {
        let certificate = CertificateAuthority::der(certificate.as_bytes())
            .ok_or("certificate: it is not in PEM")?;
        let key = SigningKey::read(key).map_err(|error| format!("key: {error}"))?;
        let validity =
            crate::x509::validity(&certificate).ok_or("certificate: it cannot be read")?;
        Ok(CertificateAuthority { certificate, key, not_after: validity.not_after })
    }

    /// Returns the first certificate in PEM text as DER.
    pub fn der(pem: &[u8]) -> Option<Vec<u8>> {
        Pem::read(std::io::Cursor::new(pem)).ok().map(|(pem, _)| pem.contents)
    }

    /// Signs a request for usages of `certificates.k8s.io`. Returns the certificate in PEM; it does
    /// not outlast that of the authority. `None` if it cannot be signed.
    pub fn sign(
        &self,
        request: &CertificateRequest,
        usages: &[&str],
        serial: [u8; 16],
        validity: Validity,
    ) -> Option<String> {
        let mut extensions = usage_extensions(usages);
        extensions.push(extension(BASIC_CONSTRAINTS, true, &der::wrap(der::SEQUENCE, &[])));
        extensions.extend(self.key_id());
        extensions.extend(request.alternative_names.clone());
        let not_after = validity.not_after.min(self.not_after);
        let unsigned = Unsigned {
            subject: &request.subject,
            public_key: &request.public_key,
            serial,
            validity: Validity { not_after, ..validity },
            extensions,
        };
        unsigned.sign(&self.certificate, &self.key).map(|der| crate::x509::pem(&der))
    }

    /// Returns the extension AuthorityKeyIdentifier, if the authority's certificate has a
    /// SubjectKeyIdentifier.
    fn key_id(&self) -> Option<Vec<u8>> {
        const KEY_ID: u8 = 0x80;
        let parsed = x509_parser::parse_x509_certificate(&self.certificate).ok()?.1;
        let id =
            parsed.iter_extensions().find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
                _ => None,
            })?;
        let value = der::wrap(der::SEQUENCE, &der::wrap(KEY_ID, &id));
        Some(extension(AUTHORITY_KEY_ID, false, &value))
    }
}

fn usage_extensions(usages: &[&str]) -> Vec<Vec<u8>> {
    let mut bits: u16 = 0;
    let mut purposes: Vec<Vec<u8>> = vec![];
    for usage in usages {
        if let Some((_, bit)) = KEY_USAGES.iter().find(|(name, _)| name == usage) {
            bits |= 0x8000 >> bit;
        }
        if let Some((_, oid)) = EXTENDED_USAGES.iter().find(|(name, _)| name == usage) {
            let purpose = der::wrap(der::OBJECT_ID, oid);
            if !purposes.contains(&purpose) {
                purposes.push(purpose);
            }
        }
    }
    let mut extensions = vec![];
    if bits != 0 {
        let unused = u8::try_from(bits.trailing_zeros() % 8).unwrap_or_default();
        let bytes = bits.to_be_bytes();
        let used = if bytes[1] == 0 { &bytes[..1] } else { &bytes[..] };
        let value = der::wrap(der::BIT_STRING, &[&[unused], used].concat());
        extensions.push(extension(KEY_USAGE, true, &value));
    }
    if !purposes.is_empty() {
        let value = der::wrap(der::SEQUENCE, &der::concat(&purposes));
        extensions.push(extension(EXTENDED_KEY_USAGE, false, &value));
    }
    extensions
}
