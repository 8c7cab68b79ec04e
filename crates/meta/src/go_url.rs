//! A URL as Go parses it; `kubernetes.URL` of expressions.

use crate::Str;
use crate::status::quote;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// In lower case; empty for a path.
    pub scheme: Str,
    /// With the port.
    pub host: Str,
    /// The path, with its escapes.
    pub escaped_path: Str,
    /// What follows the question mark.
    pub query: Str,
    /// The source text.
    text: Str,
}

impl Url {
    /// Parses an absolute URL or an absolute path, as Kubernetes does: checks it by the rules of
    /// requests (`url.ParseRequestURI`), then parses it without them (`url.Parse`). Returns Go's
    /// error message.
    pub fn parse(text: &str) -> Result<Self, String> {
        Url::check(text)?;
        Url::parse_parts(text, false).map_err(|why| format!("parse {}: {why}", quote(text)))
    }

    /// Checks an absolute URL or an absolute path by `url.ParseRequestURI`. Returns Go's error
    /// message.
    pub fn check(text: &str) -> Result<(), String> {
        let parsed = Url::parse_parts(text, true);
        parsed.map(drop).map_err(|why| format!("parse {}: {why}", quote(text)))
    }

    fn parse_parts(text: &str, is_request: bool) -> Result<Self, String> {
        let fault = |why: &str| Err(why.to_owned());
        if text.chars().any(|c| c.is_ascii_control()) {
            return fault("net/url: invalid control character in URL");
        }
        if text.is_empty() {
            return fault("empty url");
        }
        if text == "*" {
            let none = Str::default();
            let path = Str::new_static("*");
            let scheme = none.clone();
            let host = none.clone();
            let query = none;
            return Ok(Url { scheme, host, escaped_path: path.clone(), query, text: path });
        }
        let (scheme, rest) = split_scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if !rest.starts_with('/') && scheme.is_empty() {
            return fault("invalid URI for request");
        }
        let url = |host: &str, path: &str| Url {
            scheme: scheme.to_ascii_lowercase().into(),
            host: host.into(),
            escaped_path: path.into(),
            query: query.into(),
            text: text.into(),
        };
        if !rest.starts_with('/') {
            // An opaque URL such as `mailto:a` has no host and no path.
            return Ok(url("", ""));
        }
        let (authority, path) = match rest.strip_prefix("//") {
            // Two slashes begin the path of a request.
            Some(rest) if !scheme.is_empty() || !(is_request || rest.starts_with('/')) => {
                rest.split_at(rest.find('/').unwrap_or(rest.len()))
            }
            _ => ("", rest),
        };
        let is_web = ["http", "https"].iter().any(|web| scheme.eq_ignore_ascii_case(web));
        let host = parse_authority(authority, is_web)?;
        if let Some(bad) = bad_escape(path) {
            return fault(&invalid_escape(&bad));
        }
        Ok(url(&host, &escape_path(path)))
    }

    /// Returns the memory of its parts.
    pub fn bytes(&self) -> usize {
        [&self.scheme, &self.host, &self.escaped_path, &self.query, &self.text]
            .iter()
            .map(|part| part.len())
            .sum()
    }

    /// Returns the host without the port and without brackets.
    pub fn hostname(&self) -> &str {
        if let Some(rest) = self.host.strip_prefix('[') {
            return rest.split(']').next().unwrap_or(rest);
        }
        self.host.rsplit_once(':').map_or(self.host.as_str(), |(name, _)| name)
    }

    /// Returns the port, or an empty text.
    pub fn port(&self) -> &str {
        let rest = self.host.rsplit_once(']').map_or(self.host.as_str(), |(_, rest)| rest);
        rest.rsplit_once(':').map_or("", |(_, port)| port)
    }
}

