//! What a server's OpenAPI documents say of its group versions (kube-aggregator
//! `controllers/openapi`, `openapiv3`). A server is asked once for all of them.

use crate::asker::{self, Asker, Question, Seen};
use crate::discovery::GroupVersion;
use http::StatusCode;
use keelson_auth::User;
use keelson_meta::{Str, Value};
use keelson_resources::{ConvertedDocument, RemoteDocuments, RemoteServer};
use keelson_schema::json;
use keelson_schema::openapi::{OpenApi, RemoteSpec, v3_of_v2};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

pub(crate) const V2_PATH: &str = "/openapi/v2";
pub(crate) const V3_PATH: &str = "/openapi/v3";
const JSON: &str = "application/json";
/// Most bytes of a server's v3 index.
const INDEX_BYTES_MAX: usize = 4 << 20;
/// Most bytes of a server's v2 document.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;
/// The user as whom servers are asked.
const AGGREGATOR: &str = "system:aggregator";

/// The documents of a server, by group version.
pub(crate) type Documents = HashMap<GroupVersion, Arc<RemoteDocuments>>;

/// What is known of a server's documents.
#[derive(Clone, Default)]
pub(crate) struct Known {
    documents: Documents,
    index: Seen,
    v2: Seen,
    /// Whether the server has no v3 documents.
    is_v2_only: bool,
    /// Those of a version before they are known. They have one place, by which changes are noticed.
    none: Arc<RemoteDocuments>,
}

impl Known {
    /// Returns the documents of a group version.
    pub fn of(&self, version: &GroupVersion) -> Arc<RemoteDocuments> {
        self.documents.get(version).cloned().unwrap_or_else(|| self.none.clone())
    }

    /// Forgets what the server need not send again, but nothing of what it has said.
    pub fn forget_seen(&mut self) {
        self.index = Seen::default();
        self.v2 = Seen::default();
    }
}

/// A change of one of both sources.
enum Source<T> {
    /// The server has not answered as it should: what is known is kept.
    Failed,
    Same,
    Missing,
    Changed(T, Seen),
}

/// What a v2 document says.
#[derive(Default)]
struct V2 {
    specs: HashMap<GroupVersion, RemoteSpec>,
    converted: Option<ConvertedDocument>,
}

/// Returns what is known then, and whether the server answered both requests. `versions` are those
/// that are asked for; with others than before, `known` must have forgotten what it has seen.
pub(crate) async fn ask(
    asker: &Asker,
    server: &RemoteServer,
    versions: &BTreeSet<GroupVersion>,
    known: Known,
) -> (Known, bool) {
    let index = ask_index(asker, server, &known.index).await;
    let is_v2_only = match &index {
        Source::Missing => true,
        Source::Same | Source::Changed(..) => false,
        Source::Failed => known.is_v2_only,
    };
    // The document is needed once more when its v3 form begins to be.
    let seen = if is_v2_only == known.is_v2_only { known.v2.clone() } else { Seen::default() };
    let v2 = ask_v2(asker, server, versions, seen, is_v2_only).await;
    let is_complete = !matches!(index, Source::Failed) && !matches!(v2, Source::Failed);
    if matches!((&index, &v2), (Source::Failed | Source::Same, Source::Failed | Source::Same)) {
        return (known, is_complete);
    }
    let versions = versions.clone();
    let before = known.clone();
    let merge = move || merged(&versions, known, index, v2, is_v2_only);
    match tokio::task::spawn_blocking(merge).await {
        Ok(merged) => (merged, is_complete),
        Err(_) => (before, false),
    }
}

