//! [`Decoders`]: the threads that decode the values of a load while its caller reads further ones.

use super::Transform;
use crate::KeyValue;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, available_parallelism};

/// A batch has this many values, or this many bytes of them.
const BATCH_VALUES_MAX: usize = 64;
const BATCH_BYTES_MAX: usize = 256 << 10;
/// Batches that a thread has at the same time.
const BATCHES_OF_THREAD_MAX: usize = 4;
const THREADS_MAX: usize = 7;

/// Decoded values; those that have to wait are given back as errors.
type Decoded = Vec<Result<KeyValue, KeyValue>>;

/// Decodes values on other threads, and passes them to a sink in the order in which they came.
/// Values of which decoding has to wait are kept. Threads are started for the first whole batch,
/// one less than there are processors: the caller's has enough to do. With one processor, and for a
/// few values, the caller's thread decodes.
pub(crate) struct Decoders<'s> {
    transform: Arc<dyn Transform>,
    sink: &'s mut (dyn FnMut(KeyValue) + Send),
    /// `None`: not started yet. A batch is with the thread of its number.
    threads: Option<Vec<DecodingThread>>,
    batch: Vec<KeyValue>,
    bytes: usize,
    sent: usize,
    received: usize,
    waiting: Vec<KeyValue>,
}

impl fmt::Debug for Decoders<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decoders({:?}, {} of {} batches)", self.transform, self.received, self.sent)
    }
}

/// It ends when this is dropped.
struct DecodingThread {
    batches: SyncSender<Vec<KeyValue>>,
    decoded: Receiver<Decoded>,
}

impl DecodingThread {
    /// `None`: the system starts no further thread.
    fn start(transform: &Arc<dyn Transform>) -> Option<DecodingThread> {
        let (batches, to_decode) = sync_channel::<Vec<KeyValue>>(BATCHES_OF_THREAD_MAX);
        let (done, decoded) = sync_channel(BATCHES_OF_THREAD_MAX);
        let transform = transform.clone();
        let run = move || {
            for batch in to_decode {
                if done.send(decode(&*transform, batch)).is_err() {
                    break;
                }
            }
        };
        Builder::new().name("decode".to_owned()).spawn(run).ok()?;
        Some(DecodingThread { batches, decoded })
    }
}

fn decode(transform: &dyn Transform, batch: Vec<KeyValue>) -> Decoded {
    let decode = |mut kv: KeyValue| {
        let value = std::mem::take(&mut kv.value);
        match transform.decode_now(&kv.key, value) {
            Ok(value) => Ok(KeyValue { value, ..kv }),
            Err(value) => Err(KeyValue { value, ..kv }),
        }
    };
    batch.into_iter().map(decode).collect()
}

impl<'s> Decoders<'s> {
    pub fn new(
        transform: Arc<dyn Transform>,
        sink: &'s mut (dyn FnMut(KeyValue) + Send),
    ) -> Decoders<'s> {
        Decoders {
            transform,
            sink,
            threads: None,
            batch: vec![],
            bytes: 0,
            sent: 0,
            received: 0,
            waiting: vec![],
        }
    }

    /// Takes a value, and passes on what is decoded when there are many. Blocks while all threads
    /// are behind.
    pub fn push(&mut self, kv: KeyValue) {
        self.bytes += kv.value.len();
        self.batch.push(kv);
        if self.batch.len() >= BATCH_VALUES_MAX || self.bytes >= BATCH_BYTES_MAX {
            self.send();
        }
    }

    /// Passes on all values so far, and returns those of which decoding has to wait.
    pub fn take_waiting(&mut self) -> Vec<KeyValue> {
        let batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        while self.received < self.sent {
            self.receive();
        }
        let decoded = decode(&*self.transform, batch);
        self.deliver(decoded);
        std::mem::take(&mut self.waiting)
    }

    /// Passes on a decoded value that was waiting.
    pub fn pass_on(&mut self, kv: KeyValue) {
        (self.sink)(kv);
    }

    fn send(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        let threads = self.threads.get_or_insert_with(|| {
            let others = available_parallelism().map_or(0, |all| all.get() - 1);
            let start = |_| DecodingThread::start(&self.transform);
            (0..others.min(THREADS_MAX)).map_while(start).collect()
        });
        if threads.is_empty() {
            let decoded = decode(&*self.transform, batch);
            return self.deliver(decoded);
        }
        if self.sent - self.received >= threads.len() * BATCHES_OF_THREAD_MAX {
            self.receive();
        }
        if let Some(threads) = &self.threads {
            let sent = threads[self.sent % threads.len()].batches.send(batch);
            sent.expect("the thread has not panicked");
            self.sent += 1;
        }
    }

    fn receive(&mut self) {
        let Some(threads) = &self.threads else { return };
        let decoded = threads[self.received % threads.len()].decoded.recv();
        self.received += 1;
        self.deliver(decoded.expect("the thread has not panicked"));
    }

    fn deliver(&mut self, decoded: Decoded) {
        for kv in decoded {
            match kv {
                Ok(kv) => (self.sink)(kv),
                Err(kv) => self.waiting.push(kv),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BoxFuture, DiskError, Revision};
    use bytes::Bytes;

    /// Doubles values; those that begin with a seven wait.
    #[derive(Debug)]
    struct Doubled;

    impl Transform for Doubled {
        fn encode<'a>(
            &'a self,
            _key: &'a [u8],
            value: &'a Bytes,
        ) -> BoxFuture<'a, Result<Bytes, DiskError>> {
            Box::pin(async { Ok(value.clone()) })
        }

        fn decode_now(&self, _key: &[u8], value: Bytes) -> Result<Bytes, Bytes> {
            if value.starts_with(b"7") {
                Err(value)
            } else {
                Ok([&value[..], &value].concat().into())
            }
        }

        fn decode<'a>(&'a self, _key: &'a [u8], value: Bytes) -> BoxFuture<'a, Bytes> {
            Box::pin(async { value })
        }

        fn may_wait(&self) -> bool {
            true
        }

        fn may_be_stale(&self) -> bool {
            false
        }

        fn is_stale(&self, _key: &[u8], _value: &Bytes) -> bool {
            false
        }
    }

    fn check(values: impl Iterator<Item = String>) {
        let values: Vec<String> = values.collect();
        let mut passed_on = vec![];
        let mut sink = |kv: KeyValue| passed_on.push(kv);
        let mut decoders = Decoders::new(Arc::new(Doubled), &mut sink);
        let kv = |value: &str| KeyValue {
            key: format!("key of {value}").into(),
            value: value.to_owned().into(),
            created: Revision(1),
            modified: Revision(2),
        };
        values.iter().for_each(|value| decoders.push(kv(value)));
        let waits = |value: &&String| value.starts_with('7');
        let waiting: Vec<KeyValue> = values.iter().filter(waits).map(|value| kv(value)).collect();
        assert_eq!(decoders.take_waiting(), waiting);
        assert_eq!(decoders.take_waiting(), []);
        let decoded = |value: &String| KeyValue { value: value.repeat(2).into(), ..kv(value) };
        let expected: Vec<KeyValue> =
            values.iter().filter(|value| !waits(value)).map(decoded).collect();
        assert_eq!(passed_on, expected);
    }

    #[test]
    fn values_are_passed_on_once_in_order_or_kept_waiting() {
        check([].into_iter());
        check((0..3).map(|n: usize| n.to_string()));
        check((0..5_000).map(|n: usize| n.to_string()));
        check((0..9).map(|n| n.to_string().repeat(1 << 20)));
    }
}
