//! [`RequestHead`]: a request without its body.

use crate::audited::AuditedRequest;
use crate::fairness::WatchSeat;
use crate::header_lists;
use crate::negotiate::{self, Accepted, Encoding};
use crate::peer::Peer;
use crate::query::Query;
use http::{HeaderMap, HeaderName, Method, Uri, header};
use keelson_meta::{Failure, Features};
use keelson_resources::api_table::Source;
use keelson_schema::decode::Format;
use std::sync::Arc;

/// Identifies a request in responses, logs and audit events.
pub(crate) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// A request without its body.
pub struct RequestHead {
    /// HTTP method.
    pub method: Method,
    /// The URL as it was sent.
    pub uri: Uri,
    /// Headers.
    pub headers: HeaderMap,
    /// Query parameters.
    pub query: Query,
    /// Whether CBOR is served.
    pub cbor: bool,
    pub features: Features,
    /// The client's connection.
    pub(crate) peer: Arc<Peer>,
    /// The audit event of the request; `None` if it is not audited.
    pub(crate) audited: Option<Arc<AuditedRequest>>,
    /// The seat that a watch returns when its initial events are out.
    pub(crate) watch_seat: Option<WatchSeat>,
}

impl RequestHead {
    /// Returns a header as text.
    pub fn header(&self, name: HeaderName) -> Option<&str> {
        header_lists::text(&self.headers, name)
    }

    /// Negotiates the encoding and shape of objects in the response.
    pub fn accepted(&self) -> Result<Accepted, Failure> {
        negotiate::accept(self.header(header::ACCEPT), negotiate::supported_encodings(self.cbor))
    }

    /// Negotiates the encoding of an error.
    pub fn accepted_for_errors(&self) -> Result<Encoding, Failure> {
        let supported = negotiate::supported_encodings(self.cbor);
        negotiate::accept_plain(self.header(header::ACCEPT), supported)
    }

    /// Negotiates the encoding and shape of a subresource that has no tables.
    pub fn accepted_without_tables(&self) -> Result<Accepted, Failure> {
        let header = self.header(header::ACCEPT);
        let supported = negotiate::supported_encodings(self.cbor);
        negotiate::accept_without_tables(header, supported)
    }

    /// Negotiates the encoding and shape of objects of a built-in or custom resource.
    pub fn accepted_of(&self, source: Source) -> Result<Accepted, Failure> {
        let header = self.header(header::ACCEPT);
        let supported = negotiate::supported_encodings(self.cbor);
        match source {
            Source::BuiltIn => negotiate::accept(header, supported),
            Source::Custom => negotiate::accept_custom(header, supported),
        }
    }

    /// Returns the format of the request body.
    pub fn body_format(&self) -> Result<Format, Failure> {
        negotiate::body_format(
            self.header(header::CONTENT_TYPE),
            negotiate::supported_encodings(self.cbor),
        )
    }

    /// Returns whether the response is indented (`pretty`, or a browser or curl).
    pub fn pretty(&self) -> bool {
        if negotiate::accepts_pretty(self.header(header::ACCEPT)) {
            return true;
        }
        self.query.pretty().unwrap_or_else(|| {
            let agent = self.header(header::USER_AGENT).unwrap_or_default();
            agent.starts_with("curl")
                || agent.starts_with("Wget")
                || agent.starts_with("Mozilla/5.0")
        })
    }

    /// Whether the client asks to go on in another protocol.
    pub fn is_upgrade(&self) -> bool {
        header_lists::is_upgrade(&self.headers)
    }

    /// Whether the client asks for a WebSocket (RFC 6455).
    pub fn is_websocket(&self) -> bool {
        self.method == Method::GET && header_lists::is_handshake(&self.headers)
    }
}
