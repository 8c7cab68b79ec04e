//! [`Proxy`]: a proxy on the way to a peer, as `proxy-url` of a kubeconfig names it: HTTP with the
//! method CONNECT (RFC 9110, 9.3.6) or SOCKS5 (RFC 1928, RFC 1929).

use crate::address::{authority, bare_host};
use crate::error::Cause;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Maximum bytes of a proxy's response to CONNECT.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const HTTP_PORT: u16 = 80;
const SOCKS_PORT: u16 = 1080;
const SOCKS_VERSION: u8 = 5;
const SOCKS_NO_CREDENTIALS: u8 = 0;
const SOCKS_PASSWORD: u8 = 2;
const SOCKS_CONNECT: u8 = 1;
const SOCKS_NAME: u8 = 3;
const SOCKS_TEXTS: [&str; 8] = [
    "general SOCKS server failure",
    "connection not allowed by ruleset",
    "network unreachable",
    "host unreachable",
    "connection refused",
    "TTL expired",
    "command not supported",
    "address type not supported",
];

/// A proxy.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Proxy {
    kind: Kind,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Name and password.
    login: Option<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Http,
    Socks5,
}

impl Proxy {
    /// Parses `http://[NAME:PASSWORD@]HOST[:PORT]`, or the same with `socks5` (also `socks5h`:
    /// names are always resolved by the proxy).
    pub fn parse(url: &str) -> Result<Proxy, String> {
        // The URL may hold a password, so no message repeats it.
        let uri: Uri = url.parse().map_err(|_| "it is no URL".to_owned())?;
        let (kind, default_port) = match uri.scheme_str() {
            Some("http") => (Kind::Http, HTTP_PORT),
            Some("socks5" | "socks5h") => (Kind::Socks5, SOCKS_PORT),
            other => {
                let scheme = other.unwrap_or_default();
                return Err(format!("unsupported scheme {scheme:?}: it is http or socks5"));
            }
        };
        let authority = uri.authority().ok_or("it names no host")?;
        let login = authority.as_str().rsplit_once('@').map(|(login, _)| {
            let (name, password) = login.split_once(':').unwrap_or((login, ""));
            (decoded(name), decoded(password))
        });
        Ok(Proxy {
            kind,
            host: bare_host(authority.host()).to_owned(),
            port: authority.port_u16().unwrap_or(default_port),
            login,
        })
    }

    /// Asks the proxy at the other end of a connection to connect to `host`, a name or an IP
    /// address without brackets. After it the connection is to that host.
    pub(crate) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        host: &str,
        port: u16,
    ) -> Result<(), Cause> {
        let connected = match self.kind {
            Kind::Http => self.connect_http(stream, &authority(host, port)).await,
            Kind::Socks5 => self.connect_socks(stream, host, port).await,
        };
        connected.map_err(|why| Cause::Handshake(format!("proxyconnect tcp: {why}")))
    }

    async fn connect_http<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        authority: &str,
    ) -> Result<(), String> {
        let mut request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n");
        if let Some((name, password)) = &self.login {
            let login = STANDARD.encode(format!("{name}:{password}"));
            request.push_str(&format!("Proxy-Authorization: Basic {login}\r\n"));
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).await.map_err(text)?;
        // Byte by byte: what follows the head is of the peer.
        let mut head = vec![];
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() == HEAD_BYTES_MAX {
                return Err("the proxy's answer is too long".to_owned());
            }
            head.push(stream.read_u8().await.map_err(text)?);
        }
        let head = String::from_utf8_lossy(&head);
        let status = head.lines().next().unwrap_or_default();
        let mut words = status.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("HTTP/1.1" | "HTTP/1.0"), Some("200"), _) => Ok(()),
            (Some(_), Some(_), Some(reason)) if !reason.is_empty() => Err(reason.to_owned()),
            _ => Err(format!("malformed HTTP response {status:?}")),
        }
    }

    async fn connect_socks<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        host: &str,
        port: u16,
    ) -> Result<(), String> {
        let method = if self.login.is_some() { SOCKS_PASSWORD } else { SOCKS_NO_CREDENTIALS };
        stream.write_all(&[SOCKS_VERSION, 1, method]).await.map_err(text)?;
        let mut chosen = [0; 2];
        stream.read_exact(&mut chosen).await.map_err(text)?;
        if chosen != [SOCKS_VERSION, method] {
            return Err("the proxy takes no such credentials".to_owned());
        }
        if let Some((name, password)) = &self.login {
            let mut message = vec![1];
            message.extend(with_length(name)?);
            message.extend(with_length(password)?);
            stream.write_all(&message).await.map_err(text)?;
            stream.read_exact(&mut chosen).await.map_err(text)?;
            if chosen[1] != 0 {
                return Err("username/password authentication failed".to_owned());
            }
        }
        let mut request = vec![SOCKS_VERSION, SOCKS_CONNECT, 0, SOCKS_NAME];
        request.extend(with_length(host)?);
        request.extend(port.to_be_bytes());
        stream.write_all(&request).await.map_err(text)?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await.map_err(text)?;
        if answer[1] != 0 {
            let known = SOCKS_TEXTS.get(usize::from(answer[1]) - 1);
            return Err((*known.unwrap_or(&"unknown error")).to_owned());
        }
        // The address from which the proxy connects is of no interest.
        let length = match answer[3] {
            1 => 4,
            SOCKS_NAME => usize::from(stream.read_u8().await.map_err(text)?),
            4 => 16,
            _ => return Err("the proxy's answer is malformed".to_owned()),
        };
        let mut address = vec![0; length + 2];
        stream.read_exact(&mut address).await.map_err(text)?;
        Ok(())
    }
}

