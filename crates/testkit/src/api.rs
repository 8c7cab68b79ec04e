//! A blocking HTTPS client of a kube-apiserver: one persistent connection, and one more for each
//! watch.

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

/// Read timeout.
const READ_TIME_MAX: Duration = Duration::from_secs(70);

/// Media type of a JSON merge patch.
pub const MERGE_PATCH: &str = "application/merge-patch+json";
/// Media type of a strategic merge patch.
pub const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

type Stream = BufReader<StreamOwned<ClientConnection, TcpStream>>;

/// A response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Response {
    /// Status code.
    pub code: u16,
    /// Values of Warning headers.
    pub warnings: Vec<String>,
    /// The body; null if it is not JSON.
    pub body: Value,
    /// The Content-Type.
    pub media_type: String,
    /// The body as it was sent.
    pub bytes: Vec<u8>,
}

impl Response {
    /// Returns whether the code is 2xx.
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

/// A client that acts as one user of a server.
pub struct Api {
    address: SocketAddr,
    roots: RootCertStore,
    config: Arc<ClientConfig>,
    token: Option<String>,
    connection: Mutex<Option<Stream>>,
}

impl Api {
    /// Creates a client from a kubeconfig with inline data.
    pub fn from_kubeconfig(path: &Path) -> io::Result<Api> {
        let text = std::fs::read_to_string(path)?;
        let field = |name: &str| {
            let value = text
                .lines()
                .find_map(|line| line.trim().strip_prefix(name))
                .and_then(|value| value.strip_prefix(": "));
            value.ok_or_else(|| io::Error::other(format!("no {name} in {}", path.display())))
        };
        let data = |name: &str| STANDARD.decode(field(name)?).map_err(io::Error::other);
        let server = field("server")?.trim_matches('"').trim_start_matches("https://");
        let address = server.parse().map_err(io::Error::other)?;
        let authorities = data("certificate-authority-data")?;
        let chain = data("client-certificate-data")?;
        let key = data("client-key-data")?;
        Api::new(address, &authorities, Some((&chain, &key)), None)
    }

    /// Creates a client with a client certificate and its key, a token, or neither; all in PEM.
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

    /// Creates a client that does not verify the server's certificate.
    pub fn unchecked(address: SocketAddr, token: Option<String>) -> io::Result<Api> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth();
        let roots = RootCertStore::empty();
        let config = Arc::new(config);
        Ok(Api { address, roots, config, token, connection: Mutex::default() })
    }

    /// Returns a client of the same user with its own connection.
    pub fn with_new_connection(&self) -> Api {
        Api {
            address: self.address,
            roots: self.roots.clone(),
            config: self.config.clone(),
            token: self.token.clone(),
            connection: Mutex::default(),
        }
    }

    /// Returns a client of another user of the server, with a token or anonymous.
    pub fn with_token(&self, token: Option<&str>) -> io::Result<Api> {
        let config = config(self.roots.clone(), None)?;
        Ok(Api { config, token: token.map(str::to_owned), ..self.with_new_connection() })
    }

    /// Returns a client of another user of the server, with a client certificate.
    pub fn with_certificate(&self, chain: &[u8], key: &[u8]) -> io::Result<Api> {
        let config = config(self.roots.clone(), Some((chain, key)))?;
        Ok(Api { config, token: None, ..self.with_new_connection() })
    }

    /// Sends a request with a JSON body of a media type.
    pub fn call(
        &self,
        method: &str,
        path: &str,
        media_type: &str,
        body: Option<&Value>,
    ) -> io::Result<Response> {
        let body = body.map(Value::to_string).unwrap_or_default();
        self.send_text(method, path, media_type, &body)
    }

    /// Sends a request with a body as text.
    pub fn send_text(
        &self,
        method: &str,
        path: &str,
        media_type: &str,
        body: &str,
    ) -> io::Result<Response> {
        self.send_with(method, path, &format!("Content-Type: {media_type}\r\n"), body)
    }

