//! [`Transformed`]: a [`Store`] whose values have another form in the backend, for example
//! encrypted, or encoded as another program reads them.
//!
//! Keys, revisions, order and durability are those of the backend. Own writes are remembered until
//! their event arrives, so that it need not be decoded.

mod decoders;

use decoders::Decoders;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use bytes::Bytes;
use tokio::sync::watch;

use crate::contract::{
    Batch, BoxFuture, KeyValue, Op, Range, Store, Timestamp, Txn, TxnOutcome, Watch, key_after,
};
use crate::revision::Revision;
use crate::{DiskError, HealthError, Page, ReadError, WatchError, WriteError};

/// Most own writes to remember until their event arrives, by count and by bytes.
const OWN_WRITES_MAX: usize = 4096;
const OWN_BYTES_MAX: usize = 4 << 20;
/// Most values decoded before the task yields to others.
const DECODES_MAX: usize = 64;

/// Converts values between the form of readers and that of the backend. Keys are store keys.
pub trait Transform: fmt::Debug + Send + Sync + 'static {
    /// Encodes a value for the backend. After an error nothing is written.
    fn encode<'a>(
        &'a self,
        key: &'a [u8],
        value: &'a Bytes,
    ) -> BoxFuture<'a, Result<Bytes, DiskError>>;

    /// Decodes a value of the backend, which any program may have written; a value that is the same
    /// in both forms is not copied. Returns a placeholder that the reader recognizes if the value
    /// cannot be decoded. Gives the value back as an error if decoding has to wait: see
    /// [`Transform::decode`].
    fn decode_now(&self, key: &[u8], value: Bytes) -> Result<Bytes, Bytes>;

    /// Decodes a value that [`Transform::decode_now`] has given back.
    fn decode<'a>(&'a self, key: &'a [u8], value: Bytes) -> BoxFuture<'a, Bytes>;

    /// Whether [`Transform::decode_now`] may give values back.
    fn may_wait(&self) -> bool;

    /// Whether any value may be stale.
    fn may_be_stale(&self) -> bool;

    /// Whether a write of the same value would store it in another way, for example with another
    /// key.
    fn is_stale(&self, key: &[u8], value: &Bytes) -> bool;
}

/// A store over a backend that has values in another form.
pub struct Transformed {
    backend: Arc<dyn Store>,
    values: Arc<Values>,
    /// Counts the calls of [`Transformed::reread`].
    rereads: watch::Sender<u64>,
}

/// The transformation, and the writes of this process.
#[derive(Debug)]
struct Values {
    transform: Arc<dyn Transform>,
    own: Mutex<OwnWrites>,
}

#[derive(Debug, Default)]
struct OwnWrites {
    /// Maps a key to the backend's value and the reader's value.
    writes: HashMap<Bytes, (Bytes, Bytes), foldhash::fast::RandomState>,
    /// Upper bound of the bytes of `writes`, at most [`OWN_BYTES_MAX`]: a replaced write of the
    /// same key is still counted.
    bytes: usize,
}

impl Transformed {
    /// Creates a store over a backend.
    #[must_use]
    pub fn new(backend: Arc<dyn Store>, transform: Arc<dyn Transform>) -> Arc<Self> {
        let values = Arc::new(Values { transform, own: Mutex::default() });
        Arc::new(Self { backend, values, rereads: watch::Sender::default() })
    }

    /// Ends all watches with [`WatchError::Reread`], so that their readers load all values again.
    pub fn reread(&self) {
        self.rereads.send_modify(|count| *count += 1);
    }

    async fn decode_all(&self, items: &mut [KeyValue]) {
        for (number, kv) in items.iter_mut().enumerate() {
            if number % DECODES_MAX == DECODES_MAX - 1 {
                tokio::task::yield_now().await;
            }
            kv.value = self.values.decode(&kv.key, std::mem::take(&mut kv.value)).await;
        }
    }

