//! [`Status`]: the response to a failed request, with a constructor for every reason. Texts are
//! those of kube-apiserver, because clients compare them (apimachinery `api/errors`, `field`).

mod show;

pub use show::{float, quote, show, show_json};

use crate::{GroupVersionResource, Path, SmallSet, Str, Value, value};
use std::fmt;

/// `Status.reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the API's own words.
pub enum Reason {
    Unknown,
    Unauthorized,
    Forbidden,
    NotFound,
    AlreadyExists,
    Conflict,
    Gone,
    Invalid,
    ServerTimeout,
    Timeout,
    TooManyRequests,
    BadRequest,
    MethodNotAllowed,
    NotAcceptable,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    InternalError,
    Expired,
    ServiceUnavailable,
}

impl Reason {
    /// Returns the text on the wire; `Unknown` is the empty string.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Unknown => "",
            Reason::Unauthorized => "Unauthorized",
            Reason::Forbidden => "Forbidden",
            Reason::NotFound => "NotFound",
            Reason::AlreadyExists => "AlreadyExists",
            Reason::Conflict => "Conflict",
            Reason::Gone => "Gone",
            Reason::Invalid => "Invalid",
            Reason::ServerTimeout => "ServerTimeout",
            Reason::Timeout => "Timeout",
            Reason::TooManyRequests => "TooManyRequests",
            Reason::BadRequest => "BadRequest",
            Reason::MethodNotAllowed => "MethodNotAllowed",
            Reason::NotAcceptable => "NotAcceptable",
            Reason::RequestEntityTooLarge => "RequestEntityTooLarge",
            Reason::UnsupportedMediaType => "UnsupportedMediaType",
            Reason::InternalError => "InternalError",
            Reason::Expired => "Expired",
            Reason::ServiceUnavailable => "ServiceUnavailable",
        }
    }

    /// Returns the HTTP status code of the reason.
    pub fn code(self) -> u16 {
        match self {
            Reason::BadRequest => 400,
            Reason::Unauthorized => 401,
            Reason::Forbidden => 403,
            Reason::NotFound => 404,
            Reason::MethodNotAllowed => 405,
            Reason::NotAcceptable => 406,
            Reason::AlreadyExists | Reason::Conflict => 409,
            Reason::Gone | Reason::Expired => 410,
            Reason::RequestEntityTooLarge => 413,
            Reason::UnsupportedMediaType => 415,
            Reason::Invalid => 422,
            Reason::TooManyRequests => 429,
            Reason::InternalError | Reason::Unknown | Reason::ServerTimeout => 500,
            Reason::ServiceUnavailable => 503,
            Reason::Timeout => 504,
        }
    }
}

/// One entry of `Status.details.causes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueRequired`, `FieldManagerConflict`, ...
    pub reason: Str,
    /// The error message.
    pub message: String,
    /// The field, as a [`Path`] prints it.
    pub field: String,
}

/// `Status.details`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The object's name.
    pub name: Str,
    /// The API group.
    pub group: Str,
    /// The resource (or, for invalid objects, the kind).
    pub kind: Str,
    /// The object's uid.
    pub uid: Str,
    /// The causes.
    pub causes: Vec<Cause>,
    /// Seconds to wait before a retry; 0: unset.
    pub retry_after_seconds: u32,
}

/// The response to a failed request. Errors contain it boxed: see [`Failure`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// HTTP code.
    pub code: u16,
    /// `Status.reason`.
    pub reason: Reason,
    /// The message that clients print.
    pub message: String,
    /// What it is about.
    pub details: Option<Details>,
    /// `metadata.continue`: the token with which a list can continue after its own expired.
    pub continue_token: Option<Str>,
    /// Values of Warning headers; not part of the body.
    pub warnings: Vec<Str>,
    /// The reason that a webhook gave, printed instead of `reason`. It does not affect the
    /// handling: a denial with the reason `Conflict` is not a conflict.
    pub given_reason: Str,
}

