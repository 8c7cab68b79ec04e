//! The limit of open logs, streams to containers and proxied requests: in total, and for each user,
//! so that none of them takes all. Upstream has no such limit: there each costs memory and
//! descriptors until the process ends.

use crate::limits::Limits;
use keelson_auth::User;
use keelson_meta::Str;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts the open streams.
#[derive(Debug)]
pub(crate) struct StreamLimit {
    all_max: usize,
    each_user_max: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    /// Users with at least one stream.
    users: HashMap<Str, usize>,
}

impl StreamLimit {
    pub fn new(limits: &Limits) -> StreamLimit {
        StreamLimit {
            all_max: limits.streams_max,
            each_user_max: limits.streams_of_user_max,
            open: Mutex::default(),
        }
    }

    /// Counts a stream until the returned seat is dropped; `None` if there are too many.
    pub fn enter(self: &Arc<Self>, user: &User) -> Option<StreamSeat> {
        let mut open = self.open();
        let of_user = open.users.get(&user.name).copied().unwrap_or(0);
        if open.all >= self.all_max || of_user >= self.each_user_max {
            return None;
        }
        open.all += 1;
        open.users.insert(user.name.clone(), of_user + 1);
        Some(StreamSeat { limit: self.clone(), user: user.name.clone() })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a stream until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamSeat {
    limit: Arc<StreamLimit>,
    user: Str,
}

impl Drop for StreamSeat {
    fn drop(&mut self) {
        let mut open = self.limit.open();
        open.all -= 1;
        match open.users.get_mut(&self.user) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.users.remove(&self.user)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_cannot_take_all_streams() {
        let limits = Limits { streams_max: 3, streams_of_user_max: 2, ..Limits::default() };
        let limit = Arc::new(StreamLimit::new(&limits));
        let user = |name: &str| User { name: name.into(), ..User::default() };
        let first = limit.enter(&user("a")).expect("below the limit");
        let second = limit.enter(&user("a")).expect("below the limit");
        assert!(limit.enter(&user("a")).is_none());
        let other = limit.enter(&user("b")).expect("below the limit");
        assert!(limit.enter(&user("b")).is_none(), "the limit in total");
        drop(first);
        let again = limit.enter(&user("a")).expect("one has ended");
        drop((second, other, again));
        let open = limit.open();
        assert_eq!((open.all, open.users.len()), (0, 0));
    }
}
