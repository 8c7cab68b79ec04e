//! The body of a request. Handlers read it whole or not at all; what they leave unread is read and thrown
//! away where it is short, as Go's server does, so that an HTTP/1.1 connection can go on.

use crate::limits::Limits;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use keelson_meta::{Failure, Reason, Status};
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

    /// Reads all of it, or 413 beyond `bytes_max`.
    pub async fn read(&mut self, bytes_max: usize) -> Result<Bytes, Failure> {
        self.awaits_leave = false;
        match whole(Limited::new(&mut self.incoming, bytes_max)).await {
            Ok(body) => Ok(body),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(Status::too_large(format!("Request entity too large: limit is {bytes_max}")))
            }
            // Upstream passes on what Go's reader says: 500 and no reason.
            Err(error) => {
                let is_cut = error
                    .downcast_ref::<hyper::Error>()
                    .is_some_and(hyper::Error::is_incomplete_message);
                let why =
                    if is_cut { "unexpected EOF" } else { "http: invalid byte in chunk length" };
                Err(Status::new(Reason::Unknown, why))
            }
        }
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

/// All of a body. Most come in one piece, which needs no second place to stand in.
async fn whole(
    mut body: Limited<&mut Incoming>,
) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    let first = match body.frame().await.transpose()?.map(Frame::into_data) {
        Some(Ok(first)) => first,
        // What is no data comes behind all data.
        Some(Err(_)) | None => return Ok(Bytes::new()),
    };
    if body.is_end_stream() {
        return Ok(first);
    }
    let mut rest = body.collect().await?.aggregate();
    let mut whole = BytesMut::with_capacity(first.len() + rest.remaining());
    whole.put(first);
    whole.put(&mut rest);
    Ok(whole.freeze())
}