/// The error of every operation that a client can cause.
pub type Failure = Box<Status>;

impl Status {
    /// Returns a Status without details, with the status code of the reason.
    pub fn new(reason: Reason, message: impl Into<String>) -> Failure {
        Box::new(Status {
            code: reason.code(),
            reason,
            message: message.into(),
            details: None,
            continue_token: None,
            warnings: vec![],
            given_reason: Str::default(),
        })
    }

    /// Returns the status with warnings.
    #[must_use]
    pub fn with_warnings(self: Box<Self>, warnings: Vec<Str>) -> Failure {
        let warnings = if warnings.is_empty() { self.warnings } else { warnings };
        Box::new(Status { warnings, ..*self })
    }

    fn about(
        reason: Reason,
        gvr: &GroupVersionResource,
        name: &str,
        message: impl Into<String>,
    ) -> Failure {
        let details = Details {
            name: name.into(),
            group: gvr.group.clone(),
            kind: gvr.resource.clone(),
            ..Details::default()
        };
        let mut status = Status::new(reason, message);
        status.details = Some(details);
        status
    }

    /// Returns a 404 for an object.
    pub fn not_found(gvr: &GroupVersionResource, name: &str) -> Failure {
        let message = format!("{} {} not found", gvr.qualified(), quote(name));
        Self::about(Reason::NotFound, gvr, name, message)
    }

    /// Returns a 404 for a URL without a resource.
    pub fn no_such_path() -> Failure {
        let mut status =
            Status::new(Reason::NotFound, "the server could not find the requested resource");
        status.details = Some(Details::default());
        status
    }

    /// Returns a 409 for a create with an existing name.
    pub fn already_exists(gvr: &GroupVersionResource, name: &str) -> Failure {
        let message = format!("{} {} already exists", gvr.qualified(), quote(name));
        Self::about(Reason::AlreadyExists, gvr, name, message)
    }

    /// Returns a 409 for a write that conflicts with another.
    pub fn conflict(gvr: &GroupVersionResource, name: &str, why: &str) -> Failure {
        let message =
            format!("Operation cannot be fulfilled on {} {}: {why}", gvr.qualified(), quote(name));
        Self::about(Reason::Conflict, gvr, name, message)
    }

    /// Returns a 409 for a write whose resourceVersion is not the stored one.
    pub fn modified(gvr: &GroupVersionResource, name: &str) -> Failure {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::conflict(gvr, name, why)
    }

