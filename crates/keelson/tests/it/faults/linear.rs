//! A linearizability checker: can the calls on one key have taken effect one after the other, each
//! at some moment between its request and its response?
//!
//! It uses the search of Wing and Gong and remembers the states that it has tried (Lowe), in memory
//! in proportion to the calls: an hour of them is checked in seconds. Each write has
//! its own value and each version its own resourceVersion, so there are few choices.

use std::collections::HashSet;

/// Maximum number of calls that the search tries, in a short history and for each call of a long
/// one; far more than the history of a test needs.
const TRIES_MIN_MAX: usize = 5_000_000;
const TRIES_PER_CALL_MAX: usize = 200;

/// End of a call without a response.
pub const NEVER: u64 = u64::MAX;

/// The value of a write; each write has a different one.
pub type Id = u64;

/// A request and its outcome. Times are of one monotonic clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub began: u64,
    pub ended: u64,
    pub operation: Operation,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    Read,
    Create(Id),
    /// With a resourceVersion as precondition, if any.
    Update(Id, Option<u64>),
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// A read: the value and its resourceVersion, or absent.
    Saw(Option<(Id, u64)>),
    /// Written, with this resourceVersion.
    Wrote(u64),
    Deleted,
    /// Not done: there is no object.
    NotFound,
    /// Not done: the object exists.
    Exists,
    /// Not done: the object has another resourceVersion.
    Conflict,
    /// Rejected without effect; nothing is known about the object.
    Refused,
    /// The outcome is unknown: it may have happened, or happen later.
    Unknown,
}

/// The state of the key between two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct State {
    /// The resourceVersion is unknown after a write without a response.
    object: Option<(Id, Option<u64>)>,
    /// The newest resourceVersion that a client saw.
    newest: u64,
}

impl State {
    /// Returns the state after a call, or `None` if the call cannot be next.
    fn after(self, call: &Call) -> Option<State> {
        let is_there = self.object.is_some();
        match (call.operation, call.outcome) {
            (Operation::Read, Outcome::Saw(None)) => (!is_there).then_some(self),
            (Operation::Read, Outcome::Saw(Some((id, rev)))) => {
                let (known_id, known_rev) = self.object?;
                let is_same = known_id == id && known_rev.is_none_or(|known| known == rev);
                let is_new = known_rev.is_none() && rev > self.newest;
                (is_same && (known_rev.is_some() || is_new)).then(|| self.holding(id, Some(rev)))
            }
            (Operation::Create(id), Outcome::Wrote(rev)) => {
                (!is_there && rev > self.newest).then(|| self.holding(id, Some(rev)))
            }
            (Operation::Create(id), Outcome::Unknown) => {
                (!is_there).then(|| self.holding(id, None))
            }
            (Operation::Create(_), Outcome::Exists) => is_there.then_some(self),
            (Operation::Update(id, expected), Outcome::Wrote(rev)) => {
                let may = is_there && self.is_at(expected) && rev > self.newest;
                may.then(|| self.holding(id, Some(rev)))
            }
            (Operation::Update(id, expected), Outcome::Unknown) => {
                (is_there && self.is_at(expected)).then(|| self.holding(id, None))
            }
            (Operation::Update(_, Some(expected)), Outcome::Conflict) => {
                let (_, rev) = self.object?;
                (rev != Some(expected)).then_some(self)
            }
            (Operation::Update(..) | Operation::Delete, Outcome::NotFound) => {
                (!is_there).then_some(self)
            }
            (Operation::Delete, Outcome::Deleted | Outcome::Unknown) => {
                is_there.then_some(State { object: None, ..self })
            }
            _ => None,
        }
    }

    fn is_at(self, expected: Option<u64>) -> bool {
        expected.is_none_or(|at| self.object.is_some_and(|(_, rev)| rev == Some(at)))
    }

    fn holding(self, id: Id, rev: Option<u64>) -> State {
        State { object: Some((id, rev)), newest: rev.unwrap_or(self.newest) }
    }
}

/// The calls of one key that the search has not ordered, in the order of their begin. Taking one
/// out and putting it back, the last one first, costs the same however many there are.
struct Unordered {
    /// Of each call, the place of the next one and of the one before; the last is an end that is
    /// no call.
    next: Vec<usize>,
    before: Vec<usize>,
}

impl Unordered {
    fn new(count: usize) -> Unordered {
        let next = (0..=count).map(|place| (place + 1) % (count + 1)).collect();
        let before = (0..=count).map(|place| (place + count) % (count + 1)).collect();
        Unordered { next, before }
    }

    fn take(&mut self, place: usize) {
        self.next[self.before[place]] = self.next[place];
        self.before[self.next[place]] = self.before[place];
    }

    fn put_back(&mut self, place: usize) {
        self.next[self.before[place]] = place;
        self.before[self.next[place]] = place;
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let end = self.next.len() - 1;
        std::iter::successors(Some(self.next[end]), |place| Some(self.next[*place]))
            .take_while(move |place| *place != end)
    }

