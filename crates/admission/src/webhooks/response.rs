//! Parses responses of webhooks: an `AdmissionReview`, or an HTTP error. Error texts are those of
//! client-go and of Go's `encoding/json`, which clients of a kube-apiserver see.

use crate::configurations::review_version::Version;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_auth::off_worker;
use keelson_meta::status::{Cause, Details, quote, server_error_text};
use keelson_meta::{Failure, GroupVersion, Map, Reason, Status, Str, Value, json_text};
use keelson_schema::decode::{Format, read_value, read_value_and_overflow};
use std::sync::{Mutex, PoisonError};

/// Maximum bytes of a response body that errors print.
const ERROR_TEXT_BYTES_MAX: usize = 2048;
/// Maximum bytes of an error text that a webhook wrote. The text goes to clients, logs and audit
/// events; a webhook could write megabytes.
const MESSAGE_BYTES_MAX: usize = 32 << 10;
/// Smallest response that is evaluated alone: its values may take many times its length.
const ALONE_BYTES_MIN: usize = 1 << 20;
/// Maximum values in a response. One takes 40 bytes, up to 300 if it is in a map of its own, and as
/// little as two of the text. Even a long response of nothing but managed fields, whose values are
/// short, stays below.
const VALUES_MAX: usize = 1_000_000;
const GROUP: &str = "admission.k8s.io";
/// Kinds of the version `v1` that every scheme has, whatever its groups.
pub(crate) const META_KINDS: [&str; 5] =
    ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"];
/// The name of kube-apiserver's scheme for webhooks.
const SCHEME: &str = "k8s.io/apiserver/pkg/util/webhook/client.go:71";
const TYPE_META: &str = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
                         Kind string \"json:\\\"kind,omitempty\\\"\" }";

/// The type of a review.
#[derive(Clone, Copy)]
pub(super) struct ReviewType {
    pub group: &'static str,
    pub kind: &'static str,
}

const ADMISSION_REVIEW: ReviewType = ReviewType { group: GROUP, kind: "AdmissionReview" };

/// An `AdmissionReview` with a response.
pub(super) struct Review {
    api_version: Str,
    kind: Str,
    response: Option<AdmissionResponse>,
}

/// The response of an `AdmissionReview`.
#[derive(Default)]
pub(super) struct AdmissionResponse {
    uid: Str,
    pub is_allowed: bool,
    /// A `Status`, or null.
    status: Value,
    pub patch: Vec<u8>,
    pub patch_type: Option<Str>,
    pub annotations: Vec<(Str, Str)>,
    pub warnings: Vec<Str>,
}

/// Evaluates a response of `bytes` bytes. If it is long, the other tasks of the thread run on
/// another one meanwhile.
pub(crate) fn evaluated<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    static ALONE: Mutex<()> = Mutex::new(());
    off_worker::compute(bytes, || {
        let lock = || ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let _alone = (bytes >= ALONE_BYTES_MIN).then(lock);
        work()
    })
}

/// Cuts an error text that a webhook wrote.
pub(crate) fn bounded(text: &str) -> String {
    if text.len() <= MESSAGE_BYTES_MAX {
        return text.to_owned();
    }
    let end = (0..=MESSAGE_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at));
    format!("{}...", &text[..end.unwrap_or_default()])
}

/// Parses a response in the version of the review that was sent.
pub(super) fn read(bytes: &[u8], version: Version) -> Result<Review, String> {
    let ReviewObject { root, api_version, kind, .. } = read_object(bytes)?;
    check_kind(&api_version, &kind, version, ADMISSION_REVIEW)?;
    let response = match root.get("response") {
        None | Some(Value::Null) => None,
        Some(Value::Object(response)) => Some(AdmissionResponse::read(response)?),
        Some(other) => {
            return Err(type_error(other, "AdmissionReview.response", response_type(version)));
        }
    };
    Ok(Review { api_version, kind, response })
}