    /// Returns a 403 for an object.
    pub fn forbidden(gvr: &GroupVersionResource, name: &str, why: &str) -> Failure {
        let message = if gvr.resource.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{} is forbidden: {why}", gvr.qualified())
        } else {
            format!("{} {} is forbidden: {why}", gvr.qualified(), quote(name))
        };
        Self::about(Reason::Forbidden, gvr, name, message)
    }

    /// Returns a 401.
    pub fn unauthorized() -> Failure {
        Status::new(Reason::Unauthorized, "Unauthorized")
    }

    /// Returns a 400.
    pub fn bad_request(message: impl Into<String>) -> Failure {
        Status::new(Reason::BadRequest, message)
    }

    /// Returns a 405 for a verb that a resource does not support.
    pub fn method_not_supported(gvr: &GroupVersionResource, action: &str) -> Failure {
        let message =
            format!("{action} is not supported on resources of kind \"{}\"", gvr.qualified());
        Self::about(Reason::MethodNotAllowed, gvr, "", message)
    }

    /// Returns a 405 for an HTTP method that a URL does not support.
    pub fn method_not_allowed() -> Failure {
        let mut status = Status::new(
            Reason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        );
        status.details = Some(Details::default());
        status
    }

    /// Returns a 410 for an expired resourceVersion or continue token.
    pub fn expired(message: impl Into<String>) -> Failure {
        Status::new(Reason::Expired, message)
    }

    /// Returns a 413.
    pub fn too_large(message: impl Into<String>) -> Failure {
        Status::new(Reason::RequestEntityTooLarge, message)
    }

    /// Returns a 500.
    pub fn internal(message: impl fmt::Display) -> Failure {
        let message = message.to_string();
        let mut status =
            Status::new(Reason::InternalError, format!("Internal error occurred: {message}"));
        let cause = Cause { message, ..Cause::default() };
        status.details = Some(Details { causes: vec![cause], ..Details::default() });
        status
    }

    /// Returns a 500 for an operation with an unknown outcome; `action` is `create`, `update`, ...
    pub fn server_timeout(
        gvr: &GroupVersionResource,
        action: &str,
        retry_after_seconds: u32,
    ) -> Failure {
        let message = format!(
            "The {action} operation against {} could not be completed at this time, please try \
             again.",
            gvr.qualified()
        );
        let mut status = Self::about(Reason::ServerTimeout, gvr, action, message);
        if let Some(details) = &mut status.details {
            details.retry_after_seconds = retry_after_seconds;
        }
        status
    }

    /// Returns a 503.
    pub fn unavailable(message: impl Into<String>) -> Failure {
        Status::new(Reason::ServiceUnavailable, message)
    }

    /// Returns a 504 for a request that timed out.
    pub fn timed_out() -> Failure {
        let mut status = Status::new(
            Reason::Timeout,
            "Timeout: request did not complete within the allotted timeout",
        );
        status.details = Some(Details::default());
        status
    }

    /// Returns a 504 for a read at a future revision that did not arrive.
    pub fn too_large_resource_version(asked: u64, current: u64) -> Failure {
        let mut status = Status::new(
            Reason::Timeout,
            format!("Timeout: Too large resource version: {asked}, current: {current}"),
        );
        let cause = Cause {
            reason: "ResourceVersionTooLarge".into(),
            message: "Too large resource version".into(),
            field: String::new(),
        };
        let details = Details { causes: vec![cause], retry_after_seconds: 1, ..Details::default() };
        status.details = Some(details);
        status
    }

    /// Returns a 422 with a cause for each error; `group` and `kind` are those of the object.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: ErrorList) -> Failure {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let message = format!("{qualified} {} is invalid: {}", quote(name), errors.aggregate());
        let mut status = Status::new(Reason::Invalid, message);
        status.details = Some(Details {
            name: name.into(),
            group: group.into(),
            kind: kind.into(),
            causes: errors.iter().map(FieldError::cause).collect(),
            ..Details::default()
        });
        status
    }

    /// Returns the `Status` object for the client.
    pub fn to_value(&self) -> Value {
        let mut body = value!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"
        });
        let root = body.as_object_mut().expect("the literal is a map");
        if let Some(token) = &self.continue_token {
            root.object_at("metadata").insert("continue", token.clone());
        }
        if !self.message.is_empty() {
            root.insert("message", self.message.as_str());
        }
        if !self.given_reason.is_empty() {
            root.insert("reason", self.given_reason.clone());
        } else if self.reason != Reason::Unknown {
            root.insert("reason", self.reason.as_str());
        }
        if let Some(details) = &self.details {
            root.insert("details", details.to_value());
        }
        root.insert("code", i64::from(self.code));
        body
    }
}

