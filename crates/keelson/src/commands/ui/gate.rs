//! [`Gate`]: which requests to `keelson ui` come from its page.
//!
//! Any page that a browser on this host shows can send requests to a port of it. So a request must
//! name this server as its host (a name that somebody lets lead here does not help him), must not
//! come from another origin, and must carry the token, which is in no cookie and which only the
//! page knows. The files of the page hold nothing and need no token: a browser loads them before
//! the page can send one.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use std::net::{IpAddr, SocketAddr};
use subtle::ConstantTimeEq;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The prefix of the WebSocket subprotocol that carries a token, since a browser sends no header
/// then.
const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It names another host.
    Host,
    /// It comes from a page of another origin.
    Origin,
    /// It has no token, or another one.
    Token,
}

impl Refusal {
    /// Returns what the client is told.
    pub fn text(self) -> &'static str {
        match self {
            Refusal::Host => "this address serves the explorer, under its printed address only",
            Refusal::Origin => "requests of other pages are refused",
            Refusal::Token => "open the address that `keelson ui` printed: it has the token",
        }
    }
}

/// Decides about requests.
pub struct Gate {
    token: String,
    /// Values of `Host`, in lower case.
    hosts: Vec<String>,
    /// Whether any IP address is a host, because the server listens on all of them.
    any_address: Option<u16>,
}

impl Gate {
    /// Returns the gate of a server that listens on an address.
    pub fn new(token: String, address: SocketAddr) -> Gate {
        let port = address.port();
        let mut hosts = vec![address.to_string()];
        if address.ip().is_loopback() {
            hosts.push(format!("localhost:{port}"));
        }
        let any_address = address.ip().is_unspecified().then_some(port);
        Gate { token, hosts, any_address }
    }

    /// Checks that a request is meant for this server, and sent by nobody or by its own page.
    pub fn check_site(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = single(headers, &HOST).ok().flatten().unwrap_or_default().to_ascii_lowercase();
        if !self.is_host(&host) {
            return Err(Refusal::Host);
        }
        let origin = single(headers, &ORIGIN).map_err(|()| Refusal::Origin)?;
        if origin.is_some_and(|origin| origin.to_ascii_lowercase() != format!("http://{host}")) {
            return Err(Refusal::Origin);
        }
        match single(headers, &FETCH_SITE).map_err(|()| Refusal::Origin)? {
            None | Some("same-origin" | "none") => Ok(()),
            Some(_) => Err(Refusal::Origin),
        }
    }

    /// Checks the token of a request.
    pub fn check_token(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let authorization = single(headers, &AUTHORIZATION).map_err(|()| Refusal::Token)?;
        let given = match authorization.and_then(|text| text.strip_prefix("Bearer ")) {
            Some(token) => token.as_bytes().to_vec(),
            None => protocols(headers).find_map(token_of).ok_or(Refusal::Token)?,
        };
        match bool::from(given.ct_eq(self.token.as_bytes())) {
            true => Ok(()),
            false => Err(Refusal::Token),
        }
    }

    fn is_host(&self, host: &str) -> bool {
        if self.hosts.iter().any(|own| own == host) {
            return true;
        }
        let Some(port) = self.any_address else { return false };
        host.parse::<SocketAddr>().is_ok_and(|address| address.port() == port)
            || host.parse::<IpAddr>().is_ok_and(|_| port == 80)
    }
}

/// Returns the subprotocols that a WebSocket client offers, without the one that carries a token.
pub fn other_protocols(headers: &HeaderMap) -> Vec<&str> {
    protocols(headers).filter(|protocol| token_of(protocol).is_none()).collect()
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let all = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter();
    let texts = all.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

fn token_of(protocol: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(protocol.strip_prefix(TOKEN_PROTOCOL)?).ok()
}

/// Returns the value of a header that may stand once.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, ()> {
    let mut values = headers.get_all(name).into_iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        _ => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, HeaderValue::from_str(value).expect("a value"));
        }
        map
    }

    fn gate(address: &str) -> Gate {
        Gate::new("secret".to_owned(), address.parse().expect("an address"))
    }

    #[test]
    fn requests_of_other_pages_and_hosts_are_refused() {
        let check = |address: &str, lines: &[(&'static str, &str)], expected| {
            assert_eq!(gate(address).check_site(&headers(lines)), expected, "{lines:?}");
        };
        let local = "127.0.0.1:80";
        let host = ("host", local);
        check(local, &[host], Ok(()));
        check(local, &[("host", "LOCALHOST:80")], Ok(()));
        check("[::1]:80", &[("host", "[::1]:80")], Ok(()));
        check(local, &[], Err(Refusal::Host));
        check(local, &[host, host], Err(Refusal::Host));
        for other in ["127.0.0.1", "127.0.0.1:81", "evil.example:80", "127.0.0.1:80.evil.example"] {
            check(local, &[("host", other)], Err(Refusal::Host));
        }
        check(local, &[host, ("origin", "http://127.0.0.1:80")], Ok(()));
        for other in ["http://127.0.0.1:81", "https://127.0.0.1:80", "null", "http://localhost:80"]
        {
            check(local, &[host, ("origin", other)], Err(Refusal::Origin));
        }
        check(local, &[host, ("sec-fetch-site", "none")], Ok(()));
        for other in ["cross-site", "same-site"] {
            check(local, &[host, ("sec-fetch-site", other)], Err(Refusal::Origin));
        }
        check("0.0.0.0:80", &[("host", "192.0.2.1:80")], Ok(()));
        check("0.0.0.0:80", &[("host", "evil.example:80")], Err(Refusal::Host));
    }

    #[test]
    fn a_token_is_a_header_or_a_subprotocol() {
        let check = |lines: &[(&'static str, &str)], expected| {
            assert_eq!(gate("127.0.0.1:80").check_token(&headers(lines)), expected, "{lines:?}");
        };
        let encoded = URL_SAFE_NO_PAD.encode("secret");
        let protocol = format!("v5.channel.k8s.io, {TOKEN_PROTOCOL}{encoded}");
        check(&[("authorization", "Bearer secret")], Ok(()));
        check(&[("sec-websocket-protocol", &protocol)], Ok(()));
        check(&[], Err(Refusal::Token));
        check(&[("cookie", "token=secret")], Err(Refusal::Token));
        check(&[("authorization", "Bearer secre")], Err(Refusal::Token));
        check(&[("authorization", "Bearer secrets")], Err(Refusal::Token));
        check(&[("authorization", "Basic secret")], Err(Refusal::Token));
        check(
            &[("authorization", "Bearer x"), ("authorization", "Bearer secret")],
            Err(Refusal::Token),
        );
        let offered = headers(&[("sec-websocket-protocol", &protocol)]);
        assert_eq!(other_protocols(&offered), ["v5.channel.k8s.io"]);
    }
}
