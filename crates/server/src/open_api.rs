//! The OpenAPI documents: of this server, and of those behind it.

use crate::app::App;
use crate::behind;
use crate::body::Body;
use crate::request_head::RequestHead;
use crate::respond::{self, Reply};
use bytes::Bytes;
use http::header;
use keelson_meta::Failure;
use keelson_resources::{ConvertedDocument, RemoteGroup, RemoteVersion};
use keelson_schema::openapi::{OpenApi, RemoteSpec};
use std::sync::Arc;

/// Accepted, but the response is JSON.
const V3_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Responds with `/openapi/v2`, `/openapi/v3` and the documents below it. Documents are generated
/// on request, and concurrent responses share them.
pub(crate) async fn answer(
    app: &Arc<App>,
    head: &RequestHead,
    rest: &[&str],
) -> Result<Reply, Failure> {
    match rest {
        ["v2"] => Ok(v2(app, head).await),
        ["v3"] => Ok(v3_index(app, head)),
        ["v3", path @ ..] => v3(app, head, path).await,
        _ => Ok(respond::no_such_page()),
    }
}

/// Returns the versions of groups that other servers serve.
fn remote_versions(groups: &[RemoteGroup]) -> impl Iterator<Item = (&RemoteGroup, &RemoteVersion)> {
    groups.iter().flat_map(|group| group.versions.iter().map(move |version| (group, version)))
}

/// Those of other servers are merged (kube-aggregator).
async fn v2(app: &Arc<App>, head: &RequestHead) -> Reply {
    let accept = head.header(header::ACCEPT).unwrap_or_default();
    let Some(is_protobuf) = accepts_v2(accept) else { return not_acceptable() };
    let (name, media_type) =
        if is_protobuf { ("v2 protobuf", V2_PROTOBUF) } else { ("v2", "application/json") };
    // The v2 document changes if one of the v3 documents does.
    let mut hashed = app.registry.open_api_index().hash;
    let remote = app.registry.remote_groups();
    remote_versions(&remote).for_each(|(_, version)| hashed.push_str(&version.documents.v2_hash));
    let hash = OpenApi::hash_of(hashed.as_bytes());
    let name = format!("{name} {hash}");
    let shared = app.clone();
    let make = move || {
        let registry = &shared.registry;
        let remote: Vec<&RemoteSpec> =
            remote_versions(&remote).map(|(_, version)| &version.documents.v2).collect();
        let document = |documents: &OpenApi<'_>| match is_protobuf {
            true => documents.v2_document_protobuf(),
            false => documents.v2_document(),
        };
        let api = registry.api();
        Some(api.documents_with_remote(&registry.catalogue, &remote, document))
    };
    let text = app.state.documents.text(&name, make).await.unwrap_or_default();
    tagged(head, text, media_type, &hash, false)
}

fn v3_index(app: &App, head: &RequestHead) -> Reply {
    let mut index = app.registry.open_api_index();
    let remote = app.registry.remote_groups();
    let documents: Vec<(String, String)> = remote_versions(&remote)
        .filter_map(|(group, version)| {
            let path = format!("apis/{}/{}", group.name, version.name);
            let documents = &version.documents;
            let own = documents.converted.as_ref().map(|converted| url_of(&path, &converted.hash));
            let url = documents.v3_url.as_ref().map(|url| url.to_string()).or(own)?;
            Some((path, url))
        })
        .collect();
    if !documents.is_empty() {
        index.text = OpenApi::v3_index_with(&index.text, documents).into();
        index.hash = OpenApi::hash_of(&index.text);
    }
    tagged(head, index.text, "text/plain; charset=utf-8", &index.hash, false)
}

