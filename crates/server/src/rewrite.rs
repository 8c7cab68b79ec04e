//! Rewrites the links in the answers of proxied servers, so that they lead through this server
//! again (apimachinery `util/proxy/transport.go`).

use crate::body::Body;
use crate::go_url;
use crate::header_lists;
use crate::request_head::RequestHead;
use crate::respond::{self, Reply};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::{DeflateDecoder, GzDecoder};
use flate2::write::{DeflateEncoder, GzEncoder};
use http::{HeaderMap, HeaderName, HeaderValue, Response, Uri, header};
use http_body_util::BodyExt;
use keelson_egress::StreamedResponse;
use keelson_registry::hooks::Location;
use std::io::{self, Read, Write};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Largest HTML page whose links are rewritten, also when it is decompressed and when its links
/// have grown. A larger one is refused, because half a page would be worse.
const PAGE_BYTES_MAX: usize = 8 << 20;
/// Most bytes of all pages together, as they have arrived. One more is refused.
const PAGES_BYTES_MAX: usize = 32 << 20;
/// Most pages that are rewritten at once: each may take up its longest form three times.
const REWRITTEN_MAX: usize = 1;

/// The memory for HTML pages whose links are rewritten.
#[derive(Debug)]
pub(crate) struct Pages {
    /// For the bytes that have arrived.
    bytes: Arc<Semaphore>,
    turns: Semaphore,
}

impl Default for Pages {
    fn default() -> Pages {
        let bytes = Arc::new(Semaphore::new(PAGES_BYTES_MAX));
        Pages { bytes, turns: Semaphore::new(REWRITTEN_MAX) }
    }
}

impl Pages {
    /// Reads a page and rewrites its links, on a thread of its own.
    async fn rewrite(
        &self,
        links: Links,
        encoding: Encoding,
        mut body: StreamedResponse,
    ) -> io::Result<Vec<u8>> {
        let too_many = || io::Error::other("too many pages are rewritten");
        let mut page = vec![];
        let mut reserved = self.bytes.clone().try_acquire_many_owned(0).map_err(|_| too_many())?;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            if page.len() + data.len() > PAGE_BYTES_MAX {
                return Err(too_large());
            }
            let bytes = u32::try_from(data.len()).map_err(io::Error::other)?;
            let more = self.bytes.clone().try_acquire_many_owned(bytes);
            reserved.merge(more.map_err(|_| too_many())?);
            page.extend_from_slice(&data);
        }
        let _turn = self.turns.acquire().await.map_err(io::Error::other)?;
        let work = move || rewritten(&links, encoding, &page);
        tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
    }
}

fn too_large() -> io::Error {
    io::Error::other("the page is too large")
}

/// The path that the client asked for.
const X_FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
/// The host and the scheme of a server behind this one.
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Elements and those of their attributes that are links.
const LINKS: [(&str, &[&str]); 22] = [
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
];
/// More of them.
const MORE_LINKS: [(&str, &[&str]); 4] = [
    ("script", &["src"]),
    ("source", &["src"]),
    ("track", &["src"]),
    ("video", &["poster", "src"]),
];

/// How links are rewritten, and what the far side is told of the path to it.
pub(crate) struct Links {
    /// The decoded path in front of that of the far side.
    prefix: String,
    /// The host and port of the far side.
    far_host: String,
    /// The host that the far side is asked for.
    asked_host: String,
    /// The host, reached by HTTPS, of rewritten links; `None`: they have none.
    host: Option<String>,
}

impl Links {
    /// Returns the rules for an answer to a request that went to a node, a pod or a service.
    pub fn new(head: &RequestHead, location: &Location) -> Links {
        let path = go_url::decode_path(head.uri.path());
        let prefix = path.strip_suffix(&go_url::decode_path(&location.path)).unwrap_or(&path);
        let Location { host, port, .. } = location;
        Links {
            prefix: prefix.to_owned(),
            far_host: if port.is_empty() { host.clone() } else { format!("{host}:{port}") },
            asked_host: head.header(header::HOST).unwrap_or_default().to_owned(),
            host: None,
        }
    }

    /// Returns the rules for an answer of a server behind this one. Its links lead to it, as
    /// upstream.
    pub fn of_server(authority: &str) -> Links {
        Links {
            prefix: String::new(),
            far_host: authority.to_owned(),
            asked_host: authority.to_owned(),
            host: Some(authority.to_owned()),
        }
    }

