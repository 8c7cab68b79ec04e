//! Sets of completion indexes, as ordered intervals, and their text form: `0,3-5`.

use std::fmt;

/// Ordered intervals that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i64, i64)>);

impl Indexes {
    /// Parses the text form. Indexes from `completions` on, and unreadable parts, are left out.
    pub fn parse(text: &str, completions: i64) -> Indexes {
        let mut all: Vec<(i64, i64)> = vec![];
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let mut ends = part.split('-');
            let first = ends.next().and_then(|first| first.parse::<i64>().ok());
            let Some(first) = first else { continue };
            if first >= completions {
                break;
            }
            let last = match ends.next().map(str::parse::<i64>) {
                None => first,
                Some(Ok(last)) => last.min(completions - 1),
                Some(Err(_)) => continue,
            };
            match all.last_mut() {
                Some(before) if before.1 == first - 1 => before.1 = last,
                _ => all.push((first, last)),
            }
        }
        Indexes(all)
    }

    /// Returns the union with single indexes.
    pub fn with(&self, indexes: impl IntoIterator<Item = i64>) -> Indexes {
        let mut more: Vec<(i64, i64)> = indexes.into_iter().map(|at| (at, at)).collect();
        more.sort_unstable();
        self.union(&Indexes(more))
    }

    /// Returns the union.
    pub fn union(&self, other: &Indexes) -> Indexes {
        let mut all: Vec<(i64, i64)> = self.0.iter().chain(&other.0).copied().collect();
        all.sort_unstable();
        let mut merged: Vec<(i64, i64)> = vec![];
        for (first, last) in all {
            match merged.last_mut() {
                Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Indexes(merged)
    }

    /// Returns the number of indexes.
    pub fn count(&self) -> i64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Returns the number of indexes that are also in `other`.
    pub fn count_common(&self, other: &Indexes) -> i64 {
        let mut mine = 0;
        let mut theirs = 0;
        let mut common = 0;
        while let (Some(one), Some(two)) = (self.0.get(mine), other.0.get(theirs)) {
            common += (one.1.min(two.1) - one.0.max(two.0) + 1).max(0);
            mine += usize::from(one.1 <= two.1);
            theirs += usize::from(two.1 <= one.1);
        }
        common
    }

    /// Whether an index is in the set.
    pub fn has(&self, index: i64) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the first `count` indexes below `completions` that are not in the set.
    pub fn first_missing(&self, count: usize, completions: i64) -> Vec<i64> {
        let mut found = vec![];
        let mut candidate = 0;
        for (first, last) in self.0.iter().copied().chain([(completions, completions)]) {
            let free = usize::try_from(first.min(completions) - candidate).unwrap_or(0);
            found.extend((candidate..).take(free.min(count - found.len())));
            candidate = candidate.max(last + 1);
        }
        found
    }
}

impl fmt::Display for Indexes {
    /// Two neighbours are printed as two numbers, more as a range.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "," };
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                1 => write!(f, "{separator}{first},{last}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_printed_in_their_shortest_form() {
        let check = |text: &str, completions: i64, want: &str| {
            assert_eq!(Indexes::parse(text, completions).to_string(), want, "{text}");
        };
        check("", 5, "");
        check("0", 5, "0");
        check("0,1", 5, "0,1");
        check("0,1,2", 5, "0-2");
        check("0-2,4,6-9", 8, "0-2,4,6,7");
        check("3,8-9", 8, "3");
        check("x,1,2-y,4", 8, "1,4");
    }

    #[test]
    fn unions_merge_neighbours() {
        let check = |text: &str, more: &[i64], want: &str, count: i64| {
            let all = Indexes::parse(text, 100).with(more.iter().copied());
            assert_eq!((all.to_string().as_str(), all.count()), (want, count), "{text} {more:?}");
        };
        check("", &[3, 1, 3], "1,3", 2);
        check("0-2,6", &[3, 5], "0-3,5,6", 6);
        check("1-9", &[4], "1-9", 9);
    }

    #[test]
    fn membership_and_missing_indexes() {
        let all = Indexes::parse("1-3,6", 100);
        let has: Vec<i64> = (0..9).filter(|at| all.has(*at)).collect();
        assert_eq!(has, [1, 2, 3, 6]);
        assert_eq!(all.first_missing(3, 9), [0, 4, 5]);
        assert_eq!(all.first_missing(9, 9), [0, 4, 5, 7, 8]);
        assert_eq!(all.first_missing(9, 5), [0, 4]);
        assert_eq!(all.first_missing(0, 5), [0; 0]);
    }

    #[test]
    fn common_indexes_are_counted() {
        let check = |one: &str, two: &str, want: i64| {
            let one = Indexes::parse(one, 100);
            let two = Indexes::parse(two, 100);
            assert_eq!((one.count_common(&two), two.count_common(&one)), (want, want));
        };
        check("0-3,7", "2-8", 3);
        check("0-3", "5-8", 0);
        check("0-9", "0,2,4-5", 4);
    }
}
