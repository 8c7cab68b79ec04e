//! Requests that have not arrived as a whole. Each may take its time, but all together are bounded:
//! a new one takes the place of the oldest. So clients that send slowly, or never end, delay nobody
//! else: a request of a few bytes arrives at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The bound of all requests that have not arrived, or wait to be answered.
pub(crate) struct Unfinished {
    requests_max: usize,
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By age, the oldest first.
    requests: BTreeMap<u64, Request>,
    /// Invariant: the bytes of all requests.
    bytes: usize,
    next_id: u64,
}

struct Request {
    bytes: usize,
    /// Dropped when the request loses its place.
    _place: oneshot::Sender<()>,
}

/// The place of one request, until it is dropped.
pub(crate) struct Place {
    all: Arc<Unfinished>,
    id: u64,
}

/// Ready when a place is lost.
pub(crate) struct Lost(oneshot::Receiver<()>);

impl Unfinished {
    pub(crate) fn new(requests_max: usize, bytes_max: usize) -> Self {
        Self { requests_max, bytes_max, state: Mutex::default() }
    }

    /// Takes a place for a request of which nothing has arrived.
    pub(crate) fn enter(self: &Arc<Self>) -> (Place, Lost) {
        let (place, lost) = oneshot::channel();
        let mut state = self.state();
        let id = state.next_id;
        state.next_id += 1;
        state.requests.insert(id, Request { bytes: 0, _place: place });
        self.evict(&mut state);
        drop(state);
        (Place { all: Arc::clone(self), id }, Lost(lost))
    }

    fn evict(&self, state: &mut State) {
        while state.requests.len() > self.requests_max || state.bytes > self.bytes_max {
            let Some((_, oldest)) = state.requests.pop_first() else { return };
            state.bytes -= oldest.bytes;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Records that so many more bytes have arrived.
    pub(crate) fn grow(&self, bytes: usize) {
        let mut state = self.all.state();
        let Some(request) = state.requests.get_mut(&self.id) else { return };
        request.bytes += bytes;
        state.bytes += bytes;
        self.all.evict(&mut state);
    }
}

impl Lost {
    /// Does the work, unless the place is lost before it is done.
    pub(crate) async fn unless<T>(self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            _ = self.0 => None,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.all.state();
        if let Some(request) = state.requests.remove(&self.id) {
            state.bytes -= request.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn is_lost(lost: &mut Lost) -> bool {
        (&mut lost.0).now_or_never().is_some()
    }

    #[test]
    fn a_new_request_takes_the_place_of_the_oldest() {
        let all = Arc::new(Unfinished::new(2, 100));
        let (mut places, mut lost): (Vec<_>, Vec<_>) = (0..3).map(|_| all.enter()).unzip();
        let found: Vec<_> = lost.iter_mut().skip(1).map(is_lost).collect();
        assert!(is_lost(&mut lost[0]));
        assert_eq!(found, [false, false]);
        places.pop();
        let (_place, mut lost) = all.enter();
        assert!(!is_lost(&mut lost), "one has ended");
    }

    #[test]
    fn the_oldest_makes_room_for_bytes() {
        let all = Arc::new(Unfinished::new(9, 100));
        let (old, mut old_lost) = all.enter();
        let (new, mut new_lost) = all.enter();
        old.grow(60);
        new.grow(40);
        assert!(!is_lost(&mut old_lost) && !is_lost(&mut new_lost));
        new.grow(1);
        assert!(is_lost(&mut old_lost) && !is_lost(&mut new_lost));
        new.grow(60);
        assert!(is_lost(&mut new_lost), "one that is too large alone");
        drop((old, new));
        assert_eq!(all.state().bytes, 0);
    }
}