    /// Loads page by page, because decoding may have to wait: for a key that most values share.
    async fn load_pages(
        &self,
        prefix: &[u8],
        at: Option<Revision>,
        sink: &mut (dyn FnMut(KeyValue) + Send),
    ) -> Result<Revision, ReadError> {
        let mut query = Range { at, ..Range::prefix(prefix) };
        let mut decoders = Decoders::new(self.values.transform.clone(), sink);
        loop {
            let page = self.backend.range(query.clone()).await?;
            let next = page.items.last().filter(|_| page.more).map(|last| key_after(&last.key));
            page.items.into_iter().for_each(|kv| decoders.push(kv));
            self.decode_waiting(&mut decoders).await;
            let Some(start) = next else { return Ok(page.at) };
            query = Range { start, at: Some(page.at), ..query };
        }
    }

    async fn decode_waiting(&self, decoders: &mut Decoders<'_>) {
        let mut waiting = decoders.take_waiting();
        self.decode_all(&mut waiting).await;
        waiting.into_iter().for_each(|kv| decoders.pass_on(kv));
    }

    async fn commit(&self, mut txn: Txn) -> Result<TxnOutcome, WriteError> {
        for op in &mut txn.ops {
            if let Op::Put { key, value, .. } = op {
                let encoded = self.values.encode(key, value).await;
                *value = encoded.map_err(|source| WriteError::Value { source })?;
            }
        }
        let mut outcome = self.backend.txn(txn).await?;
        if let TxnOutcome::Conflict { current: Some(kv), .. } = &mut outcome {
            self.decode_all(std::slice::from_mut(kv)).await;
        }
        Ok(outcome)
    }
}

impl Store for Transformed {
    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<KeyValue>, ReadError>> {
        Box::pin(async move {
            let mut found = self.backend.get(key).await?;
            self.decode_all(found.as_mut_slice()).await;
            Ok(found)
        })
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<Page, ReadError>> {
        Box::pin(async move {
            let mut page = self.backend.range(range).await?;
            self.decode_all(&mut page.items).await;
            Ok(page)
        })
    }

    fn load<'a>(
        &'a self,
        prefix: &'a [u8],
        at: Option<Revision>,
        sink: &'a mut (dyn FnMut(KeyValue) + Send),
    ) -> BoxFuture<'a, Result<Revision, ReadError>> {
        if self.values.transform.may_wait() {
            return Box::pin(self.load_pages(prefix, at, sink));
        }
        Box::pin(async move {
            let mut decoders = Decoders::new(self.values.transform.clone(), sink);
            let at = self.backend.load(prefix, at, &mut |kv| decoders.push(kv)).await?;
            // The transformation may just have changed to one that waits.
            self.decode_waiting(&mut decoders).await;
            Ok(at)
        })
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, WriteError>> {
        Box::pin(self.commit(txn))
    }

    fn watch(&self, prefix: Bytes, after: Revision) -> Result<Box<dyn Watch>, WatchError> {
        let events = self.backend.watch(prefix, after)?;
        let values = Arc::clone(&self.values);
        let rereads = self.rereads.subscribe();
        Ok(Box::new(TransformedWatch { events, values, rereads, batch: None, decoded: 0 }))
    }

    fn revision(&self) -> Revision {
        self.backend.revision()
    }

    fn latest(&self) -> BoxFuture<'_, Result<Revision, ReadError>> {
        self.backend.latest()
    }

    fn floor(&self) -> Revision {
        self.backend.floor()
    }

    fn compact(&self, through: Revision) -> BoxFuture<'_, Result<(), WriteError>> {
        self.backend.compact(through)
    }

    fn expire(&self, now: Timestamp) -> BoxFuture<'_, Result<usize, WriteError>> {
        self.backend.expire(now)
    }

    fn is_stale<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<bool, ReadError>> {
        Box::pin(async move {
            if !self.values.transform.may_be_stale() {
                return Ok(false);
            }
            let found = self.backend.get(key).await?;
            Ok(found.is_some_and(|kv| self.values.transform.is_stale(key, &kv.value)))
        })
    }

    fn size(&self) -> BoxFuture<'_, Option<u64>> {
        self.backend.size()
    }

    fn health(&self) -> Result<(), HealthError> {
        self.backend.health()
    }
}