fn split_scheme(text: &str) -> Result<(&str, &str), &'static str> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at == 0 => return Ok(("", text)),
            '0'..='9' | '+' | '-' | '.' => {}
            ':' if at == 0 => return Err("missing protocol scheme"),
            ':' => return Ok((&text[..at], &text[at + 1..])),
            _ => return Ok(("", text)),
        }
    }
    Ok(("", text))
}

fn invalid_escape(escape: &str) -> String {
    format!("invalid URL escape {}", quote(escape))
}

/// Parses what stands between `//` and the path: a user, which is dropped, and a host. Faults of
/// the host come first.
fn parse_authority(authority: &str, is_web: bool) -> Result<String, String> {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let host = parse_host(host, is_web)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(allowed) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    match bad_escape(user) {
        Some(bad) => Err(invalid_escape(&bad)),
        None => Ok(host),
    }
}

/// Parses a host. Only in those of the web a colon begins the port wherever it stands.
fn parse_host(host: &str, is_web: bool) -> Result<String, String> {
    let Some(open) = host.rfind('[') else {
        if let Some(at) = if is_web { host.find(':') } else { host.rfind(':') } {
            check_port(&host[at..])?;
        }
        return unescape_host(host, false);
    };
    let Some(close) = host.rfind(']') else { return Err("missing ']' in host".to_owned()) };
    let port = &host[close + 1..];
    check_port(port)?;
    let literal = host.get(open + 1..close).unwrap_or_default();
    let (address, zone) = literal.split_at(literal.find("%25").unwrap_or(literal.len()));
    let address = unescape_host(address, false)? + &unescape_host(zone, true)?;
    check_address(&address)?;
    if open > 0 {
        return Err("invalid IP-literal".to_owned());
    }
    Ok(format!("[{address}]{port}"))
}

/// Checks what stands in brackets: an IPv6 address, which may have a zone.
fn check_address(text: &str) -> Result<(), String> {
    let refuse = |why: &str| Err(format!("invalid host: ParseAddr({}): {why}", quote(text)));
    match text.find(['.', ':', '%']).map(|at| &text[at..at + 1]) {
        Some(".") if text.parse::<Ipv4Addr>().is_ok() => {
            return Err("invalid IP-literal".to_owned());
        }
        Some(".") => return refuse(&format!("unexpected character (at {})", quote(text))),
        Some(":") => {}
        Some(_) => return refuse("missing IPv6 address"),
        None => return refuse("unable to parse IP"),
    }
    let (address, zone) = text.split_once('%').unwrap_or((text, "none"));
    if zone.is_empty() {
        return refuse("zone must be a non-empty string");
    }
    if address.parse::<Ipv6Addr>().is_err() {
        return refuse("unable to parse IP");
    }
    Ok(())
}

fn check_port(text: &str) -> Result<(), String> {
    let digits =
        text.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    if text.is_empty() || digits {
        return Ok(());
    }
    Err(format!("invalid port {} after host", quote(text)))
}

/// Returns the escape at the beginning of a text, and its byte if it is a valid one.
fn escape_at(text: &str) -> (String, Option<u8>) {
    let mut end = text.len().min(3);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let escape = text[..end].to_owned();
    let digits = escape.get(1..3).filter(|two| two.bytes().all(|b| b.is_ascii_hexdigit()));
    let byte = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
    (escape, byte)
}

/// Returns the first invalid percent escape.
fn bad_escape(text: &str) -> Option<String> {
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        let (escape, byte) = escape_at(&rest[at..]);
        if byte.is_none() {
            return Some(escape);
        }
        rest = &rest[at + 3..];
    }
    None
}

