//! [`Pace`]: how long a loop over stored objects may run before other tasks of its thread run.

use std::time::{Duration, Instant};

/// Time between two yields, besides that of the last stretch of objects.
const STRETCH_TIME_MAX: Duration = Duration::from_micros(500);

/// Measures a loop since it last yielded. Reads the time only between stretches of objects.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    objects: usize,
    begun: Option<Instant>,
}

impl Pace {
    /// Counts an object, and returns whether the loop must yield now. `stretch`: objects between
    /// two looks at the time.
    #[inline]
    pub fn is_due(&mut self, stretch: usize) -> bool {
        self.objects += 1;
        self.objects >= stretch && self.is_late()
    }

    /// Returns whether the loop must yield now, between two stretches.
    #[cold]
    pub fn is_late(&mut self) -> bool {
        self.objects = 0;
        let begun = *self.begun.get_or_insert_with(Instant::now);
        let is_late = begun.elapsed() >= STRETCH_TIME_MAX;
        if is_late {
            // The time in which other tasks run does not count.
            self.begun = None;
        }
        is_late
    }
}
