//! [`ConversionWebhook`]: converts objects of a custom resource between its versions
//! (apiextensions-apiserver `pkg/apiserver/conversion/webhook_converter.go`).
//!
//! A webhook may change everything of an object except kind, name, namespace and uid. Of the
//! metadata it may change labels and annotations only; changes of other fields are discarded.

use super::post::{Target, Timer, answered, post};
use super::response::{
    ReviewObject, ReviewType, bounded, check_kind, evaluated, group_version_text, read_object,
    text, type_error,
};
use crate::config::Credentials;
use crate::configurations::review_version::Version;
use crate::configurations::webhook::Caller;
use crate::configurations::webhook::Endpoint;
use keelson_auth::off_worker;
use keelson_egress::{Client, Egress};
use keelson_meta::object_meta::{validate_annotations, validate_labels};
use keelson_meta::status::quote;
use keelson_meta::{GroupVersion, GroupVersionKind, Map, Object, Path, Str, Value};
use keelson_schema::decode::check_maps;
use keelson_schema::json;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Timeout of a call.
const TIMEOUT_SECONDS: u64 = 30;

const CONVERSION_REVIEW: ReviewType =
    ReviewType { group: "apiextensions.k8s.io", kind: "ConversionReview" };

/// Go's names of the members of a response.
const RESPONSE: &str = "ConversionResponse.response";

/// Creates the webhooks of CustomResourceDefinitions.
pub struct ConversionWebhooks {
    caller: Arc<Caller>,
}

impl ConversionWebhooks {
    /// Returns a factory whose calls go through `egress`, without credentials.
    pub fn new(egress: Arc<Egress>) -> ConversionWebhooks {
        let credentials = Arc::new(Credentials::default());
        ConversionWebhooks { caller: Arc::new(Caller { egress, credentials }) }
    }

    /// Returns the webhook for `spec.conversion.webhook` of a definition.
    pub fn webhook(&self, webhook: &Value) -> ConversionWebhook {
        let versions = webhook.array_at(&["conversionReviewVersions"]).iter();
        ConversionWebhook {
            caller: self.caller.clone(),
            version: versions.filter_map(Value::as_str).find_map(Version::parse),
            endpoint: Endpoint::new(webhook, TIMEOUT_SECONDS),
            client: OnceLock::new(),
        }
    }
}

impl fmt::Debug for ConversionWebhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConversionWebhooks")
    }
}

/// The conversion webhook of one CustomResourceDefinition.
pub struct ConversionWebhook {
    caller: Arc<Caller>,
    /// The first known version of `conversionReviewVersions`.
    version: Option<Version>,
    endpoint: Result<Endpoint, String>,
    client: OnceLock<Result<Arc<Client>, String>>,
}

impl fmt::Debug for ConversionWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.endpoint.as_ref().map(|endpoint| endpoint.url.as_str());
        f.debug_struct("ConversionWebhook").field("url", &url).finish_non_exhaustive()
    }
}

/// What a webhook returned for the objects of a call.
#[derive(Debug)]
pub struct ConvertedObjects {
    /// The objects, in the order of the call.
    pub objects: Vec<Object>,
    /// The bytes of the response.
    pub bytes: usize,
}

/// A failed conversion, with the text for the client, whose length is limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversionError(String);

impl ConversionError {
    fn new(why: impl AsRef<str>) -> ConversionError {
        ConversionError(bounded(why.as_ref()))
    }
}

impl fmt::Display for ConversionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConversionError {}

