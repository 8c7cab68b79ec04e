//! A minimal HTTP/1.1 client for load: a request is one write, and response bodies are not copied.
//! It shares the machine with the server, so its CPU time reduces the measured rates.

use crate::api_request::ApiRequest;
use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;
use std::io::Write;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Size of the read buffer; the head of a response must fit.
const INPUT_BYTES_MAX: usize = 32 << 10;

/// A byte stream: TCP or TLS.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A connection with at most one request in flight.
pub struct Connection {
    stream: Box<dyn Stream>,
    /// Headers of every request.
    fixed: Vec<u8>,
    out: Vec<u8>,
    input: Box<[u8]>,
    /// `input[begin..end]` is unread.
    begin: usize,
    end: usize,
    body: Body,
}

/// The unread rest of a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Done,
    Sized(u64),
    /// The rest of a chunk. At 0 the size of the next chunk follows, after a CRLF unless it is the
    /// first chunk.
    Chunked {
        left: u64,
        is_first: bool,
    },
    /// Everything until the connection ends.
    Rest,
}

impl Connection {
    /// Returns a connection over a stream. `fixed` are the headers of every request.
    pub fn new(stream: Box<dyn Stream>, fixed: Vec<u8>) -> Connection {
        Connection {
            stream,
            fixed,
            out: vec![],
            input: vec![0; INPUT_BYTES_MAX].into(),
            begin: 0,
            end: 0,
            body: Body::Done,
        }
    }

    /// Sends a request and returns the status. The body must be read to its end before the next
    /// request.
    pub async fn send(&mut self, request: &ApiRequest) -> Result<u16> {
        ensure!(self.body == Body::Done, "the last answer was not read to its end");
        let ApiRequest { method, path, media, accept, body } = request;
        self.out.clear();
        write!(self.out, "{method} {path} HTTP/1.1\r\n")?;
        self.out.extend_from_slice(&self.fixed);
        let length = body.len();
        write!(
            self.out,
            "content-type: {media}\r\naccept: {accept}\r\ncontent-length: {length}\r\n\r\n"
        )?;
        self.out.extend_from_slice(body);
        self.stream.write_all(&self.out).await?;
        self.stream.flush().await?;
        loop {
            if let Some(length) = memmem::find(&self.input[self.begin..self.end], b"\r\n\r\n") {
                let (status, body) = parse_head(&self.input[self.begin..self.begin + length])?;
                (self.body, self.begin) = (body, self.begin + length + 4);
                return Ok(status);
            }
            self.fill().await?;
        }
    }

    /// Returns the next chunk of the body; `None` at its end.
    pub async fn chunk(&mut self) -> Result<Option<&[u8]>> {
        loop {
            let left = match self.body {
                Body::Done | Body::Sized(0) => {
                    self.body = Body::Done;
                    return Ok(None);
                }
                Body::Chunked { left: 0, is_first } => {
                    match chunk_size(&self.input[self.begin..self.end], is_first)? {
                        None => self.fill().await?,
                        Some((used, 0)) => {
                            (self.begin, self.body) = (self.begin + used, Body::Done)
                        }
                        Some((used, left)) => {
                            self.begin += used;
                            self.body = Body::Chunked { left, is_first: false };
                        }
                    }
                    continue;
                }
                Body::Sized(left) | Body::Chunked { left, .. } => left,
                Body::Rest => u64::MAX,
            };
            if self.begin == self.end {
                self.fill().await?;
                continue;
            }
            let available = left.min((self.end - self.begin) as u64);
            match &mut self.body {
                Body::Sized(left) | Body::Chunked { left, .. } => *left -= available,
                Body::Done | Body::Rest => {}
            }
            let begin = self.begin;
            self.begin += available as usize;
            return Ok(Some(&self.input[begin..self.begin]));
        }
    }

    /// Reads more bytes into `input`.
    async fn fill(&mut self) -> Result<()> {
        self.input.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        ensure!(self.end < self.input.len(), "a head of more than {INPUT_BYTES_MAX} bytes");
        let read = self.stream.read(&mut self.input[self.end..]).await?;
        if read == 0 && self.body == Body::Rest {
            self.body = Body::Done;
        } else if read == 0 {
            bail!("the connection ended");
        }
        self.end += read;
        Ok(())
    }
}

/// Parses the head of a response: its status, and how the body ends.
fn parse_head(text: &[u8]) -> Result<(u16, Body)> {
    let text = std::str::from_utf8(text).context("the head of an answer")?;
    let (first, headers) = text.split_once("\r\n").unwrap_or((text, ""));
    let status: u16 = first
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3)?.parse().ok())
        .with_context(|| format!("the head of an answer: {first}"))?;
    let mut body = if status == 204 || status == 304 { Body::Done } else { Body::Rest };
    for header in headers.split("\r\n") {
        let Some((name, value)) = header.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-length") {
            body = Body::Sized(value.trim().parse().context("content-length")?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            body = Body::Chunked { left: 0, is_first: true };
        }
    }
    Ok((status, body))
}