/// A parsed review.
pub(crate) struct ReviewObject {
    pub root: Map,
    /// May be empty.
    pub api_version: Str,
    /// May be empty.
    pub kind: Str,
    /// The first number that no float can hold.
    pub overflow: Option<String>,
}

/// Parses a review.
pub(crate) fn read_object(bytes: &[u8]) -> Result<ReviewObject, String> {
    let (value, overflow) = read_any(bytes)?;
    let root = match value {
        Value::Object(root) => root,
        Value::Null => Map::new(),
        other => return Err(not_an_object(&other)),
    };
    let type_meta = |name: &str| {
        text(&root, "", name, "string")
            .map_err(|why| format!("couldn't get version/kind; json parse error: {why}"))
    };
    let api_version = type_meta("apiVersion")?;
    let kind = type_meta("kind")?;
    Ok(ReviewObject { root, api_version, kind, overflow })
}

/// Returns Go's error for a value that is not an object.
pub(super) fn not_an_object(value: &Value) -> String {
    let found = value.type_name();
    format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value \
         of type {TYPE_META}"
    )
}

/// Parses JSON if the text begins with `{`, otherwise YAML.
fn read_any(bytes: &[u8]) -> Result<(Value, Option<String>), String> {
    let is_json = bytes.trim_ascii_start().starts_with(b"{");
    check_values(bytes, is_json)?;
    if is_json {
        return read_value_and_overflow(bytes, Format::Json);
    }
    read_value_and_overflow(bytes, Format::Yaml)
        .map_err(|why| format!("error converting YAML to JSON: {why}"))
}

/// Refuses a text with more than [`VALUES_MAX`] values before it is parsed. Those of YAML may have
/// lines of their own.
fn check_values(text: &[u8], is_json: bool) -> Result<(), String> {
    if text.len() <= VALUES_MAX {
        return Ok(());
    }
    let may_begin = |byte: &&u8| matches!(byte, b'\n' | b'\r' | b'{' | b'[' | b',');
    let bound = match is_json {
        true => json_text::values_bound(text),
        false => text.iter().filter(may_begin).count(),
    };
    match bound <= VALUES_MAX {
        true => Ok(()),
        false => Err(format!("the response may hold at most {VALUES_MAX} values")),
    }
}

fn response_type(version: Version) -> &'static str {
    match version {
        Version::V1 => "v1.AdmissionResponse",
        Version::V1Beta1 => "v1beta1.AdmissionResponse",
    }
}

/// Checks the type of a review. A review without a kind is an error.
pub(super) fn check_kind(
    api_version: &str,
    kind: &str,
    version: Version,
    expected: ReviewType,
) -> Result<(), String> {
    let wanted = expected.kind;
    if api_version.is_empty() && kind.is_empty() {
        return Ok(());
    }
    if api_version == "v1" && META_KINDS.contains(&kind) {
        let to = version.name();
        return Err(format!("converting (v1.{kind}) to ({to}.{wanted}): unknown conversion"));
    }
    let given = GroupVersion::parse(api_version).unwrap_or_default();
    let found = Version::parse(&given.version).filter(|_| given.group == expected.group);
    match found.filter(|_| kind == wanted) {
        Some(found) if found == version => Ok(()),
        Some(found) => {
            let from = found.name();
            let to = version.name();
            Err(format!("converting ({from}.{wanted}) to ({to}.{wanted}): unknown conversion"))
        }
        None => Err(format!(
            "no kind {} is registered for version {} in scheme \"{SCHEME}\"",
            quote(kind),
            quote(api_version)
        )),
    }
}

/// Returns Go's error for a field of another type.
pub(crate) fn type_error(value: &Value, field: &str, go_type: &str) -> String {
    let found = value.type_name();
    format!("json: cannot unmarshal {found} into Go struct field {field} of type {go_type}")
}