impl Details {
    fn to_value(&self) -> Value {
        let mut map = crate::Map::new();
        for (name, text) in
            [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)]
        {
            if !text.is_empty() {
                map.insert(name, text.clone());
            }
        }
        if !self.causes.is_empty() {
            map.insert("causes", self.causes.iter().map(Cause::to_value).collect::<Vec<_>>());
        }
        if self.retry_after_seconds != 0 {
            map.insert("retryAfterSeconds", i64::from(self.retry_after_seconds));
        }
        Value::Object(map)
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut map = crate::Map::new();
        if !self.reason.is_empty() {
            map.insert("reason", self.reason.clone());
        }
        if !self.message.is_empty() {
            map.insert("message", self.message.as_str());
        }
        if !self.field.is_empty() {
            map.insert("field", self.field.as_str());
        }
        Value::Object(map)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

/// Returns client-go's error for an error response without a `Status`; `text` is the printed part
/// of its body.
pub fn server_error_text(code: u16, text: &str) -> String {
    let known = match code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 | 415 => text,
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        406 if text.is_empty() || text == "unknown" => {
            "the server was unable to respond with a content type that the client supports"
        }
        406 => text,
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be \
             processing the request"
        }
        500.. => {
            let text = quote(text);
            return format!(
                "an error on the server ({text}) has prevented the request from succeeding"
            );
        }
        _ => {
            return format!(
                "the server responded with the status code {code} but did not return more \
                 information"
            );
        }
    };
    known.to_owned()
}

/// The types of field errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the API's own words.
pub enum ErrorType {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    InternalError,
    TypeInvalid,
}

impl ErrorType {
    /// Returns the cause reason and the words of the message.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            ErrorType::NotFound => ("FieldValueNotFound", "Not found"),
            ErrorType::Required => ("FieldValueRequired", "Required value"),
            ErrorType::Duplicate => ("FieldValueDuplicate", "Duplicate value"),
            ErrorType::Invalid => ("FieldValueInvalid", "Invalid value"),
            ErrorType::NotSupported => ("FieldValueNotSupported", "Unsupported value"),
            ErrorType::Forbidden => ("FieldValueForbidden", "Forbidden"),
            ErrorType::TooLong => ("FieldValueTooLong", "Too long"),
            ErrorType::TooMany => ("FieldValueTooMany", "Too many"),
            ErrorType::InternalError => ("InternalError", "Internal error"),
            ErrorType::TypeInvalid => ("FieldValueTypeInvalid", "Invalid value"),
        }
    }
}

/// A field error (apimachinery `field.Error`).
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The type.
    pub error_type: ErrorType,
    /// The field path.
    pub field: String,
    /// The invalid value, formatted for messages.
    pub value: Option<String>,
    /// The detail.
    pub detail: String,
}

impl FieldError {
    fn make(error_type: ErrorType, path: &Path<'_>, value: Option<String>, detail: &str) -> Self {
        FieldError { error_type, field: path.to_string(), value, detail: detail.to_owned() }
    }

    /// Returns the error for a missing required value.
    pub fn required(path: &Path<'_>, detail: &str) -> Self {
        Self::make(ErrorType::Required, path, None, detail)
    }

    /// Returns the error for an invalid value, formatted as Go prints it.
    pub fn invalid(path: &Path<'_>, value: impl Into<Value>, detail: &str) -> Self {
        Self::make(ErrorType::Invalid, path, Some(show(&value.into())), detail)
    }

    /// Returns the error for a value of the wrong type.
    pub fn type_invalid(path: &Path<'_>, value: impl Into<Value>, detail: &str) -> Self {
        Self::make(ErrorType::TypeInvalid, path, Some(show(&value.into())), detail)
    }