fn merged(
    versions: &BTreeSet<GroupVersion>,
    known: Known,
    index: Source<HashMap<String, Str>>,
    v2: Source<V2>,
    is_v2_only: bool,
) -> Known {
    let mut next = Known { is_v2_only, ..known.clone() };
    match &index {
        Source::Changed(_, seen) => next.index = seen.clone(),
        Source::Missing => next.index = Seen::default(),
        Source::Same | Source::Failed => {}
    }
    match &v2 {
        Source::Changed(_, seen) => next.v2 = seen.clone(),
        Source::Missing => next.v2 = Seen::default(),
        Source::Same | Source::Failed => {}
    }
    next.documents.clear();
    for version in versions {
        let before = known.of(version);
        let mut now = RemoteDocuments::clone(&before);
        match &index {
            Source::Changed(urls, _) => now.v3_url = urls.get(&path_of(version)).cloned(),
            Source::Missing => now.v3_url = None,
            Source::Same | Source::Failed => {}
        }
        let hash = next.v2.hash.as_str();
        match &v2 {
            Source::Changed(v2, _) => {
                now.v2 = v2.specs.get(version).cloned().unwrap_or_default();
                now.v2_hash = Str::new(if now.v2.is_empty() { "" } else { hash });
                now.converted = v2.converted.clone();
            }
            Source::Missing => now = RemoteDocuments { v3_url: now.v3_url, ..Default::default() },
            Source::Same | Source::Failed => {}
        }
        if !is_v2_only {
            now.converted = None;
        }
        let documents = if *before == now { before } else { Arc::new(now) };
        next.documents.insert(version.clone(), documents);
    }
    next
}

fn path_of(version: &GroupVersion) -> String {
    let (group, version) = version;
    format!("apis/{group}/{version}")
}

fn question<'a>(path: &'a str, user: &'a User, seen: &'a Seen, bytes_max: usize) -> Question<'a> {
    Question { path, accept: JSON, user, known: seen.tag.as_ref(), bytes_max }
}

fn aggregator() -> User {
    User { name: AGGREGATOR.into(), ..User::default() }
}

/// Asks for the v3 index: the URLs of documents, by path.
async fn ask_index(
    asker: &Asker,
    server: &RemoteServer,
    seen: &Seen,
) -> Source<HashMap<String, Str>> {
    let user = aggregator();
    let answer = asker.get(server, question(V3_PATH, &user, seen, INDEX_BYTES_MAX)).await;
    let Ok(answer) = answer else { return Source::Failed };
    match answer.status {
        _ if seen.is_confirmed_by(&answer) => Source::Same,
        StatusCode::NOT_FOUND => Source::Missing,
        StatusCode::OK => {
            let read = move || {
                let urls = v3_urls(&answer.body)?;
                Some((urls, Seen { tag: Seen::tag_of(&answer), hash: String::new() }))
            };
            match asker.evaluate(read).await {
                Some((urls, seen)) => Source::Changed(urls, seen),
                None => Source::Failed,
            }
        }
        _ => Source::Failed,
    }
}

/// Asks for the v2 document. Reading it can take tens of milliseconds.
async fn ask_v2(
    asker: &Asker,
    server: &RemoteServer,
    versions: &BTreeSet<GroupVersion>,
    seen: Seen,
    is_converted: bool,
) -> Source<V2> {
    let user = aggregator();
    let answer = asker.get(server, question(V2_PATH, &user, &seen, DOCUMENT_BYTES_MAX)).await;
    let Ok(answer) = answer else { return Source::Failed };
    match answer.status {
        _ if seen.is_confirmed_by(&answer) => Source::Same,
        StatusCode::NOT_FOUND => Source::Missing,
        StatusCode::OK => {
            let versions = versions.clone();
            let read = move || {
                let hash = OpenApi::hash_of(&answer.body);
                if hash == seen.hash {
                    return Some(Source::Same);
                }
                let v2 = read_v2(&answer.body, &versions, is_converted)?;
                Some(Source::Changed(v2, Seen { tag: Seen::tag_of(&answer), hash }))
            };
            asker.evaluate(read).await.unwrap_or(Source::Failed)
        }
        _ => Source::Failed,
    }
}

fn read_v2(text: &[u8], versions: &BTreeSet<GroupVersion>, is_converted: bool) -> Option<V2> {
    let document = asker::parse(text)?;
    document.as_object()?;
    let of = |version: &GroupVersion| {
        (version.clone(), RemoteSpec::of(&document, &version.0, &version.1))
    };
    let mut v2 = V2 { specs: versions.iter().map(of).collect(), converted: None };
    if let Some(v3) = is_converted.then(|| v3_of_v2(&document)).flatten() {
        let mut text = vec![];
        json::write_value(&v3, &mut text);
        let hash = OpenApi::hash_of(&text).into();
        v2.converted = Some(ConvertedDocument { text: text.into(), hash });
    }
    Some(v2)
}

