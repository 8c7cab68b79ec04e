//! HTTP/1.1 in small, written out so that faults can break it anywhere.

use bytes::{Buf, BytesMut};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// Most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 1 << 20;
/// Most bytes of a request's body.
const BODY_BYTES_MAX: usize = 64 << 20;

/// The connection, and what was read of it beyond the request.
pub(super) struct Connection {
    pub stream: TlsStream<TcpStream>,
    pub unread: BytesMut,
}

/// A request without its body.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub method: String,
    /// The target as it was sent.
    pub target: String,
    /// The path, not decoded.
    pub path: String,
    pub query: Vec<(String, String)>,
    pub headers: Vec<(String, String)>,
}

impl Request {
    /// Returns the first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers_of(name).into_iter().next()
    }

    /// Returns all values of a header.
    pub fn headers_of(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(given, _)| given.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// Returns the first value of a query parameter, or an empty text.
    pub fn parameter(&self, name: &str) -> &str {
        let mut named = self.query.iter().filter(|(given, _)| given == name);
        named.next().map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// Returns all values of a query parameter.
    pub fn parameters<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.query.iter().filter(move |(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// Returns whether the request asks for an upgrade to a protocol.
    pub fn upgrades_to(&self, protocol: &str) -> bool {
        let contains = |name, word: &str| {
            let values = self.headers_of(name);
            values.iter().any(|value| value.to_ascii_lowercase().contains(word))
        };
        contains("connection", "upgrade") && contains("upgrade", protocol)
    }
}

impl Connection {
    /// Reads the next request. `None`: the client has closed the connection.
    pub async fn read_request(&mut self) -> io::Result<Option<Request>> {
        loop {
            if let Some(end) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = self.unread.split_to(end);
                self.unread.advance(4);
                let head = String::from_utf8_lossy(&head).into_owned();
                return parse_head(&head).map(Some).ok_or_else(|| io::Error::other("no request"));
            }
            if self.unread.len() > HEAD_BYTES_MAX {
                return Err(io::Error::other("the head is too long"));
            }
            if self.stream.read_buf(&mut self.unread).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Reads the body of a request.
    pub async fn read_body(&mut self, request: &Request) -> io::Result<Vec<u8>> {
        if request.header("transfer-encoding").is_some() {
            return self.read_chunks().await;
        }
        let length =
            request.header("content-length").unwrap_or("0").parse().map_err(io::Error::other)?;
        self.take(length).await
    }

    async fn read_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = vec![];
        loop {
            let end = loop {
                if let Some(end) = self.unread.windows(2).position(|window| window == b"\r\n") {
                    break end;
                }
                self.read_more().await?;
            };
            let line = self.unread.split_to(end + 2);
            let line = String::from_utf8_lossy(&line);
            let length = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            let chunk = self.take(length + 2).await?;
            if length == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk[..length]);
            if body.len() > BODY_BYTES_MAX {
                return Err(io::Error::other("the body is too long"));
            }
        }
    }

    async fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        if length > BODY_BYTES_MAX {
            return Err(io::Error::other("the body is too long"));
        }
        while self.unread.len() < length {
            self.read_more().await?;
        }
        Ok(self.unread.split_to(length).to_vec())
    }

    async fn read_more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.unread).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Writes a whole response, after which the connection is closed.
    pub async fn respond(
        &mut self,
        status: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<()> {
        let mut text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("Connection: close\r\n\r\n");
        self.stream.write_all(text.as_bytes()).await?;
        self.stream.write_all(body).await?;
        self.stream.shutdown().await
    }

    /// Writes an error as Go's `http.Error` does.
    pub async fn respond_error(&mut self, status: &str, text: &str) -> io::Result<()> {
        let headers =
            [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")];
        self.respond(status, &headers, format!("{text}\n").as_bytes()).await
    }
}

/// Reads what is left of the request's bytes first.
impl AsyncRead for Connection {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            let length = self.unread.len().min(buf.remaining());
            buf.put_slice(&self.unread.split_to(length));
            return std::task::Poll::Ready(Ok(()));
        }
        std::pin::Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn parse_head(head: &str) -> Option<Request> {
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let method = words.next()?.to_owned();
    let target = words.next()?.to_owned();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let query = pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .collect();
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    Some(Request { path: path.to_owned(), method, query, headers, target })
}

/// Decodes a part of a query.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = vec![];
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = hex.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (byte, escaped) {
            (b'%', Some(escaped)) => {
                out.push(escaped);
                at += 3;
                continue;
            }
            (b'+', _) => out.push(b' '),
            _ => out.push(*byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_parsed() {
        let head = "POST /exec/a/b/c?command=sh&command=-c&command=a%20b+c&input=1 HTTP/1.1\r\n\
                    Connection: keep-alive, Upgrade\r\nUpgrade: SPDY/3.1\r\nX: 1\r\nx: 2";
        let request = parse_head(head).unwrap();
        assert_eq!(request.path, "/exec/a/b/c");
        assert_eq!(request.parameters("command").collect::<Vec<_>>(), ["sh", "-c", "a b c"]);
        assert_eq!(request.parameter("input"), "1");
        assert_eq!(request.headers_of("X"), ["1", "2"]);
        assert!(request.upgrades_to("spdy/3.1") && !request.upgrades_to("websocket"));
    }
}
