//! [`sort_by`]: sorts as Go does, whatever the order says.
//!
//! Where an order is none (not-a-number is neither less nor more than another number, and keys of
//! YAML can be in a circle), the standard library panics, and where elements are equal, Go's order
//! of them is that of its algorithm. This is that algorithm (pattern-defeating quicksort with Go's
//! limits, since Go 1.19), so that such lists are like kube-apiserver's.

/// Up to this length elements are inserted one by one, which keeps equal ones in their order.
const INSERTED_MAX: usize = 12;
/// From this length the pivot is a median of medians, and elements may be moved far to repair a
/// nearly sorted range.
const LONG_MIN: usize = 50;
/// From this length the pivot is a median.
const MEDIAN_MIN: usize = 8;
/// Swaps of a median of medians in a descending range.
const SWAPS_MAX: usize = 12;
/// Elements that are moved to repair a nearly sorted range.
const REPAIRS_MAX: usize = 5;

/// Sorts by `less`. After an error the order is any.
pub fn sort_by<T, E>(
    items: &mut [T],
    less: impl FnMut(&T, &T) -> Result<bool, E>,
) -> Result<(), E> {
    let end = items.len();
    let bad_splits_max = usize::BITS - end.leading_zeros();
    Sorter { items, less }.sort(0, end, bad_splits_max)
}

struct Sorter<'i, T, F> {
    items: &'i mut [T],
    less: F,
}

/// What the choice of a pivot shows of a range.
#[derive(Clone, Copy, PartialEq)]
enum Trend {
    Ascending,
    Descending,
    Unknown,
}

