//! The connections that are open, and which of them has to go when there is no place for one more.
//!
//! A connection counts as authenticated from the first request, or certificate, that named a user. The
//! others are bounded in number, for all clients and for each address: the oldest of them that is idle is
//! closed when a new one comes. So whoever can authenticate always finds a place.

use crate::limits::Limits;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// All connections of a listener.
pub(crate) struct Connections {
    limits: Maximums,
    table: Mutex<Table>,
    /// A connection has ended.
    left: Notify,
    /// Bytes that clients sent which have not authenticated, and that belong to no request yet.
    unasked_bytes: AtomicUsize,
}

/// Connection limits.
#[derive(Clone, Copy)]
struct Maximums {
    all: usize,
    per_address: usize,
    unauthenticated: usize,
    unauthenticated_per_address: usize,
    unasked_bytes: usize,
    unasked_bytes_each: usize,
}

#[derive(Default)]
struct Table {
    /// Connections that are open, also those that were told to go and have not yet.
    open: usize,
    /// Connections that are being closed.
    leaving: usize,
    /// Connections without an authenticated request, by age.
    unauthenticated: BTreeMap<u64, Arc<Member>>,
    addresses: HashMap<IpAddr, Count>,
    next: u64,
}

#[derive(Clone, Copy, Default)]
struct Count {
    open: usize,
    leaving: usize,
    unauthenticated: usize,
}

/// Why there is no place for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// Nobody may have one more before one has ended.
    Server,
    /// The client's address has too many connections.
    Address,
}

/// A connection.
struct Member {
    number: u64,
    address: IpAddr,
    began: Instant,
    is_authenticated: AtomicBool,
    /// Being closed.
    is_leaving: AtomicBool,
    /// Requests whose answer was not sent yet.
    requests: AtomicUsize,
    /// When the last of them ended, in milliseconds since the beginning.
    idle_since_ms: AtomicU64,
    unasked_bytes: AtomicUsize,
    evicted: Notify,
    ending: Notify,
}

impl Connections {
    pub fn new(limits: &Limits) -> Arc<Connections> {
        let unauthenticated = limits.unauthenticated_connections();
        Connections::within(Maximums {
            all: limits.connections_max.max(1),
            per_address: (limits.connections_max * 3 / 4).max(1),
            unauthenticated,
            unauthenticated_per_address: (unauthenticated * 3 / 4).max(1),
            unasked_bytes: limits.unasked_bytes_max,
            unasked_bytes_each: limits.header_bytes_max * 2,
        })
    }

    fn within(limits: Maximums) -> Arc<Connections> {
        Arc::new(Connections {
            limits,
            table: Mutex::default(),
            left: Notify::new(),
            unasked_bytes: AtomicUsize::new(0),
        })
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.table().open
    }

    /// Waits until a connection has ended, after this was asked for.
    pub fn left(&self) -> impl Future<Output = ()> {
        self.left.notified()
    }

    /// Counts a new connection, for which another one may be closed.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Result<Place, Full> {
        let mut table = self.table();
        let count = table.addresses.get(&address).copied().unwrap_or_default();
        let limits = self.limits;
        // The file of a connection that was told to go is not free yet: it is waited for.
        if count.open >= limits.per_address {
            if count.leaving == 0 && !table.evict(|member| member.address == address) {
                return Err(Full::Address);
            }
            return Err(Full::Server);
        }
        if table.open >= limits.all {
            if table.leaving == 0 {
                table.evict_of_most();
            }
            return Err(Full::Server);
        }
        if count.unauthenticated >= limits.unauthenticated_per_address {
            table.evict(|member| member.address == address);
        } else if table.unauthenticated.len() >= limits.unauthenticated {
            table.evict_of_most();
        }
        let member = table.insert(address);
        drop(table);
        Ok(Place(Arc::new(Held { member, connections: self.clone() })))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn insert(&mut self, address: IpAddr) -> Arc<Member> {
        let member = Arc::new(Member {
            number: self.next,
            address,
            began: Instant::now(),
            is_authenticated: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            idle_since_ms: AtomicU64::new(0),
            unasked_bytes: AtomicUsize::new(0),
            evicted: Notify::new(),
            ending: Notify::new(),
        });
        self.next += 1;
        self.open += 1;
        self.unauthenticated.insert(member.number, member.clone());
        let count = self.addresses.entry(address).or_default();
        count.open += 1;
        count.unauthenticated += 1;
        member
    }