    /// Returns the error for a value outside of a fixed set; `valid` is listed in the given order.
    pub fn not_supported(path: &Path<'_>, value: impl Into<Value>, valid: &[&str]) -> Self {
        let words: Vec<String> = valid.iter().map(|word| quote(word)).collect();
        let detail = if words.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", words.join(", "))
        };
        Self::make(ErrorType::NotSupported, path, Some(show(&value.into())), &detail)
    }

    /// Like [`FieldError::not_supported`] for a text whose Go type has a name of its own: it is
    /// shown as JSON.
    pub fn not_supported_word(path: &Path<'_>, word: &str, valid: &[&str]) -> Self {
        let shown = show_json(&Value::from(word));
        FieldError { value: Some(shown), ..Self::not_supported(path, word, valid) }
    }

    /// Returns the error for a duplicate value.
    pub fn duplicate(path: &Path<'_>, value: impl Into<Value>) -> Self {
        Self::make(ErrorType::Duplicate, path, Some(show(&value.into())), "")
    }

    /// Returns the error for a forbidden value or operation.
    pub fn forbidden(path: &Path<'_>, detail: &str) -> Self {
        Self::make(ErrorType::Forbidden, path, None, detail)
    }

    /// Returns the error for a reference to something that does not exist.
    pub fn not_found(path: &Path<'_>, value: impl Into<Value>) -> Self {
        Self::make(ErrorType::NotFound, path, Some(show(&value.into())), "")
    }

    /// Returns the error for text longer than `bytes_max`.
    pub fn too_long(path: &Path<'_>, bytes_max: usize) -> Self {
        let unit = if bytes_max == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {bytes_max} {unit}");
        Self::make(ErrorType::TooLong, path, None, &detail)
    }

    /// Returns the error for a list longer than `items_max`.
    pub fn too_many(path: &Path<'_>, items: usize, items_max: usize) -> Self {
        let unit = if items_max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {items_max} {unit}");
        Self::make(ErrorType::TooMany, path, Some(items.to_string()), &detail)
    }

    /// Returns an internal error.
    pub fn internal(path: &Path<'_>, detail: &str) -> Self {
        Self::make(ErrorType::InternalError, path, None, detail)
    }

    /// Returns the message without the field.
    pub fn body(&self) -> String {
        let words = self.error_type.words().1;
        let mut text = match &self.value {
            Some(value) => format!("{words}: {value}"),
            None => words.to_owned(),
        };
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    fn cause(&self) -> Cause {
        Cause {
            reason: self.error_type.words().0.into(),
            message: self.body(),
            field: self.field.clone(),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// Maximum errors of one object; a kube-apiserver has no limit.
pub const FAULTS_MAX: usize = 10_000;
/// Maximum bytes of fields, values and details; the error that exceeds it is the last.
pub const FAULT_BYTES_MAX: usize = 1 << 20;

/// The errors of one object in order, up to [`FAULTS_MAX`] and [`FAULT_BYTES_MAX`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ErrorList {
    errors: Vec<FieldError>,
    bytes: usize,
    /// Whether errors were dropped because the list was full.
    is_cut: bool,
}

impl ErrorList {
    /// Returns an empty list.
    pub const fn new() -> Self {
        ErrorList { errors: Vec::new(), bytes: 0, is_cut: false }
    }

    /// Adds an error.
    pub fn push(&mut self, error: FieldError) {
        self.push_with(|| error);
    }

    /// Adds an error, which is created only if the list is not full.
    pub fn push_with(&mut self, make: impl FnOnce() -> FieldError) {
        if self.is_full() {
            self.is_cut = true;
            return;
        }
        let error = make();
        let value_bytes = error.value.as_ref().map_or(0, String::len);
        self.bytes += error.field.len() + value_bytes + error.detail.len();
        self.errors.push(error);
    }

    /// Returns whether the list is full.
    pub fn is_full(&self) -> bool {
        self.errors.len() >= FAULTS_MAX || self.bytes >= FAULT_BYTES_MAX
    }

    /// Adds all errors of another list.
    pub fn extend(&mut self, other: ErrorList) {
        self.is_cut |= other.is_cut;
        for error in other.errors {
            self.push(error);
        }
    }

    /// Inserts all errors of another list at an index.
    pub fn insert(&mut self, place: usize, other: ErrorList) {
        let behind = self.errors.split_off(place.min(self.errors.len()));
        self.extend(other);
        self.errors.extend(behind);
    }

    /// Iterates over the errors.
    pub fn iter(&self) -> std::slice::Iter<'_, FieldError> {
        self.errors.iter()
    }

    /// Returns the number of errors.
    pub fn len(&self) -> usize {
        self.errors.len()
    }

    /// Returns whether there are no errors.
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// Sorts the errors by message, as kube-apiserver does where it iterates over maps.
    pub fn sort(&mut self) {
        self.errors.sort_by_cached_key(ToString::to_string);
    }

    /// Removes errors with the same text as an earlier one.
    pub fn drop_repeated(&mut self) {
        if self.errors.len() > 1 {
            let mut seen = std::collections::HashSet::new();
            self.errors.retain(|error| seen.insert(error.to_string()));
        }
    }

    /// Keeps the first `count` errors.
    pub fn truncate(&mut self, count: usize) {
        self.errors.truncate(count);
    }

    /// Returns `Ok` if there are no errors, else the 422.
    pub fn into_result(self, group: &str, kind: &str, name: &str) -> Result<(), Failure> {
        if self.is_empty() { Ok(()) } else { Err(Status::invalid(group, kind, name, self)) }
    }

    /// Joins the errors without duplicates: `a`, or `[a, b]`.
    pub fn aggregate(&self) -> String {
        let texts: Vec<String> = self.errors.iter().map(FieldError::to_string).collect();
        let mut seen: SmallSet<&str> = SmallSet::new();
        let mut distinct: Vec<&str> =
            texts.iter().map(String::as_str).filter(|text| seen.insert(text)).collect();
        if self.is_cut {
            distinct.push("too many errors: the rest is not listed");
        }
        match distinct.as_slice() {
            [] => "<nil>".to_owned(),
            [one] => (*one).to_owned(),
            many => format!("[{}]", many.join(", ")),
        }
    }
}

impl IntoIterator for ErrorList {
    type Item = FieldError;
    type IntoIter = std::vec::IntoIter<FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.errors.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20,000 errors, and 2,000 with a long value each.
    #[test]
    fn a_status_lists_a_bounded_number_and_size_of_errors() {
        let path = Path::new("spec");
        let mut many = ErrorList::new();
        let mut large = ErrorList::new();
        for at in 0..2 * FAULTS_MAX {
            many.push(FieldError::required(&path.index(at), ""));
        }
        let text = "x".repeat(4096);
        for at in 0..2_000 {
            large.push(FieldError::invalid(&path.index(at), text.as_str(), "is long"));
        }
        for (errors, count) in [(many, FAULTS_MAX), (large, FAULT_BYTES_MAX / 4096)] {
            let status = Status::invalid("", "Pod", "a", errors);
            let causes = status.details.as_ref().map_or(0, |details| details.causes.len());
            assert!(causes <= count && causes > count - 3, "{causes} of {count}");
            assert!(status.message.len() < 2 * FAULT_BYTES_MAX, "{}", status.message.len());
            assert!(status.message.ends_with("too many errors: the rest is not listed]"));
        }
    }

    #[test]
    fn a_message_lists_each_error_once() {
        let spec = Path::new("spec");
        let mut errors = ErrorList::new();
        errors.push(FieldError::required(&spec.field("a"), ""));
        errors.push(FieldError::invalid(&spec.field("b"), "x\n", "must be nice"));
        errors.push(FieldError::required(&spec.field("a"), ""));
        let status = Status::invalid("apps", "Deployment", "web", errors);
        assert_eq!(
            status.message,
            "Deployment.apps \"web\" is invalid: [spec.a: Required value, \
             spec.b: Invalid value: \"x\\n\": must be nice]"
        );
        assert_eq!(status.details.as_ref().map(|d| d.causes.len()), Some(3));
        assert_eq!(status.code, 422);
    }

    #[test]
    fn messages_name_the_resource_with_its_group() {
        let gvr = GroupVersionResource::new("apps", "v1", "deployments");
        assert_eq!(Status::not_found(&gvr, "web").message, "deployments.apps \"web\" not found");
    }
}
