//! Buffers that a thread reuses for short-lived values of each request. Their final length is not
//! known in advance, and growing a new buffer each time would cost as much as the work itself.

use std::cell::Cell;
use std::thread::LocalKey;

/// A buffer that can be cleared and reused.
pub trait Buffer: Sized {
    /// A buffer without memory.
    const EMPTY: Self;
    /// Removes the items and keeps the memory.
    fn clear(&mut self);
    /// Returns the capacity in items; of a tuple or array, that of its largest part.
    fn capacity(&self) -> usize;
}

impl<T> Buffer for Vec<T> {
    const EMPTY: Vec<T> = Vec::new();

    fn clear(&mut self) {
        Vec::clear(self);
    }

    fn capacity(&self) -> usize {
        Vec::capacity(self)
    }
}

impl<A: Buffer, B: Buffer> Buffer for (A, B) {
    const EMPTY: (A, B) = (A::EMPTY, B::EMPTY);

    fn clear(&mut self) {
        self.0.clear();
        self.1.clear();
    }

    fn capacity(&self) -> usize {
        self.0.capacity().max(self.1.capacity())
    }
}

impl<R: Buffer, const N: usize> Buffer for [R; N] {
    const EMPTY: [R; N] = [const { R::EMPTY }; N];

    fn clear(&mut self) {
        self.iter_mut().for_each(R::clear);
    }

    fn capacity(&self) -> usize {
        self.iter().map(R::capacity).max().unwrap_or(0)
    }
}

/// The buffer that a thread keeps for one purpose, in a `thread_local!`.
pub struct Scratch<R> {
    buffer: Cell<R>,
    items_max: usize,
}

impl<R: Buffer> Scratch<R> {
    /// Creates an empty buffer. A buffer that has grown beyond `items_max` is not kept.
    pub const fn new(items_max: usize) -> Scratch<R> {
        Scratch { buffer: Cell::new(R::EMPTY), items_max }
    }

    /// Takes the buffer, which is empty. A second call before [`Scratch::put_back`] returns a
    /// buffer without memory.
    pub fn take(key: &'static LocalKey<Scratch<R>>) -> R {
        key.with(|scratch| scratch.buffer.replace(R::EMPTY))
    }

    /// Puts a buffer back and clears it.
    pub fn put_back(key: &'static LocalKey<Scratch<R>>, mut buffer: R) {
        key.with(|scratch| {
            if buffer.capacity() <= scratch.items_max {
                buffer.clear();
                scratch.buffer.set(buffer);
            }
        });
    }
}

/// Transient buffers of at least this many bytes are allocated apart from long-lived ones.
const LARGE_BYTES_MIN: usize = 128 << 10;
/// Capacity from which allocators map memory separately and return it whole. Unwritten pages are
/// not resident.
const LARGE_CAPACITY_BYTES: usize = 576 << 10;

/// Returns a buffer for a short-lived text of `bytes` bytes. A large one is allocated separately,
/// so that it leaves no hole between long-lived allocations.
pub fn transient_buffer(bytes: usize) -> Vec<u8> {
    let capacity = if bytes < LARGE_BYTES_MIN { bytes } else { bytes.max(LARGE_CAPACITY_BYTES) };
    Vec::with_capacity(capacity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_transient_buffer_is_allocated_separately() {
        let capacity = |bytes| transient_buffer(bytes).capacity();
        assert_eq!(capacity(0), 0);
        assert_eq!(capacity(LARGE_BYTES_MIN - 1), LARGE_BYTES_MIN - 1);
        assert_eq!(capacity(LARGE_BYTES_MIN), LARGE_CAPACITY_BYTES);
        assert_eq!(capacity(3 << 20), 3 << 20);
    }

    type Parts = (Vec<u8>, [Vec<String>; 2]);

    thread_local! {
        static BUFFERS: Scratch<Parts> = const { Scratch::new(16) };
    }

    #[test]
    fn a_buffer_is_reused_unless_it_has_grown_too_large() {
        let mut buffer = Scratch::take(&BUFFERS);
        assert_eq!(buffer.capacity(), 0);
        buffer.0.reserve_exact(16);
        buffer.0.push(1);
        buffer.1[1].push("a".to_owned());
        Scratch::put_back(&BUFFERS, buffer);

        let mut buffer = Scratch::take(&BUFFERS);
        assert_eq!((&buffer, buffer.capacity()), (&Parts::EMPTY, 16), "the same memory");
        assert_eq!(Scratch::take(&BUFFERS).capacity(), 0, "one at a time has it");
        buffer.1[0].reserve_exact(17);
        Scratch::put_back(&BUFFERS, buffer);
        assert_eq!(Scratch::take(&BUFFERS).capacity(), 0, "one part is too large");
    }
}
