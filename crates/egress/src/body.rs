//! The bodies of requests.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{Either, Full};
use std::io;

/// The body of a request that is sent while it is read.
pub type StreamedBody = UnsyncBoxBody<Bytes, io::Error>;

/// A request body: complete, or read while it is sent.
pub(crate) type Body = Either<Full<Bytes>, StreamedBody>;
