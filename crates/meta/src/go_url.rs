//! A URL as Go's `url.ParseRequestURI` parses it; `kubernetes.URL` of expressions.

use crate::Str;
use std::fmt::Write;

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
    /// Parses an absolute URL or an absolute path. Returns Go's error message.
    pub fn parse(text: &str) -> Result<Self, String> {
        let fault = |why: &str| Err(format!("parse {text:?}: {why}"));
        if text.chars().any(|c| c.is_ascii_control()) {
            return fault("net/url: invalid control character in URL");
        }
        if text.is_empty() {
            return fault("empty url");
        }
        if text == "*" {
            let (none, path) = (Str::default(), Str::new_static("*"));
            let (scheme, host, query) = (none.clone(), none.clone(), none);
            return Ok(Url { scheme, host, escaped_path: path.clone(), query, text: path });
        }
        let (scheme, rest) = match split_scheme(text) {
            Ok(split) => split,
            Err(why) => return fault(why),
        };
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
            Some(rest) if !scheme.is_empty() || !rest.starts_with('/') => {
                rest.split_at(rest.find('/').unwrap_or(rest.len()))
            }
            _ => ("", rest),
        };
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let host = match parse_host(host) {
            Ok(host) => host,
            Err(why) => return fault(&why),
        };
        if let Some(bad) = bad_escape(path) {
            return fault(&format!("invalid URL escape {bad:?}"));
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

fn parse_host(host: &str) -> Result<String, String> {
    if let Some(rest) = host.strip_prefix('[') {
        let Some((_, after)) = rest.rsplit_once(']') else {
            return Err("missing ']' in host".to_owned());
        };
        return check_port(after).map(|()| host.to_owned());
    }
    if let Some(at) = host.rfind(':') {
        check_port(&host[at..])?;
    }
    let allowed = |c: char| {
        c.is_ascii_alphanumeric() || !c.is_ascii() || "!$&'()*+,;=:[]<>\"-._~%".contains(c)
    };
    if let Some(bad) = host.chars().find(|c| !allowed(*c)) {
        return Err(format!("invalid character {:?} in host name", bad.to_string()));
    }
    if let Some(bad) = bad_escape(host).or_else(|| ascii_escape(host)) {
        return Err(format!("invalid URL escape {bad:?}"));
    }
    Ok(host.to_owned())
}

fn check_port(text: &str) -> Result<(), String> {
    let digits =
        text.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    if text.is_empty() || digits {
        return Ok(());
    }
    Err(format!("invalid port {text:?} after host"))
}

/// Returns the first invalid percent escape.
fn bad_escape(text: &str) -> Option<String> {
    for (at, _) in text.match_indices('%') {
        let two = text.as_bytes().get(at + 1..at + 3);
        if !two.is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit)) {
            return Some(text[at..].chars().take(3).collect());
        }
    }
    None
}

/// Returns the first escape of an ASCII character, which a host must not have, but `%25`.
fn ascii_escape(host: &str) -> Option<String> {
    host.match_indices('%').map(|(at, _)| &host[at..]).find_map(|rest| {
        let escape: String = rest.chars().take(3).collect();
        let is_ascii = matches!(escape.as_bytes().get(1), Some(b'0'..=b'7'));
        (is_ascii && escape != "%25").then_some(escape)
    })
}

/// Percent-encodes characters that a path cannot contain. Existing escapes are kept.
fn escape_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/[]%".contains(&byte);
        if plain {
            out.push(byte.into());
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
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
        check("/a b", Ok(("", "", "", "/a%20b")));
        check("foo", Err("parse \"foo\": invalid URI for request"));
        check(":foo", Err("parse \":foo\": missing protocol scheme"));
        check("https://a:b/", Err("parse \"https://a:b/\": invalid port \":b\" after host"));
        check("https://[::1", Err("parse \"https://[::1\": missing ']' in host"));
        check("http://a/%zz", Err("parse \"http://a/%zz\": invalid URL escape \"%zz\""));
        check("", Err("parse \"\": empty url"));
    }
}
