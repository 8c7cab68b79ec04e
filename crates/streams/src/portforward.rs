//! Forwarded ports, on the side of a node.
//!
//! Over SPDY, a client opens two streams for each connection, for data and for errors, which have
//! one request id in common: [`Pairs`]. Over a WebSocket, the ports are parameters of the request,
//! and each has two channels ([`Channels::of_ports`](crate::channels::Channels::of_ports)) on which
//! the server first sends the number of the port: [`ports_of_query`], [`port_message`].
//!
//! In a tunnel (`SPDY/3.1+portforward.k8s.io`), each binary message of a WebSocket is a piece of
//! the SPDY connection, in both directions, and text messages end it; nothing is parsed in between.

use crate::channels::CHANNELS_MAX;
use crate::spdy::Headers;
use keelson_meta::go_numbers::parse_uint;
use keelson_meta::status::quote;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long the second stream of a connection may follow the first one.
pub const PAIR_TIME_MAX: Duration = Duration::from_secs(30);
/// Most ports of a WebSocket.
pub const PORTS_MAX: usize = CHANNELS_MAX / 2;

/// Returns the ports of a WebSocket request: the values of the query parameter `port`, of which
/// each may list several. The error is the body of a 400.
pub fn ports_of_query<'a>(values: impl IntoIterator<Item = &'a str>) -> Result<Vec<u16>, String> {
    let mut ports = vec![];
    let mut is_given = false;
    for value in values {
        is_given = true;
        if value.is_empty() {
            return Err("query parameter \"port\" cannot be empty".to_owned());
        }
        for text in value.split(',') {
            ports.push(parse_port(text, value)?);
            if ports.len() > PORTS_MAX {
                return Err(format!("more than {PORTS_MAX} ports"));
            }
        }
    }
    match is_given {
        true => Ok(ports),
        false => Err("query parameter \"port\" is required".to_owned()),
    }
}

/// Returns the first message on both channels of a port.
pub fn port_message(port: u16) -> [u8; 2] {
    port.to_le_bytes()
}

/// A text of a port, and the text that it is a part of, which errors show.
fn parse_port(text: &str, shown: &str) -> Result<u16, String> {
    let shown = quote(shown);
    let unparsed = |error: &str| format!("unable to parse {shown} as a port: {error}");
    let number = parse_uint(text).map_err(|error| unparsed(&error))?;
    match u16::try_from(number) {
        Ok(0) => Err(format!("port {shown} must be > 0")),
        Ok(port) => Ok(port),
        Err(_) => {
            let text = quote(text);
            Err(unparsed(&format!("strconv.ParseUint: parsing {text}: value out of range")))
        }
    }
}

/// The streams of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The port in the pod.
    pub port: u16,
    /// The id that both streams have in common.
    pub request_id: String,
    /// The stream of the data.
    pub data: u32,
    /// The stream of an error message.
    pub error: u32,
}

/// Why a stream was not added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PairError {
    /// The headers of the stream are wrong; it should be reset.
    Headers(String),
    /// The pair has such a stream already. The message belongs on its error stream, if it has one.
    Duplicate {
        /// The error stream.
        error: Option<u32>,
        /// The message.
        message: String,
    },
}

/// A stream whose counterpart did not come in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpaired {
    /// The stream.
    pub stream: u32,
    /// Whether it is an error stream, on which the message is sent.
    pub is_error: bool,
    /// The message.
    pub message: String,
}

/// Streams that wait for their counterpart. There are no more than the session has streams.
#[derive(Debug, Default)]
pub struct Pairs {
    waiting: BTreeMap<String, Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    stream: u32,
    port: u16,
    is_error: bool,
    deadline: Instant,
}

impl Pairs {
    /// Adds a stream that the client has opened. Returns the pair that it completes, with the port
    /// of the data stream.
    pub fn add(
        &mut self,
        stream: u32,
        headers: &Headers,
        now: Instant,
    ) -> Result<Option<Pair>, PairError> {
        let (port, is_error) = port_and_type(headers).map_err(PairError::Headers)?;
        let request_id = match headers.get("requestID").filter(|id| !id.is_empty()) {
            Some(id) => id.to_owned(),
            // Old clients: the error stream is opened first, the data stream next.
            None if is_error => stream.to_string(),
            None => (i64::from(stream) - 2).to_string(),
        };
        let Some(first) = self.waiting.get(&request_id).copied() else {
            let deadline = now + PAIR_TIME_MAX;
            self.waiting.insert(request_id, Waiting { stream, port, is_error, deadline });
            return Ok(None);
        };
        if first.is_error == is_error {
            let name = if is_error { "error" } else { "data" };
            return Err(PairError::Duplicate {
                error: first.is_error.then_some(first.stream),
                message: format!(
                    "error processing stream for request {request_id}: {name} stream already assigned"
                ),
            });
        }
        self.waiting.remove(&request_id);
        Ok(Some(match is_error {
            true => Pair { port: first.port, request_id, data: first.stream, error: stream },
            false => Pair { port, request_id, data: stream, error: first.stream },
        }))
    }

    /// Forgets a stream that was reset.
    pub fn remove(&mut self, stream: u32) {
        self.waiting.retain(|_, waiting| waiting.stream != stream);
    }