/// A watch whose values are decoded.
struct TransformedWatch {
    events: Box<dyn Watch>,
    values: Arc<Values>,
    rereads: watch::Receiver<u64>,
    /// The batch that is being decoded; kept here so that a dropped `next` loses no event.
    batch: Option<Batch>,
    /// How many of its events are decoded.
    decoded: usize,
}

impl TransformedWatch {
    /// Waits for a batch of the backend, or for a call of [`Transformed::reread`].
    async fn next_batch(&mut self) -> Result<Batch, WatchError> {
        let mut next = self.events.next();
        let mut reread = pin!(self.rereads.changed());
        let mut is_dropped = false;
        poll_fn(|ctx| {
            if !is_dropped && let Poll::Ready(changed) = reread.as_mut().poll(ctx) {
                if changed.is_ok() {
                    return Poll::Ready(Err(WatchError::Reread));
                }
                is_dropped = true;
            }
            next.as_mut().poll(ctx)
        })
        .await
    }
}

impl Watch for TransformedWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Batch, WatchError>> {
        Box::pin(async move {
            if self.batch.is_none() {
                self.batch = Some(self.next_batch().await?);
                self.decoded = 0;
            }
            let events = self.batch.iter_mut().flat_map(|batch| &mut batch.events);
            for event in events.skip(self.decoded) {
                if let Some(value) = event.value.take() {
                    // Only a value that nobody else has is decrypted where it is.
                    event.value = Some(match self.values.decode_event_now(&event.key, value) {
                        Ok(value) => value,
                        Err(value) => {
                            event.value = Some(value.clone());
                            self.values.transform.decode(&event.key, value).await
                        }
                    });
                }
                self.decoded += 1;
                if self.decoded.is_multiple_of(DECODES_MAX) {
                    tokio::task::yield_now().await;
                }
            }
            self.batch.take().ok_or(WatchError::Closed)
        })
    }
}

impl Values {
    /// Encodes a value that is about to be written.
    async fn encode(&self, key: &Bytes, value: &Bytes) -> Result<Bytes, DiskError> {
        let encoded = self.transform.encode(key, value).await?;
        let is_same = encoded.as_ptr() == value.as_ptr();
        let bytes = encoded.len() + value.len();
        if !is_same && bytes <= OWN_BYTES_MAX {
            let mut own = self.lock();
            // Failed writes are never taken out, so all are dropped when there are too many.
            if own.bytes + bytes > OWN_BYTES_MAX || own.writes.len() >= OWN_WRITES_MAX {
                *own = OwnWrites::default();
            }
            own.bytes += bytes;
            own.writes.insert(key.clone(), (encoded.clone(), value.clone()));
        }
        Ok(encoded)
    }

    /// Decodes a value that was read.
    async fn decode(&self, key: &Bytes, value: Bytes) -> Bytes {
        match self.transform.decode_now(key, value) {
            Ok(value) => value,
            Err(value) => self.transform.decode(key, value).await,
        }
    }

    /// Decodes the value of a watch event, or gives it back if decoding has to wait.
    fn decode_event_now(&self, key: &Bytes, value: Bytes) -> Result<Bytes, Bytes> {
        let own = self.lock().take(key, &value);
        own.map_or_else(|| self.transform.decode_now(key, value), Ok)
    }

