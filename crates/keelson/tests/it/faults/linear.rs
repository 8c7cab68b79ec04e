//! A linearizability checker: can the calls on one key have taken effect one after the other, each
//! at some moment between its request and its response?
//!
//! It uses the search of Wing and Gong and remembers the states that it has tried. Each write has
//! its own value and each version its own resourceVersion, so there are few choices.

use std::collections::HashSet;

/// Maximum number of steps of the search; far more than the history of a test needs.
const STEPS_MAX: usize = 5_000_000;

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

/// The calls that the search has ordered, as bits.
#[derive(Clone, PartialEq, Eq, Hash)]
struct CompletedCalls(Vec<u64>);

impl CompletedCalls {
    fn has(&self, place: usize) -> bool {
        self.0[place / 64] >> (place % 64) & 1 == 1
    }

    fn with(&self, place: usize) -> CompletedCalls {
        let mut done = self.clone();
        done.0[place / 64] |= 1 << (place % 64);
        done
    }
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
    let start = (CompletedCalls(vec![0; calls.len().div_ceil(64)]), State::default(), 0);
    let mut tried = HashSet::new();
    let mut open = vec![start];
    let mut furthest = (0, State::default(), vec![]);
    let mut steps = 0;
    while let Some((done, state, count)) = open.pop() {
        // Only a call that began before the first end of an unordered call can come next.
        let unordered = (0..calls.len()).filter(|place| !done.has(*place));
        let mut first_end = NEVER;
        let mut next = vec![];
        for place in unordered {
            if calls[place].began > first_end {
                break;
            }
            first_end = first_end.min(calls[place].ended);
            next.push(place);
        }
        next.retain(|place| calls[*place].began <= first_end);
        // Deletes of unknown outcome never end, so they are equivalent once they have begun.
        let mut is_first = true;
        next.retain(|place| {
            let call = &calls[*place];
            let is_alike = (call.operation, call.outcome) == (Operation::Delete, Outcome::Unknown);
            !is_alike || std::mem::replace(&mut is_first, false)
        });
        if next.iter().all(|place| calls[*place].ended == NEVER) {
            return Ok(());
        }
        if count >= furthest.0 {
            furthest = (count, state, next.clone());
        }
        steps += next.len();
        if steps > STEPS_MAX {
            return Err(format!("{} calls are too many to decide", calls.len()));
        }
        for place in next {
            if let Some(state) = state.after(&calls[place]) {
                let done = done.with(place);
                if tried.insert((done.clone(), state)) {
                    open.push((done, state, count + 1));
                }
            }
        }
    }
    let (count, state, next) = furthest;
    let next: Vec<_> = next.into_iter().map(|place| calls[place].clone()).collect();
    Err(format!("after {count} calls it is {state:?}, and none of these fits: {next:?}"))
}

#[cfg(test)]
mod tests {
    use super::Operation::{Create, Delete, Read, Update};
    use super::Outcome::{Conflict, Deleted, Exists, NotFound, Saw, Unknown, Wrote};
    use super::{Call, Operation, Outcome, check};

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