/// Reads a v3 index; `None`: it is none.
fn v3_urls(index: &[u8]) -> Option<HashMap<String, Str>> {
    let index = asker::parse(index)?;
    let mut urls = HashMap::new();
    for (path, entry) in index.as_object()?.get("paths").and_then(Value::as_object)?.iter() {
        let url = entry.get("serverRelativeURL").and_then(Value::as_str).unwrap_or_default();
        // Only that of the path itself: the request is passed on to this server.
        let rest = url.strip_prefix(&format!("{V3_PATH}/{path}"));
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('?')) {
            urls.insert(path.to_string(), Str::new(url));
        }
    }
    Some(urls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions() -> BTreeSet<GroupVersion> {
        ["v1", "v2"].map(|version| (Str::new("g"), Str::new(version))).into()
    }

    fn seen(tag: &'static str) -> Seen {
        Seen { tag: Some(http::HeaderValue::from_static(tag)), hash: tag.to_owned() }
    }

    #[test]
    fn an_index_speaks_of_its_own_paths_only() {
        let url_of = |url: &str| {
            let index =
                format!(r#"{{"paths": {{"apis/g/v1": {{"serverRelativeURL": "{url}"}}}}}}"#);
            v3_urls(index.as_bytes()).expect("an index").remove("apis/g/v1")
        };
        let good = "/openapi/v3/apis/g/v1?hash=AB";
        assert_eq!(url_of(good).as_deref(), Some(good));
        for url in ["/openapi/v3/apis/g/v10", "https://evil.example/", "/openapi/v3/api/v1"] {
            assert_eq!(url_of(url), None, "{url}");
        }
        assert!(v3_urls(b"<html>").is_none() && v3_urls(b"{}").is_none());
    }

    #[test]
    fn one_document_describes_all_versions() {
        let text = br#"{"paths": {"/apis/g/v1/a": {}, "/apis/g/v2/a": {}, "/api/v1/pods": {}}}"#;
        let v2 = || read_v2(text, &versions(), true).expect("a document");
        assert!(v2().specs.values().all(|spec| !spec.is_empty()));
        let converted = v2().converted.expect("a v3 document");
        assert!(converted.text.starts_with(br#"{"openapi":"3.0.0""#));
        assert!(read_v2(text, &versions(), false).expect("a document").converted.is_none());
        assert!(read_v2(b"<html>", &versions(), true).is_none());

        let changed = Source::Changed(v2(), seen("a"));
        let first = merged(&versions(), Known::default(), Source::Missing, changed, true);
        for version in versions() {
            let of = &first.documents[&version];
            assert_eq!((of.v2_hash.as_str(), &of.converted), ("a", &Some(converted.clone())));
        }
        // What has not changed keeps its place.
        let same = merged(&versions(), first.clone(), Source::Missing, Source::Same, true);
        let is_same = |version| Arc::ptr_eq(&same.documents[version], &first.documents[version]);
        assert!(versions().iter().all(is_same));
        // The server learns v3.
        let version = (Str::new("g"), Str::new("v1"));
        let urls = HashMap::from([("apis/g/v1".to_owned(), Str::new("u"))]);
        let next = merged(&versions(), same, Source::Changed(urls, seen("i")), Source::Same, false);
        let of = &next.documents[&version];
        assert_eq!((of.v3_url.as_deref(), &of.converted), (Some("u"), &None));
        assert!(!of.v2.is_empty());
        // It fails, and then has neither.
        let kept = merged(&versions(), next, Source::Failed, Source::Same, false);
        assert_eq!(kept.documents[&version].v3_url.as_deref(), Some("u"));
        let none = merged(&versions(), kept, Source::Missing, Source::Missing, true);
        assert_eq!(*none.documents[&version], RemoteDocuments::default());
    }
}