/// Decodes a host, or the zone of an address. A host may have the escapes of no ASCII character but
/// `%25`, a zone also those of characters that a host may have, and of a space.
fn unescape_host(host: &str, is_zone: bool) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "!$&'()*+,;=:[]<>\"-._~".contains(c);
    let mut out = vec![];
    let mut rest = host;
    while let Some(c) = rest.chars().next() {
        if c != '%' {
            if c.is_ascii() && !allowed(c) {
                return Err(format!("invalid character {} in host name", quote(&c.to_string())));
            }
            out.extend_from_slice(c.to_string().as_bytes());
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let (escape, byte) = escape_at(rest);
        let may_stand = |byte: u8| match is_zone {
            true => byte == b' ' || allowed(byte.into()),
            false => !byte.is_ascii(),
        };
        match byte {
            Some(byte) if escape == "%25" || may_stand(byte) => out.push(byte),
            _ => return Err(invalid_escape(&escape)),
        }
        rest = &rest[3..];
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Returns a path as it is sent. One that has a character which must be escaped is escaped anew.
fn escape_path(path: &str) -> String {
    let may_stand =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/[]%".contains(byte);
    if path.bytes().all(|byte| may_stand(&byte)) {
        return path.to_owned();
    }
    let mut out = String::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, mut after)) = rest.split_first() {
        let mut byte = *first;
        if byte == b'%'
            && let Some(escaped) = after.get(..2).and_then(hex_byte)
        {
            (byte, after) = (escaped, &after[2..]);
        }
        if byte.is_ascii_alphanumeric() || b"-._~$&+,/:;=@".contains(&byte) {
            out.push(byte.into());
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        rest = after;
    }
    out
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Returns the text of a query component; `None` for a wrong escape.
pub fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                let two = std::str::from_utf8(bytes.get(at + 1..at + 3)?).ok()?;
                out.push(u8::from_str_radix(two, 16).ok()?);
                at += 2;
            }
            b'+' => out.push(b' '),
            other => out.push(other),
        }
        at += 1;
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_parse_as_in_go() {
        let check = |text: &str, expected: Result<(&str, &str, &str, &str), &str>| {
            let found = Url::parse(text);
            let parts = found.as_ref().map(|url| {
                (url.scheme.as_str(), url.hostname(), url.port(), url.escaped_path.as_str())
            });
            assert_eq!(parts.map_err(String::as_str), expected, "{text}");
        };
        check("https://a:80/p%20q?x=1", Ok(("https", "a", "80", "/p%20q")));
        check("https://user@[::1]:80/", Ok(("https", "::1", "80", "/")));
        check("//a/b", Ok(("", "a", "", "/b")));
        check("//a b/c", Err("parse \"//a b/c\": invalid character \" \" in host name"));
        assert_eq!(Url::check("//a b/c"), Ok(()));
        check("/a b", Ok(("", "", "", "/a%20b")));
        check("/%41(b)", Ok(("", "", "", "/%41(b)")));
        check("/%41(b) ", Ok(("", "", "", "/A%28b%29%20")));
        check("http://a%25b", Ok(("http", "a%b", "", "")));
        check("http://[::1%25en%20a]", Ok(("http", "::1%en a", "", "")));
        check("ftp://a:1:2", Ok(("ftp", "a:1", "2", "")));
        check("http://a:1:2", Err("parse \"http://a:1:2\": invalid port \":1:2\" after host"));
        check("http://a b", Err("parse \"http://a b\": invalid character \" \" in host name"));
        check("http://a%41", Err("parse \"http://a%41\": invalid URL escape \"%41\""));
        check("http://x y@a", Err("parse \"http://x y@a\": net/url: invalid userinfo"));
        check("http://x[::1]", Err("parse \"http://x[::1]\": invalid IP-literal"));
        check("foo", Err("parse \"foo\": invalid URI for request"));
        check(":foo", Err("parse \":foo\": missing protocol scheme"));
        check("https://a:b/", Err("parse \"https://a:b/\": invalid port \":b\" after host"));
        check("https://[::1", Err("parse \"https://[::1\": missing ']' in host"));
        check("http://a/%zz", Err("parse \"http://a/%zz\": invalid URL escape \"%zz\""));
        check("", Err("parse \"\": empty url"));
    }
}
