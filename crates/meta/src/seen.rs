//! [`Seen`]: the values that stood in a list so far, to find those that stand twice.

use smallvec::SmallVec;
use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;

/// Up to this many values are searched in a row, which costs less than hashing them.
const LINEAR_VALUES_MAX: usize = 16;
/// Values of them that are kept in place.
const INLINE_VALUES_MAX: usize = 4;

/// A set of values. To look one up costs the same however many there are.
#[derive(Clone, Debug)]
pub enum Seen<T> {
    /// Invariant: at most [`LINEAR_VALUES_MAX`], none twice. Most lists are so short that they need no
    /// allocation.
    Few(SmallVec<[T; INLINE_VALUES_MAX]>),
    /// More than that.
    Many(HashSet<T>),
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Seen::Few(SmallVec::new())
    }
}

impl<T: Eq + Hash> Seen<T> {
    /// The empty set.
    pub fn new() -> Self {
        Seen::default()
    }

    /// Puts a value in. True when it was not there.
    pub fn insert(&mut self, value: T) -> bool {
        let few = match self {
            Seen::Many(many) => return many.insert(value),
            Seen::Few(few) => few,
        };
        if few.contains(&value) {
            return false;
        }
        few.push(value);
        if few.len() > LINEAR_VALUES_MAX {
            *self = Seen::Many(few.drain(..).collect());
        }
        true
    }

    /// Whether a value is there.
    pub fn contains<Q>(&self, value: &Q) -> bool
    where
        T: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        match self {
            Seen::Few(few) => few.iter().any(|known| known.borrow() == value),
            Seen::Many(many) => many.contains(value),
        }
    }
}

impl<T: Eq + Hash> Extend<T> for Seen<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        for value in values {
            self.insert(value);
        }
    }
}

impl<T: Eq + Hash> FromIterator<T> for Seen<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut seen = Seen::new();
        seen.extend(values);
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_new_once_in_short_and_long_lists() {
        for count in [0, 1, LINEAR_VALUES_MAX, LINEAR_VALUES_MAX + 1, 100] {
            let mut seen = Seen::new();
            assert!((0..count).all(|value| seen.insert(value)), "{count}");
            assert!((0..count).all(|value| seen.contains(&value)), "{count}");
            assert!(!(0..count).any(|value| seen.insert(value)), "{count}");
            assert!(!seen.contains(&count), "{count}");
        }
    }
}
