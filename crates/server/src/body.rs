//! Response bodies: complete, a list that is encoded while it is sent, or a stream of watch events.

use bytes::{BufMut, Bytes, BytesMut};
use flate2::{Compression, write::GzEncoder};
use http_body::{Body as HttpBody, Frame, SizeHint};
use keelson_egress::StreamedResponse;
use keelson_meta::{Failure, Status};
use keelson_records::Entry;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// Size of the chunks of a list. hyper buffers up to 16 chunks of an HTTP/1.1 response.
const CHUNK_BYTES: usize = 8 << 10;
/// Bytes of a list after which others have their turn: of one in its stored encoding, of one that
/// is encoded, and of one that is compressed. Each takes about 0.2 ms.
const STORED_TURN_BYTES: usize = 128 << 10;
const ENCODED_TURN_BYTES: usize = 32 << 10;
const COMPRESSED_TURN_BYTES: usize = 4 << 10;
/// The gzip level of responses (upstream's `defaultGzipContentEncodingLevel`).
const GZIP_LEVEL: Compression = Compression::new(1);

/// The result of producing the next chunk of a body.
pub(crate) enum Step {
    /// A chunk to send.
    Chunk(Bytes),
    /// No chunk yet: yields to other tasks before it continues.
    Yield,
    /// The end of the body.
    Done,
}

/// Produces a body chunk by chunk while it is sent, without waiting for IO.
pub(crate) trait ChunkSource: Send {
    /// Produces the next chunk. A failure closes the connection, because the response has already
    /// started.
    fn next(&mut self) -> Result<Step, Failure>;

    /// Returns whether all chunks were produced.
    fn is_done(&self) -> bool;

    /// Returns the size of the source data in bytes.
    fn source_bytes(&self) -> u64;
}

/// A response body.
pub(crate) enum Body {
    /// A complete body; `None` is empty or already sent.
    Whole(Option<Bytes>),
    /// A list of objects in their stored encoding.
    List(ListBody),
    /// A list in another encoding.
    Listing(Box<dyn ChunkSource>),
    /// A stream of chunks.
    Stream(ChunkStream),
    /// One of the first three, compressed while it is sent.
    Gzip(Box<GzipBody>),
    /// The body of another server's response, passed on while it arrives.
    Remote(Box<RemoteBody>),
    /// A body that cannot be completed; the connection is closed.
    Broken,
}

impl Body {
    /// Returns the size of the body in bytes, estimated for lists; 0 for streams.
    pub fn estimated_bytes(&self) -> u64 {
        match self {
            Body::Listing(listing) => listing.source_bytes(),
            other => other.size_hint().exact().unwrap_or(0),
        }
    }

    /// Returns a complete body, uncompressed. `None`: it is empty, or made while it is sent.
    pub fn whole(&self) -> Option<&Bytes> {
        match self {
            Body::Whole(bytes) => bytes.as_ref(),
            Body::Gzip(gzip) => gzip.plain.whole(),
            _ => None,
        }
    }

    /// Returns whether the body is made while it is sent.
    pub fn is_lasting(&self) -> bool {
        match self {
            Body::Whole(_) | Body::Broken => false,
            Body::Gzip(gzip) => gzip.plain.is_lasting(),
            Body::List(_) | Body::Listing(_) | Body::Stream(_) | Body::Remote(_) => true,
        }
    }

    /// Returns the bytes that are sent before other lists have their turn; `None`: all.
    pub fn turn_bytes(&self) -> Option<usize> {
        match self {
            Body::List(_) => Some(STORED_TURN_BYTES),
            Body::Listing(_) => Some(ENCODED_TURN_BYTES),
            Body::Gzip(_) => Some(COMPRESSED_TURN_BYTES),
            Body::Whole(_) | Body::Stream(_) | Body::Remote(_) | Body::Broken => None,
        }
    }

