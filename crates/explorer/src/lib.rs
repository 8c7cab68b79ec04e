//! The explorer: a web page in which people look at the objects of an API server. This crate holds
//! its files (`web/`) and answers requests for them. The page is an ordinary client of the API: it
//! has no rights of its own, and the server does nothing for it that it does not do for kubectl.
//!
//! Guarantees: a response depends on the request and on the files alone. The files hold nothing of
//! a cluster, so they need no credentials. The page loads nothing from elsewhere and runs no other
//! script ([`CONTENT_SECURITY_POLICY`]).

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode};
use std::io::Read;

/// The path of the page; its files are below it.
pub const PATH: &str = "/ui/";

/// What the page may load and run: its own files, and no markup that is made of text.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; \
     style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; \
     base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const INDEX: &str = "index.html";
const PATH_WITHOUT_SLASH: &str = "/ui";
const GZIP: &str = "gzip";

/// Headers of every response: browsers keep a file but ask whether it has changed, since an update
/// of the program changes it.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-cache"),
    (header::VARY, "Accept-Encoding"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// A file of the page.
#[derive(Debug)]
pub struct Asset {
    /// The path below [`PATH`].
    pub path: &'static str,
    /// The media type.
    pub media_type: &'static str,
    /// The entity tag, in quotes.
    pub etag: &'static str,
    /// The compressed text.
    pub gzip: &'static [u8],
}

/// The files of the page, sorted by path.
pub const ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// Returns the response to a request for the page or one of its files; `None` for other paths.
pub fn answer(method: &Method, path: &str, headers: &HeaderMap) -> Option<Response<Bytes>> {
    if path == PATH_WITHOUT_SLASH {
        let mut response = plain(StatusCode::MOVED_PERMANENTLY, "");
        response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(PATH));
        return Some(response);
    }
    let name = path.strip_prefix(PATH)?;
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Some(response);
    }
    let wanted = if name.is_empty() { INDEX } else { name };
    Some(match ASSETS.iter().find(|asset| asset.path == wanted) {
        Some(asset) => file(asset, method, headers),
        None => plain(StatusCode::NOT_FOUND, "the page has no such file\n"),
    })
}

/// Returns a response with a file, or 304 if the client has it.
fn file(asset: &Asset, method: &Method, headers: &HeaderMap) -> Response<Bytes> {
    let mut response = plain(StatusCode::OK, "");
    let own = response.headers_mut();
    own.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.media_type));
    own.insert(header::ETAG, HeaderValue::from_static(asset.etag));
    if has_tag(headers, asset.etag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    let body = if accepts_gzip(headers) {
        own.insert(header::CONTENT_ENCODING, HeaderValue::from_static(GZIP));
        Bytes::from_static(asset.gzip)
    } else {
        decompressed(asset)
    };
    own.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    if *method == Method::GET {
        *response.body_mut() = body;
    }
    response
}

fn plain(status: StatusCode, text: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(text.as_bytes()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn has_tag(headers: &HeaderMap, tag: &str) -> bool {
    let named = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let mut tags = named.unwrap_or_default().split(',').map(str::trim);
    tags.any(|named| named == "*" || named.trim_start_matches("W/") == tag)
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let all = headers.get_all(header::ACCEPT_ENCODING).iter();
    let mut words = all.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
    words.any(|word| {
        let mut parts = word.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(GZIP));
        is_gzip && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

/// Returns the text of a file, for clients that do not accept gzip.
fn decompressed(asset: &Asset) -> Bytes {
    let mut text = vec![];
    // Reading from memory what the build has compressed cannot fail.
    let _ = GzDecoder::new(asset.gzip).read_to_end(&mut text);
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All files together, compressed.
    const ALL_BYTES_MAX: usize = 300_000;

    fn get(path: &str, headers: &[(HeaderName, &'static str)]) -> Option<Response<Bytes>> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(name, HeaderValue::from_static(value));
        }
        answer(&Method::GET, path, &map)
    }

    fn header_of<'r>(response: &'r Response<Bytes>, name: &str) -> &'r str {
        response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    #[test]
    fn the_page_is_small() {
        let bytes: usize = ASSETS.iter().map(|asset| asset.gzip.len()).sum();
        assert!(bytes <= ALL_BYTES_MAX, "{bytes} bytes");
    }

    #[test]
    fn files_are_served_compressed_or_not_with_strict_headers() {
        let plain = get("/ui/", &[]).expect("the page");
        assert_eq!(plain.status(), 200);
        assert_eq!(header_of(&plain, "content-type"), "text/html; charset=utf-8");
        assert_eq!(header_of(&plain, "content-security-policy"), CONTENT_SECURITY_POLICY);
        assert_eq!(header_of(&plain, "x-content-type-options"), "nosniff");
        assert_eq!(header_of(&plain, "referrer-policy"), "no-referrer");
        assert!(plain.body().starts_with(b"<!doctype html>"));
        assert_eq!(header_of(&plain, "content-length"), plain.body().len().to_string());

        let packed =
            get("/ui/index.html", &[(header::ACCEPT_ENCODING, "br, gzip")]).expect("the page");
        assert_eq!(header_of(&packed, "content-encoding"), "gzip");
        let mut text = vec![];
        GzDecoder::new(packed.body().as_ref()).read_to_end(&mut text).expect("gzip");
        assert_eq!(text, plain.body().as_ref());

        let refused = get("/ui/", &[(header::ACCEPT_ENCODING, "gzip;q=0")]).expect("the page");
        assert_eq!(refused.body(), plain.body());
    }

    #[test]
    fn a_client_that_has_a_file_gets_no_body() {
        let first = get("/ui/style.css", &[]).expect("a file");
        let tag = ASSETS.iter().find(|asset| asset.path == "style.css").expect("a file").etag;
        assert_eq!(header_of(&first, "etag"), tag);
        let again = get("/ui/style.css", &[(header::IF_NONE_MATCH, tag)]).expect("an answer");
        assert_eq!((again.status().as_u16(), again.body().len()), (304, 0));
        let head = answer(&Method::HEAD, "/ui/style.css", &HeaderMap::new()).expect("an answer");
        assert_eq!(header_of(&head, "content-length"), first.body().len().to_string());
        assert!(head.body().is_empty());
    }

    #[test]
    fn other_paths_and_methods_get_nothing() {
        for (method, path, expected) in [
            (Method::GET, "/ui", Some(301)),
            (Method::GET, "/ui/none.js", Some(404)),
            (Method::GET, "/ui/../version", Some(404)),
            (Method::POST, "/ui/", Some(405)),
            (Method::GET, "/uix", None),
            (Method::GET, "/api", None),
        ] {
            let response = answer(&method, path, &HeaderMap::new());
            let status = response.map(|response| response.status().as_u16());
            assert_eq!(status, expected, "{method} {path}");
        }
    }
}
