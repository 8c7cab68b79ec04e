//! The body of a request. Handlers read it completely or not at all. A short unread body is
//! discarded, as in Go's server, so that an HTTP/1.1 connection can be reused.

use crate::body_memory::BodyMemory;
use crate::limits::Limits;
use bytes::{BufMut, Bytes};
use http::{HeaderMap, header};
use http_body::Body as _;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use keelson_egress::StreamedBody;
use keelson_meta::scratch::transient_buffer;
use keelson_meta::{Failure, Reason, Status};
use std::io;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// A request body.
pub(crate) struct RequestBody {
    /// `None` after it was handed on.
    incoming: Option<Incoming>,
    /// The client sent `Expect: 100-continue`; the first read sends 100.
    awaits_continue: bool,
}

impl RequestBody {
    pub fn new(incoming: Incoming, headers: &HeaderMap) -> RequestBody {
        let is_there = !incoming.is_end_stream();
        let awaits_continue = is_there && headers.contains_key(header::EXPECT);
        RequestBody { incoming: Some(incoming), awaits_continue }
    }

    /// Returns no body.
    pub fn empty() -> RequestBody {
        RequestBody { incoming: None, awaits_continue: false }
    }

    /// Reads the whole body. Fails with 413 beyond `bytes_max`. A body of one chunk, as most are,
    /// is not copied. The memory stays reserved in `bodies` until the returned permit is dropped.
    pub async fn read(
        &mut self,
        bytes_max: usize,
        bodies: &BodyMemory,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Failure> {
        self.awaits_continue = false;
        let mut chunks = vec![];
        let mut total = 0;
        let mut reserved = None;
        while let Some(chunk) = self.chunk().await? {
            total += chunk.len();
            if total > bytes_max {
                let why = format!("Request entity too large: limit is {bytes_max}");
                return Err(Status::too_large(why));
            }
            let more = bodies.reserve(chunk.len()).await?;
            match &mut reserved {
                None => reserved = Some(more),
                Some(reserved) => reserved.merge(more),
            }
            if chunks.is_empty() && !self.is_unread() {
                return Ok((chunk, reserved));
            }
            chunks.push(chunk);
        }
        let mut whole = transient_buffer(total);
        chunks.into_iter().for_each(|chunk| whole.put(chunk));
        Ok((whole.into(), reserved))
    }

    /// Reads the next chunk.
    async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        let Some(incoming) = &mut self.incoming else { return Ok(None) };
        let frame = match incoming.frame().await {
            None => return Ok(None),
            Some(Ok(frame)) => frame,
            // As upstream: 500 without a reason, with the message of Go's reader.
            Some(Err(error)) => {
                let is_cut = error.is_incomplete_message();
                let why =
                    if is_cut { "unexpected EOF" } else { "http: invalid byte in chunk length" };
                return Err(Status::new(Reason::Unknown, why));
            }
        };
        // Trailers come after all data.
        Ok(frame.into_data().ok())
    }

    /// Hands the body on to be read by another server. It is empty here from then on.
    pub fn take(&mut self) -> StreamedBody {
        self.awaits_continue = false;
        match self.incoming.take() {
            Some(incoming) => incoming.map_err(io::Error::other).boxed_unsync(),
            None => Empty::new().map_err(|never| match never {}).boxed_unsync(),
        }
    }

    /// Returns whether some of the body may be unread.
    pub fn is_unread(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| !incoming.is_end_stream())
    }

    /// Discards the rest of the body. Returns false if it is too long or takes too long; then the
    /// connection cannot be reused.
    pub async fn discard(&mut self, limits: &Limits) -> bool {
        let bytes_max = limits.unread_body_bytes_max;
        let Some(incoming) = &mut self.incoming else { return true };
        if self.awaits_continue || incoming.size_hint().lower() >= bytes_max {
            return false;
        }
        let discarded = async {
            let mut left = bytes_max;
            while let Some(frame) = incoming.frame().await {
                let Ok(frame) = frame else { return false };
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                if bytes >= left {
                    return false;
                }
                left -= bytes;
            }
            true
        };
        timeout(limits.unread_body_timeout, discarded).await.unwrap_or(false)
    }
}