    fn lock(&self) -> MutexGuard<'_, OwnWrites> {
        // Every critical section leaves the writes consistent.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OwnWrites {
    /// Removes and returns the reader's value of a backend's value, if it was the last own write of
    /// the key.
    fn take(&mut self, key: &Bytes, value: &Bytes) -> Option<Bytes> {
        if self.writes.is_empty() {
            return None;
        }
        let Entry::Occupied(write) = self.writes.entry(key.clone()) else { return None };
        let (encoded, _) = write.get();
        // An embedded store gives back the bytes that it was given.
        let is_same = encoded.as_ptr() == value.as_ptr() && encoded.len() == value.len();
        if !is_same && encoded != value {
            return None;
        }
        let (encoded, own) = write.remove();
        self.bytes = self.bytes.saturating_sub(encoded.len() + own.len());
        Some(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Puts an `x` in front of values, and counts decoded ones, and those that nobody else has.
    #[derive(Debug, Default)]
    struct Counting(AtomicUsize, AtomicUsize);

    impl Transform for Counting {
        fn encode<'a>(
            &'a self,
            _key: &'a [u8],
            value: &'a Bytes,
        ) -> BoxFuture<'a, Result<Bytes, DiskError>> {
            Box::pin(async { Ok([b"x", &value[..]].concat().into()) })
        }

        fn decode_now(&self, _key: &[u8], value: Bytes) -> Result<Bytes, Bytes> {
            self.0.fetch_add(1, Ordering::Relaxed);
            self.1.fetch_add(value.is_unique().into(), Ordering::Relaxed);
            Ok(value.slice(1..))
        }

        fn decode<'a>(&'a self, _key: &'a [u8], value: Bytes) -> BoxFuture<'a, Bytes> {
            Box::pin(async { value })
        }

        fn may_wait(&self) -> bool {
            false
        }

        fn may_be_stale(&self) -> bool {
            false
        }

        fn is_stale(&self, _key: &[u8], _value: &Bytes) -> bool {
            false
        }
    }

    #[tokio::test]
    async fn the_event_of_an_own_write_is_not_decoded() {
        let counting = Arc::new(Counting::default());
        let values = Values { transform: counting.clone(), own: Mutex::default() };
        let decoded = || counting.0.load(Ordering::Relaxed);
        let event = |key: &Bytes, value| values.decode_event_now(key, value).expect("a value");
        let key = Bytes::from_static(b"k");
        let other = Bytes::from_static(b"o");
        let written = values.encode(&key, &"v".into()).await.expect("a value");
        assert_eq!((event(&key, written.clone()), decoded()), ("v".into(), 0));
        // Only once, only this key, and only this value.
        assert_eq!((event(&key, written.clone()), decoded()), ("v".into(), 1));
        values.encode(&key, &"v".into()).await.expect("a value");
        assert_eq!((event(&other, written), decoded()), ("v".into(), 2));
        assert_eq!((event(&key, "xw".into()), decoded()), ("w".into(), 3));
    }

    /// A watch with one batch.
    struct Once(Option<Batch>);

    impl Watch for Once {
        fn next(&mut self) -> BoxFuture<'_, Result<Batch, WatchError>> {
            Box::pin(async { self.0.take().ok_or(WatchError::Closed) })
        }
    }

    /// Whoever decrypts a value that others hold has to copy it first.
    #[tokio::test]
    async fn an_event_that_nobody_else_has_is_decoded_where_it_is() {
        let counting = Arc::new(Counting::default());
        let values = Arc::new(Values { transform: counting.clone(), own: Mutex::default() });
        let value = Some(Bytes::from(b"xv".to_vec()));
        let revision = Revision(1);
        let event = Event { key: "k".into(), value, created: revision, revision };
        let batch = Batch { events: vec![event], through: revision };
        let (_sender, rereads) = watch::channel(0);
        let events = Box::new(Once(Some(batch)));
        let mut watch = TransformedWatch { events, values, rereads, batch: None, decoded: 0 };
        let decoded = watch.next().await.expect("a batch");
        assert_eq!(decoded.events[0].value, Some("v".into()));
        assert_eq!(counting.1.load(Ordering::Relaxed), 1, "the only holder");
    }

    #[tokio::test]
    async fn writes_without_an_event_are_dropped() {
        let values = Values { transform: Arc::new(Counting::default()), own: Mutex::default() };
        let value = Bytes::from(vec![b'v'; 1 << 20]);
        for n in 0..40_u8 {
            values.encode(&Bytes::from(vec![n]), &value).await.expect("a value");
            let own = values.lock();
            let held: usize = own.writes.values().map(|(a, b)| a.len() + b.len()).sum();
            assert!(held <= own.bytes && own.bytes <= OWN_BYTES_MAX);
        }
    }
}