    /// Adds what the far side is told of the client's request, whose path is `path` there.
    pub fn forwarded(&self, headers: &mut HeaderMap, path: &str) {
        let mut uri = go_url::join(&self.prefix, path);
        if path.ends_with('/') {
            uri.push('/');
        }
        let mut set = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        set(X_FORWARDED_URI, &uri);
        if let Some(host) = &self.host {
            set(X_FORWARDED_HOST, host);
            set(X_FORWARDED_PROTO, "https");
        }
    }

    /// Returns the link that leads through this server; others are returned unchanged.
    fn rewrite(&self, link: &str) -> String {
        let Ok(uri) = Uri::try_from(link) else { return link.to_owned() };
        let host = uri.authority().map_or("", |authority| authority.as_str());
        let is_other = !host.is_empty() && host != self.far_host && host != self.asked_host;
        let is_relative = !link.contains("://") && !link.starts_with('/');
        if is_other || is_relative {
            return link.to_owned();
        }
        let mut out = if !host.is_empty() && host == self.asked_host {
            let scheme = uri.scheme_str().map_or(String::new(), |scheme| format!("{scheme}:"));
            format!("{scheme}//{host}")
        } else {
            self.host.as_ref().map_or(String::new(), |host| format!("https://{host}"))
        };
        let path = uri.path();
        let decoded = go_url::decode_path(path);
        if decoded.starts_with(&self.prefix) {
            out.push_str(path);
        } else {
            out.push_str(&go_url::escape_path(&go_url::join(&self.prefix, &decoded)));
            if path.ends_with('/') {
                out.push('/');
            }
        }
        if let Some(query) = uri.query() {
            out = format!("{out}?{query}");
        }
        if let Some((_, fragment)) = link.split_once('#') {
            out = format!("{out}#{fragment}");
        }
        out
    }
}

/// Makes the answer to the client: `Location` and the links of HTML pages are rewritten.
pub(crate) async fn answer(
    pages: &Pages,
    links: Links,
    mut answer: Response<StreamedResponse>,
) -> Reply {
    if let Some(location) = header_lists::text(answer.headers(), header::LOCATION) {
        if let Ok(value) = HeaderValue::from_str(&links.rewrite(location)) {
            answer.headers_mut().insert(header::LOCATION, value);
        }
        return respond::passed_on(answer);
    }
    let media_type = header_lists::text(answer.headers(), header::CONTENT_TYPE).unwrap_or_default();
    if media_type.split(';').next().unwrap_or_default().trim() != "text/html" {
        return respond::passed_on(answer);
    }
    let encoding = match header_lists::text(answer.headers(), header::CONTENT_ENCODING) {
        None | Some("") => Encoding::None,
        Some("gzip") => Encoding::Gzip,
        Some("deflate") => Encoding::Deflate,
        // Upstream, too, leaves what it cannot read as it is.
        Some(_) => return respond::passed_on(answer),
    };
    let (mut parts, body) = answer.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    let page = pages.rewrite(links, encoding, body).await;
    let body = match page {
        Ok(page) => Body::Whole(Some(Bytes::from(page))),
        Err(error) => {
            tracing::debug!(%error, "the page of a proxied server cannot be rewritten");
            Body::Broken
        }
    };
    Reply::from_parts(parts, body)
}

/// How a page is compressed.
#[derive(Clone, Copy)]
enum Encoding {
    None,
    Gzip,
    Deflate,
}

fn rewritten(links: &Links, encoding: Encoding, page: &[u8]) -> io::Result<Vec<u8>> {
    let mut inflated = vec![];
    let plain = match encoding {
        Encoding::None => page,
        Encoding::Gzip => inflate(GzDecoder::new(page), &mut inflated)?,
        Encoding::Deflate => inflate(DeflateDecoder::new(page), &mut inflated)?,
    };
    let html = rewrite_html(links, plain)?;
    match encoding {
        Encoding::None => Ok(html),
        Encoding::Gzip => {
            let mut encoder = GzEncoder::new(vec![], Compression::default());
            encoder.write_all(&html)?;
            encoder.finish()
        }
        Encoding::Deflate => {
            let mut encoder = DeflateEncoder::new(vec![], Compression::default());
            encoder.write_all(&html)?;
            encoder.finish()
        }
    }
}

