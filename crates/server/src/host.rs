//! Validation of the Host header of HTTP/1 requests, as in Go's server.

use crate::respond::{self, Reply};
use http::{HeaderMap, Version, header};

/// Returns the 400 of a request whose Host header is missing, repeated or malformed.
pub(crate) fn refusal(version: Version, headers: &HeaderMap) -> Option<Reply> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let line = match (hosts.next(), hosts.next()) {
        (None, _) if version >= Version::HTTP_11 => "400 Bad Request: missing required Host header",
        (None, _) => return None,
        (Some(_), Some(_)) => "400 Bad Request",
        (Some(host), None) if host.as_bytes().iter().all(is_host_byte) => return None,
        (Some(_), None) => "400 Bad Request: malformed Host header",
    };
    Some(respond::bad_request(line))
}

/// Returns whether a byte is allowed in a Host header (RFC 3986, section 3.2.2, with ports and
/// zones).
fn is_host_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&()*+,-.:;=@[]'_~".contains(byte)
}
