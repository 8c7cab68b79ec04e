//! Builds responses: status, headers and body.

use crate::body::{Body, GzipBody};
use crate::negotiate::Encoding;
use crate::request_head::RequestHead;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Body as _;
use hyper::ext::ReasonPhrase;
use keelson_egress::StreamedResponse;
use keelson_meta::status::quote;
use keelson_meta::{Failure, Feature, SmallSet, Str, Value};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::{cbor, json, proto, yaml};
use std::fmt::Display;

/// A response.
pub(crate) type Reply = Response<Body>;

/// Most characters of all warnings of a response, and of each one if the total is exceeded.
const ALL_WARNINGS_CHARACTERS_MAX: usize = 4096;
const WARNING_CHARACTERS_MAX: usize = 256;

/// Smallest response that is compressed, in bytes (upstream's `defaultGzipThresholdBytes`).
const GZIP_BYTES_MIN: u64 = 128 << 10;

/// How a response gets the headers that every response of this server has; an extension of the
/// response. Without it they replace what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnHeaders {
    /// They stand before those of the far side that has answered.
    First,
    /// It gets none, as upstream, where such an answer is written to the bare connection.
    None,
}

/// Creates a response with a body of a media type.
pub(crate) fn with_body(code: u16, media_type: &'static str, body: Body) -> Reply {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// Compresses a response that is long enough, if the client accepts gzip.
pub(crate) fn compress(head: &RequestHead, reply: Reply) -> Reply {
    let accepted = head.header(header::ACCEPT_ENCODING).unwrap_or_default();
    let size = reply.body().estimated_bytes();
    let is_on = head.features.is_on(Feature::APIResponseCompression);
    if !is_on || size <= GZIP_BYTES_MIN || !accepted.split(',').any(|word| word.trim() == "gzip") {
        return reply;
    }
    let mut reply = reply.map(|body| Body::Gzip(Box::new(GzipBody::new(body))));
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    reply
}

/// Passes the response of another server on.
pub(crate) fn passed_on(answer: Response<StreamedResponse>) -> Reply {
    answer.map(Body::remote)
}

/// Creates a plain text response.
pub(crate) fn text(code: u16, text: &str) -> Reply {
    let body = Body::from(text.as_bytes().to_vec());
    let mut response = with_body(code, "text/plain; charset=utf-8", body);
    forbid_sniffing(&mut response);
    response
}

/// Adds that a browser must not guess another media type.
fn forbid_sniffing(reply: &mut Reply) {
    let nosniff = HeaderValue::from_static("nosniff");
    reply.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
}

/// Creates a 204 response.
pub(crate) fn no_content() -> Reply {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Creates upstream's plain 404 page for unknown paths.
pub(crate) fn no_such_page() -> Reply {
    text(404, "404 page not found\n")
}

/// Creates the response of upstream's aggregator while the server of an APIService is unavailable.
pub(crate) fn service_unavailable() -> Reply {
    text(503, "service unavailable\n")
}

/// Creates the response of Go's server to a malformed request; the connection is closed.
pub(crate) fn bad_request(line: &'static str) -> Reply {
    let mut reply = text(400, line);
    reply.headers_mut().remove(header::X_CONTENT_TYPE_OPTIONS);
    if let Some(phrase) = line.strip_prefix("400 ") {
        reply.extensions_mut().insert(ReasonPhrase::from_static(phrase.as_bytes()));
    }
    close(&mut reply);
    reply
}

/// Creates upstream's plain 500 for a request that cannot be handled at all.
pub(crate) fn internal_error(head: &RequestHead, why: &dyn Display) -> Reply {
    let uri = head.uri.path_and_query().map_or("/", |uri| uri.as_str());
    text(500, &format!("Internal Server Error: {}: {why}\n", quote(uri)))
}

/// Creates upstream's 429 for too many requests in flight.
pub(crate) fn too_many_requests(retry_after_seconds: u64) -> Reply {
    let mut reply = text(429, "Too many requests, please try again later.\n");
    reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(retry_after_seconds));
    reply
}

/// Drops the body of an answer to HEAD; its length stays.
pub(crate) fn drop_body(reply: &mut Reply) {
    let body = std::mem::replace(reply.body_mut(), Body::empty());
    if let Some(bytes) = body.size_hint().exact() {
        let headers = reply.headers_mut();
        headers.entry(header::CONTENT_LENGTH).or_insert(HeaderValue::from(bytes));
    }
}

/// Adds `Connection: close`.
pub(crate) fn close(reply: &mut Reply) {
    reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
}

/// Creates the response of a failure. A client that accepts none of its forms gets indented JSON.
pub(crate) fn failure(head: &RequestHead, failure: &Failure) -> Reply {
    let mut response = match head.accepted_for_errors() {
        Ok(encoding) => status(head, failure.code, encoding, failure.to_value()),
        Err(_) => indented(failure.code, &failure.to_value()),
    };
    let retry = failure.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if retry > 0 {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(retry));
    }
    warn(&mut response, &failure.warnings);
    response
}