impl ConversionWebhook {
    /// Converts objects of one kind to another version in one call. `uid` is that of the review.
    pub async fn convert(
        &self,
        objects: &[Object],
        from: &GroupVersionKind,
        to: &GroupVersion,
        uid: &str,
    ) -> Result<ConvertedObjects, ConversionError> {
        let failed = |why| failed(from, why);
        let version = self.version.ok_or_else(|| {
            ConversionError::new(format!(
                "conversion webhook for {from}: no supported conversion review versions"
            ))
        })?;
        let endpoint = self.endpoint.as_ref().map_err(|why| failed(why.clone()))?;
        let client = self
            .client
            .get_or_init(|| endpoint.client(&self.caller))
            .as_ref()
            .map_err(|why| failed(why.clone()))?;
        let write = || body(version, uid, to, objects);
        // One object is stored and thus short; many may have several MiB.
        let body = if objects.len() > 1 { off_worker::run(write) } else { write() };
        let timeout = Duration::from_secs(TIMEOUT_SECONDS);
        let path = &endpoint.path;
        let url = &endpoint.url;
        let timer = Timer::Client;
        let target = Target { client, path, url, timer };
        let response = post(target, body, timeout).await.map_err(failed)?;
        let bytes = response.body.len();
        let objects = evaluated(bytes, || {
            let body = answered(&response).map_err(failed)?;
            let review = read_object(body).map_err(failed)?;
            let overflow = review.overflow.clone();
            let converted = read(review, version, uid).map_err(failed)?;
            if let Some(number) = overflow {
                return Err(ConversionError::new(json::overflow_error(&number)));
            }
            if converted.len() != objects.len() {
                let count = converted.len();
                let expected = objects.len();
                return Err(ConversionError::new(format!(
                    "conversion webhook for {from} returned {count} objects, expected {expected}"
                )));
            }
            let pairs = objects.iter().zip(converted);
            let checked = |(object, converted)| checked(object, converted, bytes, from, to);
            pairs.map(checked).collect::<Result<_, _>>()
        });
        Ok(ConvertedObjects { objects: objects?, bytes })
    }
}

/// Returns the error for a call without a usable response.
fn failed(from: &GroupVersionKind, why: String) -> ConversionError {
    ConversionError::new(format!("conversion webhook for {from} failed: {}", bounded(&why)))
}

/// Returns the body of a call. Objects are sent without resourceVersion, as they are stored.
fn body(version: Version, uid: &str, to: &GroupVersion, objects: &[Object]) -> Vec<u8> {
    let mut out = vec![];
    out.extend_from_slice(b"{\"kind\":\"ConversionReview\",\"apiVersion\":\"apiextensions.k8s.io/");
    out.extend_from_slice(version.name().as_bytes());
    out.extend_from_slice(b"\",\"request\":{\"uid\":");
    json::write_string(uid, &mut out);
    out.extend_from_slice(b",\"desiredAPIVersion\":");
    json::write_string(&to.to_string(), &mut out);
    out.extend_from_slice(b",\"objects\":[");
    for (at, object) in objects.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let mut object = object.clone();
        object.metadata_mut().remove("resourceVersion");
        json::write_value(&object.into_value(), &mut out);
    }
    out.extend_from_slice(
        b"]},\"response\":{\"uid\":\"\",\"convertedObjects\":null,\"result\":{\"metadata\":{}}}}\n",
    );
    out
}

/// Parses the objects of a response.
fn read(mut review: ReviewObject, version: Version, uid: &str) -> Result<Vec<Value>, String> {
    let ReviewObject { root, api_version, kind, .. } = &mut review;
    let api_version = api_version.as_str();
    let kind = kind.as_str();
    check_kind(api_version, kind, version, CONVERSION_REVIEW)?;
    // v1beta1 requires less.
    if version == Version::V1 && kind.is_empty() {
        let found = format!("{}, Kind={kind}", group_version_text(api_version));
        return Err(format!(
            "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got \
             {found}"
        ));
    }
    let mut response = match root.remove("response") {
        None | Some(Value::Null) => return Err("no response provided".to_owned()),
        Some(Value::Object(response)) => response,
        Some(other) => {
            let go_type = format!("{}.ConversionResponse", version.name());
            return Err(type_error(&other, "ConversionReview.response", &go_type));
        }
    };
    let given = text(&response, RESPONSE, "uid", "types.UID")?;
    let (status, message) = result(&response)?;
    let objects = match response.remove("convertedObjects") {
        None | Some(Value::Null) => vec![],
        Some(Value::Array(objects)) => objects,
        Some(other) => {
            let field = format!("{RESPONSE}.convertedObjects");
            return Err(type_error(&other, &field, "[]runtime.RawExtension"));
        }
    };
    if version == Version::V1 && given != uid {
        return Err(format!("expected response.uid={}, got {}", quote(uid), quote(&given)));
    }
    match status.as_str() {
        "Success" => Ok(objects),
        _ if !message.is_empty() => Err(bounded(&message)),
        status => Err(format!("response.result.status was '{status}', not 'Success'")),
    }
}

