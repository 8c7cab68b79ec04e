//! Requests for certificates (PKCS #10), and the certificates that are signed for them.

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

/// Usages that are bits of the extension KeyUsage, from the first bit on.
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
/// Usages that are object identifiers of the extension ExtendedKeyUsage.
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

/// A request for a certificate whose signature is that of its key.
#[derive(Clone, Debug, Default)]
pub struct CertificateRequest {
    /// The common name of its subject.
    pub common_name: String,
    /// The organizations of its subject.
    pub organizations: Vec<String>,
    /// Which other names it asks for.
    pub names: Names,
    subject: Vec<u8>,
    public_key: Vec<u8>,
    /// The extension SubjectAlternativeName, in DER.
    alternative_names: Option<Vec<u8>>,
}

/// Numbers of the subject alternative names of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Host names.
    pub dns: usize,
    /// Addresses.
    pub ip: usize,
    /// Addresses of mail.
    pub email: usize,
    /// URIs.
    pub uri: usize,
}

impl CertificateRequest {
    /// Reads a request in PEM.
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
            let ParsedCriAttribute::ExtensionRequest(asked) = attribute.parsed_attribute() else {
                continue;
            };
            for asked in &asked.extensions {
                if let ParsedExtension::SubjectAlternativeName(names) = asked.parsed_extension() {
                    names.general_names.iter().for_each(|name| out.names.count(name));
                    let name = SUBJECT_ALTERNATIVE_NAME;
                    out.alternative_names = Some(extension(name, asked.critical, asked.value));
                }
            }
        }
        Ok(out)
    }
}

impl Names {
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

/// An authority that signs certificates.
pub struct CertificateAuthority {
    /// In DER.
    certificate: Vec<u8>,
    key: SigningKey,
    /// The last second of its certificate.
    not_after: i64,
}

impl fmt::Debug for CertificateAuthority {
    /// Nothing of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority")
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// Reads the certificate and the key of an authority, both in PEM.
    pub fn read(certificate: &str, key: &str) -> Result<CertificateAuthority, String> {
        let certificate = CertificateAuthority::der(certificate.as_bytes());
        let certificate = certificate.ok_or("certificate: it is not in PEM")?;
        let key = SigningKey::read(key).map_err(|error| format!("key: {error}"))?;
        let validity = crate::x509::validity(&certificate);
        let validity = validity.ok_or("certificate: it cannot be read")?;
        Ok(CertificateAuthority { certificate, key, not_after: validity.not_after })
    }

    /// The first certificate of some text in PEM.
    pub fn der(pem: &[u8]) -> Option<Vec<u8>> {
        Pem::read(std::io::Cursor::new(pem)).ok().map(|(pem, _)| pem.contents)
    }

    /// Signs what a request asks for, for some usages (the words of `certificates.k8s.io`); in PEM. Nothing
    /// lasts longer than the authority.
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

    /// The extension that names the authority's key, if its certificate gives that a name.
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
    let (mut bits, mut purposes): (u16, Vec<Vec<u8>>) = (0, vec![]);
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
