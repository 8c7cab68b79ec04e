//! The object of a response, for its audit event: whatever was sent, as JSON.

use crate::body::Body;
use crate::header_lists;
use crate::negotiate::Encoding;
use bytes::Bytes;
use http::{Response, StatusCode, header};
use keelson_auth::off_worker;
use keelson_meta::json_text::compact;
use keelson_meta::{GroupVersion, Value};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::{cbor, json, proto, yaml};

/// Length up to which a body that is not JSON is decoded to see whether it is a `Status`.
const STATUS_BYTES_MAX: usize = 16 << 10;

/// What an audit event shows of a response.
#[derive(Default)]
pub(crate) struct Shown {
    /// The body, if it is an object.
    pub object: Option<Bytes>,
    /// The body, if it is a `Status`.
    pub status: Option<Value>,
}

/// Reads the body of a response. The object of a list that is encoded while it is sent is there
/// only after [`Body::complete`].
pub(crate) fn read(
    reply: &Response<Body>,
    wants_object: bool,
    omits_managed_fields: bool,
) -> Shown {
    let Some(encoding) = encoding(reply) else { return Shown::default() };
    let Some(body) = reply.body().whole() else { return Shown::default() };
    let is_failure = reply.status().as_u16() >= 400;
    if !(wants_object || is_failure || may_be_status(encoding, body)) {
        return Shown::default();
    }
    off_worker::compute(body.len(), || show(encoding, body, omits_managed_fields))
}

/// Returns the encoding of a body that an event may show.
pub(crate) fn encoding(reply: &Response<Body>) -> Option<Encoding> {
    // As upstream, the Status that says that no media type is acceptable is not shown.
    if reply.status() == StatusCode::NOT_ACCEPTABLE {
        return None;
    }
    header_lists::text(reply.headers(), header::CONTENT_TYPE).and_then(Encoding::of_media_type)
}

fn show(encoding: Encoding, body: &[u8], omits_managed_fields: bool) -> Shown {
    let Some(text) = to_json(encoding, body) else { return Shown::default() };
    let kind = json::value_range(&text, &["kind"]).map(|range| text[range].to_vec());
    let Some(kind) = kind else { return Shown::default() };
    let status = (kind == b"\"Status\"").then(|| json::parse(&text).ok()).flatten();
    let object = match omits_managed_fields {
        true => without_managed_fields(&text),
        false => Bytes::from(text),
    };
    Shown { object: Some(object), status: status.map(|parsed| parsed.value) }
}

/// Returns whether the body of a success may be a `Status`, as it is after most deletions.
fn may_be_status(encoding: Encoding, body: &[u8]) -> bool {
    match encoding {
        Encoding::Json => {
            let kind = json::value_range(body, &["kind"]);
            kind.is_some_and(|range| &body[range] == b"\"Status\"")
        }
        Encoding::Protobuf => {
            proto::decode_envelope(body).is_ok_and(|envelope| envelope.kind == "Status")
        }
        Encoding::Yaml | Encoding::Cbor => body.len() <= STATUS_BYTES_MAX,
    }
}

/// Returns a body as compact JSON.
fn to_json(encoding: Encoding, body: &[u8]) -> Option<Vec<u8>> {
    let value = match encoding {
        Encoding::Json => {
            let text = std::str::from_utf8(body).ok()?;
            return Some(compact(text).into_owned().into_bytes());
        }
        Encoding::Yaml => yaml::parse(body).ok()?.value,
        Encoding::Cbor => cbor::parse(body).ok()?,
        Encoding::Protobuf => {
            let envelope = proto::decode_envelope(body).ok()?;
            let version = GroupVersion::parse(&envelope.api_version)?;
            let kind = version.kind(envelope.kind.into_owned());
            let schema = Catalogue::shared().schema(&kind).or_else(|| {
                // Statuses and the like are of every version.
                let mut schema =
                    Catalogue::shared().schema(&GroupVersion::default().kind(kind.kind.clone()))?;
                schema.gvk = kind.clone();
                Some(schema)
            })?;
            let object = proto::decode_message(&schema, envelope.raw).ok()?;
            let mut text = vec![];
            json::encode(&schema, &object, &mut text);
            return Some(text);
        }
    };
    let mut text = vec![];
    json::write_value(&value, &mut text);
    Some(text)
}

/// Returns an object, a list or a table without the managed fields of its objects.
pub(crate) fn without_managed_fields(text: &[u8]) -> Bytes {
    let Ok(parsed) = json::parse(text) else { return Bytes::copy_from_slice(text) };
    let mut value = parsed.value;
    remove_managed_fields(&mut value);
    let objects = [("items", None), ("rows", Some("object"))];
    for (list, member) in objects {
        let items = value
            .as_object_mut()
            .and_then(|root| root.get_mut(list))
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten();
        for item in items {
            let object = match member {
                None => Some(item),
                Some(member) => item.as_object_mut().and_then(|row| row.get_mut(member)),
            };
            object.map(remove_managed_fields);
        }
    }
    let mut out = vec![];
    json::write_value(&value, &mut out);
    Bytes::from(out)
}

fn remove_managed_fields(object: &mut Value) {
    let metadata = object.as_object_mut().and_then(|root| root.get_mut("metadata"));
    if let Some(metadata) = metadata.and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(without_managed_fields(text.as_bytes()), expected);
    }

    #[test]
    fn managed_fields_are_removed_from_objects_lists_and_tables() {
        let object = r#"{"a":1.5,"metadata":{"name":"x","managedFields":[1]}}"#;
        let without = r#"{"a":1.5,"metadata":{"name":"x"}}"#;
        check(object, without);
        check(&format!("{{\"items\":[{object}]}}"), &format!("{{\"items\":[{without}]}}"));
        check(
            &format!("{{\"rows\":[{{\"object\":{object}}},{{\"object\":null}}]}}"),
            &format!("{{\"rows\":[{{\"object\":{without}}},{{\"object\":null}}]}}"),
        );
        check(r#"{"items":null,"metadata":{}}"#, r#"{"items":null,"metadata":{}}"#);
    }
}
