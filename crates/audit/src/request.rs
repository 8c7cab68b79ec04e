//! What an event says of where a request came from, read from its URL and headers.

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use keelson_meta::ip::parse_ip;
use std::net::IpAddr;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
/// Length at which a User-Agent is cut.
const USER_AGENT_BYTES_MAX: usize = 1024;
/// What stands in place of the rest.
const CUT: &str = "...TRUNCATED";
/// Maximum addresses of one event. Upstream has no such limit.
const ADDRESSES_MAX: usize = 128;
/// Query parameters whose values are secrets of somebody.
const SECRET_PARAMETERS: [&str; 5] =
    ["access_token", "token", "id_token", "refresh_token", "client_secret"];
/// What stands in place of a secret.
const SECRET: &str = "REDACTED";

/// Returns the addresses through which a request came: those in `X-Forwarded-For`, that in
/// `X-Real-Ip`, and the client's.
pub fn source_addresses(headers: &HeaderMap, client: IpAddr) -> Vec<IpAddr> {
    let client = client.to_canonical();
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let forwarded = text(FORWARDED_FOR).unwrap_or_default().split(',');
    let mut addresses: Vec<IpAddr> =
        forwarded.filter_map(|one| parse_ip(one.trim())).take(ADDRESSES_MAX).collect();
    let real = text(REAL_IP).and_then(parse_ip);
    if let Some(real) = real.filter(|real| !addresses.contains(real)) {
        addresses.push(real);
    }
    if addresses.last() != Some(&client) {
        addresses.push(client);
    }
    addresses
}

/// Returns the User-Agent, cut if it is long.
pub fn user_agent(headers: &HeaderMap) -> String {
    let bytes = headers.get(header::USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
    match bytes.get(..USER_AGENT_BYTES_MAX) {
        Some(head) if bytes.len() > USER_AGENT_BYTES_MAX => {
            format!("{}{CUT}", String::from_utf8_lossy(head))
        }
        _ => std::str::from_utf8(bytes)
            .map_or_else(|_| String::from_utf8_lossy(bytes).into_owned(), ToOwned::to_owned),
    }
}

/// Returns path and query of a URL, without the values of query parameters that hold tokens.
pub fn request_uri(uri: &Uri) -> String {
    let Some(query) = uri.query() else { return uri.path().to_owned() };
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
    out
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
        let found: Vec<String> = source_addresses(&headers, IpAddr::from([127, 0, 0, 1]))
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
        let agent = |length: usize| {
            let mut headers = HeaderMap::new();
            let value = HeaderValue::from_str(&"a".repeat(length)).expect("a header");
            headers.insert(header::USER_AGENT, value);
            user_agent(&headers).len()
        };
        assert_eq!(user_agent(&HeaderMap::new()), "");
        assert_eq!((agent(1024), agent(1025)), (1024, 1024 + CUT.len()));
    }

    #[test]
    fn tokens_in_queries_are_left_out() {
        let check = |given: &'static str, expected: &str| {
            assert_eq!(request_uri(&Uri::from_static(given)), expected);
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