    /// Returns the calls that can be next.
    fn candidates(&self, calls: &[Call]) -> Vec<usize> {
        // Only a call that began before the first end of an unordered call can come next.
        let mut first_end = NEVER;
        let mut next = vec![];
        // Deletes of unknown outcome never end, so they are equivalent once they have begun.
        let mut has_delete = false;
        for place in self.iter() {
            let call = &calls[place];
            if call.began > first_end {
                break;
            }
            first_end = first_end.min(call.ended);
            if (call.operation, call.outcome) == (Operation::Delete, Outcome::Unknown)
                && std::mem::replace(&mut has_delete, true)
            {
                continue;
            }
            next.push(place);
        }
        next.retain(|place| calls[*place].began <= first_end);
        next
    }
}

/// One ordered call, or the begin.
struct Step {
    /// `None`: the begin.
    call: Option<usize>,
    state: State,
    /// What can follow and was not tried yet.
    next: Vec<usize>,
}

/// Returns the number by which a set of calls is known that has this one: the sets are too many and
/// too large to be kept. Two different sets have the same number once in 2^128.
fn number(place: usize) -> u128 {
    let half = |seed: u64| {
        let mut mixed = (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    };
    u128::from(half(0)) << 64 | u128::from(half(0x5851_f42d_4c95_7f2d))
}

/// Checks that the calls on one key, which is absent at first, are linearizable. An error says how
/// far an order was found.
pub fn check(calls: &[Call]) -> Result<(), String> {
    let mut calls = calls.to_vec();
    // A read without a response has no information; a write without one may happen at any later
    // time.
    calls.retain(|call| {
        (call.operation, call.outcome) != (Operation::Read, Outcome::Unknown)
            && call.outcome != Outcome::Refused
    });
    for call in calls.iter_mut().filter(|call| call.outcome == Outcome::Unknown) {
        call.ended = NEVER;
    }
    calls.sort_by_key(|call| call.began);
    let mut unordered = Unordered::new(calls.len());
    let mut ordered = 0_u128;
    let mut tried = HashSet::new();
    let next = unordered.candidates(&calls);
    if is_end(&next, &calls) {
        return Ok(());
    }
    let mut path = vec![Step { call: None, state: State::default(), next }];
    let mut furthest = (0, State::default(), vec![]);
    let mut tries = 0;
    while let Some(step) = path.last_mut() {
        let Some(place) = step.next.pop() else {
            if let Some(place) = step.call {
                unordered.put_back(place);
                ordered ^= number(place);
            }
            path.pop();
            continue;
        };
        tries += 1;
        if tries > TRIES_MIN_MAX.max(calls.len() * TRIES_PER_CALL_MAX) {
            return Err(format!("{} calls are too many to decide", calls.len()));
        }
        let Some(state) = step.state.after(&calls[place]) else { continue };
        if !tried.insert((ordered ^ number(place), state)) {
            continue;
        }
        unordered.take(place);
        ordered ^= number(place);
        let next = unordered.candidates(&calls);
        if path.len() >= furthest.0 {
            furthest = (path.len(), state, next.clone());
        }
        if is_end(&next, &calls) {
            return Ok(());
        }
        path.push(Step { call: Some(place), state, next });
    }
    let (count, state, next) = furthest;
    let next: Vec<_> = next.into_iter().map(|place| calls[place].clone()).collect();
    Err(format!("after {count} calls it is {state:?}, and none of these fits: {next:?}"))
}

/// Whether all calls that ended are ordered.
fn is_end(next: &[usize], calls: &[Call]) -> bool {
    next.iter().all(|place| calls[*place].ended == NEVER)
}

#[cfg(test)]
mod tests {
    use super::Operation::{Create, Delete, Read, Update};
    use super::Outcome::{Conflict, Deleted, Exists, NotFound, Saw, Unknown, Wrote};
    use super::{Call, NEVER, Operation, Outcome, check};

    fn is_linear(calls: &[(u64, u64, Operation, Outcome)]) -> bool {
        let call = |&(began, ended, operation, outcome)| Call { began, ended, operation, outcome };
        check(&calls.iter().map(call).collect::<Vec<_>>()).is_ok()
    }

    #[test]
    fn linearizable_histories_are_accepted() {
        let good: [&[_]; 9] = [
            &[],
            &[
                (0, 1, Read, Saw(None)),
                (2, 3, Create(1), Wrote(5)),
                (4, 5, Read, Saw(Some((1, 5)))),
            ],
            // A read concurrent with a write may return either state.
            &[
                (0, 9, Create(1), Wrote(5)),
                (1, 2, Read, Saw(None)),
                (3, 4, Read, Saw(Some((1, 5)))),
            ],
            // One of two creates succeeds.
            &[(0, 9, Create(1), Exists), (0, 9, Create(2), Wrote(5))],
            &[
                (0, 1, Create(1), Wrote(5)),
                (2, 9, Update(2, Some(5)), Wrote(6)),
                (2, 9, Update(3, Some(5)), Conflict),
                (3, 8, Read, Saw(Some((1, 5)))),
            ],
            // A call of unknown outcome may have happened, may happen later, or not at all.
            &[
                (0, 1, Create(1), Unknown),
                (2, 3, Read, Saw(None)),
                (4, 5, Read, Saw(Some((1, 7)))),
                (6, 7, Update(2, Some(7)), Wrote(9)),
            ],
            &[(0, 1, Create(1), Unknown), (2, 3, Create(2), Wrote(5)), (4, 5, Delete, Deleted)],
            &[
                (0, 1, Create(1), Wrote(5)),
                (2, 3, Delete, Unknown),
                (4, 5, Read, Saw(None)),
                (6, 7, Update(2, None), NotFound),
                (8, 9, Create(3), Wrote(8)),
            ],
            &[(0, 1, Create(1), Wrote(5)), (2, 3, Read, Unknown), (4, 5, Delete, Deleted)],
        ];
        for calls in good {
            assert!(is_linear(calls), "{calls:?}");
        }
    }

    /// Calls as of an hour: deletes without an answer, and reads that wait while others go on.
    fn long_history(last: u64) -> Vec<Call> {
        let mut calls = vec![];
        let mut add = |began, ended, operation, outcome| {
            calls.push(Call { began, ended, operation, outcome });
        };
        add(0, 5, Create(0), Wrote(1));
        for n in 1..20_000 {
            let at = n * 10;
            add(at, at + 9, Update(n, Some(n)), Wrote(n + 1));
            add(at + 1, at + 8, Update(1_000_000 + n, Some(n)), Conflict);
            add(at + 2, at + 12, Read, Saw(Some((n, n + 1))));
            if n % 100 == 0 {
                add(at, NEVER, Delete, Unknown);
            }
            if n % 5_000 == 0 {
                add(at - 30_000, at + 3, Read, Saw(Some((n - 2_000, n - 1_999))));
            }
        }
        add(300_000, 300_001, Read, Saw(Some((last, last + 1))));
        calls
    }

    #[test]
    fn an_hour_of_calls_is_decided() {
        assert_eq!(check(&long_history(19_999)), Ok(()));
        let error = check(&long_history(19_998)).expect_err("a stale read");
        assert!(error.starts_with("after 600"), "{error}");
    }

    #[test]
    fn other_histories_are_rejected() {
        let bad: [(&str, &[_]); 12] = [
            (
                "a stale read",
                &[
                    (0, 1, Create(1), Wrote(5)),
                    (2, 3, Update(2, Some(5)), Wrote(6)),
                    (4, 5, Read, Saw(Some((1, 5)))),
                ],
            ),
            ("a lost write", &[(0, 1, Create(1), Wrote(5)), (2, 3, Read, Saw(None))]),
            (
                "a lost update",
                &[
                    (0, 1, Create(1), Wrote(5)),
                    (2, 9, Update(2, Some(5)), Wrote(6)),
                    (2, 9, Update(3, Some(5)), Wrote(7)),
                ],
            ),
            (
                "visible before, gone after",
                &[
                    (0, 9, Create(1), Wrote(5)),
                    (1, 2, Read, Saw(Some((1, 5)))),
                    (3, 4, Read, Saw(None)),
                ],
            ),
            (
                "of unknown outcome, visible before, gone after",
                &[
                    (0, 1, Create(1), Unknown),
                    (2, 3, Read, Saw(Some((1, 5)))),
                    (4, 5, Read, Saw(None)),
                ],
            ),
            (
                "done twice",
                &[
                    (0, 1, Create(1), Unknown),
                    (2, 3, Read, Saw(Some((1, 5)))),
                    (4, 5, Delete, Deleted),
                    (6, 7, Read, Saw(Some((1, 9)))),
                ],
            ),
            ("created twice", &[(0, 1, Create(1), Wrote(5)), (2, 3, Create(2), Wrote(6))]),
            ("nobody wrote it", &[(0, 1, Read, Saw(Some((1, 5))))]),
            (
                "seen before it was asked for",
                &[(0, 1, Read, Saw(Some((1, 5)))), (2, 3, Create(1), Wrote(5))],
            ),
            (
                "a version went back",
                &[(0, 1, Create(1), Wrote(5)), (2, 3, Update(2, Some(5)), Wrote(4))],
            ),
            (
                "refused for nothing",
                &[(0, 1, Create(1), Wrote(5)), (2, 3, Update(2, Some(5)), Conflict)],
            ),
            (
                "two versions of one write",
                &[(0, 1, Create(1), Wrote(5)), (2, 3, Read, Saw(Some((1, 6))))],
            ),
        ];
        for (what, calls) in bad {
            assert!(!is_linear(calls), "{what}: {calls:?}");
        }
    }
}
