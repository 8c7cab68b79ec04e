//! A limit on work that upstream's costs do not see: comparing, printing or converting values that hold one
//! large list many times.
//!
//! The count belongs to one evaluation. It is kept by thread, for functions see values and nothing else,
//! and an evaluation never leaves its thread.

use crate::value::EvalError;
use std::cell::Cell;

/// Items that one evaluation may look at within lists and maps.
const STEPS_MAX: u64 = 4_000_000;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(STEPS_MAX) };
}

/// Begins an evaluation.
pub(crate) fn begin() {
    LEFT.set(STEPS_MAX);
}

/// Counts one item; the error is that of the cost limit.
#[inline]
pub(crate) fn take() -> Result<(), EvalError> {
    match LEFT.get().checked_sub(1) {
        Some(left) => {
            LEFT.set(left);
            Ok(())
        }
        None => Err(EvalError::cost_limit()),
    }
}
