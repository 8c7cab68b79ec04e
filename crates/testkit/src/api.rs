//! A blocking HTTPS client of a kube-apiserver: one connection that stays, and one more for each watch.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a server may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(70);

/// Media types of patches.
pub const MERGE_PATCH: &str = "application/merge-patch+json";
/// A strategic merge patch.
pub const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

type Stream = BufReader<StreamOwned<ClientConnection, TcpStream>>;

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Status code.
    pub code: u16,
    /// The values of Warning headers.
    pub warnings: Vec<String>,
    /// The body, null where it is no JSON.
    pub body: Value,
}

impl Answer {
    /// Whether the code is one of success.
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

/// A user of a server.
pub struct Api {
    address: SocketAddr,
    roots: RootCertStore,
    config: Arc<ClientConfig>,
    token: Option<String>,
    connection: Mutex<Option<Stream>>,
}

impl Api {
    /// The user of a kubeconfig, which must have its data within it.
    pub fn of_kubeconfig(path: &Path) -> io::Result<Api> {
        let text = std::fs::read_to_string(path)?;
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.trim().strip_prefix(name));
            let value = value.and_then(|value| value.strip_prefix(": "));
            value.ok_or_else(|| io::Error::other(format!("no {name} in {}", path.display())))
        };
        let data = |name: &str| STANDARD.decode(field(name)?).map_err(io::Error::other);
        let server = field("server")?.trim_matches('"').trim_start_matches("https://");
        let address = server.parse().map_err(io::Error::other)?;
        let authorities = data("certificate-authority-data")?;
        let (chain, key) = (data("client-certificate-data")?, data("client-key-data")?);
        Api::new(address, &authorities, Some((&chain, &key)), None)
    }

    /// A user with a client certificate and its key, with a token, or with neither; all files in PEM.
    pub fn new(
        address: SocketAddr,
        authorities: &[u8],
        pair: Option<(&[u8], &[u8])>,
        token: Option<String>,
    ) -> io::Result<Api> {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(authorities) {
            roots.add(root.map_err(io::Error::other)?).map_err(io::Error::other)?;
        }
        let config = config(roots.clone(), pair)?;
        Ok(Api { address, roots, config, token, connection: Mutex::default() })
    }

    /// A user with a token of a server that may have any certificate.
    pub fn unchecked(address: SocketAddr, token: Option<String>) -> io::Result<Api> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth();
        let (roots, config) = (RootCertStore::empty(), Arc::new(config));
        Ok(Api { address, roots, config, token, connection: Mutex::default() })
    }

    /// The same user, over a connection of its own.
    pub fn again(&self) -> Api {
        Api {
            address: self.address,
            roots: self.roots.clone(),
            config: self.config.clone(),
            token: self.token.clone(),
            connection: Mutex::default(),
        }
    }

    /// Another user of the same server, with a token or with nothing.
    pub fn with_token(&self, token: Option<&str>) -> io::Result<Api> {
        let config = config(self.roots.clone(), None)?;
        Ok(Api { config, token: token.map(str::to_owned), ..self.again() })
    }

    /// Another user of the same server, with a client certificate.
    pub fn with_certificate(&self, chain: &[u8], key: &[u8]) -> io::Result<Api> {
        let config = config(self.roots.clone(), Some((chain, key)))?;
        Ok(Api { config, token: None, ..self.again() })
    }

    /// Sends a request whose body is of some media type.
    pub fn call(
        &self,
        method: &str,
        path: &str,
        media_type: &str,
        body: Option<&Value>,
    ) -> io::Result<Answer> {
        let body = body.map(Value::to_string).unwrap_or_default();
        self.send_text(method, path, media_type, &body)
    }

    /// The same, with a body to the byte.
    pub fn send_text(
        &self,
        method: &str,
        path: &str,
        media_type: &str,
        body: &str,
    ) -> io::Result<Answer> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut stream) = connection.take()
            && self.send(&mut stream, method, path, media_type, body).is_ok()
            // Nothing came: the server had closed the connection, which was idle.
            && stream.fill_buf().is_ok_and(|bytes| !bytes.is_empty())
        {
            let answer = answer(&mut stream)?;
            *connection = Some(stream);
            return Ok(answer);
        }
        let mut stream = self.connect()?;
        self.send(&mut stream, method, path, media_type, body)?;
        let answer = answer(&mut stream)?;
        *connection = Some(stream);
        Ok(answer)
    }

    /// Gets a path.
    pub fn get(&self, path: &str) -> io::Result<Answer> {
        self.call("GET", path, "application/json", None)
    }

    /// Posts an object.
    pub fn post(&self, path: &str, body: &Value) -> io::Result<Answer> {
        self.call("POST", path, "application/json", Some(body))
    }

    /// Replaces an object.
    pub fn put(&self, path: &str, body: &Value) -> io::Result<Answer> {
        self.call("PUT", path, "application/json", Some(body))
    }

    /// Sends a merge patch.
    pub fn patch(&self, path: &str, body: &Value) -> io::Result<Answer> {
        self.call("PATCH", path, MERGE_PATCH, Some(body))
    }

    /// Deletes a path, with options or without.
    pub fn delete(&self, path: &str, options: Option<&Value>) -> io::Result<Answer> {
        self.call("DELETE", path, "application/json", options)
    }

    /// Begins a watch; an error also when it is refused.
    pub fn watch(&self, path: &str) -> io::Result<Watch> {
        let mut stream = self.connect()?;
        self.send(&mut stream, "GET", path, "application/json", "")?;
        let head = head(&mut stream)?;
        if head.code != 200 {
            return Err(io::Error::other(format!("watch of {path}: {}", head.code)));
        }
        Ok(Watch { stream, ready: vec![] })
    }

    fn connect(&self) -> io::Result<Stream> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        let name = ServerName::from(self.address.ip());
        let session = ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)?;
        Ok(BufReader::new(StreamOwned::new(session, stream)))
    }

    fn send(
        &self,
        stream: &mut Stream,
        method: &str,
        path: &str,
        media_type: &str,
        body: &str,
    ) -> io::Result<()> {
        let token = self.token.iter().map(|token| format!("Authorization: Bearer {token}\r\n"));
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: keelson-testkit\r\n\
             Accept: application/json\r\n{}Content-Type: {media_type}\r\nContent-Length: {}\r\n\r\n",
            self.address,
            token.collect::<String>(),
            body.len()
        );
        let stream = stream.get_mut();
        stream.write_all(format!("{head}{body}").as_bytes())?;
        stream.flush()
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The events of a watch, as they come.
pub struct Watch {
    stream: Stream,
    ready: Vec<u8>,
}

