//! The server that is measured: where it is, whom it trusts, and as whom we come.

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

/// A server, and how to reach it.
#[derive(Clone)]
pub struct Target {
    /// `host:port`.
    pub authority: String,
    /// Absent: plain HTTP.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// The `Authorization` header.
    pub authorization: Option<HeaderValue>,
    /// HTTP/2 instead of HTTP/1.1.
    pub http2: bool,
}

/// Whose word counts for the server's certificate.
pub enum Trust {
    /// Nobody's: any will do.
    Anybody,
    /// That of authorities in PEM.
    Authorities(Vec<u8>),
}

/// A client's certificate and key in PEM.
type Pair = (Vec<u8>, Vec<u8>);

impl Target {
    /// The one that the flags name.
    pub fn of(run: &Run) -> Result<Target> {
        if let Some(path) = &run.kubeconfig {
            return Target::of_kubeconfig(path, run.http2);
        }
        let url = run.server.as_deref().context("--server, --kubeconfig or --spawn is needed")?;
        let trust = match &run.certificate_authority {
            Some(path) => Trust::Authorities(read(path)?),
            None if run.insecure_skip_tls_verify => Trust::Anybody,
            None => bail!("--certificate-authority or --insecure-skip-tls-verify is needed"),
        };
        Target::new(url, &trust, None, run.token.as_deref(), run.http2)
    }

    /// A server at `url`.
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

    /// The same server over HTTP/1.1 or HTTP/2.
    pub fn over(&self, http2: bool) -> Target {
        let tls = self.tls.as_ref().map(|(config, name)| {
            let mut config = ClientConfig::clone(config);
            config.alpn_protocols = protocols(http2);
            (Arc::new(config), name.clone())
        });
        Target { http2, tls, ..self.clone() }
    }

    /// The headers that every request over HTTP/1.1 has, as they are written.
    pub fn headers(&self) -> Vec<u8> {
        let mut text = format!("host: {}\r\n", self.authority).into_bytes();
        if let Some(authorization) = &self.authorization {
            text.extend_from_slice(b"authorization: ");
            text.extend_from_slice(authorization.as_bytes());
            text.extend_from_slice(b"\r\n");
        }
        text
    }

    /// The current context of a kubeconfig.
    fn of_kubeconfig(path: &Path, http2: bool) -> Result<Target> {
        let text = String::from_utf8(read(path)?).context("--kubeconfig")?;
        let config = keelson_schema::yaml::parse(&text).map_err(|error| anyhow!("{error}"))?.value;
        let context = named(&config, "contexts", "context", text_of(&config, "current-context"))?;
        let cluster = named(&config, "clusters", "cluster", text_of(context, "cluster"))?;
        let user = named(&config, "users", "user", text_of(context, "user"))?;
        // Files are named from where the kubeconfig is.
        let dir = path.parent().unwrap_or(Path::new(""));
        let server = text_of(cluster, "server");
        let insecure = cluster.get("insecure-skip-tls-verify").and_then(Value::as_bool);
        let trust = match bytes_of(cluster, "certificate-authority", dir)? {
            Some(pem) => Trust::Authorities(pem),
            None if insecure == Some(true) || server.starts_with("http:") => Trust::Anybody,
            None => bail!("--kubeconfig: the cluster names no authority"),
        };
        let key = bytes_of(user, "client-key", dir)?;
        let pair = bytes_of(user, "client-certificate", dir)?.zip(key);
        let token = match (text_of(user, "token"), text_of(user, "tokenFile")) {
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

fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// What stands in `NAME-data`, or in the file that `NAME` names.
fn bytes_of(value: &Value, name: &str, dir: &Path) -> Result<Option<Vec<u8>>> {
    let data = text_of(value, &format!("{name}-data"));
    if !data.is_empty() {
        return Ok(Some(STANDARD.decode(data).with_context(|| format!("{name}-data"))?));
    }
    let path = text_of(value, name);
    if path.is_empty() { Ok(None) } else { read(&dir.join(path)).map(Some) }
}

/// An entry of a list by its name.
fn named<'a>(config: &'a Value, list: &str, member: &str, name: &str) -> Result<&'a Value> {
    let all = config.get(list).and_then(Value::as_array).unwrap_or_default();
    let found = all.iter().find(|entry| text_of(entry, "name") == name);
    found
        .and_then(|entry| entry.get(member))
        .with_context(|| format!("--kubeconfig: {list} {name}"))
}

fn tls_config(trust: &Trust, pair: Option<Pair>, http2: bool) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let builder = match trust {
        Trust::Anybody => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
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

/// What a TLS handshake offers to speak.
fn protocols(http2: bool) -> Vec<Vec<u8>> {
    vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }]
}

/// How rustls checks a signature of one version of TLS.
type Verify = fn(
    &[u8],
    &CertificateDer<'_>,
    &DigitallySignedStruct,
    &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error>;

/// Takes any certificate; only `--insecure-skip-tls-verify` and servers of our own get here.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl Anybody {
    /// The owner of the certificate must still hold its key.
    fn holds(
        &self,
        verify: Verify,
        (message, own, signature): (&[u8], &CertificateDer<'_>, &DigitallySignedStruct),
    ) -> Result<HandshakeSignatureValid, Error> {
        verify(message, own, signature, &self.0.signature_verification_algorithms)
    }
}

impl ServerCertVerifier for Anybody {
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
        self.holds(verify_tls12_signature, (message, own, signature))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.holds(verify_tls13_signature, (message, own, signature))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a kubeconfig with this cluster and user, and files beside it, leads to.
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
        Target::of_kubeconfig(&path, false)
    }

    #[test]
    fn a_kubeconfig_says_where_and_as_whom() {
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
    fn a_kubeconfig_that_does_not_say_enough_is_refused() {
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
    fn the_same_server_is_reached_over_either_protocol() {
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
