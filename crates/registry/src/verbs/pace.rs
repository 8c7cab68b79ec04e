//! [`Pace`]: how much a loop over stored objects may do before other tasks of its thread run.

/// Work between two yields: below a millisecond, in bytes that are compared.
const STRETCH_BYTES_MAX: usize = 256 << 10;

/// Counts the work of a loop since it last yielded.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    bytes: usize,
}

impl Pace {
    /// Counts work, and returns whether the loop must yield now.
    #[inline]
    pub fn is_due(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        let is_due = self.bytes >= STRETCH_BYTES_MAX;
        if is_due {
            self.bytes = 0;
        }
        is_due
    }
}
