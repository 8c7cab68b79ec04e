//! Parses URLs as Go's `net/url` does, as far as the error messages for webhook URLs depend on it.

use keelson_meta::status::quote;

/// The parts of a URL.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Url<'a> {
    /// In lower case; empty when absent.
    pub scheme: String,
    /// With the port.
    pub host: &'a str,
    /// The part before `@`.
    pub user: Option<&'a str>,
    /// The part after `?`.
    pub query: Option<&'a str>,
    /// The part after `#`.
    pub fragment: Option<&'a str>,
}

/// Parses a URL. The error message is Go's.
pub(super) fn parse(text: &str) -> Result<Url<'_>, String> {
    let (text, fragment) = match text.split_once('#') {
        Some((text, fragment)) => (text, Some(fragment)),
        None => (text, None),
    };
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text == "*" {
        return Ok(Url { fragment, ..Url::default() });
    }
    let (scheme, rest) = scheme(text)?;
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    let mut url = Url { scheme: scheme.to_lowercase(), query, fragment, ..Url::default() };
    let mut path = rest;
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            return Ok(url);
        }
        if rest.split('/').next().unwrap_or_default().contains(':') {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    if let Some(inner) = rest.strip_prefix("//")
        && (!scheme.is_empty() || !rest.starts_with("///"))
    {
        let end = inner.find('/').unwrap_or(inner.len());
        let (authority, tail) = inner.split_at(end);
        (url.user, url.host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        check_port(url.host)?;
        path = tail;
    }
    check_escapes(path)?;
    check_escapes(fragment.unwrap_or_default())?;
    Ok(url)
}

fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            ':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn check_port(host: &str) -> Result<(), String> {
    let last = host.rfind(']').map_or(0, |at| at + 1);
    let Some(colon) = host[last..].rfind(':').map(|at| last + at) else { return Ok(()) };
    let port = &host[colon..];
    if port[1..].bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(());
    }
    Err(format!("invalid port {} after host", quote(port)))
}

fn check_escapes(text: &str) -> Result<(), String> {
    for (at, _) in text.match_indices('%') {
        let digits: String = text[at..].chars().take(3).collect();
        let is_escape =
            digits.len() == 3 && digits[1..].bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_escape {
            return Err(format!("invalid URL escape {}", quote(&digits)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected results are those of kube-apiserver 1.36 for a webhook with this URL.
    #[test]
    fn urls_are_parsed_as_in_go() {
        for (text, want) in [
            ("", Ok(("", ""))),
            ("x", Ok(("", ""))),
            ("http://", Ok(("http", ""))),
            ("https:///a", Ok(("https", ""))),
            ("https://u@h:1/a?q#f", Ok(("https", "h:1"))),
            ("a:b", Ok(("a", ""))),
            ("::1", Err("missing protocol scheme")),
            ("10%", Err("invalid URL escape \"%\"")),
            ("%zz", Err("invalid URL escape \"%zz\"")),
            ("https://a:b", Err("invalid port \":b\" after host")),
            ("2024-01-01T00:00:00Z", Err("first path segment in URL cannot contain colon")),
        ] {
            let got = parse(text).map(|url| (url.scheme, url.host));
            let want = want.map(|(scheme, host)| (scheme.to_owned(), host));
            assert_eq!(got, want.map_err(str::to_owned), "{text}");
        }
    }
}