/// Creates the response to a request that the authorizers do not permit (apiserver
/// `handlers/responsewriters/errors.go`).
pub(crate) fn not_permitted(head: &RequestHead, why: &Failure) -> Reply {
    let mut reply = failure(head, why);
    if why.code == 403 {
        forbid_sniffing(&mut reply);
    }
    reply
}

/// Creates a response with a `Status`.
pub(crate) fn status(head: &RequestHead, code: u16, encoding: Encoding, body: Value) -> Reply {
    typed_value(head, code, encoding, &body)
}

/// Creates a response with a discovery document.
pub(crate) fn document(head: &RequestHead, encoding: Encoding, body: &Value) -> Reply {
    typed_value(head, 200, encoding, body)
}

/// Creates a response with a value of a meta/v1 kind, whose schema protobuf needs.
fn typed_value(head: &RequestHead, code: u16, encoding: Encoding, body: &Value) -> Reply {
    if encoding != Encoding::Protobuf {
        return value(head, code, encoding, body);
    }
    let object = keelson_meta::Object::from_value(body.clone()).unwrap_or_default();
    let kind = keelson_meta::GroupVersionKind::new("", "v1", object.kind().to_owned());
    let schema = Catalogue::shared().schema(&kind).map(|mut schema| {
        schema.gvk.version = Str::new(object.api_version());
        schema
    });
    let mut out = vec![];
    match schema.map(|schema| proto::encode(&schema, &object, &mut out)) {
        Some(Ok(())) => encoded(head.pretty(), code, encoding, Bytes::from(out)),
        _ => value(head, code, Encoding::Json, body),
    }
}

/// Creates a response with a JSON value; protobuf is not supported.
pub(crate) fn value(head: &RequestHead, code: u16, encoding: Encoding, value: &Value) -> Reply {
    let mut text = vec![];
    if encoding == Encoding::Cbor {
        cbor::write_body(value, &mut text);
    } else {
        json::write_value(value, &mut text);
    }
    encoded(head.pretty(), code, encoding, Bytes::from(text))
}

/// Creates a response with JSON that is always indented.
pub(crate) fn indented(code: u16, value: &Value) -> Reply {
    let mut text = vec![];
    json::write_value(value, &mut text);
    with_body(code, Encoding::Json.media_type(), Body::Whole(Some(pretty(&text))))
}

/// Creates a response with an encoded object or list. `text` is JSON if the encoding is JSON or
/// YAML, otherwise the bytes to send. Only JSON can be pretty.
pub(crate) fn encoded(is_pretty: bool, code: u16, encoding: Encoding, text: Bytes) -> Reply {
    let body = match encoding {
        Encoding::Yaml => {
            let mut out = String::new();
            if let Ok(parsed) = json::parse(&text) {
                yaml::write(&parsed.value, &mut out);
            }
            Bytes::from(out)
        }
        Encoding::Protobuf | Encoding::Cbor => text,
        Encoding::Json if is_pretty => pretty(&text),
        Encoding::Json => {
            let mut out = Vec::with_capacity(text.len() + 1);
            out.extend_from_slice(&text);
            out.push(b'\n');
            Bytes::from(out)
        }
    };
    with_body(code, encoding.media_type(), Body::Whole(Some(body)))
}