/// Parses the size line of a chunk. Returns the length of the line and the size of the chunk;
/// `None`: more bytes are needed.
fn chunk_size(input: &[u8], is_first: bool) -> Result<Option<(usize, u64)>> {
    let before = if is_first { 0 } else { 2 };
    let Some(line) = input.get(before..) else { return Ok(None) };
    let Some(length) = memmem::find(line, b"\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&line[..length]).context("the size of a chunk")?;
    let digits = text.split(';').next().unwrap_or_default().trim();
    let size = u64::from_str_radix(digits, 16).with_context(|| format!("a chunk of {text:?}"))?;
    let used = before + length + 2;
    if size > 0 {
        return Ok(Some((used, size)));
    }
    match input.get(used..used + 2) {
        None => Ok(None),
        Some(b"\r\n") => Ok(Some((used + 2, 0))),
        Some(_) => bail!("trailers after the last chunk"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn heads_are_parsed() {
        let check = |text: &str, want: (u16, Body)| {
            assert_eq!(parse_head(text.as_bytes()).expect(text), want, "{text}");
        };
        check("HTTP/1.1 200 OK\r\nContent-Length: 12", (200, Body::Sized(12)));
        let chunked = Body::Chunked { left: 0, is_first: true };
        check("HTTP/1.1 200 OK\r\ndate: x\r\ntransfer-encoding: chunked", (200, chunked));
        check("HTTP/1.1 204 No Content", (204, Body::Done));
        check("HTTP/1.1 404 Not Found", (404, Body::Rest));
        assert!(parse_head(b"HTTP/1.0 200 OK").is_err());
        assert!(parse_head(b"HTTP/1.1 200 OK\r\ncontent-length: x").is_err());
    }

    #[test]
    fn sizes_of_chunks_are_parsed_when_they_are_complete() {
        let check = |input: &str, is_first, want: Option<(usize, u64)>| {
            let got = chunk_size(input.as_bytes(), is_first).expect(input);
            assert_eq!(got, want, "{input:?}");
        };
        check("1a\r\nabc", true, Some((4, 26)));
        check("1a;x=y\r\nabc", true, Some((8, 26)));
        check("\r\n5\r\n", false, Some((5, 5)));
        check("\r", false, None);
        check("\r\n5", false, None);
        check("\r\n0\r\n", false, None);
        check("\r\n0\r\n\r\n", false, Some((7, 0)));
        assert!(chunk_size(b"xyz\r\n", true).is_err());
        assert!(chunk_size(b"0\r\nname: x\r\n", true).is_err());
    }

    /// Sends two requests to a server that writes `responses` in pieces of `piece` bytes.
    async fn read_both(responses: &'static str, piece: usize) -> Vec<(u16, String)> {
        let (client, server) = tokio::io::duplex(piece);
        let (mut input, mut output) = tokio::io::split(server);
        let mut received = vec![0; 1024];
        let receiving =
            async move { while input.read(&mut received).await.is_ok_and(|read| read > 0) {} };
        let responding = async move {
            output.write_all(responses.as_bytes()).await.expect("response");
            output.shutdown().await.expect("end");
        };
        let reading = async {
            let mut connection = Connection::new(Box::new(client), b"host: a\r\n".to_vec());
            let mut got = vec![];
            for _ in 0..2 {
                let request = ApiRequest { body: Bytes::from("{}"), ..ApiRequest::get("/") };
                let status = connection.send(&request).await.expect("a head");
                let mut body = vec![];
                while let Some(chunk) = connection.chunk().await.expect("a body") {
                    body.extend_from_slice(chunk);
                }
                got.push((status, String::from_utf8(body).expect("text")));
            }
            got
        };
        tokio::join!(async { tokio::join!(receiving, responding) }, reading).1
    }

    #[tokio::test]
    async fn responses_may_arrive_in_pieces_of_any_size() {
        let sized = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        let chunked = "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n\
                       3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
        let both: &'static str = format!("{chunked}{sized}").leak();
        let rest: &'static str = format!("{sized}HTTP/1.1 500 No\r\n\r\nbye").leak();
        for piece in [1, 2, 3, 7, 1 << 16] {
            let got = read_both(both, piece).await;
            assert_eq!(got, [(201, "hello".to_owned()), (200, "hello".to_owned())], "{piece}");
            let got = read_both(rest, piece).await;
            assert_eq!(got, [(200, "hello".to_owned()), (500, "bye".to_owned())], "{piece}");
        }
    }
}
