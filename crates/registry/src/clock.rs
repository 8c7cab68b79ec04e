//! Time and random bytes for everything that writes. Only this module of the crate reads the clock
//! or the random number generator of the system.

use keelson_meta::Str;
use keelson_meta::random_names::uuid;
use keelson_meta::time::Timestamp;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::time::Instant;

/// A source of time and randomness.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
    /// Returns sixteen unpredictable random bytes.
    fn random(&self) -> [u8; 16];
    /// Returns the monotonic time, in which control loops wait. It runs as fast as [`Clock::now`].
    fn monotonic(&self) -> Instant {
        Instant::now()
    }
    /// Waits until a monotonic time.
    fn sleep_until(&self, at: Instant) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep_until(at))
    }
}

/// A clock whose time runs faster or slower than that of the system, and can be stepped forward, so
/// that what waits for days is tested in milliseconds. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct SteppedClock {
    pace: Arc<watch::Sender<Pace>>,
}

/// Simulated time is `began` at `anchor`, and runs `rate` times as fast as real time from there.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// The real time of the last change of the pace.
    anchor: Instant,
    /// The simulated monotonic time at `anchor`.
    monotonic: Instant,
    /// The simulated time at `anchor`.
    time: Timestamp,
    rate: f64,
}

impl Pace {
    /// Returns the simulated time since the last change.
    fn elapsed(&self) -> Duration {
        self.anchor.elapsed().mul_f64(self.rate)
    }

    fn now(&self) -> Timestamp {
        self.time.plus(self.elapsed().into())
    }
}

impl SteppedClock {
    /// Returns a clock that begins at the time of the system. `rate`: simulated seconds a second;
    /// it is kept between [`SteppedClock::RATE_MIN`] and [`SteppedClock::RATE_MAX`].
    pub fn new(rate: f64) -> SteppedClock {
        let now = Instant::now();
        let rate = bounded(rate);
        let pace = Pace { anchor: now, monotonic: now, time: SystemClock.now(), rate };
        SteppedClock { pace: Arc::new(watch::Sender::new(pace)) }
    }

    /// The slowest clock: a day takes three years.
    pub const RATE_MIN: f64 = 0.001;
    /// The fastest clock: a day takes nine seconds.
    pub const RATE_MAX: f64 = 10_000.0;
    /// The longest step.
    pub const STEP_MAX: Duration = Duration::from_secs(10 * 366 * 86_400);

    /// Moves the time forward, at most by [`SteppedClock::STEP_MAX`]. What waits for a time before
    /// the new one wakes up.
    pub fn step(&self, by: Duration) {
        let by = by.min(SteppedClock::STEP_MAX);
        self.change(|pace| {
            pace.monotonic += by;
            pace.time = pace.time.plus(by.into());
        });
    }

    /// Returns how fast the time runs.
    pub fn rate(&self) -> f64 {
        self.pace.borrow().rate
    }

    /// Sets how fast the time runs from now on, in the bounds of [`SteppedClock::new`].
    pub fn set_rate(&self, rate: f64) {
        self.change(|pace| pace.rate = bounded(rate));
    }

    fn change(&self, change: impl FnOnce(&mut Pace)) {
        self.pace.send_modify(|pace| {
            let elapsed = pace.elapsed();
            let monotonic = pace.monotonic + elapsed;
            let time = pace.now();
            *pace = Pace { anchor: Instant::now(), monotonic, time, ..*pace };
            change(pace);
        });
    }
}

fn bounded(rate: f64) -> f64 {
    let rate = if rate.is_nan() { 1.0 } else { rate };
    rate.clamp(SteppedClock::RATE_MIN, SteppedClock::RATE_MAX)
}

impl Clock for SteppedClock {
    fn now(&self) -> Timestamp {
        self.pace.borrow().now()
    }

    fn random(&self) -> [u8; 16] {
        SystemClock.random()
    }

    fn monotonic(&self) -> Instant {
        let pace = self.pace.borrow();
        pace.monotonic + pace.elapsed()
    }

    fn sleep_until(&self, at: Instant) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let mut paces = self.pace.subscribe();
        Box::pin(async move {
            loop {
                let rate = paces.borrow_and_update().rate;
                let left = at.saturating_duration_since(self.monotonic());
                if left.is_zero() {
                    return;
                }
                let wait = left.div_f64(rate);
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    _ = paces.changed() => {}
                }
            }
        })
    }
}

/// Returns the time of a clock in the unit of the store, milliseconds.
pub fn store_time(clock: &dyn Clock) -> keelson_store::Timestamp {
    let now = clock.now();
    let millis = now.seconds.saturating_mul(1000).saturating_add(i64::from(now.nanos / 1_000_000));
    keelson_store::Timestamp(u64::try_from(millis).unwrap_or_default())
}

/// The clock and the random number generator of the system.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanos: since.subsec_nanos(),
        }
    }

    fn random(&self) -> [u8; 16] {
        // ChaCha, seeded by the system per thread. A system call for each object would be 1 % of a
        // create.
        rand::random()
    }
}

/// Returns a new uid for an object or a request.
pub fn uid(clock: &dyn Clock) -> Str {
    uuid(clock.random())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[tokio::test]
    async fn a_step_of_a_clock_wakes_what_waits_for_an_earlier_time() {
        let clock = SteppedClock::new(1.0);
        let began = clock.now();
        let day = Duration::from_secs(86_400);
        let sleeper = clock.clone();
        let at = clock.monotonic() + day;
        let sleeping = tokio::spawn(async move { sleeper.sleep_until(at).await });
        tokio::task::yield_now().await;
        clock.step(day / 2);
        tokio::task::yield_now().await;
        assert!(!sleeping.is_finished());
        clock.step(day / 2);
        sleeping.await.expect("the time has come");
        let passed = clock.now().since(began).seconds();
        assert!((86_400..86_460).contains(&passed), "{passed}");
        clock.set_rate(SteppedClock::RATE_MAX);
        let began = clock.now();
        clock.sleep_until(clock.monotonic() + Duration::from_secs(60)).await;
        assert!(clock.now().since(began).seconds() >= 60);
    }

    #[test]
    fn ids_are_of_version_4_and_differ_on_all_threads() {
        const THREADS: usize = 4;
        const IDS: usize = 2_000;
        let ids = |_| {
            std::thread::spawn(|| -> Vec<Str> { (0..IDS).map(|_| uid(&SystemClock)).collect() })
        };
        let threads: Vec<_> = (0..THREADS).map(ids).collect();
        let all: Vec<Str> =
            threads.into_iter().flat_map(|thread| thread.join().expect("ids")).collect();
        for id in &all {
            let groups: Vec<usize> = id.split('-').map(str::len).collect();
            assert_eq!(groups, [8, 4, 4, 4, 12], "{id}");
            assert!(id.bytes().all(|b| b"0123456789abcdef-".contains(&b)), "{id}");
            assert_eq!(id.as_bytes()[14], b'4', "{id}");
            assert!(b"89ab".contains(&id.as_bytes()[19]), "{id}");
        }
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), THREADS * IDS);
    }
}
