//! The choice of a protocol when a connection is upgraded.

use serde_json::Value;
use std::fmt::{self, Write};

/// The request and response header of SPDY's subprotocols.
pub const STREAM_PROTOCOL: &str = "X-Stream-Protocol-Version";
/// The response header that lists the supported ones, when none was asked for.
pub const ACCEPTED_STREAM_PROTOCOLS: &str = "X-Accepted-Stream-Protocol-Versions";
/// The value of `Upgrade` of SPDY.
pub const SPDY: &str = "SPDY/3.1";
/// The SPDY protocols of exec and attach, the best first. The API server asks a node for these.
pub const COMMAND_PROTOCOLS: [&str; 5] = [
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
];
/// The SPDY protocol of port-forward.
pub const PORT_FORWARD_PROTOCOL: &str = "portforward.k8s.io";
/// What stands before a SPDY protocol that is tunnelled through a WebSocket.
const TUNNEL_PREFIX: &str = "SPDY/3.1+";
/// What all protocols of Kubernetes end with.
const SUFFIX: &str = ".k8s.io";
/// The body of the 400 to a tunnel that names no SPDY protocol.
pub const NO_TUNNEL_PROTOCOL: &str = "unable to upgrade: no tunneling spdy protocols provided";

/// Why no SPDY protocol was chosen: the error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpdyRefusal {
    /// The status code.
    pub code: u16,
    /// The body, without the line break with which Go ends it.
    pub message: String,
    /// Values of [`ACCEPTED_STREAM_PROTOCOLS`].
    pub accepted: Vec<&'static str>,
}

/// Chooses the first protocol that the client asks for and the server supports. `requested` are the
/// values of [`STREAM_PROTOCOL`]; `headers` is the number of names of headers in the request.
pub fn choose_spdy(
    requested: &[&str],
    supported: &[&'static str],
    headers: usize,
) -> Result<&'static str, SpdyRefusal> {
    let refusal = |code, message| SpdyRefusal { code, message, accepted: vec![] };
    if requested.is_empty() {
        let message = format!(
            "unable to upgrade: header {STREAM_PROTOCOL} does not exist in request with {headers} \
             headers"
        );
        return Err(refusal(400, message));
    }
    let wanted: Vec<&str> = requested
        .iter()
        .flat_map(|value| value.split(','))
        .map(|protocol| protocol.trim_matches(' '))
        .filter(|protocol| !protocol.is_empty())
        .collect();
    if wanted.is_empty() {
        let message = format!(
            "unable to upgrade: header {STREAM_PROTOCOL} contains {}, but no valid protocols",
            GoList(requested)
        );
        return Err(refusal(400, message));
    }
    let common = wanted.iter().find_map(|it| supported.iter().find(|other| *other == it));
    common.copied().ok_or_else(|| SpdyRefusal {
        code: 403,
        message: format!(
            "unable to upgrade: unable to negotiate protocol: client supports {}, server accepts {}",
            GoList(&wanted),
            GoList(supported)
        ),
        accepted: supported.to_vec(),
    })
}

/// Chooses a WebSocket subprotocol for channels; `requested` is the first value of
/// `Sec-WebSocket-Protocol`, or empty. `None`: 403 without a body.
///
/// A client that asks for none gets the supported protocol with the empty name, if there is one;
/// the response then has no header, but it has an empty one if the client's list has an empty
/// entry.
pub fn choose_websocket<'a>(requested: &'a str, supported: &[&str]) -> Option<&'a str> {
    let requested = requested.trim();
    requested.split(',').map(str::trim).find(|protocol| supported.contains(protocol))
}

/// Returns whether a WebSocket client lists a protocol in which channels can be closed. Then the
/// API server translates, unless the node does it.
pub fn wants_close(requested: &str) -> bool {
    requested.split(',').any(|protocol| protocol.trim() == crate::channels::V5.name)
}

/// Returns whether a WebSocket client wants to tunnel SPDY.
pub fn wants_tunnel(requested: &str) -> bool {
    requested.split(',').any(|protocol| tunnelled(protocol.trim()).is_some())
}

/// Returns the SPDY protocols that a tunnel asks for: the values of [`STREAM_PROTOCOL`] in the
/// request to the node. If there are none, the response is 400 with [`NO_TUNNEL_PROTOCOL`].
pub fn tunnelled_protocols(requested: &str) -> Vec<&str> {
    requested.split(',').filter_map(|protocol| tunnelled(protocol.trim())).collect()
}

/// Returns the WebSocket subprotocol for the SPDY protocol that a node has chosen. `None`: the
/// response to the client has none.
pub fn tunnel_protocol(chosen: &str) -> Option<String> {
    let chosen = chosen.trim();
    (!chosen.is_empty()).then(|| format!("{TUNNEL_PREFIX}{chosen}"))
}

/// The body of the 500 to a tunnel whose node answered 101 without switching to SPDY.
pub const NO_UPGRADE_HEADERS: &str = "unable to upgrade: missing upgrade headers in response";

/// Returns the error if a node answers an upgrade that is passed on with a status below 400 other
/// than 101. Answers from 400 on are passed on to the client.
pub fn invalid_upgrade_response(code: u16) -> String {
    format!("invalid upgrade response: status code {code}")
}

