//! Ranges of many keys. They are read, sorted and encoded on threads of their own, a few at a time,
//! so that their cost in time and memory is bounded and no other call waits for them. A long
//! response is sent in pieces, each of which is freed when it is sent.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::{Either, select};
use futures_util::stream;
use http::{HeaderMap, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use prost::Message;
use tokio::sync::oneshot;
use tonic::Status;
use tonic::body::Body;

use super::calls::FRAME_BYTES;
use super::shared::Shared;
use super::stall::Share;
use crate::engine::Engine;
use crate::error::EtcdError;
use crate::kv::{Interval, keys_needed};
use crate::limits::{FEW_KEYS_MAX, LONG_RESPONSE_BYTES};
use crate::proto::{RangeRequest, RangeResponse};
use crate::room::Room;

/// Least bytes of a piece of a response.
const PIECE_BYTES: usize = 256 << 10;

/// A long response that was encoded already, in place of the empty one that the call returns.
#[derive(Clone, Default)]
pub(crate) struct Prepared(Arc<OnceLock<LongResponse>>);

struct LongResponse {
    pieces: Vec<Bytes>,
    room: Room,
}

impl Prepared {
    /// Puts the long response, if there is one, in the place of the body.
    pub(crate) fn into_response(self, response: Response<Body>) -> Response<Body> {
        let Some(long) = Arc::into_inner(self.0).and_then(OnceLock::into_inner) else {
            return response;
        };
        let (mut head, _) = response.into_parts();
        head.extensions.insert(Share::of(long.room));
        Response::from_parts(head, body(long.pieces))
    }
}

/// Answers a range.
pub(crate) async fn range(
    engine: Arc<Engine>,
    req: RangeRequest,
    shared: Shared,
    prepared: Prepared,
) -> Result<RangeResponse, EtcdError> {
    if has_few_keys(&req) {
        return engine.range(req).await;
    }
    let lane = Arc::clone(&shared.ranges).acquire_owned().await.map_err(|_| EtcdError::Stopped)?;
    let runtime = tokio::runtime::Handle::current();
    // Dropped with this call when its client does not wait any more: the thread, which has the
    // lane, then reads no further page.
    let (_waits, gone) = oneshot::channel::<()>();
    let reading = move || {
        let read = pin!(engine.range_with_permit(req));
        let read = match runtime.block_on(select(read, gone)) {
            Either::Left((read, _)) => read,
            Either::Right(_) => Err(EtcdError::Stopped),
        };
        (read, lane)
    };
    let (read, lane) = on_own_thread(reading).await?;
    let (response, permit) = read?;
    let bytes = response.encoded_len();
    if bytes < LONG_RESPONSE_BYTES {
        return Ok(response);
    }
    let room = shared.response_room.take(bytes).await?;
    let encoding = move || (encode(response), lane, permit);
    let (pieces, ..) = on_own_thread(encoding).await?;
    let _ = prepared.0.set(LongResponse { pieces, room });
    Ok(RangeResponse::default())
}

/// Whether a range reads no more than some keys, and sorts nothing.
fn has_few_keys(req: &RangeRequest) -> bool {
    req.count_only
        || Interval::new(&req.key, &req.range_end).is_single()
        || keys_needed(req).is_some_and(|needed| needed <= FEW_KEYS_MAX)
}

async fn on_own_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, EtcdError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| EtcdError::Storage(error.to_string()))
}

/// Encodes a response as one message of gRPC, in pieces.
fn encode(mut response: RangeResponse) -> Vec<Bytes> {
    let length = u32::try_from(response.encoded_len()).unwrap_or(u32::MAX);
    let kvs = std::mem::take(&mut response.kvs);
    let mut piece = BytesMut::with_capacity(PIECE_BYTES);
    // Not compressed.
    piece.put_u8(0);
    piece.put_u32(length);
    // `BytesMut` grows as needed.
    let _ = response.encode(&mut piece);
    let mut pieces = Vec::new();
    for kv in kvs {
        // The keys of several messages, one behind the other, are those of one message.
        let part = RangeResponse { kvs: vec![kv], ..RangeResponse::default() };
        let _ = part.encode(&mut piece);
        if piece.len() >= PIECE_BYTES {
            pieces.push(piece.split().freeze());
        }
    }
    pieces.push(piece.freeze());
    debug_assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>(), length as usize + FRAME_BYTES);
    pieces
}

/// Returns the body of a successful call.
fn body(pieces: Vec<Bytes>) -> Body {
    let mut trailers = HeaderMap::new();
    let _ = Status::ok("").add_header(&mut trailers);
    let frames =
        pieces.into_iter().map(Frame::data).chain(std::iter::once(Frame::trailers(trailers)));
    Body::new(StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{KeyValue, ResponseHeader};

    #[test]
    fn the_pieces_are_one_message() {
        let kv = |size: usize| KeyValue {
            key: "k".into(),
            value: vec![b'v'; size].into(),
            ..KeyValue::default()
        };
        let response = RangeResponse {
            header: Some(ResponseHeader { revision: 7, ..ResponseHeader::default() }),
            kvs: (0..9).map(|index| kv(index * 50_000)).collect(),
            more: true,
            count: 40,
        };
        let pieces = encode(response.clone());
        assert!(pieces.len() > 3, "{}", pieces.len());
        let all = pieces.concat();
        let (frame, message) = all.split_at(FRAME_BYTES);
        assert_eq!(frame[1..], u32::to_be_bytes(message.len() as u32));
        assert_eq!(RangeResponse::decode(message).expect("a message"), response);
    }
}
