//! [`Throttled`]: a connection that carries a limited number of bytes a second in each direction
//! (`--max-connection-bytes-per-sec`).

use std::io;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// The time over which bytes are counted, as kube-apiserver counts them: each such time has its
/// share of the bytes of a second, and what one leaves over is lost.
const SAMPLE_TIME: Duration = Duration::from_millis(100);
/// The number of samples in a second.
const SAMPLES_PER_SECOND: u64 = 10;

/// A connection whose bytes a second are limited, or not.
pub(crate) struct Throttled<T> {
    inner: T,
    reads: Option<Meter>,
    writes: Option<Meter>,
}

impl<T> Throttled<T> {
    /// Limits a connection to this many bytes a second in each direction; `None` does not limit it.
    pub fn new(inner: T, bytes_per_second: Option<NonZeroU64>) -> Throttled<T> {
        let meter = || bytes_per_second.map(Meter::new);
        Throttled { inner, reads: meter(), writes: meter() }
    }
}

/// Counts the bytes of one direction.
struct Meter {
    /// Most bytes in a sample, at least 1.
    bytes_max: usize,
    /// The bytes in the current sample.
    bytes: usize,
    /// Ends with the current sample.
    timer: Pin<Box<Sleep>>,
}

impl Meter {
    fn new(bytes_per_second: NonZeroU64) -> Meter {
        let rounded = bytes_per_second.get().saturating_add(SAMPLES_PER_SECOND / 2);
        let bytes_max = usize::try_from(rounded / SAMPLES_PER_SECOND).unwrap_or(usize::MAX);
        let timer = Box::pin(sleep_until(Instant::now() + SAMPLE_TIME));
        Meter { bytes_max: bytes_max.max(1), bytes: 0, timer }
    }

    /// Waits until bytes may pass, and returns how many: at least 1.
    fn poll_allowance(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        let now = Instant::now();
        if now < self.timer.deadline() && self.bytes >= self.bytes_max {
            ready!(self.timer.as_mut().poll(cx));
        }
        let now = Instant::now();
        if now >= self.timer.deadline() {
            self.bytes = 0;
            self.timer.as_mut().reset(now + SAMPLE_TIME);
        }
        Poll::Ready(self.bytes_max.saturating_sub(self.bytes).max(1))
    }
}

/// Waits until bytes may pass in a direction, and returns how many of those that are there.
fn poll_allowed(meter: &mut Option<Meter>, bytes: usize, cx: &mut Context<'_>) -> Poll<usize> {
    match meter {
        Some(meter) if bytes > 0 => meter.poll_allowance(cx).map(|allowed| allowed.min(bytes)),
        _ => Poll::Ready(bytes),
    }
}

fn count(meter: &mut Option<Meter>, bytes: usize) {
    if let Some(meter) = meter {
        meter.bytes = meter.bytes.saturating_add(bytes);
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Throttled<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let allowed = ready!(poll_allowed(&mut this.reads, buffer.remaining(), cx));
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(allowed));
        ready!(Pin::new(&mut this.inner).poll_read(cx, &mut part))?;
        let bytes = part.filled().len();
        buffer.advance(bytes);
        count(&mut this.reads, bytes);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Throttled<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let allowed = ready!(poll_allowed(&mut this.writes, data.len(), cx));
        let bytes = ready!(Pin::new(&mut this.inner).poll_write(cx, &data[..allowed]))?;
        count(&mut this.writes, bytes);
        Poll::Ready(Ok(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU64;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Bytes a second: 100 in a sample.
    const RATE: NonZeroU64 = NonZeroU64::new(1000).expect("it is not 0");
    /// Bytes that need three samples, and so at least the time of two.
    const BYTES: usize = 250;

    /// Returns how long it takes until all bytes have passed through a limited connection.
    async fn time_of(rate: Option<NonZeroU64>, is_read: bool) -> Duration {
        let (near, far) = tokio::io::duplex(BYTES);
        let begun = Instant::now();
        let mut limited = Throttled::new(near, rate);
        let mut far = far;
        let mut received = vec![0; BYTES];
        if is_read {
            far.write_all(&[7; BYTES]).await.expect("the bytes fit");
            limited.read_exact(&mut received).await.expect("all bytes come");
        } else {
            limited.write_all(&[7; BYTES]).await.expect("the bytes fit");
            far.read_exact(&mut received).await.expect("all bytes come");
        }
        assert_eq!(received, [7; BYTES]);
        begun.elapsed()
    }

    #[tokio::test]
    async fn bytes_wait_for_the_next_sample_in_each_direction() {
        for is_read in [true, false] {
            assert!(time_of(Some(RATE), is_read).await >= 2 * SAMPLE_TIME, "reads: {is_read}");
        }
    }

    #[tokio::test]
    async fn a_sample_has_its_share_of_a_second_and_at_least_one_byte() {
        for (rate, expected) in [(1, 1), (14, 1), (15, 2), (1000, 100), (u64::MAX, usize::MAX / 10)]
        {
            let meter = Meter::new(NonZeroU64::new(rate).expect("it is not 0"));
            assert_eq!(meter.bytes_max, expected, "{rate}");
        }
    }

    #[tokio::test]
    async fn without_a_limit_all_bytes_pass_at_once() {
        let (near, mut far) = tokio::io::duplex(BYTES);
        let mut open = Throttled::new(near, None);
        assert_eq!(open.write(&[7; BYTES]).await.expect("written"), BYTES);
        let mut received = vec![0; BYTES];
        assert_eq!(far.read(&mut received).await.expect("read"), BYTES);
    }
}
