//! Headers for browsers: which origins may call the server (CORS), and that it is only called with
//! TLS (HSTS). They are on every response, whatever answered the request.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use keelson_meta::go_regex;
use regex::Regex;

/// What kube-apiserver tells browsers, beside the origin.
const CORS_HEADERS: [(HeaderName, &str); 4] = [
    (header::ACCESS_CONTROL_ALLOW_METHODS, "POST, GET, OPTIONS, PUT, DELETE, PATCH"),
    (
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, \
         X-Requested-With, If-Modified-Since",
    ),
    (header::ACCESS_CONTROL_EXPOSE_HEADERS, "Date"),
    (header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true"),
];

/// The headers for browsers.
#[derive(Clone, Debug, Default)]
pub struct BrowserOptions {
    /// `--cors-allowed-origins`.
    pub origins: CrossOrigins,
    /// `--strict-transport-security-directives`: the value of the header, if there is one.
    pub transport_security: Option<String>,
}

/// The origins whose scripts may call the server.
#[derive(Clone, Debug, Default)]
pub struct CrossOrigins(Vec<Regex>);

impl CrossOrigins {
    /// Compiles the expressions of `--cors-allowed-origins`. Each must pin the start and the end of
    /// the host, so that no longer name matches. Returns all that is wrong.
    pub fn new(expressions: &[String]) -> Result<CrossOrigins, Vec<String>> {
        let mut origins = vec![];
        let mut wrong = vec![];
        for expression in expressions {
            match compile(expression) {
                Ok(origin) => origins.push(origin),
                Err(why) => wrong.push(why),
            }
        }
        if wrong.is_empty() { Ok(CrossOrigins(origins)) } else { Err(wrong) }
    }

    fn allow(&self, origin: &str) -> bool {
        self.0.iter().any(|expression| expression.is_match(origin))
    }
}

fn compile(expression: &str) -> Result<Regex, String> {
    if expression.is_empty() {
        return Err("has an empty value".to_owned());
    }
    let invalid = |why: String| format!("has an invalid regular expression: {why}");
    let translated = go_regex::translate(expression).map_err(invalid)?;
    let is_pinned = |marks: [&str; 2]| marks.iter().any(|mark| expression.contains(mark));
    if !is_pinned(["^", "//"]) || !is_pinned(["$", ":"]) {
        return Err(invalid(
            "regular expression does not pin to start/end of host in the origin header".to_owned(),
        ));
    }
    Regex::new(&translated.text).map_err(|error| invalid(error.to_string()))
}

impl BrowserOptions {
    /// Returns the origin of a request, if it may call the server.
    pub(crate) fn allowed_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN).filter(|_| !self.origins.0.is_empty())?;
        origin.to_str().is_ok_and(|text| self.origins.allow(text)).then(|| origin.clone())
    }

    /// Adds the headers of a response to a request of an allowed origin, or another one.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap, origin: Option<HeaderValue>) {
        if let Some(value) = &self.transport_security
            && let Ok(value) = HeaderValue::from_str(value)
        {
            headers.insert(header::STRICT_TRANSPORT_SECURITY, value);
        }
        let Some(origin) = origin else { return };
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        for (name, value) in CORS_HEADERS {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origins(expressions: &[&str]) -> Result<CrossOrigins, Vec<String>> {
        let expressions: Vec<String> = expressions.iter().map(|e| (*e).to_owned()).collect();
        CrossOrigins::new(&expressions)
    }

    #[test]
    fn expressions_match_whole_hosts() {
        let allowed =
            origins(&[r"//example\.com(:|$)", r"^https://a\.test$"]).expect("expressions");
        for (origin, is_allowed) in [
            ("https://example.com", true),
            ("http://example.com:8080", true),
            ("https://example.com.evil.test", false),
            ("https://a.test", true),
            ("http://a.test", false),
        ] {
            assert_eq!(allowed.allow(origin), is_allowed, "{origin}");
        }
    }

    #[test]
    fn all_wrong_expressions_are_reported() {
        let wrong = origins(&["", "example.com", "^(", "^ok$"]).expect_err("three are wrong");
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert_eq!(wrong[0], "has an empty value");
        assert!(wrong[1].contains("does not pin"), "{wrong:?}");
        assert!(wrong[2].contains("missing closing )"), "{wrong:?}");
    }
}
