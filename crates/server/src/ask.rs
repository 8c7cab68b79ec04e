//! [`Ask`]: a request without its body.

use crate::negotiate::{self, Accepted};
use crate::opening::Peer;
use crate::query::Query;
use crate::route::ResourceRoute;
use http::{HeaderMap, HeaderName, Method, Uri, header};
use keelson_meta::Failure;
use keelson_registry::api_table::Source;
use keelson_schema::decode::Format;
use std::sync::Arc;

/// A request without its body.
pub struct Ask {
    /// HTTP method.
    pub method: Method,
    /// The URL, for its path as it was sent.
    pub uri: Uri,
    /// Headers.
    pub headers: HeaderMap,
    /// Query parameters.
    pub query: Query,
    /// Whether objects are read and written in CBOR too.
    pub cbor: bool,
    /// The client's address.
    pub(crate) peer: Arc<Peer>,
}

impl Ask {
    /// A header as text.
    pub fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The form in which objects are answered.
    pub fn accepted(&self) -> Result<Accepted, Failure> {
        negotiate::accept(self.header(header::ACCEPT), negotiate::spoken(self.cbor))
    }

    /// The form in which a subresource is answered that has no tables.
    pub fn accepted_without_tables(&self) -> Result<Accepted, Failure> {
        let (header, spoken) = (self.header(header::ACCEPT), negotiate::spoken(self.cbor));
        negotiate::accept_without_tables(header, spoken)
    }

    /// The form in which objects of a resource are answered.
    pub fn accepted_of(&self, source: Source) -> Result<Accepted, Failure> {
        let (header, spoken) = (self.header(header::ACCEPT), negotiate::spoken(self.cbor));
        match source {
            Source::BuiltIn => negotiate::accept(header, spoken),
            Source::Custom => negotiate::accept_custom(header, spoken),
        }
    }

    /// The form of the body.
    pub fn body_format(&self) -> Result<Format, Failure> {
        negotiate::body_format(self.header(header::CONTENT_TYPE), negotiate::spoken(self.cbor))
    }

    /// Whether the answer is laid out for people.
    pub fn pretty(&self) -> bool {
        self.query.pretty().unwrap_or_else(|| {
            let agent = self.header(header::USER_AGENT).unwrap_or_default();
            agent.starts_with("curl")
                || agent.starts_with("Wget")
                || agent.starts_with("Mozilla/5.0")
        })
    }

    /// The verb of a resource request, before anybody checked whether the resource has it.
    pub fn verb(&self, route: &ResourceRoute) -> &'static str {
        let collection = route.name.is_empty();
        match self.method {
            // Whatever the method: the path is what asks for it.
            _ if route.is_watch => "watch",
            Method::GET if collection && self.query.is_watch() => "watch",
            Method::GET if collection => "list",
            Method::GET => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if collection => "deletecollection",
            Method::DELETE => "delete",
            _ => "",
        }
    }
}
