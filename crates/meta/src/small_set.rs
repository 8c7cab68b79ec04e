//! [`SmallSet`]: a set for the values of a list, for example to find duplicates.

use smallvec::SmallVec;
use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;

/// Up to this many values are searched linearly, which is faster than hashing.
const LINEAR_VALUES_MAX: usize = 16;
/// Values that are stored inline, without an allocation.
const INLINE_VALUES_MAX: usize = 4;

/// A set that stores few values in a vector and many in a hash set. A lookup takes constant time.
#[derive(Clone, Debug)]
pub enum SmallSet<T> {
    /// Invariant: at most [`LINEAR_VALUES_MAX`] values, without duplicates. Most lists are short
    /// enough to need no allocation.
    Few(SmallVec<[T; INLINE_VALUES_MAX]>),
    /// More than [`LINEAR_VALUES_MAX`] values.
    Many(HashSet<T>),
}

impl<T> Default for SmallSet<T> {
    fn default() -> Self {
        SmallSet::Few(SmallVec::new())
    }
}

impl<T: Eq + Hash> SmallSet<T> {
    /// Creates an empty set.
    pub fn new() -> Self {
        SmallSet::default()
    }

    /// Inserts a value. Returns true when the set did not have it.
    pub fn insert(&mut self, value: T) -> bool {
        let few = match self {
            SmallSet::Many(many) => return many.insert(value),
            SmallSet::Few(few) => few,
        };
        if few.contains(&value) {
            return false;
        }
        few.push(value);
        if few.len() > LINEAR_VALUES_MAX {
            *self = SmallSet::Many(few.drain(..).collect());
        }
        true
    }

    /// Returns whether the set has a value.
    pub fn contains<Q>(&self, value: &Q) -> bool
    where
        T: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        match self {
            SmallSet::Few(few) => few.iter().any(|other| other.borrow() == value),
            SmallSet::Many(many) => many.contains(value),
        }
    }
}

impl<T: Eq + Hash> Extend<T> for SmallSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        for value in values {
            self.insert(value);
        }
    }
}

impl<T: Eq + Hash> FromIterator<T> for SmallSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut set = SmallSet::new();
        set.extend(values);
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_new_once_in_short_and_long_lists() {
        for count in [0, 1, LINEAR_VALUES_MAX, LINEAR_VALUES_MAX + 1, 100] {
            let mut seen = SmallSet::new();
            assert!((0..count).all(|value| seen.insert(value)), "{count}");
            assert!((0..count).all(|value| seen.contains(&value)), "{count}");
            assert!(!(0..count).any(|value| seen.insert(value)), "{count}");
            assert!(!seen.contains(&count), "{count}");
        }
    }
}
