//! Memory that a thread keeps to work in, for what is short-lived and made for each request: how long it
//! gets shows only then, and to make it anew costs as much as what is worked on.

use std::cell::Cell;
use std::thread::LocalKey;

/// Memory that is emptied and used again.
pub trait Room: Sized {
    /// Without memory.
    const EMPTY: Self;
    /// Forgets what is in it and keeps the memory.
    fn clear(&mut self);
    /// For how many items there is memory, in the largest part.
    fn capacity(&self) -> usize;
}

impl<T> Room for Vec<T> {
    const EMPTY: Vec<T> = Vec::new();

    fn clear(&mut self) {
        Vec::clear(self);
    }

    fn capacity(&self) -> usize {
        Vec::capacity(self)
    }
}

impl<A: Room, B: Room> Room for (A, B) {
    const EMPTY: (A, B) = (A::EMPTY, B::EMPTY);

    fn clear(&mut self) {
        self.0.clear();
        self.1.clear();
    }

    fn capacity(&self) -> usize {
        self.0.capacity().max(self.1.capacity())
    }
}

impl<R: Room, const N: usize> Room for [R; N] {
    const EMPTY: [R; N] = [const { R::EMPTY }; N];

    fn clear(&mut self) {
        self.iter_mut().for_each(R::clear);
    }

    fn capacity(&self) -> usize {
        self.iter().map(R::capacity).max().unwrap_or(0)
    }
}

/// The room that a thread keeps for one purpose: a `thread_local!` of it says what for, and how much of it.
pub struct Kept<R> {
    room: Cell<R>,
    items_max: usize,
}

impl<R: Room> Kept<R> {
    /// Keeps room for at most so many items; what has grown beyond is not worth its memory.
    pub const fn new(items_max: usize) -> Kept<R> {
        Kept { room: Cell::new(R::EMPTY), items_max }
    }

    /// Takes the room, with nothing in it. Who asks before it was given back gets one without memory.
    pub fn take(key: &'static LocalKey<Kept<R>>) -> R {
        key.with(|kept| kept.room.replace(R::EMPTY))
    }

    /// Gives it back, whatever is in it.
    pub fn give_back(key: &'static LocalKey<Kept<R>>, mut room: R) {
        key.with(|kept| {
            if room.capacity() <= kept.items_max {
                room.clear();
                kept.room.set(room);
            }
        });
    }
}

/// Bytes from which on a text that passes stands apart from those that stay.
const APART_BYTES_MIN: usize = 128 << 10;
/// Room for so many bytes is one that allocators give back whole. Of what is not written to nothing is resident.
const APART_ROOM_BYTES: usize = 576 << 10;

/// Room for a text of so many bytes that does not stay. A large one stands apart: between texts that stay it would
/// leave a hole that nothing of another size fits in.
pub fn passing(bytes: usize) -> Vec<u8> {
    Vec::with_capacity(if bytes < APART_BYTES_MIN { bytes } else { bytes.max(APART_ROOM_BYTES) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_text_that_passes_stands_apart() {
        let room = |bytes| passing(bytes).capacity();
        assert_eq!(room(0), 0);
        assert_eq!(room(APART_BYTES_MIN - 1), APART_BYTES_MIN - 1);
        assert_eq!(room(APART_BYTES_MIN), APART_ROOM_BYTES);
        assert_eq!(room(3 << 20), 3 << 20);
    }

    type Parts = (Vec<u8>, [Vec<String>; 2]);

    thread_local! {
        static ROOM: Kept<Parts> = const { Kept::new(16) };
    }

    #[test]
    fn room_comes_back_empty_until_it_has_grown_too_large() {
        let mut room = Kept::take(&ROOM);
        assert_eq!(room.capacity(), 0);
        room.0.reserve_exact(16);
        room.0.push(1);
        room.1[1].push("a".to_owned());
        Kept::give_back(&ROOM, room);

        let mut room = Kept::take(&ROOM);
        assert_eq!((&room, room.capacity()), (&Parts::EMPTY, 16), "the same memory");
        assert_eq!(Kept::take(&ROOM).capacity(), 0, "one at a time has it");
        room.1[0].reserve_exact(17);
        Kept::give_back(&ROOM, room);
        assert_eq!(Kept::take(&ROOM).capacity(), 0, "one part is too large");
    }
}
