//! [`Event`]: what is known of a request at one stage (audit.k8s.io/v1 `Event`), and its JSON.

use crate::level::{Level, Stage};
use crate::request::RequestUri;
use bytes::Bytes;
use http::HeaderValue;
use keelson_meta::{Str, Timestamp, User, Value};
use keelson_schema::json;
use smallvec::SmallVec;
use std::io::Write;
use std::net::IpAddr;

/// What is known of a request at one stage.
#[derive(Clone, Debug)]
pub struct Event {
    /// How much the event says.
    pub level: Level,
    /// Identifies the request.
    pub audit_id: HeaderValue,
    /// The stage.
    pub stage: Stage,
    /// Path and query.
    pub request_uri: RequestUri,
    /// The API verb; of non-resource requests the lower-case HTTP method.
    pub verb: Str,
    /// The sender; `None` if he was not authenticated.
    pub user: Option<User>,
    /// The user as whom the sender acts.
    pub impersonated_user: Option<User>,
    /// The verb of constrained impersonation that allowed it.
    pub impersonation_constraint: Option<Str>,
    /// Where the request came from.
    pub source_addresses: SmallVec<[IpAddr; 2]>,
    /// The client's program.
    pub user_agent: HeaderValue,
    /// The object; `None` for non-resource requests.
    pub object: Option<ObjectReference>,
    /// How it ended; `None` before the response.
    pub status: Option<ResponseStatus>,
    /// The object that was sent, as JSON.
    pub request_object: Option<Bytes>,
    /// The object of the response, as JSON.
    pub response_object: Option<Bytes>,
    /// When the request arrived.
    pub received: Timestamp,
    /// When the stage was reached.
    pub stage_time: Timestamp,
    /// What authorization, admission and others say of the request, by key.
    pub annotations: Vec<(Str, Str)>,
}

/// The object of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectReference {
    /// The resource.
    pub resource: Str,
    /// The namespace, or empty.
    pub namespace: Str,
    /// The name, or empty.
    pub name: Str,
    /// The uid that the client sent, or empty.
    pub uid: Str,
    /// The API group, or empty.
    pub group: Str,
    /// The API version.
    pub version: Str,
    /// The resourceVersion that the client sent, or empty.
    pub resource_version: Str,
    /// The subresource, or empty.
    pub subresource: Str,
}

/// How a request ended: the code, and what a `Status` in the response says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResponseStatus {
    /// `Success` or `Failure`; empty if the response is no `Status`.
    pub status: Str,
    /// The message.
    pub message: Str,
    /// The reason.
    pub reason: Str,
    /// The details.
    pub details: Option<Value>,
    /// The HTTP status.
    pub code: u16,
}

impl ResponseStatus {
    /// Returns the status of a response with a `Status` in its body.
    pub fn of(status: &Value, code: u16) -> ResponseStatus {
        let text = |name: &str| Str::new(status.str_at(&[name]).unwrap_or_default());
        ResponseStatus {
            status: text("status"),
            message: text("message"),
            reason: text("reason"),
            details: status.get("details").filter(|details| !details.is_null()).cloned(),
            code,
        }
    }
}

/// The name of a member, which has no character that JSON escapes, as it stands behind another.
macro_rules! name {
    ($name:literal) => {
        concat!(",\"", $name, "\":")
    };
}

impl Event {
    /// Adds an annotation, or replaces its value.
    pub(crate) fn annotate(&mut self, key: Str, value: Str) {
        match self.annotations.binary_search_by(|(known, _)| known.cmp(&key)) {
            Ok(at) => self.annotations[at].1 = value,
            Err(at) => self.annotations.insert(at, (key, value)),
        }
    }

    /// Appends the members of the event as JSON, each behind a comma, and the brace that ends it,
    /// without `kind` and `apiVersion`, which items of an `EventList` do not have.
    pub(crate) fn write_members(&self, out: &mut Vec<u8>) {
        let mut object = Members { out };
        object.plain(name!("level"), self.level.name());
        object.header(name!("auditID"), &self.audit_id);
        object.plain(name!("stage"), self.stage.name());
        object.text(name!("requestURI"), &self.request_uri);
        object.text(name!("verb"), &self.verb);
        match &self.user {
            Some(user) => object.nested(name!("user"), |user_out| write_user(user, user_out)),
            None => object.raw(name!("user"), b"{}"),
        }
        if let Some(user) = &self.impersonated_user {
            object.nested(name!("impersonatedUser"), |out| write_user(user, out));
        }
        if let Some(constraint) = &self.impersonation_constraint {
            object.nested(name!("authenticationMetadata"), |metadata| {
                metadata.text(name!("impersonationConstraint"), constraint);
            });
        }
        if !self.source_addresses.is_empty() {
            object.name(name!("sourceIPs"));
            write_addresses(&self.source_addresses, object.out);
        }
        if !self.user_agent.is_empty() {
            object.header(name!("userAgent"), &self.user_agent);
        }
        if let Some(reference) = &self.object {
            object.nested(name!("objectRef"), |out| reference.write(out));
        }
        if let Some(status) = &self.status {
            object.nested(name!("responseStatus"), |out| status.write(out));
        }
        if let Some(text) = &self.request_object {
            object.raw(name!("requestObject"), text);
        }
        if let Some(text) = &self.response_object {
            object.raw(name!("responseObject"), text);
        }
        object.time(name!("requestReceivedTimestamp"), self.received);
        object.time(name!("stageTimestamp"), self.stage_time);
        if !self.annotations.is_empty() {
            object.nested(name!("annotations"), |annotations| {
                for (key, value) in &self.annotations {
                    annotations.key(key);
                    json::write_string(value, annotations.out);
                }
            });
        }
        object.out.push(b'}');
    }
}