/// Decompresses a page, as long as it is not too large.
fn inflate(decoder: impl Read, inflated: &mut Vec<u8>) -> io::Result<&[u8]> {
    decoder.take(PAGE_BYTES_MAX as u64 + 1).read_to_end(inflated)?;
    if inflated.len() > PAGE_BYTES_MAX { Err(too_large()) } else { Ok(inflated) }
}

/// Rewrites the links in the start tags of a page, each byte of which is looked at once. What is
/// not a start tag stays as it is, and so does all that follows a tag without an end.
fn rewrite_html(links: &Links, page: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(page.len());
    let mut rest = page;
    while let Some(at) = rest.iter().position(|byte| *byte == b'<') {
        let (before, tag) = rest.split_at(at);
        out.extend_from_slice(before);
        let end = if tag.get(1).is_some_and(u8::is_ascii_alphabetic) {
            let Some(parsed) = Tag::parse(tag) else {
                rest = tag;
                break;
            };
            parsed.write(links, tag, &mut out);
            parsed.end
        } else {
            let end = if tag.starts_with(b"<!--") {
                let end = tag.windows(3).position(|three| three == b"-->");
                end.map_or(tag.len(), |end| end + 3)
            } else {
                1
            };
            out.extend_from_slice(&tag[..end]);
            end
        };
        if out.len() > PAGE_BYTES_MAX {
            return Err(too_large());
        }
        rest = &tag[end..];
    }
    out.extend_from_slice(rest);
    Ok(out)
}

/// A start tag: positions in the text that begins with it.
struct Tag {
    /// The attributes' values that are links, in order.
    values: Vec<std::ops::Range<usize>>,
    /// The place after the tag.
    end: usize,
}

impl Tag {
    /// Parses the start tag with which the text begins, `<` and a letter; `None`: it has no end.
    fn parse(text: &[u8]) -> Option<Tag> {
        let is_name =
            |byte: &u8| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'\x0c' | b'/' | b'>');
        let name_end = 1 + text.get(1..)?.iter().take_while(|byte| is_name(byte)).count();
        let name = String::from_utf8_lossy(&text[1..name_end]).to_ascii_lowercase();
        let mut all = LINKS.iter().chain(&MORE_LINKS);
        let of_element = all.find(|(element, _)| *element == name).map_or(&[][..], |(_, of)| of);
        let mut values = vec![];
        let mut at = name_end;
        loop {
            let blank = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'\x0c' | b'/');
            at += text[at..].iter().take_while(blank).count();
            match text.get(at)? {
                b'>' => return Some(Tag { values, end: at + 1 }),
                _ => {
                    let key = text[at..].iter().take_while(|byte| is_name(byte) && **byte != b'=');
                    let key_end = at + key.count().max(1);
                    let key = String::from_utf8_lossy(&text[at..key_end]).to_ascii_lowercase();
                    let (value, after) = attribute_value(text, key_end)?;
                    if of_element.contains(&key.as_str())
                        && let Some(value) = value
                    {
                        values.push(value);
                    }
                    at = after;
                }
            }
        }
    }

    fn write(&self, links: &Links, text: &[u8], out: &mut Vec<u8>) {
        let mut from = 0;
        for value in &self.values {
            out.extend_from_slice(&text[from..value.start]);
            match std::str::from_utf8(&text[value.clone()]) {
                Ok(link) => out.extend_from_slice(links.rewrite(link).as_bytes()),
                Err(_) => out.extend_from_slice(&text[value.clone()]),
            }
            from = value.end;
        }
        out.extend_from_slice(&text[from..self.end]);
    }
}