    /// Tells the oldest idle one to go, or the oldest one where none is idle; false when there is none.
    fn evict(&mut self, is_meant: impl Fn(&Member) -> bool) -> bool {
        let meant = || self.unauthenticated.values().filter(|member| is_meant(member));
        let idle = meant().find(|member| member.requests.load(Ordering::Relaxed) == 0);
        let Some(victim) = idle.or_else(|| meant().next()).cloned() else { return false };
        self.is_no_longer_unauthenticated(&victim);
        victim.is_leaving.store(true, Ordering::Relaxed);
        self.leaving += 1;
        if let Some(count) = self.addresses.get_mut(&victim.address) {
            count.leaving += 1;
        }
        victim.evicted.notify_one();
        tracing::debug!(address = %victim.address, "too many connections; closing the oldest idle");
        true
    }

    /// The same for the addresses that have the most.
    fn evict_of_most(&mut self) {
        let most = self.addresses.values().map(|count| count.unauthenticated).max();
        let crowded = |(_, count): &(&IpAddr, &Count)| Some(count.unauthenticated) == most;
        let crowded: Vec<IpAddr> =
            self.addresses.iter().filter(crowded).map(|(address, _)| *address).collect();
        self.evict(|member| crowded.contains(&member.address));
    }

    fn is_no_longer_unauthenticated(&mut self, member: &Member) {
        if self.unauthenticated.remove(&member.number).is_none() {
            return;
        }
        if let Some(count) = self.addresses.get_mut(&member.address) {
            count.unauthenticated -= 1;
        }
    }

    fn remove(&mut self, member: &Member) {
        self.is_no_longer_unauthenticated(member);
        let leaving = usize::from(member.is_leaving.load(Ordering::Relaxed));
        self.open -= 1;
        self.leaving -= leaving;
        if let Some(count) = self.addresses.get_mut(&member.address) {
            count.open -= 1;
            count.leaving -= leaving;
            if count.open == 0 {
                self.addresses.remove(&member.address);
            }
        }
    }
}

/// The place of a connection among all, shared with streams that outlive its HTTP.
#[derive(Clone)]
pub(crate) struct Place(Arc<Held>);

struct Held {
    member: Arc<Member>,
    connections: Arc<Connections>,
}

impl Place {
    /// The client's address.
    pub fn address(&self) -> IpAddr {
        self.0.member.address
    }

    /// Somebody has authenticated on this connection.
    pub fn authenticated(&self) {
        let Held { member, connections } = &*self.0;
        // Nearly always it is known: then nothing is written that other threads read.
        if member.is_authenticated.load(Ordering::Relaxed) {
            return;
        }
        if !member.is_authenticated.swap(true, Ordering::Relaxed) {
            connections.table().is_no_longer_unauthenticated(member);
            self.forget_unasked();
        }
    }

    /// Counts bytes that came; false when there are too many for a client that has not authenticated and
    /// asks nothing.
    pub fn received(&self, bytes: usize) -> bool {
        let Held { member, connections } = &*self.0;
        if member.is_authenticated.load(Ordering::Relaxed)
            || member.requests.load(Ordering::Relaxed) > 0
        {
            return true;
        }
        let own = member.unasked_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = connections.unasked_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let limits = &connections.limits;
        own <= limits.unasked_bytes_each && all <= limits.unasked_bytes
    }

