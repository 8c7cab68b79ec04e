//! [`Target`]: address, TLS and credentials of the server that is measured.

use crate::Run;
use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use keelson_meta::Value;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use std::path::Path;
use std::sync::Arc;

/// The address of a server, with TLS and credentials.
#[derive(Clone)]
pub struct Target {
    /// `host:port`.
    pub authority: String,
    /// `None`: plain HTTP.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// The `Authorization` header.
    pub authorization: Option<HeaderValue>,
    /// HTTP/2 instead of HTTP/1.1.
    pub http2: bool,
}

/// How the server's certificate is verified.
pub enum Trust {
    /// Not at all.
    AnyCertificate,
    /// With these authorities, in PEM.
    Authorities(Vec<u8>),
}

/// A client's certificate and key in PEM.
type Pair = (Vec<u8>, Vec<u8>);

impl Target {
    /// Returns the target of the flags.
    pub fn from_flags(run: &Run) -> Result<Target> {
        if let Some(path) = &run.kubeconfig {
            return Target::from_kubeconfig(path, run.http2);
        }
        let url = run.server.as_deref().context("--server, --kubeconfig or --spawn is needed")?;
        let trust = match &run.certificate_authority {
            Some(path) => Trust::Authorities(read(path)?),
            None if run.insecure_skip_tls_verify => Trust::AnyCertificate,
            None => bail!("--certificate-authority or --insecure-skip-tls-verify is needed"),
        };
        Target::new(url, &trust, None, run.token.as_deref(), run.http2)
    }

    /// Returns the target for a URL. `pair` is a client certificate and its key.
    pub fn new(
        url: &str,
        trust: &Trust,
        pair: Option<Pair>,
        token: Option<&str>,
        http2: bool,
    ) -> Result<Target> {
        let uri: Uri = url.parse().with_context(|| format!("--server: {url}"))?;
        let host = uri.host().context("--server: no host")?.trim_matches(['[', ']']).to_owned();
        let is_tls = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let authority = uri.host().map(|host| format!("{host}:{port}")).unwrap_or_default();
        let tls = if is_tls {
            let config = tls_config(trust, pair, http2)?;
            Some((Arc::new(config), ServerName::try_from(host)?))
        } else {
            None
        };
        let header = token.map(|token| HeaderValue::try_from(format!("Bearer {token}")));
        let authorization = header.transpose().context("--token")?;
        Ok(Target { authority, tls, authorization, http2 })
    }

    /// Returns the same target over HTTP/1.1 or HTTP/2.
    pub fn over(&self, http2: bool) -> Target {
        let tls = self.tls.as_ref().map(|(config, name)| {
            let mut config = ClientConfig::clone(config);
            config.alpn_protocols = protocols(http2);
            (Arc::new(config), name.clone())
        });
        Target { http2, tls, ..self.clone() }
    }

    /// Returns the header lines of every HTTP/1.1 request.
    pub fn headers(&self) -> Vec<u8> {
        let mut text = format!("host: {}\r\n", self.authority).into_bytes();
        if let Some(authorization) = &self.authorization {
            text.extend_from_slice(b"authorization: ");
            text.extend_from_slice(authorization.as_bytes());
            text.extend_from_slice(b"\r\n");
        }
        text
    }

    /// Returns the target of the current context of a kubeconfig.
    fn from_kubeconfig(path: &Path, http2: bool) -> Result<Target> {
        let text = String::from_utf8(read(path)?).context("--kubeconfig")?;
        let config = keelson_schema::yaml::parse(&text).map_err(|error| anyhow!("{error}"))?.value;
        let context =
            named(&config, "contexts", "context", string_field(&config, "current-context"))?;
        let cluster = named(&config, "clusters", "cluster", string_field(context, "cluster"))?;
        let user = named(&config, "users", "user", string_field(context, "user"))?;
        // Paths are relative to the kubeconfig.
        let dir = path.parent().unwrap_or(Path::new(""));
        let server = string_field(cluster, "server");
        let insecure = cluster.get("insecure-skip-tls-verify").and_then(Value::as_bool);
        let trust = match data_or_file(cluster, "certificate-authority", dir)? {
            Some(pem) => Trust::Authorities(pem),
            None if insecure == Some(true) || server.starts_with("http:") => Trust::AnyCertificate,
            None => bail!("--kubeconfig: the cluster names no authority"),
        };
        let key = data_or_file(user, "client-key", dir)?;
        let pair = data_or_file(user, "client-certificate", dir)?.zip(key);
        let token = match (string_field(user, "token"), string_field(user, "tokenFile")) {
            ("", "") => None,
            ("", file) => Some(String::from_utf8(read(&dir.join(file))?).context("tokenFile")?),
            (token, _) => Some(token.to_owned()),
        };
        if pair.is_none() && token.is_none() {
            bail!("--kubeconfig: the user has neither a certificate nor a token");
        }
        Target::new(server, &trust, pair, token.as_deref().map(str::trim), http2)
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}

fn string_field<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the bytes of `NAME-data`, or of the file that `NAME` names.
fn data_or_file(value: &Value, name: &str, dir: &Path) -> Result<Option<Vec<u8>>> {
    let data = string_field(value, &format!("{name}-data"));
    if !data.is_empty() {
        return Ok(Some(STANDARD.decode(data).with_context(|| format!("{name}-data"))?));
    }
    let path = string_field(value, name);
    if path.is_empty() { Ok(None) } else { read(&dir.join(path)).map(Some) }
}

/// Returns a member of the list entry with this name.
fn named<'a>(config: &'a Value, list: &str, member: &str, name: &str) -> Result<&'a Value> {
    let all = config.get(list).and_then(Value::as_array).unwrap_or_default();
    let found = all.iter().find(|entry| string_field(entry, "name") == name);
    found
        .and_then(|entry| entry.get(member))
        .with_context(|| format!("--kubeconfig: {list} {name}"))
}

