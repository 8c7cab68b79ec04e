//! Room on the stack for what works its way down an expression.

/// With less than this left, a new piece of stack is taken.
const LEFT_BYTES_MIN: usize = 768 * 1024;

/// The size of a new piece.
const PIECE_BYTES: usize = 4 * 1024 * 1024;

/// Calls `f` with enough stack for some levels more.
#[inline]
pub(crate) fn with_room<T>(f: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(LEFT_BYTES_MIN, PIECE_BYTES, f)
}