    fn forget_unasked(&self) {
        let Held { member, connections } = &*self.0;
        if member.unasked_bytes.load(Ordering::Relaxed) > 0 {
            let bytes = member.unasked_bytes.swap(0, Ordering::Relaxed);
            connections.unasked_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Counts a request, until its answer was sent.
    pub fn request(&self) -> Asked {
        self.0.member.requests.fetch_add(1, Ordering::Relaxed);
        self.forget_unasked();
        Asked(self.clone())
    }

    /// For how long there was no request; nothing while there is one.
    pub fn idle_for(&self) -> Option<Duration> {
        let member = &self.0.member;
        if member.requests.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let since = Duration::from_millis(member.idle_since_ms.load(Ordering::Relaxed));
        Some(member.began.elapsed().saturating_sub(since))
    }

    /// Asks the connection to end in good order (GOAWAY), where its protocol has that.
    pub fn end(&self) {
        self.0.member.ending.notify_one();
    }

    /// Waits until somebody asks for that.
    pub async fn ending(&self) {
        self.0.member.ending.notified().await;
    }

    /// Waits until the connection has to go for another one.
    pub async fn evicted(&self) {
        self.0.member.evicted.notified().await;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.connections.table().remove(&self.member);
        let bytes = self.member.unasked_bytes.load(Ordering::Relaxed);
        self.connections.unasked_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.connections.left.notify_one();
    }
}

/// A request that is not answered to its end.
pub(crate) struct Asked(Place);

impl Drop for Asked {
    fn drop(&mut self) {
        let member = &self.0.0.member;
        let now = u64::try_from(member.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        member.idle_since_ms.store(now, Ordering::Relaxed);
        member.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// Sixteen in all, twelve of one address; four unauthenticated, two of one address.
    fn connections() -> Arc<Connections> {
        Connections::within(Maximums {
            all: 16,
            per_address: 12,
            unauthenticated: 4,
            unauthenticated_per_address: 2,
            unasked_bytes: 100,
            unasked_bytes_each: 100,
        })
    }

    fn host(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    fn is_evicted(place: &Place) -> bool {
        place.evicted().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_idle_connection_of_the_address_makes_place() {
        let all = connections();
        let first = all.enter(host(1)).expect("a place");
        let second = all.enter(host(1)).expect("a place");
        let busy = first.request();
        let third = all.enter(host(1)).expect("a place");
        assert_eq!([&first, &second, &third].map(is_evicted), [false, true, false]);
        let fourth = all.enter(host(1)).expect("a place");
        assert_eq!([&first, &third, &fourth].map(is_evicted), [false, true, false]);
        drop(busy);
    }

    #[test]
    fn the_address_with_the_most_connections_makes_place() {
        let all = connections();
        let alone = all.enter(host(3)).expect("a place");
        let crowd = [1, 1, 2].map(|number| all.enter(host(number)).expect("a place"));
        let new = all.enter(host(4)).expect("a place");
        assert!(is_evicted(&crowd[0]));
        assert_eq!([&alone, &crowd[1], &crowd[2], &new].map(is_evicted), [false; 4]);
    }

    #[test]
    fn authenticated_connections_stay() {
        let all = connections();
        let admin = all.enter(host(1)).expect("a place");
        admin.authenticated();
        let crowd: Vec<Place> = (0..10).map(|_| all.enter(host(1)).expect("a place")).collect();
        assert!(!is_evicted(&admin));
        assert_eq!(crowd.iter().filter(|place| is_evicted(place)).count(), 8);
        assert_eq!(all.open(), 11);
        drop((admin, crowd));
        assert_eq!(all.open(), 0);
        assert!(all.table().addresses.is_empty());
    }

    #[test]
    fn an_address_has_a_part_of_all_places() {
        let all = connections();
        let known = |number| {
            let place = all.enter(host(number)).expect("a place");
            place.authenticated();
            place
        };
        let own: Vec<Place> = (0..12).map(|_| known(1)).collect();
        assert_eq!(all.enter(host(1)).err(), Some(Full::Address));
        let _others: Vec<Place> = (0..4).map(|_| known(2)).collect();
        assert_eq!(all.enter(host(2)).err(), Some(Full::Server));
        drop(own);
        assert!(all.enter(host(1)).is_ok());
    }

    /// Those that were told to go may take a while, and newcomers wait for them.
    #[test]
    fn a_connection_that_is_leaving_is_waited_for() {
        let all = connections();
        let crowd: Vec<Place> = (0..12).map(|_| all.enter(host(1)).expect("a place")).collect();
        let gone =
            || crowd.iter().filter(|place| place.0.member.is_leaving.load(Ordering::Relaxed));
        assert_eq!(gone().count(), 10);
        for _ in 0..5 {
            assert_eq!(all.enter(host(1)).err(), Some(Full::Server));
        }
        assert_eq!(gone().count(), 10, "nobody else has to go for that");
        drop(crowd);
        assert!(all.enter(host(1)).is_ok());
        assert_eq!(all.table().leaving, 0);
    }

    #[test]
    fn bytes_without_a_request_are_bounded_for_all_together() {
        let all = connections();
        let (one, two) =
            (all.enter(host(1)).expect("a place"), all.enter(host(2)).expect("a place"));
        assert!(one.received(60));
        assert!(!two.received(60));
        drop(two);
        drop(one.request());
        assert!(one.received(90));
        one.authenticated();
        assert!(one.received(1000));
        assert_eq!(all.unasked_bytes.load(Ordering::Relaxed), 0);
    }
}