/// Indents JSON by two spaces per level, like Go.
fn pretty(text: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(text.len() * 2);
    let mut depth = 0usize;
    let mut in_string = false;
    let mut escaped = false;
    let line = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', depth * 2));
    };
    for (i, byte) in text.iter().enumerate() {
        if in_string {
            out.push(*byte);
            in_string = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
            continue;
        }
        let next = text.get(i + 1);
        match byte {
            b'"' => {
                in_string = true;
                out.push(b'"');
            }
            b'{' | b'[' => {
                out.push(*byte);
                depth += 1;
                if !matches!(next, Some(b'}' | b']')) {
                    line(&mut out, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if !matches!(text.get(i.wrapping_sub(1)), Some(b'{' | b'[')) {
                    line(&mut out, depth);
                }
                out.push(*byte);
            }
            b',' => {
                out.push(b',');
                line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            b' ' | b'\n' | b'\t' | b'\r' => {}
            other => out.push(*other),
        }
    }
    Bytes::from(out)
}

/// Adds Warning headers (RFC 7234 with the agent `-`), each text once. If the total is too long,
/// each is truncated, and those beyond the total are left out. Texts that are empty or have control
/// characters are left out, as in upstream.
pub(crate) fn warn(reply: &mut Reply, warnings: &[Str]) {
    let mut seen: SmallSet<&str> = SmallSet::new();
    let is_header = |text: &&str| !text.is_empty() && !text.chars().any(char::is_control);
    let texts = warnings.iter().map(Str::as_str).filter(is_header);
    let mut distinct = texts.filter(|text| seen.insert(text));
    let mut texts: Vec<&str> = vec![];
    let mut characters = 0;
    for text in distinct.by_ref() {
        texts.push(text);
        characters += text.chars().count();
        if characters > ALL_WARNINGS_CHARACTERS_MAX {
            break;
        }
    }
    if characters <= ALL_WARNINGS_CHARACTERS_MAX {
        return texts.into_iter().for_each(|text| add_warning(reply, text));
    }
    characters = 0;
    for text in texts.into_iter().chain(distinct) {
        let end = text.char_indices().nth(WARNING_CHARACTERS_MAX).map_or(text.len(), |(at, _)| at);
        let text = &text[..end];
        add_warning(reply, text);
        characters += text.chars().count();
        if characters >= ALL_WARNINGS_CHARACTERS_MAX {
            return;
        }
    }
}

fn add_warning(reply: &mut Reply, text: &str) {
    if let Ok(value) = HeaderValue::from_str(&format!("299 - {}", quote(text))) {
        reply.headers_mut().append(header::WARNING, value);
    }
}

/// Adds a Warning header in front of all others.
pub(crate) fn warn_first(reply: &mut Reply, warning: &str) {
    let headers = reply.headers_mut();
    let others: Vec<HeaderValue> = headers.get_all(header::WARNING).iter().cloned().collect();
    headers.remove(header::WARNING);
    warn(reply, &[Str::new(warning)]);
    for other in others {
        reply.headers_mut().append(header::WARNING, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_deduplicated_and_truncated() {
        let sent = |texts: &[String]| -> Vec<usize> {
            let texts: Vec<Str> = texts.iter().map(Str::new).collect();
            let mut reply = text(200, "");
            warn(&mut reply, &texts);
            let headers = reply.headers().get_all(header::WARNING).iter();
            headers.map(|value| value.len() - "299 - \"\"".len()).collect()
        };
        let long = |first: char| format!("{first}{}", "x".repeat(999));
        assert_eq!(sent(&["a".into(), "b".into(), "a".into()]), [1, 1]);
        assert_eq!(sent(&["".into(), "a\nb".into(), "c".into()]), [1]);
        assert_eq!(sent(&['a', 'b', 'c', 'd', 'd'].map(long)), [1000; 4]);
        assert_eq!(sent(&['a', 'b', 'c', 'd', 'e'].map(long)), [256; 5]);
        let many: Vec<String> = (10..99).map(|at| format!("{at}{}", "x".repeat(98))).collect();
        assert_eq!(sent(&many), [100; 41]);
    }

    #[test]
    fn pretty_json_is_indented_like_go() {
        let text = br#"{"a":[1,{"b":"x, {y}: \"z\""}],"c":{},"d":[]}"#;
        let want = "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"x, {y}: \\\"z\\\"\"\n    }\n  ],\n  \
                    \"c\": {},\n  \"d\": []\n}";
        assert_eq!(pretty(text), want);
    }
}