impl Watch {
    /// The next event. An error: the watch has ended.
    pub fn next_event(&mut self) -> io::Result<Value> {
        loop {
            if let Some(end) = self.ready.iter().position(|byte| *byte == b'\n') {
                let event = serde_json::from_slice(&self.ready[..end])?;
                self.ready.drain(..=end);
                return Ok(event);
            }
            if chunk(&mut self.stream, &mut self.ready)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn config(roots: RootCertStore, pair: Option<(&[u8], &[u8])>) -> io::Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots);
    let Some((chain, key)) = pair else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>();
    let key = PrivateKeyDer::from_pem_slice(key).map_err(io::Error::other)?;
    let config = builder.with_client_auth_cert(chain.map_err(io::Error::other)?, key);
    Ok(Arc::new(config.map_err(io::Error::other)?))
}

/// Believes any certificate of a server.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// What comes before a body. Without a length it comes in chunks.
struct Head {
    code: u16,
    warnings: Vec<String>,
    length: Option<usize>,
    is_chunked: bool,
}

fn head(stream: &mut Stream) -> io::Result<Head> {
    let status = line(stream)?;
    let code = status.split(' ').nth(1).and_then(|word| word.parse().ok());
    let code = code.ok_or_else(|| io::Error::other(format!("no status line: {status}")))?;
    let mut head = Head { code, warnings: vec![], length: None, is_chunked: false };
    loop {
        let line = line(stream)?;
        let Some((name, value)) = line.split_once(':') else { return Ok(head) };
        match (name.to_ascii_lowercase().as_str(), value.trim()) {
            ("content-length", length) => head.length = length.parse().ok(),
            ("transfer-encoding", coding) => head.is_chunked = coding.contains("chunked"),
            ("warning", text) => head.warnings.push(text.to_owned()),
            _ => {}
        }
    }
}

fn answer(stream: &mut Stream) -> io::Result<Answer> {
    let head = head(stream)?;
    let mut bytes = vec![];
    if head.is_chunked {
        while chunk(stream, &mut bytes)? > 0 {}
    } else {
        bytes.resize(head.length.unwrap_or(0), 0);
        stream.read_exact(&mut bytes)?;
    }
    Ok(Answer {
        code: head.code,
        warnings: head.warnings,
        body: crate::sorted(serde_json::from_slice(&bytes).unwrap_or_default()),
    })
}

/// Reads a chunk of a body, and says how long it was: the last one is empty.
fn chunk(stream: &mut Stream, into: &mut Vec<u8>) -> io::Result<usize> {
    let size = usize::from_str_radix(&line(stream)?, 16).map_err(io::Error::other)?;
    let begin = into.len();
    into.resize(begin + size, 0);
    stream.read_exact(&mut into[begin..])?;
    line(stream)?;
    Ok(size)
}

fn line(stream: &mut Stream) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 || !line.ends_with('\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.trim_end().len());
    Ok(line)
}
