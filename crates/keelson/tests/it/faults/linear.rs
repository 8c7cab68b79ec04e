//! Decides whether what the clients of one key saw can have happened one step after the other, each
//! step at some moment between its question and its answer (linearizability).
//!
//! Every write carries a value of its own and every version has its own resourceVersion, so a search
//! (that of Wing and Gong, with a memory of what it has tried) seldom has to choose.

use std::collections::HashSet;

/// Steps tried before the search gives up; far more than a history of a test needs.
const STEPS_MAX: usize = 5_000_000;

/// When a call ends that nobody answered.
pub const NEVER: u64 = u64::MAX;

/// What a write writes; no two writes share one.
pub type Id = u64;

/// A question and its answer. Times are of one monotonic clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub began: u64,
    pub ended: u64,
    pub operation: Operation,
    pub answer: Answer,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    Read,
    Create(Id),
    /// Where a resourceVersion is given, only that version is to be replaced.
    Update(Id, Option<u64>),
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    /// A read: what stands there, and its resourceVersion.
    Saw(Option<(Id, u64)>),
    /// Written, with this resourceVersion.
    Wrote(u64),
    Deleted,
    /// Not done: there is no object.
    NotFound,
    /// Not done: there is one already.
    Exists,
    /// Not done: it is at another version.
    Conflict,
    /// Certainly not done, and no statement on what is there.
    Refused,
    /// The outcome is unknown: it may have happened, or happen later.
    Unknown,
}

/// The key between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct State {
    /// The resourceVersion is unknown after a write without a response.
    object: Option<(Id, Option<u64>)>,
    /// The newest resourceVersion that anybody saw.
    newest: u64,
}

impl State {
    /// The key after this call, unless it cannot have been next.
    fn after(self, call: &Call) -> Option<State> {
        let is_there = self.object.is_some();
        match (call.operation, call.answer) {
            (Operation::Read, Answer::Saw(None)) => (!is_there).then_some(self),
            (Operation::Read, Answer::Saw(Some((id, rev)))) => {
                let (known_id, known_rev) = self.object?;
                let is_same = known_id == id && known_rev.is_none_or(|known| known == rev);
                let is_new = known_rev.is_none() && rev > self.newest;
                (is_same && (known_rev.is_some() || is_new)).then(|| self.holding(id, Some(rev)))
            }
            (Operation::Create(id), Answer::Wrote(rev)) => {
                (!is_there && rev > self.newest).then(|| self.holding(id, Some(rev)))
            }
            (Operation::Create(id), Answer::Unknown) => (!is_there).then(|| self.holding(id, None)),
            (Operation::Create(_), Answer::Exists) => is_there.then_some(self),
            (Operation::Update(id, expected), Answer::Wrote(rev)) => {
                let may = is_there && self.is_at(expected) && rev > self.newest;
                may.then(|| self.holding(id, Some(rev)))
            }
            (Operation::Update(id, expected), Answer::Unknown) => {
                (is_there && self.is_at(expected)).then(|| self.holding(id, None))
            }
            (Operation::Update(_, Some(expected)), Answer::Conflict) => {
                let (_, rev) = self.object?;
                (rev != Some(expected)).then_some(self)
            }
            (Operation::Update(..) | Operation::Delete, Answer::NotFound) => {
                (!is_there).then_some(self)
            }
            (Operation::Delete, Answer::Deleted | Answer::Unknown) => {
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

/// Which calls have been put in order.
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

/// Says in which way the calls on one key, which begins absent, cannot have happened.
pub fn check(calls: &[Call]) -> Result<(), String> {
    let mut calls = calls.to_vec();
    // A read that nobody answered says nothing, and a write may happen long after its answer.
    calls.retain(|call| {
        (call.operation, call.answer) != (Operation::Read, Answer::Unknown)
            && call.answer != Answer::Refused
    });
    for call in calls.iter_mut().filter(|call| call.answer == Answer::Unknown) {
        call.ended = NEVER;
    }
    calls.sort_by_key(|call| call.began);
    let start = (CompletedCalls(vec![0; calls.len().div_ceil(64)]), State::default(), 0);
    let (mut tried, mut open) = (HashSet::new(), vec![start]);
    let mut furthest = (0, State::default(), vec![]);
    let mut steps = 0;
    while let Some((done, state, count)) = open.pop() {
        // Behind the first call that is not in order only those count that began before any of
        // the calls not in order has ended.
        let waiting = (0..calls.len()).filter(|place| !done.has(*place));
        let mut until = NEVER;
        let mut next = vec![];
        for place in waiting {
            if calls[place].began > until {
                break;
            }
            until = until.min(calls[place].ended);
            next.push(place);
        }
        next.retain(|place| calls[*place].began <= until);
        // Deletes of unknown outcome never end, so one that has begun can do what any other could.
        let mut is_first = true;
        next.retain(|place| {
            let call = &calls[*place];
            let is_alike = (call.operation, call.answer) == (Operation::Delete, Answer::Unknown);
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
    use super::Answer::{Conflict, Deleted, Exists, NotFound, Saw, Unknown, Wrote};
    use super::Operation::{Create, Delete, Read, Update};
    use super::{Answer, Call, Operation, check};

    fn is_linear(calls: &[(u64, u64, Operation, Answer)]) -> bool {
        let call = |&(began, ended, operation, answer)| Call { began, ended, operation, answer };
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
            // A read beside a write may see either.
            &[
                (0, 9, Create(1), Wrote(5)),
                (1, 2, Read, Saw(None)),
                (3, 4, Read, Saw(Some((1, 5)))),
            ],
            // Of two creates one wins.
            &[(0, 9, Create(1), Exists), (0, 9, Create(2), Wrote(5))],
            &[
                (0, 1, Create(1), Wrote(5)),
                (2, 9, Update(2, Some(5)), Wrote(6)),
                (2, 9, Update(3, Some(5)), Conflict),
                (3, 8, Read, Saw(Some((1, 5)))),
            ],
            // A call of unknown outcome may have happened, also later, or not.
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
