//! What an event says of where a request came from, read from its URL and headers.

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use keelson_meta::ip::parse_ip;
use smallvec::SmallVec;
use std::net::IpAddr;
use std::ops::Deref;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
/// Length at which a User-Agent is cut.
const USER_AGENT_BYTES_MAX: usize = 1024;
/// What stands in place of the rest.
const CUT: &[u8] = b"...TRUNCATED";
/// Maximum addresses of one event. Upstream has no such limit.
const ADDRESSES_MAX: usize = 128;
/// Query parameters whose values are secrets of somebody.
const SECRET_PARAMETERS: [&str; 5] =
    ["access_token", "token", "id_token", "refresh_token", "client_secret"];
/// What stands in place of a secret.
const SECRET: &str = "REDACTED";

/// Path and query of a request's URL.
#[derive(Clone, Debug)]
pub enum RequestUri {
    /// As it was sent.
    Sent(PathAndQuery),
    /// Without the values of some query parameters.
    Redacted(String),
}

impl Deref for RequestUri {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            RequestUri::Sent(path) => path.as_str(),
            RequestUri::Redacted(text) => text,
        }
    }
}

/// What the headers of a request say of its sender.
#[derive(Clone, Debug)]
pub struct Sender {
    /// The addresses through which the request came: those in `X-Forwarded-For`, that in
    /// `X-Real-Ip`, and the client's.
    pub addresses: SmallVec<[IpAddr; 2]>,
    /// The User-Agent, cut if it is long; or empty.
    pub user_agent: HeaderValue,
}

impl Sender {
    /// Reads headers. `client` is the address of the other end of the connection.
    pub fn of_headers(headers: &HeaderMap, client: IpAddr) -> Sender {
        let mut agent = None;
        let mut forwarded = None;
        let mut real = None;
        // Looking at each is less work than to look for three. Of several, the first one counts.
        for (name, value) in headers {
            if *name == header::USER_AGENT {
                agent.get_or_insert(value);
            } else if *name == FORWARDED_FOR {
                forwarded.get_or_insert(value);
            } else if *name == REAL_IP {
                real.get_or_insert(value);
            }
        }
        Sender {
            addresses: source_addresses(forwarded, real, client),
            user_agent: agent.map_or(HeaderValue::from_static(""), cut_agent),
        }
    }
}

fn source_addresses(
    forwarded: Option<&HeaderValue>,
    real: Option<&HeaderValue>,
    client: IpAddr,
) -> SmallVec<[IpAddr; 2]> {
    let client = client.to_canonical();
    let mut addresses = SmallVec::new();
    if let Some(list) = forwarded.and_then(|value| value.to_str().ok()) {
        addresses
            .extend(list.split(',').filter_map(|one| parse_ip(one.trim())).take(ADDRESSES_MAX));
    }
    let real = real.and_then(|value| value.to_str().ok()).and_then(parse_ip);
    if let Some(real) = real.filter(|real| !addresses.contains(real)) {
        addresses.push(real);
    }
    if addresses.last() != Some(&client) {
        addresses.push(client);
    }
    addresses
}

fn cut_agent(sent: &HeaderValue) -> HeaderValue {
    let head = match sent.as_bytes().get(..USER_AGENT_BYTES_MAX) {
        Some(head) if sent.len() > USER_AGENT_BYTES_MAX => head,
        _ => return sent.clone(),
    };
    HeaderValue::from_bytes(&[head, CUT].concat()).unwrap_or_else(|_| sent.clone())
}

/// Returns path and query of a URL, without the values of query parameters that hold tokens.
pub fn request_uri(uri: &Uri) -> RequestUri {
    let Some(query) = uri.query() else {
        // The URL of a CONNECT has neither.
        let sent = uri.path_and_query().cloned().map(RequestUri::Sent);
        return sent
            .filter(|sent| **sent == *uri.path())
            .unwrap_or_else(|| RequestUri::Redacted(uri.path().to_owned()));
    };
    let has_secret = query
        .split('&')
        .any(|parameter| parameter.split_once('=').is_some_and(|(name, _)| is_secret(name)));
    if let (false, Some(sent)) = (has_secret, uri.path_and_query()) {
        return RequestUri::Sent(sent.clone());
    }
    let mut out = format!("{}?", uri.path());
    for (at, parameter) in query.split('&').enumerate() {
        if at > 0 {
            out.push('&');
        }
        match parameter.split_once('=') {
            Some((name, _)) if is_secret(name) => {
                out.push_str(name);
                out.push('=');
                out.push_str(SECRET);
            }
            _ => out.push_str(parameter),
        }
    }
    RequestUri::Redacted(out)
}

fn is_secret(name: &str) -> bool {
    SECRET_PARAMETERS.iter().any(|secret| secret.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_addresses(forwarded: &'static str, real: &'static str, expected: &str) {
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-forwarded-for", forwarded), ("x-real-ip", real)] {
            if !value.is_empty() {
                headers.insert(name, HeaderValue::from_static(value));
            }
        }
        let found: Vec<String> = Sender::of_headers(&headers, IpAddr::from([127, 0, 0, 1]))
            .addresses
            .iter()
            .map(IpAddr::to_string)
            .collect();
        assert_eq!(found.join(" "), expected, "{forwarded} {real}");
    }

    #[test]
    fn addresses_are_those_of_the_headers_and_the_client() {
        check_addresses("", "", "127.0.0.1");
        check_addresses("1.2.3.4, 5.6.7.8", "9.9.9.9", "1.2.3.4 5.6.7.8 9.9.9.9 127.0.0.1");
        check_addresses("", "9.9.9.9", "9.9.9.9 127.0.0.1");
        check_addresses("bad, 127.0.0.1", "", "127.0.0.1");
        check_addresses("1.2.3.4", "1.2.3.4", "1.2.3.4 127.0.0.1");
        check_addresses("127.0.0.1, ::1", "bad", "127.0.0.1 ::1 127.0.0.1");
    }

    #[test]
    fn a_long_user_agent_is_cut() {
        let agent_of = |headers: &HeaderMap| {
            Sender::of_headers(headers, IpAddr::from([127, 0, 0, 1])).user_agent
        };
        let agent = |length: usize| {
            let mut headers = HeaderMap::new();
            let value = HeaderValue::from_str(&"a".repeat(length)).expect("a header");
            headers.insert(header::USER_AGENT, value);
            agent_of(&headers).len()
        };
        assert_eq!(agent_of(&HeaderMap::new()), "");
        assert_eq!((agent(1024), agent(1025)), (1024, 1024 + CUT.len()));
    }

    #[test]
    fn tokens_in_queries_are_left_out() {
        let check = |given: &'static str, expected: &str| {
            assert_eq!(&*request_uri(&Uri::from_static(given)), expected);
        };
        check("/api", "/api");
        check("/api?", "/api?");
        check("/a?watch=1&b=%3Ca%3E", "/a?watch=1&b=%3Ca%3E");
        check(
            "/a?x=1&Access_Token=s&token=t&tokens=u",
            "/a?x=1&Access_Token=REDACTED&token=REDACTED&tokens=u",
        );
    }
}
