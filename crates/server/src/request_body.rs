//! The body of a request. Handlers read it whole or not at all; what they leave unread is read and thrown
//! away where it is short, as Go's server does, so that an HTTP/1.1 connection can go on.

use crate::bodies::Bodies;
use crate::limits::Limits;
use bytes::{BufMut, Bytes};
use http::{HeaderMap, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use keelson_meta::scratch::transient_buffer;
use keelson_meta::{Failure, Reason, Status};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// A body, and whether its client still waits for leave to send it.
pub(crate) struct RequestBody {
    incoming: Incoming,
    /// The client asked with `Expect: 100-continue`, which the first read answers.
    awaits_leave: bool,
}

impl RequestBody {
    pub fn new(incoming: Incoming, headers: &HeaderMap) -> RequestBody {
        let is_there = !incoming.is_end_stream();
        RequestBody { incoming, awaits_leave: is_there && headers.contains_key(header::EXPECT) }
    }

    /// Reads all of it, or 413 beyond `bytes_max`. Most come in one piece, which needs no second place to
    /// stand in. What is read counts among `bodies` for as long as what is given beside it is there.
    pub async fn read(
        &mut self,
        bytes_max: usize,
        bodies: &Bodies,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Failure> {
        self.awaits_leave = false;
        let (mut pieces, mut total, mut held) = (vec![], 0, None);
        while let Some(piece) = self.piece().await? {
            total += piece.len();
            if total > bytes_max {
                let why = format!("Request entity too large: limit is {bytes_max}");
                return Err(Status::too_large(why));
            }
            let more = bodies.hold(piece.len()).await?;
            match &mut held {
                None => held = Some(more),
                Some(held) => held.merge(more),
            }
            if pieces.is_empty() && self.incoming.is_end_stream() {
                return Ok((piece, held));
            }
            pieces.push(piece);
        }
        let mut whole = transient_buffer(total);
        pieces.into_iter().for_each(|piece| whole.put(piece));
        Ok((whole.into(), held))
    }

    /// The next piece.
    async fn piece(&mut self) -> Result<Option<Bytes>, Failure> {
        let frame = match self.incoming.frame().await {
            None => return Ok(None),
            Some(Ok(frame)) => frame,
            // Upstream passes on what Go's reader says: 500 and no reason.
            Some(Err(error)) => {
                let is_cut = error.is_incomplete_message();
                let why =
                    if is_cut { "unexpected EOF" } else { "http: invalid byte in chunk length" };
                return Err(Status::new(Reason::Unknown, why));
            }
        };
        // What is no data comes behind all data.
        Ok(frame.into_data().ok())
    }

    /// Whether there may be something left to read.
    pub fn is_unread(&self) -> bool {
        !self.incoming.is_end_stream()
    }

    /// Reads what is left and throws it away. False when that is too much or takes too long: the
    /// connection cannot take another request then.
    pub async fn discard(&mut self, limits: &Limits) -> bool {
        let bytes_max = limits.unread_body_bytes_max;
        if self.awaits_leave || self.incoming.size_hint().lower() >= bytes_max {
            return false;
        }
        let discarded = async {
            let mut left = bytes_max;
            while let Some(frame) = self.incoming.frame().await {
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
