//! What a server's OpenAPI documents say of a group version (kube-aggregator `controllers/openapi`, `openapiv3`).

use keelson_meta::{Str, Value};
use keelson_resources::RemoteDocuments;
use keelson_schema::json;
use keelson_schema::openapi::{OpenApi, RemoteSpec};

pub(crate) const V2_PATH: &str = "/openapi/v2";
pub(crate) const V3_PATH: &str = "/openapi/v3";

/// Reads the v3 index and the v2 document, as far as the server has them. Takes tens of milliseconds.
pub(crate) fn read(
    index: Option<&[u8]>,
    v2: Option<&[u8]>,
    group: &str,
    version: &str,
) -> RemoteDocuments {
    let parse = |text: Option<&[u8]>| {
        let parsed = text.and_then(|text| json::parse(text).ok());
        parsed.map(|parsed| parsed.value).unwrap_or_default()
    };
    let spec = RemoteSpec::of(&parse(v2), group, version);
    let hash = if spec.is_empty() { String::new() } else { OpenApi::hash_of(v2.unwrap_or(b"")) };
    let path = format!("apis/{group}/{version}");
    let index = parse(index);
    let url = index.at(&["paths", &path, "serverRelativeURL"]).and_then(Value::as_str);
    // Only that of the group version itself: the request is passed on to this server.
    let prefix = format!("{V3_PATH}/{path}");
    let is_own = |url: &&str| {
        url.strip_prefix(prefix.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('?'))
    };
    RemoteDocuments { v3_url: url.filter(is_own).map(Str::new), v2: spec, v2_hash: hash.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_speaks_of_its_group_version_only() {
        let v2 = br#"{"paths": {"/apis/g/v1/a": {}, "/api/v1/pods": {}}}"#;
        let index = |url: &str| {
            format!(r#"{{"paths": {{"apis/g/v1": {{"serverRelativeURL": "{url}"}}}}}}"#)
        };
        let read = |url: &str| read(Some(index(url).as_bytes()), Some(v2), "g", "v1");
        let good = read("/openapi/v3/apis/g/v1?hash=AB");
        assert_eq!(good.v3_url.as_deref(), Some("/openapi/v3/apis/g/v1?hash=AB"));
        assert!(!good.v2.is_empty() && good.v2_hash.len() == 128);
        for url in ["/openapi/v3/apis/g/v10", "https://evil.example/", "/openapi/v3/api/v1"] {
            assert_eq!(read(url).v3_url, None, "{url}");
        }
        let none = super::read(None, Some(b"<html>"), "g", "v1");
        assert_eq!(none, RemoteDocuments::default());
    }
}
