//! A server of a test, and the smallest HTTP client that can talk to it: a connection a request.

use keelson::{Builder, Keelson};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How long a test waits for anything.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A running server and the threads that it runs on.
pub struct Server {
    runtime: Runtime,
    pub keelson: Keelson,
}

impl Server {
    /// Starts what the builder describes.
    pub fn start(builder: Builder) -> Server {
        let runtime = Runtime::new().expect("a runtime");
        let keelson = runtime.block_on(builder.start()).expect("the server starts");
        Server { runtime, keelson }
    }

    /// Starts what the builder describes, without TLS and with the token `t`.
    pub fn start_plain(builder: Builder) -> Server {
        Server::start(builder.plain_http().token("t", "admin"))
    }

    /// A client of this server.
    pub fn client(&self) -> Client {
        Client { address: self.keelson.address() }
    }

    /// Stops the server and waits for its end.
    pub fn stop(self) {
        self.runtime.block_on(self.keelson.stop());
    }
}

/// Speaks HTTP/1.1 with a server, as an administrator.
pub struct Client {
    pub address: SocketAddr,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

/// An answer as it is on the wire.
#[derive(Debug)]
pub struct Plain {
    pub status: u16,
    pub media_type: String,
    pub body: Vec<u8>,
}

/// What stands before a body.
struct Head {
    status: u16,
    media_type: String,
    chunked: bool,
}

impl Client {
    /// Gets a path.
    pub fn get(&self, path: &str) -> Answer {
        self.call("GET", path, "application/json", None)
    }

    /// Posts an object.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, "application/json", Some(body))
    }

    /// Deletes a path.
    pub fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, "application/json", None)
    }

    /// Sends a request whose body is of some type.
    pub fn call(&self, method: &str, path: &str, kind: &str, body: Option<&Value>) -> Answer {
        self.ask(method, path, &format!("Content-Type: {kind}\r\n"), body)
    }

    /// Gets a path as a table.
    pub fn table(&self, path: &str) -> Answer {
        let accept = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n";
        self.ask("GET", path, accept, None)
    }

    /// Gets a path until a condition holds.
    pub fn poll(&self, path: &str, holds: impl Fn(&Answer) -> bool) -> Answer {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path);
            if holds(&answer) {
                return answer;
            }
            assert!(Instant::now() < deadline, "{path} stays {answer:?}");
            std::thread::yield_now();
        }
    }

    /// The first `count` events of a watch, bookmarks left out.
    pub fn watch(&self, path: &str, count: usize) -> Result<Vec<Value>, String> {
        let mut reader = self.send("GET", path, "", None);
        let head = head(&mut reader);
        if head.status != 200 {
            return Err(format!("{path}: {}", head.status));
        }
        let mut body = body(reader, head.chunked);
        let mut events: Vec<Value> = vec![];
        let mut line = String::new();
        while events.len() < count {
            line.clear();
            match body.read_line(&mut line) {
                Ok(0) => return Err(format!("{path} ended after {events:?}")),
                Ok(_) => {}
                Err(error) => return Err(format!("{path}: {error} after {events:?}")),
            }
            let event: Value = serde_json::from_str(&line).map_err(|e| format!("{line}: {e}"))?;
            if event["type"] != "BOOKMARK" {
                events.push(event);
            }
        }
        Ok(events)
    }

    fn ask(&self, method: &str, path: &str, headers: &str, sent: Option<&Value>) -> Answer {
        let mut reader = self.send(method, path, headers, sent);
        let head = head(&mut reader);
        let mut text = String::new();
        body(reader, head.chunked).read_to_string(&mut text).expect("a body");
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Answer { status: head.status, body }
    }

    /// Sends a request and takes its answer, both in any form.
    pub fn plain(&self, method: &str, path: &str, headers: &str, sent: &[u8]) -> Plain {
        let mut reader = self.send_bytes(method, path, headers, sent);
        let head = head(&mut reader);
        let mut taken = vec![];
        body(reader, head.chunked).read_to_end(&mut taken).expect("a body");
        Plain { status: head.status, media_type: head.media_type, body: taken }
    }

    /// Begins a watch in any form: its media type, and what comes.
    pub fn stream(&self, path: &str, headers: &str) -> (String, Box<dyn BufRead>) {
        let mut reader = self.send_bytes("GET", path, headers, &[]);
        let head = head(&mut reader);
        assert_eq!(head.status, 200, "{path}");
        (head.media_type, body(reader, head.chunked))
    }

    fn send(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: Option<&Value>,
    ) -> BufReader<TcpStream> {
        let body = body.map(Value::to_string).unwrap_or_default();
        self.send_bytes(method, path, headers, body.as_bytes())
    }

    fn send_bytes(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a deadline");
        let (host, length) = (self.address, body.len());
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer t\r\n\
             Connection: close\r\n{headers}Content-Length: {length}\r\n\r\n"
        );
        stream.write_all(&[text.as_bytes(), body].concat()).expect("the request goes out");
        BufReader::new(stream)
    }
}

/// Reads the status line and the headers.
fn head(reader: &mut impl BufRead) -> Head {
    let mut line = String::new();
    reader.read_line(&mut line).expect("a status line");
    let word = line.split(' ').nth(1).unwrap_or_default();
    let status = word.parse().unwrap_or_else(|_| panic!("no status: {line:?}"));
    let mut head = Head { status, media_type: String::new(), chunked: false };
    loop {
        line.clear();
        reader.read_line(&mut line).expect("a header");
        let header = line.trim_end().to_ascii_lowercase();
        if header.is_empty() {
            return head;
        }
        head.chunked |= header == "transfer-encoding: chunked";
        if let Some(media_type) = header.strip_prefix("content-type: ") {
            head.media_type = media_type.to_owned();
        }
    }
}

/// The body: up to the end of the connection, without the lines that measure chunks.
fn body(reader: BufReader<TcpStream>, chunked: bool) -> Box<dyn BufRead> {
    if chunked {
        Box::new(BufReader::new(Chunks { reader, left: 0, began: false }))
    } else {
        Box::new(reader)
    }
}

/// Reads a body of chunks.
struct Chunks {
    reader: BufReader<TcpStream>,
    left: usize,
    began: bool,
}

impl Read for Chunks {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            let mut line = String::new();
            if std::mem::replace(&mut self.began, true) {
                self.reader.read_line(&mut line)?;
                line.clear();
            }
            self.reader.read_line(&mut line)?;
            self.left = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
            if self.left == 0 {
                return Ok(0);
            }
        }
        let room = into.len().min(self.left);
        let got = self.reader.read(&mut into[..room])?;
        self.left -= got;
        Ok(got)
    }
}