/// Returns the cause, for [`Translator::failed`](crate::translate::Translator::failed), if a node
/// does not switch to SPDY; `body` is its answer's.
pub fn upgrade_failure(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let member = |name: &str| {
        let text = json.as_ref().and_then(|json| json[name].as_str());
        text.map(str::trim).filter(|text| !text.is_empty())
    };
    let shown = member("message").or(member("error")).unwrap_or(text.trim());
    let shown = if shown.is_empty() { "empty server response" } else { shown };
    format!("unable to upgrade connection: {shown}")
}

/// Returns whether the headers of a 101 of a node switch to SPDY.
pub fn is_spdy_upgrade(connection: &str, upgrade: &str) -> bool {
    let contains = |text: &str, word: &str| text.to_ascii_lowercase().contains(word);
    contains(connection, "upgrade") && contains(upgrade, "spdy/3.1")
}

fn tunnelled(protocol: &str) -> Option<&str> {
    protocol.strip_prefix(TUNNEL_PREFIX).filter(|rest| rest.ends_with(SUFFIX))
}

/// A slice of strings as Go's `%v` prints it.
struct GoList<'a>(&'a [&'a str]);

impl fmt::Display for GoList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (place, text) in self.0.iter().enumerate() {
            if place > 0 {
                f.write_char(' ')?;
            }
            f.write_str(text)?;
        }
        f.write_char(']')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUPPORTED: [&str; 2] = ["v4.channel.k8s.io", "channel.k8s.io"];

    #[test]
    fn the_first_common_spdy_protocol_is_chosen() {
        let check = |requested: &[&str], expected: Result<&str, (u16, &str)>| {
            let chosen = choose_spdy(requested, &SUPPORTED, 7);
            let found = chosen.as_ref().map_err(|why| (why.code, why.message.as_str()));
            assert_eq!(found.copied(), expected, "{requested:?}");
        };
        check(&["v4.channel.k8s.io"], Ok("v4.channel.k8s.io"));
        check(&["channel.k8s.io", "v4.channel.k8s.io"], Ok("channel.k8s.io"));
        check(&["v9, ,v4.channel.k8s.io"], Ok("v4.channel.k8s.io"));
        check(
            &[],
            Err((
                400,
                "unable to upgrade: header X-Stream-Protocol-Version does not exist in request \
                 with 7 headers",
            )),
        );
        check(
            &["", ","],
            Err((
                400,
                "unable to upgrade: header X-Stream-Protocol-Version contains [ ,], but no valid \
                 protocols",
            )),
        );
        check(
            &["v9,v8"],
            Err((
                403,
                "unable to upgrade: unable to negotiate protocol: client supports [v9 v8], server \
                 accepts [v4.channel.k8s.io channel.k8s.io]",
            )),
        );
        assert_eq!(choose_spdy(&["v9"], &SUPPORTED, 1).unwrap_err().accepted, SUPPORTED);
    }

    #[test]
    fn the_first_common_websocket_protocol_is_chosen() {
        let with_none = ["", "v4.channel.k8s.io"];
        for (requested, supported, expected) in [
            ("v4.channel.k8s.io", &with_none[..], Some("v4.channel.k8s.io")),
            (" v9 , v4.channel.k8s.io", &with_none, Some("v4.channel.k8s.io")),
            ("", &with_none, Some("")),
            ("v9,", &with_none, Some("")),
            ("v9", &with_none, None),
            ("", &["v5.channel.k8s.io"], None),
        ] {
            assert_eq!(choose_websocket(requested, supported), expected, "{requested:?}");
        }
        assert!(wants_close("v4.channel.k8s.io, v5.channel.k8s.io"));
        assert!(!wants_close("v4.channel.k8s.io"));
    }

    #[test]
    fn failed_upgrades_show_what_the_node_said() {
        for (body, expected) in [
            ("fault 500\n", "fault 500"),
            (" \n", "empty server response"),
            (r#"{"kind":"Status","message":"no pod "}"#, "no pod"),
            (r#"{"message":"","error":"no pod"}"#, "no pod"),
            (r#"{"code":1}"#, r#"{"code":1}"#),
            ("[1]", "[1]"),
        ] {
            let expected = format!("unable to upgrade connection: {expected}");
            assert_eq!(upgrade_failure(body.as_bytes()), expected, "{body}");
        }
        assert_eq!(invalid_upgrade_response(204), "invalid upgrade response: status code 204");
    }

    #[test]
    fn tunnels_name_spdy_protocols() {
        for (requested, expected) in [
            ("SPDY/3.1+portforward.k8s.io", vec!["portforward.k8s.io"]),
            ("x, SPDY/3.1+a.k8s.io,SPDY/3.1+b.k8s.io", vec!["a.k8s.io", "b.k8s.io"]),
            ("SPDY/3.1+portforward", vec![]),
            ("spdy/3.1+portforward.k8s.io", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(tunnelled_protocols(requested), expected, "{requested:?}");
            assert_eq!(wants_tunnel(requested), !expected.is_empty(), "{requested:?}");
        }
        let name = "SPDY/3.1+portforward.k8s.io";
        assert_eq!(tunnel_protocol(" portforward.k8s.io").as_deref(), Some(name));
        assert_eq!(tunnel_protocol(" "), None);
        assert!(is_spdy_upgrade("keep-alive, Upgrade", "spdy/3.1"));
        assert!(!is_spdy_upgrade("keep-alive", "SPDY/3.1"));
        assert!(!is_spdy_upgrade("Upgrade", "websocket"));
    }
}
