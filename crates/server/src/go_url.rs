//! URLs as Go's `net/url` and `path` write them, where a far side sees them.

use crate::query::is_escaped_well;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str};
use percent_encoding::{percent_encode, utf8_percent_encode};

/// The bytes that Go escapes in a query.
const ESCAPED_IN_QUERY: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The bytes that Go escapes in a path.
const ESCAPED_IN_PATH: &AsciiSet = &ESCAPED_IN_QUERY
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// Escapes a decoded path (`URL.EscapedPath`).
pub(crate) fn escape_path(path: &str) -> String {
    utf8_percent_encode(path, ESCAPED_IN_PATH).to_string()
}

/// Decodes a path. One that is not UTF-8 is returned as it is.
pub(crate) fn decode_path(path: &str) -> String {
    percent_decode_str(path)
        .decode_utf8()
        .map_or_else(|_| path.to_owned(), |path| path.into_owned())
}

/// Joins two paths without empty parts and dots, which cannot lead above the root (`path.Join`).
pub(crate) fn join(first: &str, second: &str) -> String {
    let mut parts: Vec<&str> = vec![];
    for part in first.split('/').chain(second.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Parses a query and writes it again, by the names of its parameters (`url.Values.Encode`).
/// Malformed parameters, and those with a semicolon, are left out.
pub(crate) fn encoded_query(query: &str) -> String {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        is_escaped_well(&text).then(|| percent_decode_str(&text).collect::<Vec<u8>>())
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = pairs
        .filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(value)?))
        })
        .collect();
    // Values of one name keep their order.
    pairs.sort_by(|(first, _), (second, _)| first.cmp(second));
    let escape =
        |text: &[u8]| percent_encode(text, ESCAPED_IN_QUERY).to_string().replace("%20", "+");
    let pairs = pairs.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value)));
    pairs.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_escaped_and_joined_as_in_go() {
        // The answers of a kube-apiserver's proxies.
        assert_eq!(escape_path("/a'b!(c)*/ä b%^\"?"), "/a%27b%21%28c%29%2A/%C3%A4%20b%25%5E%22%3F");
        assert_eq!(escape_path("/a+b;c=d&e@f:g,h$i~"), "/a+b;c=d&e@f:g,h$i~");
        assert_eq!(join("/proxy/a//echo", "/a/echo"), "/proxy/a/echo/a/echo");
        assert_eq!(join("", "/a/./b/../../../c/"), "/c");
        assert_eq!(join("", "/"), "/");
    }

    #[test]
    fn a_query_is_parsed_and_written_again() {
        let check = |query: &str, want: &str| assert_eq!(encoded_query(query), want, "{query}");
        check("x=%20&y=a+b;c", "x=+");
        check("b=2&a=1&b=1&c", "a=1&b=2&b=1&c=");
        check("a=%zz&b=%2F%ff&&=", "=&b=%2F%FF");
        check("", "");
    }
}
