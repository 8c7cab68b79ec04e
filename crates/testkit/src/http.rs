//! A minimal HTTP/1.1 client that opens one connection per request, for tests of a server that runs
//! in the same process.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Timeout of each wait in a test.
pub const POLL_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the resourceVersion of an object.
pub fn revision_of(obj: &Value) -> u64 {
    let text = obj["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    text.parse().unwrap_or_else(|_| panic!("no revision: {obj}"))
}

/// An HTTP/1.1 client of the administrator.
pub struct Client {
    /// The address of the server.
    pub address: SocketAddr,
}

/// A response.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Header names in lower case, in the received order.
    pub headers: Vec<(String, String)>,
    /// The body as JSON; other text is a JSON string.
    pub body: Value,
}

impl Response {
    /// Returns the first header with a name (in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        value_of(&self.headers, name)
    }
}

/// An open watch.
pub struct Watch {
    /// The status code.
    pub status: u16,
    headers: Vec<(String, String)>,
    body: Box<dyn BufRead>,
}

impl Watch {
    /// Returns the first header with a name (in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        value_of(&self.headers, name)
    }

    /// Returns the next event of any type, or the error that ended the watch.
    // An error ends the events, and is part of what tests compare.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        match self.body.read_line(&mut line) {
            Ok(0) => Err("the watch ended".to_owned()),
            Ok(_) => serde_json::from_str(&line).map_err(|error| format!("{line}: {error}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Returns type and object name of the next `count` events.
    pub fn next_types_and_names(&mut self, count: usize) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let next = || {
            let event = self.next().expect("a further event");
            (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
        };
        std::iter::repeat_with(next).take(count).collect()
    }
}

/// A response with its body as bytes.
#[derive(Debug)]
pub struct RawResponse {
    /// The status code.
    pub status: u16,
    /// The header `Content-Type`, or empty.
    pub media_type: String,
    /// The decoded body.
    pub body: Vec<u8>,
}

impl Client {
    /// Gets a path.
    pub fn get(&self, path: &str) -> Response {
        self.call("GET", path, "application/json", None)
    }

    /// Posts an object.
    pub fn post(&self, path: &str, body: &Value) -> Response {
        self.call("POST", path, "application/json", Some(body))
    }

    /// Deletes a path.
    pub fn delete(&self, path: &str) -> Response {
        self.call("DELETE", path, "application/json", None)
    }

    /// Sends a request with a body of a media type.
    pub fn call(&self, method: &str, path: &str, kind: &str, body: Option<&Value>) -> Response {
        self.request(method, path, &format!("Content-Type: {kind}\r\n"), body)
    }

    /// Gets a path as a Table.
    pub fn table(&self, path: &str) -> Response {
        let accept = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n";
        self.request("GET", path, accept, None)
    }

    /// Gets a path until a condition holds.
    pub fn poll(&self, path: &str, holds: impl Fn(&Response) -> bool) -> Response {
        let deadline = Instant::now() + POLL_TIMEOUT;
        loop {
            let answer = self.get(path);
            if holds(&answer) {
                return answer;
            }
            assert!(Instant::now() < deadline, "{path} stays {answer:?}");
            std::thread::yield_now();
        }
    }

    /// Starts a watch.
    pub fn open_watch(&self, path: &str) -> Watch {
        let mut reader = self.send("GET", path, "", None);
        let Head { status, headers } = head(&mut reader);
        let body = body(reader, &headers);
        Watch { status, headers, body }
    }

    /// The first `count` events of a watch, bookmarks left out.
    pub fn watch(&self, path: &str, count: usize) -> Result<Vec<Value>, String> {
        let mut watch = self.open_watch(path);
        if watch.status != 200 {
            return Err(format!("{path}: {}", watch.status));
        }
        let mut events: Vec<Value> = vec![];
        while events.len() < count {
            let event = watch.next().map_err(|why| format!("{path}: {why} after {events:?}"))?;
            if event["type"] != "BOOKMARK" {
                events.push(event);
            }
        }
        Ok(events)
    }

    /// Sends a request with further header lines; `Authorization` replaces the default token.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        sent: Option<&Value>,
    ) -> Response {
        answer(self.send(method, path, headers, sent))
    }

    /// Sends a request line (without the HTTP version), further headers and a body.
    pub fn send_bytes(&self, line: &str, headers: &str, body: &[u8]) -> Response {
        self.send_as(line, &format!("Authorization: Bearer t\r\n{headers}"), body)
    }

    /// Sends the same without credentials.
    pub fn send_as(&self, line: &str, headers: &str, body: &[u8]) -> Response {
        let mut bytes = self.request_head(line, headers, body.len()).into_bytes();
        bytes.extend_from_slice(body);
        self.raw(&bytes).unwrap_or_else(|| panic!("no answer to {line}"))
    }

    /// Sends raw bytes. Returns `None` if the server closes the connection without a response.
    pub fn raw(&self, bytes: &[u8]) -> Option<Response> {
        let mut reader = self.write(bytes);
        let began = reader.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
        began.then(|| answer(reader))
    }

    /// Sends bytes. Write errors are ignored: the server may respond before it has read all.
    pub fn write(&self, bytes: &[u8]) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_read_timeout(Some(POLL_TIMEOUT)).expect("a deadline");
        let _ = stream.write_all(bytes);
        BufReader::new(stream)
    }

    /// Sends a request and returns its response, both in any media type.
    pub fn raw_response(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        sent: &[u8],
    ) -> RawResponse {
        let mut reader = self.send_plain(method, path, headers, sent);
        let head = head(&mut reader);
        let mut taken = vec![];
        body(reader, &head.headers).read_to_end(&mut taken).expect("a body");
        RawResponse { status: head.status, media_type: head.media_type(), body: taken }
    }

    /// Starts a watch. Returns the media type and the body.
    pub fn stream(&self, path: &str, headers: &str) -> (String, Box<dyn BufRead>) {
        let mut reader = self.send_plain("GET", path, headers, &[]);
        let head = head(&mut reader);
        assert_eq!(head.status, 200, "{path}");
        (head.media_type(), body(reader, &head.headers))
    }

    fn send_plain(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> BufReader<TcpStream> {
        let headers = format!("Authorization: Bearer t\r\n{headers}");
        let head = self.request_head(&format!("{method} {path}"), &headers, body.len());
        self.write(&[head.as_bytes(), body].concat())
    }

    fn send(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: Option<&Value>,
    ) -> BufReader<TcpStream> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let who =
            if headers.contains("Authorization:") { "" } else { "Authorization: Bearer t\r\n" };
        let headers = format!("{who}{headers}");
        let head = self.request_head(&format!("{method} {path}"), &headers, body.len());
        self.write(format!("{head}{body}").as_bytes())
    }

    /// Returns the head of a request.
    fn request_head(&self, line: &str, headers: &str, length: usize) -> String {
        let host = self.address;
        format!(
            "{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\
             Content-Length: {length}\r\n\r\n"
        )
    }
}

