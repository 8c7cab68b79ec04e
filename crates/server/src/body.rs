//! The bodies of answers: whole, a list that is written while it is sent, a stream of watch events.

use bytes::{BufMut, Bytes, BytesMut};
use flate2::{Compression, write::GzEncoder};
use http_body::{Body as HttpBody, Frame, SizeHint};
use keelson_cache::Entry;
use std::convert::Infallible;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Bytes of a list that are put together at once.
const CHUNK_BYTES: usize = 64 << 10;
/// How hard answers are compressed (upstream's `defaultGzipContentEncodingLevel`).
const GZIP_LEVEL: Compression = Compression::new(1);

/// A body.
pub enum Body {
    /// Nothing, or all of it.
    Whole(Option<Bytes>),
    /// A list.
    List(ListBody),
    /// Chunks as they come; the sender ends it.
    Stream(mpsc::Receiver<Bytes>),
    /// Any of the first two, compressed while it is sent.
    Gzip(Box<GzipBody>),
}

impl Body {
    /// No body.
    pub fn empty() -> Body {
        Body::Whole(None)
    }
}

/// A body that is compressed while it is sent.
pub struct GzipBody {
    plain: Body,
    /// `None`: the end was written.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl GzipBody {
    /// Compresses `plain`, whose size is known and which never waits.
    pub fn new(plain: Body) -> GzipBody {
        let encoder = GzEncoder::new(Vec::with_capacity(CHUNK_BYTES), GZIP_LEVEL);
        GzipBody { plain, encoder: Some(encoder) }
    }

    /// The next compressed piece.
    fn chunk(&mut self) -> Option<Bytes> {
        loop {
            let encoder = self.encoder.as_mut()?;
            let plain = match &mut self.plain {
                Body::Whole(bytes) => bytes.take(),
                Body::List(list) => list.chunk(),
                Body::Stream(_) | Body::Gzip(_) => None,
            };
            let Some(plain) = plain else {
                return self.encoder.take()?.finish().ok().map(Bytes::from);
            };
            // Writing to memory does not fail.
            encoder.write_all(&plain).ok()?;
            let out = encoder.get_mut();
            if !out.is_empty() {
                return Some(Bytes::from(std::mem::take(out)));
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
pub struct ListBody {
    head: Bytes,
    items: std::vec::IntoIter<Arc<Entry>>,
    tail: Bytes,
    state: ListState,
    left: u64,
    /// Items carry their kind and version: those of custom resources do.
    whole_items: bool,
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
    pub fn new(head: Vec<u8>, items: Vec<Arc<Entry>>, whole_items: bool) -> ListBody {
        const TAIL: &[u8] = b"]}\n";
        let size = |entry: &Arc<Entry>| {
            if whole_items { entry.json_slice().len() } else { entry.item_tail().len() + 1 }
        };
        let items_len: usize = items.iter().map(size).sum();
        let commas = items.len().saturating_sub(1);
        let total = head.len() + items_len + commas + TAIL.len();
        ListBody {
            head: Bytes::from(head),
            items: items.into_iter(),
            tail: Bytes::from_static(TAIL),
            state: ListState::Head,
            left: total as u64,
            whole_items,
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
            if self.whole_items {
                out.put_slice(entry.json_slice());
            } else {
                out.put_u8(b'{');
                out.put_slice(entry.item_tail());
            }
        }
        self.left -= out.len() as u64;
        Some(out.freeze())
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match self.get_mut() {
            Body::Whole(bytes) => bytes.take(),
            Body::List(list) => list.chunk(),
            Body::Gzip(gzip) => gzip.chunk(),
            Body::Stream(receiver) => match receiver.poll_recv(cx) {
                Poll::Ready(next) => next,
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Whole(bytes) => bytes.is_none(),
            Body::List(list) => list.state == ListState::Done,
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
            Body::Stream(_) | Body::Gzip(_) => SizeHint::default(),
        }
    }
}