fn tls_config(trust: &Trust, pair: Option<Pair>, http2: bool) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let builder = match trust {
        Trust::AnyCertificate => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        }
        Trust::Authorities(pem) => {
            let mut roots = RootCertStore::empty();
            for root in CertificateDer::pem_slice_iter(pem) {
                roots.add(root?)?;
            }
            builder.with_root_certificates(roots)
        }
    };
    let mut config = match pair {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<_, _>>()?;
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&key)?)?
        }
    };
    config.alpn_protocols = protocols(http2);
    Ok(config)
}

/// Returns the ALPN protocols.
fn protocols(http2: bool) -> Vec<Vec<u8>> {
    vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }]
}

/// A function of rustls that verifies a handshake signature.
type Verify = fn(
    &[u8],
    &CertificateDer<'_>,
    &DigitallySignedStruct,
    &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error>;

/// Accepts any certificate, for `--insecure-skip-tls-verify` and for spawned servers.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl AnyCertificate {
    /// Verifies that the server has the key of its certificate.
    fn verify_signature(
        &self,
        verify: Verify,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(message, own, signature, &self.0.signature_verification_algorithms)
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _own: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(verify_tls12_signature, message, own, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(verify_tls13_signature, message, own, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the target of a kubeconfig with this cluster and user, and a token file beside it.
    fn target(cluster: &str, user: &str) -> Result<Target> {
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("token"), "from-file\n")?;
        let path = dir.path().join("config");
        let text = format!(
            "current-context: a\ncontexts: [{{name: a, context: {{cluster: c, user: u}}}}]\n\
             clusters:\n- {{name: other, cluster: {{}}}}\n- {{name: c, cluster: {{{cluster}}}}}\n\
             users: [{{name: u, user: {{{user}}}}}]\n"
        );
        std::fs::write(&path, text)?;
        Target::from_kubeconfig(&path, false)
    }

    #[test]
    fn a_kubeconfig_has_address_and_credentials() {
        let check = |cluster: &str, user: &str, authority: &str, header: &str| {
            let target = target(cluster, user).expect(cluster);
            assert_eq!(target.authority, authority);
            assert_eq!(target.authorization.expect("a token"), header);
            assert_eq!(target.tls.is_some(), cluster.contains("https"));
        };
        check("server: 'http://a:8080'", "token: t", "a:8080", "Bearer t");
        check("server: 'http://a'", "tokenFile: token", "a:80", "Bearer from-file");
        let cluster = "server: 'https://[::1]', insecure-skip-tls-verify: true";
        check(cluster, "token: t", "[::1]:443", "Bearer t");
    }

    #[test]
    fn an_incomplete_kubeconfig_is_refused() {
        let check = |cluster: &str, user: &str, want: &str| {
            let error = target(cluster, user).err().map(|error| format!("{error:#}"));
            assert!(error.as_deref().is_some_and(|text| text.contains(want)), "{error:?}");
        };
        check("server: 'https://a'", "token: t", "names no authority");
        check("server: 'http://a'", "username: u", "neither a certificate nor a token");
        check("server: 'http://a'", "tokenFile: elsewhere", "elsewhere");
        check("server: 'http://a', certificate-authority-data: '!'", "token: t", "authority-data");
    }

    #[test]
    fn a_target_can_change_its_protocol() {
        let target = target("server: 'https://a', insecure-skip-tls-verify: true", "token: t");
        let target = target.expect("a target");
        let offered = |target: &Target| {
            target.tls.as_ref().map(|(config, _)| config.alpn_protocols.clone()).expect("TLS")
        };
        assert_eq!(offered(&target), [b"http/1.1"]);
        assert_eq!(offered(&target.over(true)), [b"h2"]);
        let headers = String::from_utf8(target.headers()).expect("text");
        assert_eq!(headers, "host: a:443\r\nauthorization: Bearer t\r\n");
    }
}