    /// Sends a request with more header lines, each with its line break, and a body as text. Accept
    /// and User-Agent replace those that are sent otherwise.
    pub fn send_with(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> io::Result<Response> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut stream) = connection.take()
            && self.send(&mut stream, method, path, headers, body).is_ok()
            // If nothing is received, the server had closed the idle connection.
            && stream.fill_buf().is_ok_and(|bytes| !bytes.is_empty())
        {
            let response = response(&mut stream)?;
            *connection = Some(stream);
            return Ok(response);
        }
        let mut stream = self.connect()?;
        self.send(&mut stream, method, path, headers, body)?;
        let response = response(&mut stream)?;
        *connection = Some(stream);
        Ok(response)
    }

    /// Gets a path.
    pub fn get(&self, path: &str) -> io::Result<Response> {
        self.call("GET", path, "application/json", None)
    }

    /// Posts an object.
    pub fn post(&self, path: &str, body: &Value) -> io::Result<Response> {
        self.call("POST", path, "application/json", Some(body))
    }

    /// Replaces an object.
    pub fn put(&self, path: &str, body: &Value) -> io::Result<Response> {
        self.call("PUT", path, "application/json", Some(body))
    }

    /// Sends a merge patch.
    pub fn patch(&self, path: &str, body: &Value) -> io::Result<Response> {
        self.call("PATCH", path, MERGE_PATCH, Some(body))
    }

    /// Deletes a path, with options or without.
    pub fn delete(&self, path: &str, options: Option<&Value>) -> io::Result<Response> {
        self.call("DELETE", path, "application/json", options)
    }

    /// Starts a watch; a status other than 200 is an error.
    pub fn watch(&self, path: &str) -> io::Result<Watch> {
        let mut stream = self.connect()?;
        self.send(&mut stream, "GET", path, "Content-Type: application/json\r\n", "")?;
        let head = head(&mut stream)?;
        if head.code != 200 {
            return Err(io::Error::other(format!("watch of {path}: {}", head.code)));
        }
        Ok(Watch { stream, ready: vec![] })
    }

    fn connect(&self) -> io::Result<Stream> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIME_MAX))?;
        let name = ServerName::from(self.address.ip());
        let session = ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)?;
        Ok(BufReader::new(StreamOwned::new(session, stream)))
    }

    fn send(
        &self,
        stream: &mut Stream,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> io::Result<()> {
        let token = self.token.iter().map(|token| format!("Authorization: Bearer {token}\r\n"));
        let defaults = ["User-Agent: keelson-testkit\r\n", "Accept: application/json\r\n"]
            .into_iter()
            .filter(|line| {
                let name = line.split(' ').next().unwrap_or_default();
                !headers.lines().any(|given| given.starts_with(name))
            });
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{}{}{headers}Content-Length: {}\r\n\r\n",
            self.address,
            defaults.collect::<String>(),
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

/// A stream of watch events.
pub struct Watch {
    stream: Stream,
    ready: Vec<u8>,
}

impl Watch {
    /// Returns the next event; an error if the watch has ended.
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

/// Accepts any server certificate.
#[derive(Debug)]
pub struct AnyCertificate(pub Arc<CryptoProvider>);

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

/// The head of a response.
struct Head {
    code: u16,
    warnings: Vec<String>,
    media_type: String,
    length: Option<usize>,
    is_chunked: bool,
}

fn head(stream: &mut Stream) -> io::Result<Head> {
    let status = line(stream)?;
    let code = status
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .ok_or_else(|| io::Error::other(format!("no status line: {status}")))?;
    let mut head =
        Head { code, warnings: vec![], media_type: String::new(), length: None, is_chunked: false };
    loop {
        let line = line(stream)?;
        let Some((name, value)) = line.split_once(':') else { return Ok(head) };
        match (name.to_ascii_lowercase().as_str(), value.trim()) {
            ("content-length", length) => head.length = length.parse().ok(),
            ("transfer-encoding", coding) => head.is_chunked = coding.contains("chunked"),
            ("content-type", text) => head.media_type = text.to_owned(),
            ("warning", text) => head.warnings.push(text.to_owned()),
            _ => {}
        }
    }
}

fn response(stream: &mut Stream) -> io::Result<Response> {
    let head = head(stream)?;
    let mut bytes = vec![];
    if head.is_chunked {
        while chunk(stream, &mut bytes)? > 0 {}
    } else {
        bytes.resize(head.length.unwrap_or(0), 0);
        stream.read_exact(&mut bytes)?;
    }
    Ok(Response {
        code: head.code,
        warnings: head.warnings,
        body: crate::sorted(serde_json::from_slice(&bytes).unwrap_or_default()),
        media_type: head.media_type,
        bytes,
    })
}

/// Reads a chunk of a body and returns its length; the last one is empty.
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