    /// Encodes the whole of a list that would be encoded while it is sent.
    pub async fn complete(&mut self) {
        if let Body::Gzip(gzip) = self {
            return Box::pin(gzip.plain.complete()).await;
        }
        let mut out = vec![];
        loop {
            let step = match self {
                Body::List(list) => Ok(list.chunk().map_or(Step::Done, Step::Chunk)),
                Body::Listing(listing) => listing.next(),
                _ => return,
            };
            match step {
                Ok(Step::Chunk(chunk)) => out.extend_from_slice(&chunk),
                Ok(Step::Yield) => {}
                Ok(Step::Done) => break *self = Body::from(out),
                Err(failure) => {
                    let why = failure.message.as_str();
                    tracing::error!(why, "encoding a list failed; closing the connection");
                    break *self = Body::Broken;
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Creates the body of another server's response.
    pub fn remote(response: StreamedResponse) -> Body {
        Body::Remote(Box::new(RemoteBody { response, gone: None }))
    }

    /// Ends the body of another server's response, of which nothing comes, when `gone` does.
    pub fn end_with(&mut self, gone: impl Future<Output = ()> + Send + 'static) {
        if let Body::Remote(remote) = self {
            remote.gone = Some(Box::pin(gone));
        }
    }

    /// Creates an empty body.
    pub fn empty() -> Body {
        Body::Whole(None)
    }
}

/// The body of another server's response.
pub(crate) struct RemoteBody {
    response: StreamedResponse,
    /// Ends when the client has gone, which nobody else notices while the other server is silent.
    gone: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl RemoteBody {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let polled = Pin::new(&mut self.response).poll_frame(cx);
        if polled.is_pending()
            && let Some(gone) = &mut self.gone
            && gone.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Some(Err(io::Error::other("the client has gone"))));
        }
        polled
    }
}

/// A stream of chunks that a future produces. The future is polled in the task of the connection,
/// only when the next chunk is polled, so an event wakes only one task.
pub(crate) struct ChunkStream {
    run: Pin<Box<dyn Future<Output = ()> + Send>>,
    slot: ChunkSlot,
}

/// Passes chunks from the future to the stream.
#[derive(Clone, Default)]
pub(crate) struct ChunkSlot(Arc<Mutex<Option<Bytes>>>);

impl ChunkSlot {
    /// Passes a chunk on. Returns when it was taken and the next one is polled.
    pub async fn put(&self, chunk: Bytes) {
        *self.lock() = Some(chunk);
        std::future::poll_fn(|_| match *self.lock() {
            None => Poll::Ready(()),
            Some(_) => Poll::Pending,
        })
        .await;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Bytes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChunkStream {
    /// Creates a stream of the chunks that `run` puts into its slot, until it ends.
    pub fn new<F: Future<Output = ()> + Send + 'static>(
        run: impl FnOnce(ChunkSlot) -> F,
    ) -> ChunkStream {
        let slot = ChunkSlot::default();
        ChunkStream { run: Box::pin(run(slot.clone())), slot }
    }

    /// Polls for the next chunk. Must not be called again after `None`.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let ended = self.run.as_mut().poll(cx);
        match self.slot.lock().take() {
            Some(chunk) => Poll::Ready(Some(chunk)),
            None => ended.map(|()| None),
        }
    }

    /// Waits for the next chunk.
    pub async fn next(&mut self) -> Option<Bytes> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}

/// A body that is compressed while it is sent.
pub(crate) struct GzipBody {
    plain: Body,
    /// `None` after the end was written.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl GzipBody {
    /// Compresses `plain`, which must not be a stream.
    pub fn new(plain: Body) -> GzipBody {
        let encoder = GzEncoder::new(Vec::with_capacity(CHUNK_BYTES), GZIP_LEVEL);
        GzipBody { plain, encoder: Some(encoder) }
    }

    /// Produces the next compressed chunk.
    fn next(&mut self) -> Result<Step, Failure> {
        loop {
            let Some(encoder) = self.encoder.as_mut() else { return Ok(Step::Done) };
            let plain = match &mut self.plain {
                Body::Whole(bytes) => bytes.take(),
                Body::List(list) => list.chunk(),
                Body::Listing(listing) => match listing.next()? {
                    Step::Chunk(chunk) => Some(chunk),
                    Step::Yield => return Ok(Step::Yield),
                    Step::Done => None,
                },
                Body::Stream(_) | Body::Gzip(_) | Body::Remote(_) | Body::Broken => None,
            };
            let Some(plain) = plain else {
                let last = self.encoder.take().and_then(|encoder| encoder.finish().ok());
                return Ok(last.map_or(Step::Done, |last| Step::Chunk(Bytes::from(last))));
            };
            encoder.write_all(&plain).map_err(Status::internal)?;
            let out = encoder.get_mut();
            if !out.is_empty() {
                return Ok(Step::Chunk(Bytes::from(std::mem::take(out))));
            }
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Body::Whole(Some(Bytes::from(bytes)))
    }
}

/// A list of objects in their stored encoding: head, items separated by commas, tail. Chunks are
/// assembled when they are sent.
pub(crate) struct ListBody {
    head: Bytes,
    items: std::vec::IntoIter<Entry>,
    tail: Bytes,
    state: ListState,
    left: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum ListState {
    Head,
    First,
    More,
    Done,
}

impl ListBody {
    /// Creates a list whose text begins with `head` (up to `"items":[`).
    pub fn new(head: Vec<u8>, items: Vec<Entry>) -> ListBody {
        const TAIL: &[u8] = b"]}\n";
        let size = |entry: &Entry| entry.item_len() + 1;
        let items_len: usize = items.iter().map(size).sum();
        let commas = items.len().saturating_sub(1);
        let total = head.len() + items_len + commas + TAIL.len();
        ListBody {
            head: Bytes::from(head),
            items: items.into_iter(),
            tail: Bytes::from_static(TAIL),
            state: ListState::Head,
            left: total as u64,
        }
    }

    /// Returns the next chunk of about [`CHUNK_BYTES`].
    fn chunk(&mut self) -> Option<Bytes> {
        if self.state == ListState::Done {
            return None;
        }
        let capacity = usize::try_from(self.left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES + 4096);
        let mut out = BytesMut::with_capacity(capacity);
        if self.state == ListState::Head {
            out.put_slice(&self.head);
            self.state = ListState::First;
        }
        while out.len() < CHUNK_BYTES {
            let Some(entry) = self.items.next() else {
                out.put_slice(&self.tail);
                self.state = ListState::Done;
                break;
            };
            if self.state == ListState::More {
                out.put_u8(b',');
            }
            self.state = ListState::More;
            out.put_u8(b'{');
            entry.put_item_tail(&mut out);
        }
        self.left -= out.len() as u64;
        Some(out.freeze())
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let step = match self.get_mut() {
            Body::Whole(bytes) => Ok(bytes.take().map_or(Step::Done, Step::Chunk)),
            Body::List(list) => Ok(list.chunk().map_or(Step::Done, Step::Chunk)),
            Body::Listing(listing) => listing.next(),
            Body::Gzip(gzip) => gzip.next(),
            Body::Remote(remote) => return remote.poll_frame(cx),
            Body::Broken => {
                return Poll::Ready(Some(Err(io::Error::other("the body cannot be completed"))));
            }
            Body::Stream(chunks) => match chunks.poll_next(cx) {
                Poll::Ready(next) => Ok(next.map_or(Step::Done, Step::Chunk)),
                Poll::Pending => return Poll::Pending,
            },
        };
        match step {
            Ok(Step::Chunk(chunk)) => Poll::Ready(Some(Ok(Frame::data(chunk)))),
            Ok(Step::Done) => Poll::Ready(None),
            Ok(Step::Yield) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Err(failure) => {
                tracing::error!(
                    why = failure.message.as_str(),
                    "encoding a list failed; closing the connection"
                );
                Poll::Ready(Some(Err(io::Error::other(failure.message))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Whole(bytes) => bytes.is_none(),
            Body::List(list) => list.state == ListState::Done,
            Body::Listing(listing) => listing.is_done(),
            Body::Gzip(gzip) => gzip.encoder.is_none(),
            Body::Stream(_) | Body::Broken => false,
            Body::Remote(remote) => remote.response.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64))
            }
            Body::List(list) => SizeHint::with_exact(list.left),
            Body::Remote(remote) => remote.response.size_hint(),
            Body::Listing(_) | Body::Stream(_) | Body::Gzip(_) | Body::Broken => {
                SizeHint::default()
            }
        }
    }
}
