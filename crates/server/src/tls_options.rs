//! [`TlsOptions`]: versions, cipher suites and key exchange of TLS, by the names of
//! kube-apiserver's flags.

use rustls::crypto::{CryptoProvider, ring};
use rustls::{CipherSuite, NamedGroup, SupportedCipherSuite, SupportedProtocolVersion, version};

/// Cipher suites by their names in Go. All of TLS 1.3 are always offered, as in Go. Of TLS 1.2
/// those without forward secrecy or authenticated encryption are known, and not implemented.
const SUITES: &[(&str, Option<CipherSuite>)] = &[
    ("TLS_AES_128_GCM_SHA256", Some(CipherSuite::TLS13_AES_128_GCM_SHA256)),
    ("TLS_AES_256_GCM_SHA384", Some(CipherSuite::TLS13_AES_256_GCM_SHA384)),
    ("TLS_CHACHA20_POLY1305_SHA256", Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256)),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        Some(CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        Some(CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        Some(CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        Some(CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    ),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", None),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", None),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", None),
    ("TLS_ECDHE_ECDSA_WITH_RC4_128_SHA", None),
    ("TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA", None),
    ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", None),
    ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", None),
    ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", None),
    ("TLS_ECDHE_RSA_WITH_RC4_128_SHA", None),
    ("TLS_RSA_WITH_3DES_EDE_CBC_SHA", None),
    ("TLS_RSA_WITH_AES_128_CBC_SHA", None),
    ("TLS_RSA_WITH_AES_128_CBC_SHA256", None),
    ("TLS_RSA_WITH_AES_128_GCM_SHA256", None),
    ("TLS_RSA_WITH_AES_256_CBC_SHA", None),
    ("TLS_RSA_WITH_AES_256_GCM_SHA384", None),
    ("TLS_RSA_WITH_RC4_128_SHA", None),
];

/// Groups of the key exchange by their numbers in TLS, which are also Go's. `None`: Go has the
/// group, and it is not implemented here.
const GROUPS: &[(&str, Option<NamedGroup>)] = &[
    ("23", Some(NamedGroup::secp256r1)),
    ("24", Some(NamedGroup::secp384r1)),
    ("25", None),
    ("29", Some(NamedGroup::X25519)),
    ("4587", None),
    ("4588", None),
    ("4589", None),
];

/// Versions, cipher suites and key exchange of TLS.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// Whether TLS 1.2 is off.
    is_tls13_only: bool,
    /// The cipher suites of TLS 1.2; empty means all.
    suites: Vec<CipherSuite>,
    /// The groups of the key exchange; empty means all.
    groups: Vec<NamedGroup>,
    /// Whether HTTP/2 is not offered (`--disable-http2-serving`).
    pub is_http1_only: bool,
}

impl TlsOptions {
    /// Reads the values of `--tls-min-version`, `--tls-cipher-suites` and
    /// `--tls-curve-preferences`. Suites and groups that are not implemented are left out; it is an
    /// error if no others are named.
    pub fn new(version: &str, suites: &[String], groups: &[String]) -> Result<TlsOptions, String> {
        let is_tls13_only = match version {
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => false,
            "VersionTLS13" => true,
            other => return Err(format!("unknown tls version {other:?}")),
        };
        let unknown = |name: &str| format!("Cipher suite {name} not supported or doesn't exist");
        let suites = implemented("--tls-cipher-suites", suites, SUITES, unknown)?;
        let unknown = |name: &str| format!("unknown tls curve {name}");
        let groups = implemented("--tls-curve-preferences", groups, GROUPS, unknown)?;
        Ok(TlsOptions { is_tls13_only, suites, groups, is_http1_only: false })
    }

    pub(crate) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        static ALL: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
        if self.is_tls13_only { &ALL[..1] } else { &ALL }
    }

    pub(crate) fn provider(&self) -> CryptoProvider {
        let mut provider = ring::default_provider();
        let suites = &self.suites;
        provider.cipher_suites.retain(|suite| {
            matches!(suite, SupportedCipherSuite::Tls13(_))
                || suites.is_empty()
                || suites.contains(&suite.suite())
        });
        let groups = &self.groups;
        provider.kx_groups.retain(|group| groups.is_empty() || groups.contains(&group.name()));
        provider
    }
}

/// Returns the implemented ones of those that are named.
fn implemented<T: Copy>(
    flag: &str,
    names: &[String],
    known: &[(&str, Option<T>)],
    unknown: impl Fn(&str) -> String,
) -> Result<Vec<T>, String> {
    let mut found = vec![];
    for name in names {
        let entry = known.iter().find(|(known, _)| known == name);
        let (_, implemented) = entry.ok_or_else(|| unknown(name))?;
        found.extend(*implemented);
    }
    if found.is_empty() && !names.is_empty() {
        return Err(format!("{flag}: none of these is implemented: {}", names.join(",")));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(version: &str, suites: &str, groups: &str) -> Result<TlsOptions, String> {
        let list = |text: &str| {
            text.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        };
        TlsOptions::new(version, &list(suites), &list(groups))
    }

    #[test]
    fn only_named_suites_and_groups_are_offered() {
        let suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
        let options =
            options("VersionTLS12", &format!("{suite},TLS_RSA_WITH_RC4_128_SHA"), "23,25");
        let provider = options.expect("options").provider();
        let of_tls12: Vec<_> = provider
            .cipher_suites
            .iter()
            .filter(|suite| matches!(suite, SupportedCipherSuite::Tls12(_)))
            .map(SupportedCipherSuite::suite)
            .collect();
        assert_eq!(of_tls12, [CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]);
        let groups: Vec<_> = provider.kx_groups.iter().map(|group| group.name()).collect();
        assert_eq!(groups, [NamedGroup::secp256r1]);
    }

    #[test]
    fn unknown_names_are_errors() {
        let error = |version, suites, groups| options(version, suites, groups).expect_err("wrong");
        assert_eq!(error("VersionTLS14", "", ""), "unknown tls version \"VersionTLS14\"");
        assert_eq!(error("", "NO", ""), "Cipher suite NO not supported or doesn't exist");
        let none = "--tls-curve-preferences: none of these is implemented: 25";
        assert_eq!(error("", "", "25"), none);
        assert_eq!(options("VersionTLS13", "", "").expect("options").versions().len(), 1);
    }
}