/// Returns a string field; empty when it is absent or null.
pub(crate) fn text(map: &Map, path: &str, name: &str, go_type: &str) -> Result<Str, String> {
    match map.get(name) {
        None | Some(Value::Null) => Ok(Str::default()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(type_error(other, &format!("{path}.{name}"), go_type)),
    }
}

impl AdmissionResponse {
    fn read(response: &Map) -> Result<AdmissionResponse, String> {
        const PATH: &str = "AdmissionResponse.response";
        let is_allowed = match response.get("allowed") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(is_allowed)) => *is_allowed,
            Some(other) => return Err(type_error(other, &format!("{PATH}.allowed"), "bool")),
        };
        let status = match response.get("status") {
            None | Some(Value::Null) => Value::Null,
            Some(status @ Value::Object(_)) => checked_status(status)?,
            Some(other) => return Err(type_error(other, &format!("{PATH}.status"), "v1.Status")),
        };
        let patch_type = response.get("patchType").filter(|value| !value.is_null());
        Ok(AdmissionResponse {
            uid: text(response, PATH, "uid", "types.UID")?,
            is_allowed,
            status,
            patch: patch(&text(response, PATH, "patch", "[]uint8")?)?,
            patch_type: patch_type
                .map(|_| text(response, PATH, "patchType", "v1.PatchType"))
                .transpose()?,
            annotations: annotations(
                response.get("auditAnnotations"),
                &format!("{PATH}.auditAnnotations"),
            )?,
            warnings: warnings(response.get("warnings"))?,
        })
    }

    /// Returns the denial for the client. Its code is an error code and its status `Failure`.
    pub fn refusal(&self, webhook: &str) -> Failure {
        let status = &self.status;
        let denied = format!("admission webhook {} denied the request", quote(webhook));
        let reason = status.str_at(&["reason"]).unwrap_or_default();
        let message = match status.str_at(&["message"]).unwrap_or_default() {
            "" if reason.is_empty() => format!("{denied} without explanation"),
            "" => format!("{denied}: {}", bounded(reason)),
            message => format!("{denied}: {}", bounded(message)),
        };
        let mut failure = Status::new(Reason::Unknown, bounded(&message));
        failure.given_reason = bounded(reason).into();
        let code = status.int_at(&["code"]).unwrap_or_default();
        failure.code = u16::try_from(code).ok().filter(|c| (400..1000).contains(c)).unwrap_or(400);
        failure.details = status.get("details").and_then(Value::as_object).map(details);
        failure
    }
}

fn checked_status(status: &Value) -> Result<Value, String> {
    let map = status.as_object().cloned().unwrap_or_default();
    text(&map, "Status.response.status", "message", "string")?;
    text(&map, "Status.response.status", "reason", "v1.StatusReason")?;
    match map.get("code") {
        None | Some(Value::Null | Value::Int(_)) => Ok(Value::Object(map)),
        Some(other) => Err(type_error(other, "Status.response.status.code", "int32")),
    }
}

/// Decodes a base64 patch. Like Go, the error has the offset of the first invalid byte.
fn patch(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _)
            | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            _ => text.len(),
        };
        format!("illegal base64 data at input byte {at}")
    })
}

/// Parses audit annotations; null is an empty string.
pub(crate) fn annotations(value: Option<&Value>, field: &str) -> Result<Vec<(Str, Str)>, String> {
    let map = match value {
        None | Some(Value::Null) => return Ok(vec![]),
        Some(Value::Object(map)) => map,
        Some(other) => return Err(type_error(other, field, "map[string]string")),
    };
    let entry = |(name, value): (&Str, &Value)| match value {
        Value::String(text) => Ok((name.clone(), text.clone())),
        Value::Null => Ok((name.clone(), Str::default())),
        other => Err(type_error(other, field, "string")),
    };
    map.iter().map(entry).collect()
}

fn warnings(value: Option<&Value>) -> Result<Vec<Str>, String> {
    const FIELD: &str = "AdmissionResponse.response.warnings";
    let list = match value {
        None | Some(Value::Null) => return Ok(vec![]),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(type_error(other, FIELD, "[]string")),
    };
    let item = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Null => Ok(Str::default()),
        other => Err(type_error(other, FIELD, "string")),
    };
    list.iter().map(item).collect()
}