impl<T, E, F: FnMut(&T, &T) -> Result<bool, E>> Sorter<'_, T, F> {
    fn less(&mut self, one: usize, other: usize) -> Result<bool, E> {
        (self.less)(&self.items[one], &self.items[other])
    }

    /// Sorts from `begin` to before `end`. After so many bad splits heapsort ends it.
    fn sort(&mut self, mut begin: usize, mut end: usize, mut bad_splits: u32) -> Result<(), E> {
        let mut was_balanced = true;
        let mut was_split = true;
        loop {
            let length = end - begin;
            if length <= INSERTED_MAX {
                return self.insert_all(begin, end);
            }
            if bad_splits == 0 {
                return self.heap_sort(begin, end);
            }
            if !was_balanced {
                self.mix(begin, end);
                bad_splits -= 1;
            }
            let (mut pivot, mut trend) = self.choose_pivot(begin, end)?;
            if trend == Trend::Descending {
                self.items[begin..end].reverse();
                pivot = end - 1 - (pivot - begin);
                trend = Trend::Ascending;
            }
            let is_likely_sorted = was_balanced && was_split && trend == Trend::Ascending;
            if is_likely_sorted && self.repair(begin, end)? {
                return Ok(());
            }
            // What precedes the range is not less than its pivot: many are equal.
            if begin > 0 && !self.less(begin - 1, pivot)? {
                begin = self.split_equal(begin, end, pivot)?;
                continue;
            }
            let (middle, is_split) = self.split(begin, end, pivot)?;
            was_split = is_split;
            let before = middle - begin;
            let behind = end - middle;
            was_balanced = before.min(behind) >= length / 8;
            if before < behind {
                self.sort(begin, middle, bad_splits)?;
                begin = middle + 1;
            } else {
                self.sort(middle + 1, end, bad_splits)?;
                end = middle;
            }
        }
    }

    fn insert_all(&mut self, begin: usize, end: usize) -> Result<(), E> {
        for at in begin + 1..end {
            let mut to = at;
            while to > begin && self.less(to, to - 1)? {
                self.items.swap(to, to - 1);
                to -= 1;
            }
        }
        Ok(())
    }

    fn heap_sort(&mut self, begin: usize, end: usize) -> Result<(), E> {
        let length = end - begin;
        for root in (0..=(length - 1) / 2).rev() {
            self.sift_down(begin, root, length)?;
        }
        for last in (0..length).rev() {
            self.items.swap(begin, begin + last);
            self.sift_down(begin, 0, last)?;
        }
        Ok(())
    }

    fn sift_down(&mut self, begin: usize, mut root: usize, length: usize) -> Result<(), E> {
        loop {
            let mut child = 2 * root + 1;
            if child >= length {
                return Ok(());
            }
            if child + 1 < length && self.less(begin + child, begin + child + 1)? {
                child += 1;
            }
            if !self.less(begin + root, begin + child)? {
                return Ok(());
            }
            self.items.swap(begin + root, begin + child);
            root = child;
        }
    }

    /// Swaps three elements in the middle with any others, so that no pattern keeps splits bad.
    fn mix(&mut self, begin: usize, end: usize) {
        let length = end - begin;
        if length < MEDIAN_MIN {
            return;
        }
        let mask = (1_usize << (usize::BITS - length.leading_zeros())) - 1;
        let mut random = length as u64;
        let middle = begin + length / 4 * 2;
        for at in middle - 1..=middle + 1 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let other = random as usize & mask;
            self.items.swap(at, begin + if other >= length { other - length } else { other });
        }
    }

    fn choose_pivot(&mut self, begin: usize, end: usize) -> Result<(usize, Trend), E> {
        let length = end - begin;
        let mut swaps = 0;
        let mut places = [1, 2, 3].map(|quarters| begin + length / 4 * quarters);
        if length >= LONG_MIN {
            for place in &mut places {
                *place = self.median([*place - 1, *place, *place + 1], &mut swaps)?;
            }
        }
        let pivot = if length >= MEDIAN_MIN { self.median(places, &mut swaps)? } else { places[1] };
        let trend = match swaps {
            0 => Trend::Ascending,
            SWAPS_MAX => Trend::Descending,
            _ => Trend::Unknown,
        };
        Ok((pivot, trend))
    }

    fn median(&mut self, mut places: [usize; 3], swaps: &mut usize) -> Result<usize, E> {
        for (one, other) in [(0, 1), (1, 2), (0, 1)] {
            if self.less(places[other], places[one])? {
                *swaps += 1;
                places.swap(one, other);
            }
        }
        Ok(places[1])
    }

    /// Sorts a range in which few elements are in the wrong place. Returns false if it is none.
    fn repair(&mut self, begin: usize, end: usize) -> Result<bool, E> {
        let mut at = begin + 1;
        for _ in 0..REPAIRS_MAX {
            while at < end && !self.less(at, at - 1)? {
                at += 1;
            }
            if at == end {
                return Ok(true);
            }
            if end - begin < LONG_MIN {
                return Ok(false);
            }
            self.items.swap(at, at - 1);
            if at - begin >= 2 {
                let mut to = at - 1;
                while to >= 1 && self.less(to, to - 1)? {
                    self.items.swap(to, to - 1);
                    to -= 1;
                }
            }
            if end - at >= 2 {
                let mut to = at + 1;
                while to < end && self.less(to, to - 1)? {
                    self.items.swap(to, to - 1);
                    to += 1;
                }
            }
        }
        Ok(false)
    }

    /// Moves what is less than the pivot before it. Returns its new place, and whether all were on
    /// their side already.
    fn split(&mut self, begin: usize, end: usize, pivot: usize) -> Result<(usize, bool), E> {
        self.items.swap(begin, pivot);
        let mut left = begin + 1;
        let mut right = end - 1;
        let mut is_split = true;
        loop {
            while left <= right && self.less(left, begin)? {
                left += 1;
            }
            while left <= right && !self.less(right, begin)? {
                right -= 1;
            }
            if left > right {
                break;
            }
            is_split = false;
            self.items.swap(left, right);
            left += 1;
            right -= 1;
        }
        self.items.swap(right, begin);
        Ok((right, is_split))
    }

    /// Moves what equals the pivot, than which nothing is less, to the begin. Returns where the
    /// others begin.
    fn split_equal(&mut self, begin: usize, end: usize, pivot: usize) -> Result<usize, E> {
        self.items.swap(begin, pivot);
        let mut left = begin + 1;
        let mut right = end - 1;
        loop {
            while left <= right && !self.less(begin, left)? {
                left += 1;
            }
            while left <= right && self.less(begin, right)? {
                right -= 1;
            }
            if left > right {
                return Ok(left);
            }
            self.items.swap(left, right);
            left += 1;
            right -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// Orders that Go 1.26's `sort.Slice` has made: length, number of keys, their order at first,
    /// what is less, and a hash of the places at the end.
    const ROWS: &str = include_str!("go_sort/rows.txt");

    fn keys(length: u64, count: u64, order: &str, next: &mut impl FnMut() -> u64) -> Vec<u64> {
        let key = |at: u64| match order {
            "random" => next() % count,
            "rising" if count > 50 => at,
            "rising" => at % count,
            "falling" => (length - at) * count / (length + 1),
            _ => at % 17 * count / 17,
        };
        (0..length).map(key).collect()
    }

    #[test]
    fn orders_are_those_of_go() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let mut rows = 0;
        for row in ROWS.lines() {
            let [length, count, order, less, want] = row.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{row}")
            };
            let number = |text: &str| text.parse::<u64>().expect("a number");
            let keys = keys(number(length), number(count), order, &mut next);
            let mut places: Vec<usize> = (0..keys.len()).collect();
            let is_less = |one: &usize, other: &usize| {
                let [one, other] = [one, other].map(|place| keys[*place]);
                Ok::<bool, Infallible>(match less {
                    "key" => one < other,
                    "circle" => (other + 3 - one % 3) % 3 == 1,
                    _ => (one * 7 + other * 13 + one * other) % 5 < 2,
                })
            };
            let Ok(()) = sort_by(&mut places, is_less);
            let add =
                |hash: u64, place: &usize| (hash ^ *place as u64).wrapping_mul(0x0100_0000_01b3);
            let hash = places.iter().fold(0xcbf2_9ce4_8422_2325, add);
            assert_eq!(format!("{hash:016x}"), want, "{row}");
            rows += 1;
        }
        assert_eq!(rows, 1140);
    }

    #[test]
    fn an_error_ends_it() {
        let mut asked = 0;
        let result = sort_by(&mut (0..1000).rev().collect::<Vec<u32>>(), |_, _| {
            asked += 1;
            if asked == 100 { Err("over") } else { Ok(true) }
        });
        assert_eq!((result, asked), (Err("over"), 100));
    }
}
