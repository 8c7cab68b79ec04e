//! `AdmissionReview` requests.

use super::invocation::Invocation;
use crate::admission_request::admission_request;
use crate::attributes::{Api, Attributes};
use crate::configurations::review_version::Version;
use keelson_meta::{Failure, GroupVersionKind, Map, Object, Status};
use keelson_schema::{Schema, json};

/// The objects of a request converted to one version.
pub(super) struct Versioned {
    pub kind: GroupVersionKind,
    pub schema: Schema,
    pub object: Option<Object>,
    pub old: Option<Object>,
    /// The objects as JSON, or `null`.
    json: (Vec<u8>, Vec<u8>),
}

impl Versioned {
    /// Converts the objects of a request to `kind`.
    pub async fn new(
        attributes: &Attributes<'_>,
        api: &dyn Api,
        object: Option<&Object>,
        kind: &GroupVersionKind,
    ) -> Result<Versioned, Failure> {
        let unknown = || Status::internal(format!("unable to convert to {kind}: unknown kind"));
        let schema = api.schema(kind).ok_or_else(unknown)?;
        let converted = |object: Option<&Object>| {
            let object = object.cloned();
            async move {
                let Some(object) = object else { return Ok(None) };
                api.convert(object, attributes.object_kind, kind).await.map(Some)
            }
        };
        let object = converted(object).await?;
        let old = converted(attributes.old).await?;
        // Match conditions see what the webhook is sent.
        let object = object.map(|object| schema.encoded_form(&object).unwrap_or(object));
        let json = (encoded(&schema, object.as_ref()), encoded(&schema, old.as_ref()));
        Ok(Versioned { kind: kind.clone(), schema, object, old, json })
    }

    /// Returns the object as JSON, as the webhook sees it.
    pub fn object_json(&self) -> &[u8] {
        &self.json.0
    }
}

/// Encodes an object as JSON, or `null`.
pub(super) fn encoded(schema: &Schema, object: Option<&Object>) -> Vec<u8> {
    let Some(object) = object else { return b"null".to_vec() };
    let mut out = vec![];
    json::encode(schema, object, &mut out);
    out
}

/// Returns the `AdmissionRequest` of an invocation, without objects.
pub(super) fn request_of(attributes: &Attributes<'_>, invocation: &Invocation<'_>) -> Map {
    admission_request(attributes, &invocation.resource, &invocation.kind)
}

/// Returns the body of a call.
pub(super) fn body(version: Version, uid: &str, request: &Map, objects: &Versioned) -> Vec<u8> {
    let (object, old) = &objects.json;
    let mut out = Vec::with_capacity(object.len() + old.len() + 1024);
    out.extend_from_slice(b"{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/");
    out.extend_from_slice(version.name().as_bytes());
    out.extend_from_slice(b"\",\"request\":{\"uid\":");
    json::write_string(uid, &mut out);
    for (name, value) in request.iter() {
        if name == "dryRun" {
            out.extend_from_slice(b",\"object\":");
            out.extend_from_slice(object);
            out.extend_from_slice(b",\"oldObject\":");
            out.extend_from_slice(old);
        }
        out.push(b',');
        json::write_string(name, &mut out);
        out.push(b':');
        json::write_value(value, &mut out);
    }
    out.extend_from_slice(b"}}\n");
    out
}
