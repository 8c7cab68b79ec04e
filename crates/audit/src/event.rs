//! [`Event`]: what is known of a request at one stage (audit.k8s.io/v1 `Event`), and its JSON.

use crate::level::{Level, Stage};
use bytes::Bytes;
use keelson_meta::{Str, Timestamp, User, Value};
use keelson_schema::json;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::net::IpAddr;

/// What is known of a request at one stage.
#[derive(Clone, Debug)]
pub struct Event {
    /// How much the event says.
    pub level: Level,
    /// Identifies the request.
    pub audit_id: Str,
    /// The stage.
    pub stage: Stage,
    /// Path and query.
    pub request_uri: String,
    /// The API verb; of non-resource requests the lower-case HTTP method.
    pub verb: Str,
    /// The sender; `None` if he was not authenticated.
    pub user: Option<User>,
    /// The user as whom the sender acts.
    pub impersonated_user: Option<User>,
    /// The verb of constrained impersonation that allowed it.
    pub impersonation_constraint: Option<Str>,
    /// Where the request came from.
    pub source_addresses: Vec<IpAddr>,
    /// The client's program.
    pub user_agent: String,
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
    /// What authorization, admission and others say of the request.
    pub annotations: BTreeMap<Str, Str>,
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
    /// Appends the members of the event as JSON and the brace that ends it, without `kind` and
    /// `apiVersion`, which items of an `EventList` do not have.
    pub(crate) fn write_members(&self, out: &mut Vec<u8>) {
        let mut object = Writer { out };
        object.text(name!("level"), self.level.name());
        object.text(name!("auditID"), &self.audit_id);
        object.text(name!("stage"), self.stage.name());
        object.text(name!("requestURI"), &self.request_uri);
        object.text(name!("verb"), &self.verb);
        object.nested(name!("user"), |out| match &self.user {
            Some(user) => write_user(user, out),
            None => out.extend_from_slice(b"{}"),
        });
        if let Some(user) = &self.impersonated_user {
            object.nested(name!("impersonatedUser"), |out| write_user(user, out));
        }
        if let Some(constraint) = &self.impersonation_constraint {
            object.nested(name!("authenticationMetadata"), |out| {
                let mut metadata = Writer::begin(out);
                metadata.text(name!("impersonationConstraint"), constraint);
                metadata.end();
            });
        }
        if !self.source_addresses.is_empty() {
            object.nested(name!("sourceIPs"), |out| write_addresses(&self.source_addresses, out));
        }
        object.filled(name!("userAgent"), &self.user_agent);
        if let Some(reference) = &self.object {
            object.nested(name!("objectRef"), |out| reference.write(out));
        }
        if let Some(status) = &self.status {
            object.nested(name!("responseStatus"), |out| status.write(out));
        }
        for (name, text) in [
            (name!("requestObject"), &self.request_object),
            (name!("responseObject"), &self.response_object),
        ] {
            if let Some(text) = text {
                object.nested(name, |out| out.extend_from_slice(text));
            }
        }
        object.plain(name!("requestReceivedTimestamp"), self.received.micro());
        object.plain(name!("stageTimestamp"), self.stage_time.micro());
        if !self.annotations.is_empty() {
            object.nested(name!("annotations"), |out| {
                let mut annotations = Writer::begin(out);
                for (key, value) in &self.annotations {
                    annotations.any(key, |out| json::write_string(value, out));
                }
                annotations.end();
            });
        }
        object.end();
    }
}

impl ObjectReference {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = Writer::begin(out);
        object.filled(name!("resource"), &self.resource);
        object.filled(name!("namespace"), &self.namespace);
        object.filled(name!("name"), &self.name);
        object.filled(name!("uid"), &self.uid);
        object.filled(name!("apiGroup"), &self.group);
        object.filled(name!("apiVersion"), &self.version);
        object.filled(name!("resourceVersion"), &self.resource_version);
        object.filled(name!("subresource"), &self.subresource);
        object.end();
    }
}

impl ResponseStatus {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = Writer::begin(out);
        object.nested(name!("metadata"), |out| out.extend_from_slice(b"{}"));
        object.filled(name!("status"), &self.status);
        object.filled(name!("message"), &self.message);
        object.filled(name!("reason"), &self.reason);
        if let Some(details) = &self.details {
            object.nested(name!("details"), |out| json::write_value(details, out));
        }
        object.nested(name!("code"), |out| out.extend_from_slice(self.code.to_string().as_bytes()));
        object.end();
    }
}

fn write_user(user: &User, out: &mut Vec<u8>) {
    let mut object = Writer::begin(out);
    object.filled(name!("username"), &user.name);
    object.filled(name!("uid"), &user.uid);
    object.texts(name!("groups"), user.groups.iter());
    if !user.extra.is_empty() {
        let mut extra: Vec<_> = user.extra.iter().collect();
        extra.sort();
        object.nested(name!("extra"), |out| {
            let mut object = Writer::begin(out);
            for (key, values) in extra {
                object.any(key, |out| write_texts(values.iter(), out));
            }
            object.end();
        });
    }
    object.end();
}

fn write_texts<T: AsRef<str>>(texts: impl Iterator<Item = T>, out: &mut Vec<u8>) {
    out.push(b'[');
    for (at, text) in texts.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        json::write_string(text.as_ref(), out);
    }
    out.push(b']');
}

fn write_addresses(addresses: &[IpAddr], out: &mut Vec<u8>) {
    let mut separator = b'[';
    for address in addresses {
        out.push(separator);
        write_plain(address, out);
        separator = b',';
    }
    out.push(b']');
}

/// Writes a text that has no character that JSON escapes.
fn write_plain(text: impl fmt::Display, out: &mut Vec<u8>) {
    out.push(b'"');
    // Nothing fails to be written to memory.
    let _ = write!(out, "{text}");
    out.push(b'"');
}

/// Writes the members of a JSON object, which has begun.
struct Writer<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> Writer<'o> {
    fn begin(out: &'o mut Vec<u8>) -> Writer<'o> {
        out.push(b'{');
        Writer { out }
    }

    fn end(self) {
        self.out.push(b'}');
    }

    /// Writes a member; `name` is a `name!`.
    fn nested(&mut self, name: &'static str, write: impl FnOnce(&mut Vec<u8>)) {
        let separated = name.as_bytes();
        let is_first = self.out.last() == Some(&b'{');
        self.out.extend_from_slice(if is_first { &separated[1..] } else { separated });
        write(self.out);
    }

    /// Writes a member with any name.
    fn any(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        if self.out.last() != Some(&b'{') {
            self.out.push(b',');
        }
        json::write_string(name, self.out);
        self.out.push(b':');
        write(self.out);
    }

    fn text(&mut self, name: &'static str, text: &str) {
        self.nested(name, |out| json::write_string(text, out));
    }

    /// Writes a text that has no character that JSON escapes.
    fn plain(&mut self, name: &'static str, text: impl fmt::Display) {
        self.nested(name, |out| write_plain(text, out));
    }

    /// Writes a text unless it is empty.
    fn filled(&mut self, name: &'static str, text: &str) {
        if !text.is_empty() {
            self.text(name, text);
        }
    }

    /// Writes a list of texts unless it is empty.
    fn texts<T: AsRef<str>>(&mut self, name: &'static str, texts: impl Iterator<Item = T>) {
        let mut texts = texts.peekable();
        if texts.peek().is_some() {
            self.nested(name, |out| write_texts(texts, out));
        }
    }
}
