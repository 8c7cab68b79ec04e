//! The text line of an event (`--audit-log-format=legacy`).

use crate::event::Event;
use http::HeaderValue;
use keelson_meta::status::quote;
use keelson_meta::{Str, Timestamp};
use std::borrow::Cow;

/// Returns the line of an event, without a newline.
pub(crate) fn line(event: &Event) -> String {
    let user = event.user.as_ref().filter(|user| !user.name.is_empty());
    let groups = user.map(|user| &user.groups).filter(|groups| !groups.is_empty());
    let acting = event.impersonated_user.as_ref();
    let namespace = event.object.as_ref().map(|object| object.namespace.as_str());
    let response = event.status.as_ref().map(|status| status.code.to_string());
    let address = event.source_addresses.first().map(ToString::to_string);
    let fields = [
        ("id", quote(&text(&event.audit_id))),
        ("stage", quote(event.stage.name())),
        ("ip", quote(address.as_deref().unwrap_or("<unknown>"))),
        ("method", quote(&event.verb)),
        ("user", quote(user.map_or("<none>", |user| &user.name))),
        ("groups", quote(&groups.map_or_else(|| "<none>".to_owned(), |groups| list(groups)))),
        ("as", quote(acting.map_or("<self>", |user| &user.name))),
        ("asgroups", quote(&acting.map_or_else(|| "<lookup>".to_owned(), |u| list(&u.groups)))),
        ("user-agent", quote(&text(&event.user_agent))),
        ("namespace", quote(namespace.filter(|name| !name.is_empty()).unwrap_or("<none>"))),
        ("uri", quote(&event.request_uri)),
        ("response", format!("\"{}\"", response.as_deref().unwrap_or("<deferred>"))),
    ];
    let mut out = format!("{} AUDIT:", nano_text(event.received));
    for (name, value) in fields {
        out.push_str(&format!(" {name}={value}"));
    }
    out
}

fn text(header: &HeaderValue) -> Cow<'_, str> {
    String::from_utf8_lossy(header.as_bytes())
}

fn list(texts: &[Str]) -> String {
    texts.iter().map(|text| quote(text)).collect::<Vec<_>>().join(",")
}

/// Formats Go's RFC3339Nano: a fraction without trailing zeros.
fn nano_text(time: Timestamp) -> String {
    let seconds = time.truncated().text();
    let nanos = format!("{:09}", time.nanos);
    let fraction = nanos.trim_end_matches('0');
    if fraction.is_empty() {
        return seconds.to_string();
    }
    format!("{}.{fraction}Z", seconds.trim_end_matches('Z'))
}