/// Responds with the document of a path like `apis/GROUP/VERSION`.
async fn v3(app: &Arc<App>, head: &RequestHead, path: &[&str]) -> Result<Reply, Failure> {
    if let ["apis", group, version] = path
        && let Some(remote) = app.registry.remote_version(group, version)
    {
        return match &remote.documents.converted {
            Some(document) => Ok(converted(head, &path.join("/"), document)),
            None => behind::document(app, head, &remote).await,
        };
    }
    let accept = head.header(header::ACCEPT).unwrap_or_default();
    if !accepts(accept, &["application/json", V3_PROTOBUF]) {
        return Ok(not_acceptable());
    }
    let group = path.get(1).copied().unwrap_or_default().to_owned();
    let path = path.join("/");
    let api = app.registry.api();
    let catalogue = &app.registry.catalogue;
    let hash = api.documents_of(catalogue, &group, |documents| documents.v3_hash(&path));
    let named = head.query.get("hash");
    if named.is_some_and(|named| named != hash) {
        return Ok(moved(&path, &hash));
    }
    let name = format!("{path} {hash}");
    let shared = app.clone();
    let make = move || {
        let registry = &shared.registry;
        let api = registry.api();
        let catalogue = &registry.catalogue;
        api.documents_of(catalogue, &group, |documents| documents.v3_document(&path))
    };
    match app.state.documents.text(&name, make).await {
        Some(text) => Ok(tagged(head, text, "application/json", &hash, named.is_some())),
        None => {
            let mut reply = respond::no_content();
            *reply.status_mut() = http::StatusCode::NOT_FOUND;
            Ok(reply)
        }
    }
}

/// Responds with the v3 document that is made for a server that has v2 only.
fn converted(head: &RequestHead, path: &str, document: &ConvertedDocument) -> Reply {
    let accept = head.header(header::ACCEPT).unwrap_or_default();
    if !accepts(accept, &["application/json", V3_PROTOBUF]) {
        return not_acceptable();
    }
    let named = head.query.get("hash");
    match named.is_some_and(|named| *named != *document.hash) {
        true => moved(path, &document.hash),
        false => {
            let text = document.text.clone();
            tagged(head, text, "application/json", &document.hash, named.is_some())
        }
    }
}

/// Returns the URL of the v3 document of a path.
fn url_of(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}

/// Sends a client that names an old hash to the document as it is now.
fn moved(path: &str, hash: &str) -> Reply {
    let mut reply = respond::with_body(301, "application/json", Body::empty());
    if let Ok(location) = http::HeaderValue::from_str(&url_of(path, hash)) {
        reply.headers_mut().insert(header::LOCATION, location);
    }
    reply
}

/// Returns whether the v2 document is sent as protobuf, or `None` if no supported encoding is
/// accepted.
fn accepts_v2(accept: &str) -> Option<bool> {
    if accept.contains("com.github.proto-openapi.spec.v2") {
        return Some(true);
    }
    accepts(accept, &["application/json"]).then_some(false)
}

/// Returns whether an Accept header allows one of these media types; an empty header allows all.
fn accepts(accept: &str, media_types: &[&str]) -> bool {
    accept.trim().is_empty()
        || accept.split(',').any(|entry| {
            let entry = entry.split(';').next().unwrap_or_default().trim();
            matches!(entry, "*/*" | "application/*") || media_types.contains(&entry)
        })
}

/// Returns the 406 of OpenAPI documents, which has no body.
fn not_acceptable() -> Reply {
    let mut reply = respond::no_content();
    *reply.status_mut() = http::StatusCode::NOT_ACCEPTABLE;
    reply.headers_mut().insert(header::VARY, http::HeaderValue::from_static("Accept"));
    reply
}

/// Responds with a document and its ETag, or 304 if the client has it. `keep` makes it cacheable
/// for ever.
fn tagged(
    head: &RequestHead,
    text: Bytes,
    media_type: &'static str,
    hash: &str,
    keep: bool,
) -> Reply {
    let tag = format!("\"{hash}\"");
    let given = head.header(header::IF_NONE_MATCH);
    let known = given.is_some_and(|given| given.trim() == "*" || given.contains(&tag));
    let mut reply = if known {
        let mut reply = respond::no_content();
        *reply.status_mut() = http::StatusCode::NOT_MODIFIED;
        reply
    } else {
        respond::with_body(200, media_type, Body::Whole(Some(text)))
    };
    let headers = reply.headers_mut();
    if let Ok(tag) = http::HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    headers.insert(header::VARY, http::HeaderValue::from_static("Accept"));
    if keep {
        let forever = http::HeaderValue::from_static("public, immutable");
        headers.insert(header::CACHE_CONTROL, forever);
    }
    reply
}