/// Returns status and message of the result of a response.
fn result(response: &Map) -> Result<(Str, Str), String> {
    let result = match response.get("result") {
        None | Some(Value::Null) => return Ok(Default::default()),
        Some(Value::Object(result)) => result,
        Some(other) => return Err(type_error(other, &format!("{RESPONSE}.result"), "v1.Status")),
    };
    let text = |name| text(result, &format!("{RESPONSE}.result"), name, "string");
    Ok((text("status")?, text("message")?))
}

/// Checks that a converted object is the one that was sent, and restores its metadata. `bytes`:
/// length of the response.
fn checked(
    object: &Object,
    converted: Value,
    bytes: usize,
    from: &GroupVersionKind,
    to: &GroupVersion,
) -> Result<Object, ConversionError> {
    let converted = object_of(converted).map_err(ConversionError::new)?;
    let invalid = |why: String| {
        ConversionError::new(format!("conversion webhook for {from} returned invalid {why}"))
    };
    check_maps(&converted.root, bytes).map_err(|why| failed(from, why.message))?;
    let given = GroupVersion::parse(converted.api_version()).unwrap_or_default();
    if given != *to {
        let why = format!("invalid groupVersion (expected {to}, received {given})");
        return Err(invalid(format!("object at index 0: {why}")));
    }
    if converted.kind() != from.kind {
        let expected = &from.kind;
        let given = converted.kind();
        let why = format!("invalid kind (expected {expected}, received {given})");
        return Err(invalid(format!("object at index 0: {why}")));
    }
    let same = |what: &str, one: &str, other: &str| match one == other {
        true => Ok(()),
        false => Err(invalid(format!("object: must have the same {what}: {one} != {other}"))),
    };
    same("name", object.name(), converted.name())?;
    same("namespace", object.namespace(), converted.namespace())?;
    same("UID", object.uid(), converted.uid())?;
    with_original_metadata(object, converted).map_err(|why| invalid(format!("metadata: {why}")))
}

fn object_of(value: Value) -> Result<Object, String> {
    if value.is_null() {
        return Err("unexpected end of JSON input".to_owned());
    }
    let found = value.type_name();
    let object = Object::from_value(value).ok_or_else(|| {
        format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")
    })?;
    if object.kind().is_empty() || GroupVersion::parse(object.api_version()).is_none() {
        let mut text = vec![];
        json::write_value(&object.into_value(), &mut text);
        let text = String::from_utf8_lossy(&text);
        return Err(format!("Object 'Kind' is missing in '{text}'"));
    }
    Ok(object)
}

/// Returns the converted object with the original metadata, except for labels and annotations.
fn with_original_metadata(original: &Object, mut converted: Object) -> Result<Object, String> {
    let given = match converted.root.remove("metadata") {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(given)) => given,
        Some(other) => {
            let found = go_type(&other);
            return Err(format!("invalid metadata of type {found} in converted object"));
        }
    };
    let mut metadata = original.metadata().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match given.get(field) {
            None | Some(Value::Null) => drop(metadata.remove(field)),
            Some(Value::Object(map)) => {
                check_texts(field, map, metadata.get(field))?;
                metadata.insert(field, map.clone());
            }
            Some(other) => {
                let found = go_type(other);
                return Err(format!(
                    "invalid metadata.{field} of type {found} in converted object"
                ));
            }
        }
    }
    converted.root.insert("metadata", metadata);
    Ok(converted)
}

/// Checks labels or annotations that a webhook set.
fn check_texts(field: &str, map: &Map, before: Option<&Value>) -> Result<(), String> {
    for (key, value) in map.iter() {
        if value.as_str().is_none() {
            let found = go_type(value);
            return Err(format!(
                "metadata.{field}[{key}] must be a string, but is {found} in converted object"
            ));
        }
    }
    if before.and_then(Value::as_object) == Some(map) {
        return Ok(());
    }
    let path = Path::new("metadata");
    let errors = match field {
        "labels" => validate_labels(Some(map), &path.field("labels")),
        // The name in upstream's message.
        _ => validate_annotations(Some(map), &path.field("annotation")),
    };
    if errors.is_empty() { Ok(()) } else { Err(errors.aggregate()) }
}

/// Returns Go's type name for a JSON value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        _ => "float64",
    }
}