fn text(error: std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "unexpected EOF".to_owned(),
        _ => error.to_string(),
    }
}

/// Returns the bytes of a text after their number.
fn with_length(text: &str) -> Result<Vec<u8>, String> {
    let length = u8::try_from(text.len()).map_err(|_| "a name or password is too long")?;
    let mut bytes = vec![length];
    bytes.extend(text.as_bytes());
    Ok(bytes)
}

/// Decodes the escapes of a URL; one that is malformed stays.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connects through a proxy that answers with `parts`, one after each message that it expects.
    async fn through(url: &str, dialogue: &[(&[u8], &[u8])]) -> Result<(), String> {
        let (mut near, mut far) = tokio::io::duplex(4096);
        let proxy = Proxy::parse(url).expect("a proxy");
        let answered = async {
            for (wanted, answer) in dialogue {
                let mut got = vec![0; wanted.len()];
                far.read_exact(&mut got).await.expect("a message");
                assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(wanted));
                far.write_all(answer).await.expect("written");
            }
            drop(far);
        };
        let connected = async {
            let connected = proxy.connect(&mut near, "api.example", 6443).await;
            connected.map_err(|cause| cause.to_string())
        };
        tokio::join!(connected, answered).0
    }

    #[tokio::test]
    async fn http_proxies_are_asked_to_connect() {
        let plain =
            b"CONNECT api.example:6443 HTTP/1.1\r\nHost: api.example:6443\r\n\r\n".as_slice();
        let opened = b"HTTP/1.1 200 Connection established\r\nVia: a\r\n\r\n".as_slice();
        assert_eq!(through("http://proxy:3128", &[(plain, opened)]).await, Ok(()));
        let login = b"CONNECT api.example:6443 HTTP/1.1\r\nHost: api.example:6443\r\n\
            Proxy-Authorization: Basic YTpiOmM=\r\n\r\n";
        assert_eq!(through("http://a:b%3Ac@proxy", &[(login, opened)]).await, Ok(()));
        let error = async |answer: &'static [u8]| through("http://proxy", &[(plain, answer)]).await;
        let refused = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
        let text = "proxyconnect tcp: Proxy Authentication Required".to_owned();
        assert_eq!(error(refused).await, Err(text));
        assert_eq!(error(b"HTTP").await, Err("proxyconnect tcp: unexpected EOF".to_owned()));
        let malformed = "proxyconnect tcp: malformed HTTP response \"SSH-2.0\"".to_owned();
        assert_eq!(error(b"SSH-2.0\r\n\r\n").await, Err(malformed));
    }

    #[tokio::test]
    async fn socks_proxies_resolve_the_name() {
        let request = b"\x05\x01\x00\x03\x0bapi.example\x19\x2b".as_slice();
        let opened = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x01".as_slice();
        let hello = (b"\x05\x01\x00".as_slice(), b"\x05\x00".as_slice());
        assert_eq!(through("socks5://proxy", &[hello, (request, opened)]).await, Ok(()));
        let refused = (request, b"\x05\x05\x00\x01".as_slice());
        let text = "proxyconnect tcp: connection refused".to_owned();
        assert_eq!(through("socks5://proxy", &[hello, refused]).await, Err(text));
        let login = [
            (b"\x05\x01\x02".as_slice(), b"\x05\x02".as_slice()),
            (b"\x01\x01a\x01b", b"\x01\x00"),
            (request, opened),
        ];
        assert_eq!(through("socks5h://a:b@proxy", &login).await, Ok(()));
    }

    #[test]
    fn proxies_are_parsed() {
        let at = |url: &str| Proxy::parse(url).map(|proxy| (proxy.host, proxy.port));
        assert_eq!(at("http://[::1]/"), Ok(("::1".to_owned(), HTTP_PORT)));
        assert_eq!(at("socks5://a"), Ok(("a".to_owned(), SOCKS_PORT)));
        let unsupported = "unsupported scheme \"https\": it is http or socks5".to_owned();
        assert_eq!(at("https://a:b@c"), Err(unsupported));
    }
}