fn answer(mut reader: BufReader<TcpStream>) -> Response {
    let Head { status, headers } = head(&mut reader);
    let mut bytes = vec![];
    body(reader, &headers).read_to_end(&mut bytes).expect("a body");
    let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
    Response { status, headers, body }
}

/// The status line and the headers of a response.
struct Head {
    status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    fn media_type(&self) -> String {
        value_of(&self.headers, "content-type").unwrap_or_default().to_owned()
    }
}

/// Reads the status line and the headers.
fn head(reader: &mut impl BufRead) -> Head {
    let mut line = String::new();
    reader.read_line(&mut line).expect("a status line");
    let word = line.split(' ').nth(1).unwrap_or_default();
    let status = word.parse().unwrap_or_else(|_| panic!("no status: {line:?}"));
    let mut headers = vec![];
    loop {
        line.clear();
        reader.read_line(&mut line).expect("a header");
        let Some((name, value)) = line.split_once(':') else {
            return Head { status, headers };
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn value_of<'h>(headers: &'h [(String, String)], name: &str) -> Option<&'h str> {
    headers.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
}

/// Returns the decoded body, up to the end of the connection.
fn body(reader: BufReader<TcpStream>, headers: &[(String, String)]) -> Box<dyn BufRead> {
    if value_of(headers, "transfer-encoding") == Some("chunked") {
        Box::new(BufReader::new(Chunks { reader, left: 0, began: false }))
    } else {
        Box::new(reader)
    }
}

/// Reads a chunked body.
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