fn details(map: &Map) -> Details {
    let text = |map: &Map, name: &str| -> Str {
        map.get(name).and_then(Value::as_str).unwrap_or_default().into()
    };
    let causes = map.get("causes").and_then(Value::as_array).unwrap_or_default();
    let cause = |cause: &Value| {
        let cause = cause.as_object()?;
        let message = text(cause, "message");
        let field = text(cause, "field");
        let reason = text(cause, "reason");
        Some(Cause { reason, message: message.to_string(), field: field.to_string() })
    };
    let seconds = map.get("retryAfterSeconds").and_then(Value::as_int).unwrap_or_default();
    Details {
        name: text(map, "name"),
        group: text(map, "group"),
        kind: text(map, "kind"),
        uid: text(map, "uid"),
        causes: causes.iter().filter_map(cause).collect(),
        retry_after_seconds: u32::try_from(seconds).unwrap_or_default(),
    }
}

impl Review {
    /// Returns the response if uid and version match. v1beta1 requires less.
    pub fn verified(
        self,
        version: Version,
        uid: &str,
        is_mutating: bool,
    ) -> Result<AdmissionResponse, String> {
        let Some(mut answer) = self.response else {
            return Err("webhook response was absent".to_owned());
        };
        if version == Version::V1Beta1 {
            let patches = is_mutating && !answer.patch.is_empty();
            answer.patch_type = patches.then(|| Str::new_static("JSONPatch"));
            if !is_mutating {
                answer.patch.clear();
            }
            return Ok(answer);
        }
        if answer.uid != uid {
            let wanted = quote(uid);
            let found = quote(&answer.uid);
            return Err(format!("expected response.uid={wanted}, got {found}"));
        }
        if self.kind.is_empty() {
            let found = format!("{}, Kind={}", group_version_text(&self.api_version), self.kind);
            return Err(format!(
                "expected webhook response of {GROUP}/v1, Kind=AdmissionReview, got {found}"
            ));
        }
        let has_patch = !answer.patch.is_empty();
        let why = match (&answer.patch_type, is_mutating) {
            (None, true) if has_patch => {
                "webhook returned response.patch but not response.patchType"
            }
            (Some(_), true) if !has_patch => {
                "webhook returned response.patchType but not response.patch"
            }
            (Some(kind), true) if kind.is_empty() => {
                "webhook returned invalid response.patchType of \"\""
            }
            (_, false) if has_patch => "validating webhook may not return response.patch",
            (Some(_), false) => "validating webhook may not return response.patchType",
            _ => return Ok(answer),
        };
        Err(why.to_owned())
    }
}

/// Returns `group/version`, with the slash even if both are empty.
pub(super) fn group_version_text(api_version: &str) -> String {
    let gv = GroupVersion::parse(api_version).unwrap_or_default();
    format!("{}/{}", gv.group, gv.version)
}

/// Returns client-go's text for an error response: the message of a `Status`, or a text for the
/// code.
pub(super) fn status_message(code: u16, content_type: Option<&str>, body: &[u8]) -> String {
    let plain = check_values(body, true).and_then(|()| read_value(body, Format::Json));
    let plain = plain.unwrap_or_default();
    let is = |name: &str, want: &str| plain.str_at(&[name]) == Some(want);
    if is("kind", "Status") && is("apiVersion", "v1") && is("status", "Failure") {
        return bounded(plain.str_at(&["message"]).unwrap_or_default());
    }
    let is_text = content_type.is_none_or(|text| text.trim_start().starts_with("text/"));
    let text = if is_text { truncated_text(body) } else { "unknown".to_owned() };
    server_error_text(code, &text)
}

/// Returns the beginning of a response body as text.
fn truncated_text(body: &[u8]) -> String {
    let cut = &body[..body.len().min(ERROR_TEXT_BYTES_MAX)];
    String::from_utf8_lossy(cut).trim().to_owned()
}
