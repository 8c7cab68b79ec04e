//! Verifies the certificates of peers, with Go's error texts (`crypto/x509`).

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::net::IpAddr;
use std::sync::Arc;
use x509_parser::prelude::{ASN1Time, FromDer, GeneralName, X509Certificate};

/// A certificate error with Go's text. It is the source of a TLS error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct GoCertificateError(pub String);

/// Verifies a peer's certificate against a set of roots.
#[derive(Debug)]
pub(crate) struct Verifier {
    pub chain: Arc<WebPkiServerVerifier>,
    /// The roots. As in Go, a root that is also the server's certificate is trusted.
    pub roots: Vec<CertificateDer<'static>>,
    pub provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let checked = self.chain.verify_server_cert(leaf, intermediates, name, ocsp, now);
        let Err(error) = checked else { return checked };
        let parsed = X509Certificate::from_der(leaf).map(|(_, parsed)| parsed);
        let Ok(parsed) = parsed else { return Err(fault(format!("x509: {error}"))) };
        // Like Go, check time and names before the chain.
        if let Some(why) = time_fault(&parsed, now).or_else(|| name_fault(&parsed, name)) {
            return Err(fault(why));
        }
        if serves(&parsed) && self.trusts_authority(leaf, &parsed, &error, now) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(fault(self.chain_fault(&parsed, &error)))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, leaf, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, leaf, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl Verifier {
    /// Returns whether a CA certificate, which webpki does not accept from a server, is a root or
    /// signed by one.
    fn trusts_authority(
        &self,
        der: &CertificateDer<'_>,
        leaf: &X509Certificate<'_>,
        error: &Error,
        now: UnixTime,
    ) -> bool {
        // Other errors are final.
        let is_other =
            matches!(error, Error::InvalidCertificate(CertificateError::Other(_))) && leaf.is_ca();
        if !is_other {
            return self.roots.iter().any(|root| root == der);
        }
        self.roots.iter().any(|root| {
            let Ok((_, parsed)) = X509Certificate::from_der(root) else { return false };
            root == der
                || (parsed.is_ca()
                    && parsed.subject().as_raw() == leaf.issuer().as_raw()
                    && time_fault(&parsed, now).is_none()
                    && leaf.verify_signature(Some(parsed.public_key())).is_ok())
        })
    }

    fn chain_fault(&self, leaf: &X509Certificate<'_>, error: &Error) -> String {
        let Error::InvalidCertificate(error) = error else { return format!("x509: {error}") };
        match error {
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                "x509: certificate specifies an incompatible key usage".to_owned()
            }
            CertificateError::UnknownIssuer
            | CertificateError::BadSignature
            | CertificateError::Other(_) => {
                format!("x509: certificate signed by unknown authority{}", self.hint(leaf))
            }
            other => format!("x509: {other}"),
        }
    }

    /// Returns Go's hint about a root with the issuer's name and another key.
    fn hint(&self, leaf: &X509Certificate<'_>) -> String {
        let roots = self.roots.iter().filter_map(|root| X509Certificate::from_der(root).ok());
        let mut namesakes = roots.map(|(_, root)| root).filter(|root| {
            root.subject().as_raw() == leaf.issuer().as_raw()
                && leaf.verify_signature(Some(root.public_key())).is_err()
        });
        let Some(root) = namesakes.next() else { return String::new() };
        let algorithm = leaf.signature_algorithm.algorithm.to_id_string();
        let why = match algorithm.as_str() {
            text if text.starts_with("1.2.840.10045") => "x509: ECDSA verification failure",
            "1.3.101.112" => "x509: Ed25519 verification failure",
            _ => "crypto/rsa: verification error",
        };
        let name = root.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        format!(
            " (possibly because of \"{why}\" while trying to verify candidate authority \
             certificate {:?})",
            name.unwrap_or_default()
        )
    }
}

fn fault(text: String) -> Error {
    let other = OtherError(Arc::new(GoCertificateError(text)));
    Error::InvalidCertificate(CertificateError::Other(other))
}

fn time_fault(leaf: &X509Certificate<'_>, now: UnixTime) -> Option<String> {
    let now = ASN1Time::from_timestamp(i64::try_from(now.as_secs()).ok()?).ok()?;
    let validity = leaf.validity();
    let (relation, limit) = if now < validity.not_before {
        ("before", validity.not_before)
    } else if now > validity.not_after {
        ("after", validity.not_after)
    } else {
        return None;
    };
    Some(format!(
        "x509: certificate has expired or is not yet valid: current time {} is {relation} {}",
        rfc3339(now),
        rfc3339(limit)
    ))
}

fn rfc3339(time: ASN1Time) -> String {
    let time = time.to_datetime();
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second) = time.to_hms();
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn name_fault(leaf: &X509Certificate<'_>, name: &ServerName<'_>) -> Option<String> {
    let extension = leaf.subject_alternative_name().ok().flatten();
    let names = extension.map_or(&[][..], |extension| &extension.value.general_names);
    match name {
        ServerName::IpAddress(ip) => ip_fault(names, IpAddr::from(*ip)),
        ServerName::DnsName(dns) => dns_fault(names, leaf, dns.as_ref()),
        _ => None,
    }
}

fn ip_fault(names: &[GeneralName<'_>], ip: IpAddr) -> Option<String> {
    let ips: Vec<IpAddr> = names.iter().filter_map(ip_of).collect();
    if ips.is_empty() {
        let why = "because it doesn't contain any IP SANs";
        return Some(format!("x509: cannot validate certificate for {ip} {why}"));
    }
    if ips.contains(&ip) {
        return None;
    }
    let valid: Vec<String> = ips.iter().map(IpAddr::to_string).collect();
    Some(format!("x509: certificate is valid for {}, not {ip}", valid.join(", ")))
}

fn ip_of(name: &GeneralName<'_>) -> Option<IpAddr> {
    let GeneralName::IPAddress(bytes) = name else { return None };
    let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok()
}

fn dns_fault(names: &[GeneralName<'_>], leaf: &X509Certificate<'_>, host: &str) -> Option<String> {
    let of = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    };
    let valid: Vec<String> = names.iter().filter_map(of).collect();
    if valid.iter().any(|pattern| matches(pattern, host)) {
        return None;
    }
    if names.is_empty() && leaf.subject().iter_common_name().next().is_some() {
        let why = "certificate relies on legacy Common Name field, use SANs instead";
        return Some(format!("x509: {why}"));
    }
    if valid.is_empty() {
        let why = "certificate is not valid for any names, but wanted to match";
        return Some(format!("x509: {why} {host}"));
    }
    Some(format!("x509: certificate is valid for {}, not {host}", valid.join(", ")))
}

/// Returns whether a host matches a name; `*` stands for the whole first label.
fn matches(pattern: &str, host: &str) -> bool {
    let host = host.trim_end_matches('.');
    let Some(tail) = pattern.strip_prefix("*.") else { return pattern.eq_ignore_ascii_case(host) };
    host.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(tail))
}

/// Returns whether the extended key usage allows a server.
fn serves(leaf: &X509Certificate<'_>) -> bool {
    match leaf.extended_key_usage() {
        Ok(Some(usage)) => usage.value.server_auth || usage.value.any,
        Ok(None) => true,
        Err(_) => false,
    }
}

/// Accepts any certificate.
#[derive(Debug)]
pub(crate) struct NoVerifier(pub Arc<CryptoProvider>);

impl ServerCertVerifier for NoVerifier {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, leaf, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, leaf, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