    /// Returns when [`Pairs::expire`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.waiting.values().map(|waiting| waiting.deadline).min()
    }

    /// Removes the streams that have waited too long.
    pub fn expire(&mut self, now: Instant) -> Vec<Unpaired> {
        let mut late = vec![];
        self.waiting.retain(|request_id, waiting| {
            let is_late = waiting.deadline <= now;
            if is_late {
                let message = format!("(request={request_id}) timed out waiting for streams");
                late.push(Unpaired { stream: waiting.stream, is_error: waiting.is_error, message });
            }
            !is_late
        });
        late
    }
}

/// Returns the port of a stream, and whether it is an error stream.
fn port_and_type(headers: &Headers) -> Result<(u16, bool), String> {
    let header = |name: &str| {
        let value = headers.get(name).filter(|value| !value.is_empty());
        value.ok_or_else(|| format!("{} header is required", quote(name)))
    };
    let text = header("port")?;
    let port = parse_port(text, text)?;
    match header("streamType")? {
        "error" => Ok((port, true)),
        "data" => Ok((port, false)),
        other => Err(format!("invalid stream type {}", quote(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_parameters_of_websockets() {
        let check = |values: &[&str], expected: Result<&[u16], &str>| {
            let ports = ports_of_query(values.iter().copied());
            let found = ports.as_ref().map(Vec::as_slice).map_err(String::as_str);
            assert_eq!(found, expected, "{values:?}");
        };
        check(&["80"], Ok(&[80]));
        check(&["80,8080", "443"], Ok(&[80, 8080, 443]));
        check(&[], Err("query parameter \"port\" is required"));
        check(&["80", ""], Err("query parameter \"port\" cannot be empty"));
        check(&["0"], Err("port \"0\" must be > 0"));
        let syntax = "unable to parse \"1,x\" as a port: strconv.ParseUint: parsing \"x\": invalid \
                      syntax";
        check(&["1,x"], Err(syntax));
        let range = "unable to parse \"65536\" as a port: strconv.ParseUint: parsing \"65536\": \
                     value out of range";
        check(&["65536"], Err(range));
        assert_eq!(ports_of_query(vec!["1"; 126]), Err("more than 125 ports".to_owned()));
        assert_eq!(port_message(0x1234), [0x34, 0x12]);
    }

    fn headers(stream_type: &str, request_id: &str) -> Headers {
        Headers::from([("streamType", stream_type), ("port", "80"), ("requestID", request_id)])
    }

    #[test]
    fn streams_of_one_request_are_paired() {
        let now = Instant::now();
        let mut pairs = Pairs::default();
        assert_eq!(pairs.add(1, &headers("error", "0"), now), Ok(None));
        assert_eq!(pairs.add(3, &headers("data", "1"), now), Ok(None));
        let pair = |request_id: &str, data, error| {
            Ok(Some(Pair { port: 80, request_id: request_id.to_owned(), data, error }))
        };
        assert_eq!(pairs.add(5, &headers("error", "1"), now), pair("1", 3, 5));
        assert_eq!(pairs.add(7, &headers("data", "0"), now), pair("0", 7, 1));
        // Clients without request ids.
        assert_eq!(pairs.add(9, &headers("error", ""), now), Ok(None));
        assert_eq!(pairs.add(11, &headers("data", ""), now), pair("9", 11, 9));
        assert_eq!(pairs.next_deadline(), None);
    }

    #[test]
    fn wrong_streams_are_refused() {
        let now = Instant::now();
        let mut pairs = Pairs::default();
        let check = |headers: Headers, expected: &str| {
            let found = Pairs::default().add(1, &headers, now);
            assert_eq!(found, Err(PairError::Headers(expected.to_owned())));
        };
        check(Headers::from([("streamType", "data")]), "\"port\" header is required");
        check(Headers::from([("port", "80")]), "\"streamType\" header is required");
        let other = Headers::from([("streamType", "stdin"), ("port", "80")]);
        check(other, "invalid stream type \"stdin\"");
        let zero = Headers::from([("streamType", "data"), ("port", "0")]);
        check(zero, "port \"0\" must be > 0");
        pairs.add(1, &headers("error", "7"), now).unwrap();
        let message =
            "error processing stream for request 7: error stream already assigned".to_owned();
        let duplicate = PairError::Duplicate { error: Some(1), message };
        assert_eq!(pairs.add(3, &headers("error", "7"), now), Err(duplicate));
    }

    #[test]
    fn a_lonely_stream_expires() {
        let now = Instant::now();
        let mut pairs = Pairs::default();
        pairs.add(1, &headers("error", "a"), now).unwrap();
        pairs.add(3, &headers("data", "b"), now + Duration::from_secs(1)).unwrap();
        pairs.add(5, &headers("data", "c"), now).unwrap();
        pairs.remove(5);
        assert_eq!(pairs.next_deadline(), Some(now + PAIR_TIME_MAX));
        let message = "(request=a) timed out waiting for streams".to_owned();
        let late = Unpaired { stream: 1, is_error: true, message };
        assert_eq!(pairs.expire(now + PAIR_TIME_MAX), [late]);
        assert_eq!(pairs.expire(now + PAIR_TIME_MAX), []);
        assert_eq!(pairs.add(7, &headers("data", "a"), now), Ok(None), "too late");
    }
}