/// Returns the value of an attribute whose name ends at a place, and the place after it. `None` if
/// the text ends before.
fn attribute_value(text: &[u8], at: usize) -> Option<(Option<std::ops::Range<usize>>, usize)> {
    let blank = |byte: &&u8| byte.is_ascii_whitespace();
    let equals = at + text[at..].iter().take_while(blank).count();
    if text.get(equals)? != &b'=' {
        return Some((None, at));
    }
    let start = equals + 1 + text[equals + 1..].iter().take_while(blank).count();
    match text.get(start)? {
        quote @ (b'"' | b'\'') => {
            let length = text[start + 1..].iter().position(|byte| byte == quote)?;
            let end = start + 1 + length;
            Some((Some(start + 1..end), end + 1))
        }
        _ => {
            let length = text[start..]
                .iter()
                .position(|byte| byte.is_ascii_whitespace() || *byte == b'>')?;
            Some((Some(start..start + length), start + length))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> Links {
        Links {
            prefix: "/api/v1/namespaces/n/services/s/proxy".to_owned(),
            far_host: "10.1.2.3:80".to_owned(),
            asked_host: "127.0.0.1:6443".to_owned(),
            host: None,
        }
    }

    #[test]
    fn links_lead_through_the_proxy() {
        let prefix = "/api/v1/namespaces/n/services/s/proxy";
        for (link, expected) in [
            ("/a/b?c=d#e", format!("{prefix}/a/b?c=d#e")),
            ("/", format!("{prefix}/")),
            ("a/b", "a/b".to_owned()),
            ("http://10.1.2.3:80/x", format!("{prefix}/x")),
            ("http://other/x", "http://other/x".to_owned()),
            ("https://127.0.0.1:6443/x", format!("https://127.0.0.1:6443{prefix}/x")),
            (&format!("{prefix}/x"), format!("{prefix}/x")),
            (&format!("http://10.1.2.3:80{prefix}/x"), format!("{prefix}/x")),
            ("/a//b%20c/../d/", format!("{prefix}/a/d/")),
            ("mailto:a@b", "mailto:a@b".to_owned()),
        ] {
            assert_eq!(links().rewrite(link), expected, "{link}");
        }
    }

    #[test]
    fn links_of_a_server_behind_this_one_lead_to_it() {
        // The answers of a kube-apiserver.
        let links = Links::of_server("10.1.2.3:443");
        for (link, expected) in [
            ("/abs/x?a=b", "https://10.1.2.3:443/abs/x?a=b"),
            ("https://10.1.2.3:443/full", "https://10.1.2.3:443/full"),
            ("rel", "rel"),
            ("https://other/x", "https://other/x"),
        ] {
            assert_eq!(links.rewrite(link), expected, "{link}");
        }
    }

    #[test]
    fn only_links_of_pages_change() {
        let check = |page: &str, expected: &str| {
            let expected = expected.replace("P/", "/api/v1/namespaces/n/services/s/proxy/");
            let got = rewrite_html(&links(), page.as_bytes()).expect(page);
            assert_eq!(String::from_utf8_lossy(&got), expected, "{page}");
        };
        check("<a href=\"/x\">/x</a>", "<a href=\"P/x\">/x</a>");
        check("<A HREF=/x class='/y'>", "<A HREF=P/x class='/y'>");
        check("<img src='/i' usemap='/m'/>", "<img src='P/i' usemap='P/m'/>");
        check("<!-- <a href=\"/x\"> --><p>1 < 2", "<!-- <a href=\"/x\"> --><p>1 < 2");
        check("<a href=\"/x", "<a href=\"/x");
        check("<td href=\"/x\">", "<td href=\"/x\">");
    }

    /// Pages for which a second look at each byte would take hours.
    #[test]
    fn each_byte_of_a_page_is_looked_at_once() {
        for piece in ["<a ", "<a href=\"", "<", "<a\u{e9}", "<!", "<!--", "<a href='", "<a href=x"]
        {
            let page = piece.repeat((4 << 20) / piece.len());
            let got = rewrite_html(&links(), page.as_bytes()).expect(piece);
            assert_eq!(got.len(), page.len(), "{piece}");
        }
        let invalid = b"<a\xff".repeat(1 << 20);
        assert_eq!(rewrite_html(&links(), &invalid).expect("unchanged"), invalid);
    }

    #[test]
    fn links_do_not_make_a_page_longer_than_it_may_be() {
        let piece = b"<a href=/>";
        let page = piece.repeat(PAGE_BYTES_MAX / 2 / piece.len());
        let error = rewrite_html(&links(), &page).expect_err("it is too large");
        assert_eq!(error.to_string(), "the page is too large");
    }

    #[test]
    fn a_compressed_page_is_no_longer_than_others() {
        let compress = |bytes: usize| {
            let mut encoder = GzEncoder::new(vec![], Compression::fast());
            encoder.write_all(&vec![b'a'; bytes]).expect("compressed");
            encoder.finish().expect("compressed")
        };
        let rewrite = |page: &[u8]| rewritten(&links(), Encoding::Gzip, page);
        assert!(rewrite(&compress(PAGE_BYTES_MAX)).is_ok());
        let error = rewrite(&compress(PAGE_BYTES_MAX + 1)).expect_err("it is too large");
        assert_eq!(error.to_string(), "the page is too large");
    }
}
