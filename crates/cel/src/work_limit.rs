//! A limit on work that upstream's cost model does not charge: comparing, printing or converting
//! values that contain one large list many times.
//!
//! The counter belongs to one evaluation. It is thread-local because functions receive only their
//! arguments, and an evaluation stays on its thread.

use crate::value::EvalError;
use std::cell::Cell;

/// Maximum number of list and map items that one evaluation may visit.
const STEPS_MAX: u64 = 4_000_000;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(STEPS_MAX) };
}

/// Resets the counter at the start of an evaluation.
pub(crate) fn reset() {
    LEFT.set(STEPS_MAX);
}

/// Counts one item. Returns the cost limit error when the limit is exceeded.
#[inline]
pub(crate) fn count() -> Result<(), EvalError> {
    match LEFT.get().checked_sub(1) {
        Some(remaining) => {
            LEFT.set(remaining);
            Ok(())
        }
        None => Err(EvalError::cost_limit()),
    }
}
