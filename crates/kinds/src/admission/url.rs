//! URLs as Go reads them (`net/url`), as far as refusals of webhooks show it.

use keelson_meta::status::quote;

/// The parts of a URL.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Url<'a> {
    /// In lower case; empty when there is none.
    pub scheme: String,
    /// With the port.
    pub host: &'a str,
    /// What stands before `@`.
    pub user: Option<&'a str>,
    /// What stands after `?`.
    pub query: Option<&'a str>,
    /// What stands after `#`.
    pub fragment: Option<&'a str>,
}

/// Reads a URL; the error is in Go's words.
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

    /// Each answer is that of a kube-apiserver 1.36 to a webhook with this URL.
    #[test]
    fn a_url_is_read_as_go_reads_it() {
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