impl ObjectReference {
    fn write(&self, object: &mut Members<'_>) {
        object.filled(name!("resource"), &self.resource);
        object.filled(name!("namespace"), &self.namespace);
        object.filled(name!("name"), &self.name);
        object.filled(name!("uid"), &self.uid);
        object.filled(name!("apiGroup"), &self.group);
        object.filled(name!("apiVersion"), &self.version);
        object.filled(name!("resourceVersion"), &self.resource_version);
        object.filled(name!("subresource"), &self.subresource);
    }
}

impl ResponseStatus {
    fn write(&self, object: &mut Members<'_>) {
        object.raw(name!("metadata"), b"{}");
        object.filled(name!("status"), &self.status);
        object.filled(name!("message"), &self.message);
        object.filled(name!("reason"), &self.reason);
        if let Some(details) = &self.details {
            object.name(name!("details"));
            json::write_value(details, object.out);
        }
        object.name(name!("code"));
        push_number(self.code, object.out);
    }
}

fn write_user(user: &User, object: &mut Members<'_>) {
    object.filled(name!("username"), &user.name);
    object.filled(name!("uid"), &user.uid);
    if !user.groups.is_empty() {
        object.name(name!("groups"));
        write_texts(&user.groups, object.out);
    }
    if !user.extra.is_empty() {
        let mut extra: Vec<_> = user.extra.iter().collect();
        extra.sort();
        object.nested(name!("extra"), |object| {
            for (key, values) in extra {
                object.key(key);
                write_texts(values, object.out);
            }
        });
    }
}

fn write_texts(texts: &[Str], out: &mut Vec<u8>) {
    out.push(b'[');
    for (at, text) in texts.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        json::write_string(text, out);
    }
    out.push(b']');
}

fn write_addresses(addresses: &[IpAddr], out: &mut Vec<u8>) {
    let mut separator = b'[';
    for address in addresses {
        out.extend_from_slice(&[separator, b'"']);
        match address {
            IpAddr::V4(address) => {
                for (at, part) in address.octets().into_iter().enumerate() {
                    if at > 0 {
                        out.push(b'.');
                    }
                    push_number(part.into(), out);
                }
            }
            // Nothing fails to be written to memory.
            IpAddr::V6(address) => drop(write!(out, "{address}")),
        }
        out.push(b'"');
        separator = b',';
    }
    out.push(b']');
}

/// Appends the decimal digits of a number.
fn push_number(number: u16, out: &mut Vec<u8>) {
    let mut digits = [0; 5];
    let mut rest = number;
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

/// Writes the members of a JSON object, each behind a comma. The names are `name!`; where they are
/// inlined, they are copied as constants, without a call.
struct Members<'o> {
    out: &'o mut Vec<u8>,
}

impl Members<'_> {
    #[inline(always)]
    fn name(&mut self, name: &'static str) {
        self.out.extend_from_slice(name.as_bytes());
    }

    /// Writes any name.
    fn key(&mut self, key: &str) {
        self.out.push(b',');
        json::write_string(key, self.out);
        self.out.push(b':');
    }

    #[inline(always)]
    fn text(&mut self, name: &'static str, text: &str) {
        self.name(name);
        json::write_string(text, self.out);
    }

    /// Writes a text unless it is empty.
    #[inline(always)]
    fn filled(&mut self, name: &'static str, text: &str) {
        if !text.is_empty() {
            self.text(name, text);
        }
    }

    /// Writes a text that has no character that JSON escapes.
    #[inline(always)]
    fn plain(&mut self, name: &'static str, text: &'static str) {
        self.name(name);
        self.out.push(b'"');
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(b'"');
    }

    /// Writes the text of a header. What is not UTF-8 is replaced.
    #[inline(always)]
    fn header(&mut self, name: &'static str, value: &HeaderValue) {
        self.name(name);
        let bytes = value.as_bytes();
        match bytes.is_ascii() {
            true => json::write_utf8(bytes, self.out),
            false => json::write_string(&String::from_utf8_lossy(bytes), self.out),
        }
    }

    #[inline(always)]
    fn time(&mut self, name: &'static str, time: Timestamp) {
        self.name(name);
        self.out.push(b'"');
        time.push_micro(self.out);
        self.out.push(b'"');
    }

    /// Writes a value that is JSON already.
    #[inline(always)]
    fn raw(&mut self, name: &'static str, json: &[u8]) {
        self.name(name);
        self.out.extend_from_slice(json);
    }

    /// Writes an object.
    #[inline(always)]
    fn nested(&mut self, name: &'static str, write: impl FnOnce(&mut Members<'_>)) {
        self.name(name);
        write_object(self.out, |out| write(&mut Members { out }));
        self.out.push(b'}');
    }
}

/// Writes members that are each behind a comma as an object, but for the brace that ends it.
#[inline(always)]
pub(crate) fn write_object(out: &mut Vec<u8>, members: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    members(out);
    match out.get_mut(begin) {
        Some(comma) => *comma = b'{',
        None => out.push(b'{'),
    }
}
