//! [`Upgrade`]: a connection whose client asks to go on in another protocol (RFC 9110, section 7.8).

use crate::connections::ConnectionSlot;
use crate::peer::Peer;
use http::{HeaderMap, Method, Request, header};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

/// A request to go on in another protocol.
pub(crate) struct Upgrade {
    /// Resolves to the connection after the response 101 is sent.
    pub on: OnUpgrade,
    /// Counts the connection until it is closed.
    pub slot: ConnectionSlot,
    is_websocket: bool,
}

impl Upgrade {
    /// Takes the upgrade out of a request; `None` if it does not ask for one.
    pub fn of(request: &mut Request<Incoming>, peer: &Peer) -> Option<Upgrade> {
        let headers = request.headers();
        if !has_token(headers, header::CONNECTION, "upgrade") {
            return None;
        }
        let is_websocket =
            *request.method() == Method::GET && has_token(headers, header::UPGRADE, "websocket");
        Some(Upgrade { on: hyper::upgrade::on(request), slot: peer.slot.clone(), is_websocket })
    }

    /// Whether the client asks for a WebSocket (RFC 6455).
    pub fn is_websocket(&self) -> bool {
        self.is_websocket
    }
}

/// Returns the words of a header that is a list, in all its values.
pub(crate) fn header_tokens(
    headers: &HeaderMap,
    name: header::HeaderName,
) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|text| text.split(',')).map(str::trim).filter(|word| !word.is_empty())
}

/// Whether a header that is a list has a word, in any case of its letters.
pub(crate) fn has_token(headers: &HeaderMap, name: header::HeaderName, word: &str) -> bool {
    header_tokens(headers, name).any(|given| given.eq_ignore_ascii_case(word))
}
