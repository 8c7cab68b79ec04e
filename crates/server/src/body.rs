//! The bodies of answers: whole, a list that is written while it is sent, a stream of watch events.

use bytes::{BufMut, Bytes, BytesMut};
use flate2::{Compression, write::GzEncoder};
use http_body::{Body as HttpBody, Frame, SizeHint};
use keelson_cache::Entry;
use keelson_meta::{Failure, Status};
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// Bytes of a list that are put together at once. HTTP/1.1 takes up to 16 such chunks ahead of the socket.
const CHUNK_BYTES: usize = 8 << 10;
/// The gzip level of answers (upstream's `defaultGzipContentEncodingLevel`).
const GZIP_LEVEL: Compression = Compression::new(1);

/// The next piece of a body.
pub(crate) enum Step {
    /// Something to send.
    Chunk(Bytes),
    /// Nothing yet, because others have not had their turn.
    Again,
    /// Nothing any more.
    Done,
}

/// A body that is written piece by piece while it is sent, and waits for nobody.
pub(crate) trait Pieces: Send {
    /// The next piece. A failure can only close the connection: the answer has begun.
    fn next(&mut self) -> Result<Step, Failure>;

    /// Whether all was written.
    fn is_done(&self) -> bool;

    /// Bytes of what it is made from.
    fn source_bytes(&self) -> u64;
}

/// A body.
pub(crate) enum Body {
    /// Nothing, or all of it.
    Whole(Option<Bytes>),
    /// A list of stored objects.
    List(ListBody),
    /// A list in another form.
    Listing(Box<dyn Pieces>),
    /// Chunks as they come.
    Stream(Chunks),
    /// Any of the first three, compressed while it is sent.
    Gzip(Box<GzipBody>),
}

impl Body {
    /// Its length in bytes, estimated where it is not known, else 0.
    pub fn bytes_about(&self) -> u64 {
        match self {
            Body::Listing(listing) => listing.source_bytes(),
            other => other.size_hint().exact().unwrap_or(0),
        }
    }

    /// No body.
    pub fn empty() -> Body {
        Body::Whole(None)
    }
}

/// Chunks that a future makes one after the other. It runs only while somebody asks for the next one: in
/// the task of the connection, which so is woken once for an event and not by another task.
pub(crate) struct Chunks {
    run: Pin<Box<dyn Future<Output = ()> + Send>>,
    slot: Slot,
}

/// The slot into which the future puts a chunk.
#[derive(Clone, Default)]
pub(crate) struct Slot(Arc<Mutex<Option<Bytes>>>);

impl Slot {
    /// Hands a chunk over; goes on when it was taken and the next one is asked for.
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

impl Chunks {
    /// The chunks that `run` puts into the slot that it is given, until it ends.
    pub fn new<F: Future<Output = ()> + Send + 'static>(run: impl FnOnce(Slot) -> F) -> Chunks {
        let slot = Slot::default();
        Chunks { run: Box::pin(run(slot.clone())), slot }
    }

    /// The next chunk; `None` when there is none any more, after which nobody asks again.
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
    /// `None`: the end was written.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl GzipBody {
    /// Compresses `plain`, which waits for nobody.
    pub fn new(plain: Body) -> GzipBody {
        let encoder = GzEncoder::new(Vec::with_capacity(CHUNK_BYTES), GZIP_LEVEL);
        GzipBody { plain, encoder: Some(encoder) }
    }

    /// The next compressed piece.
    fn next(&mut self) -> Result<Step, Failure> {
        loop {
            let Some(encoder) = self.encoder.as_mut() else { return Ok(Step::Done) };
            let plain = match &mut self.plain {
                Body::Whole(bytes) => bytes.take(),
                Body::List(list) => list.chunk(),
                Body::Listing(listing) => match listing.next()? {
                    Step::Chunk(chunk) => Some(chunk),
                    Step::Again => return Ok(Step::Again),
                    Step::Done => None,
                },
                Body::Stream(_) | Body::Gzip(_) => None,
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

/// A list of stored objects: the head, each item with what stands between, the tail. Nothing is put
/// together before it is sent.
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
    /// A list whose text begins with `head` (up to `"items":[`).
    pub fn new(head: Vec<u8>, items: Vec<Entry>) -> ListBody {
        const TAIL: &[u8] = b"]}\n";
        let size = |entry: &Entry| entry.item_tail().len() + 1;
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

    /// The next piece of about [`CHUNK_BYTES`].
    fn chunk(&mut self) -> Option<Bytes> {
        if self.state == ListState::Done {
            return None;
        }
        let room = usize::try_from(self.left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES + 4096);
        let mut out = BytesMut::with_capacity(room);
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
            out.put_slice(entry.item_tail());
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
            Body::Stream(chunks) => match chunks.poll_next(cx) {
                Poll::Ready(next) => Ok(next.map_or(Step::Done, Step::Chunk)),
                Poll::Pending => return Poll::Pending,
            },
        };
        match step {
            Ok(Step::Chunk(chunk)) => Poll::Ready(Some(Ok(Frame::data(chunk)))),
            Ok(Step::Done) => Poll::Ready(None),
            Ok(Step::Again) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Err(failure) => {
                tracing::error!(why = failure.message.as_str(), "a list could not be written");
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
            Body::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64))
            }
            Body::List(list) => SizeHint::with_exact(list.left),
            Body::Listing(_) | Body::Stream(_) | Body::Gzip(_) => SizeHint::default(),
        }
    }
}
