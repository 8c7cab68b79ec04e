//! Stack growth for recursive passes over an expression.

/// A new stack segment is allocated when less than this is left.
const RED_ZONE_BYTES: usize = 768 * 1024;

/// Size of a new stack segment.
const NEW_SEGMENT_BYTES: usize = 4 * 1024 * 1024;

/// Calls `f` with at least [`RED_ZONE_BYTES`] of stack.
#[inline]
pub(crate) fn ensure_sufficient_stack<T>(f: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(RED_ZONE_BYTES, NEW_SEGMENT_BYTES, f)
}
