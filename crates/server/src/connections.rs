//! Limits on open connections, and eviction when they are reached.
//!
//! A connection counts as authenticated after its first authenticated request or verified
//! certificate. The number of unauthenticated connections is limited, in total and per address: at
//! the limit, the oldest idle one is closed when a new one arrives. So clients with credentials can
//! always connect.

use crate::limits::Limits;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// All connections of a listener.
pub(crate) struct Connections {
    limits: ConnectionLimits,
    table: Mutex<Table>,
    /// Notified when a connection has closed.
    closed: Notify,
    /// Bytes received on unauthenticated connections that do not belong to a complete request head
    /// yet.
    unauthenticated_bytes: AtomicUsize,
}

/// Connection limits.
#[derive(Clone, Copy)]
struct ConnectionLimits {
    all: usize,
    per_address: usize,
    unauthenticated: usize,
    unauthenticated_per_address: usize,
    unauthenticated_bytes: usize,
    unauthenticated_bytes_each: usize,
}

#[derive(Default)]
struct Table {
    /// Number of open connections, including those that are closing.
    open: usize,
    /// Number of evicted connections that are not closed yet.
    closing: usize,
    /// Unauthenticated connections, oldest first.
    unauthenticated: BTreeMap<u64, Arc<Member>>,
    addresses: HashMap<IpAddr, Count>,
    next: u64,
}

#[derive(Clone, Copy, Default)]
struct Count {
    open: usize,
    closing: usize,
    unauthenticated: usize,
}

/// Why a connection is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// A connection must close first.
    Server,
    /// The client's address has too many connections.
    Address,
}

/// A connection.
struct Member {
    number: u64,
    address: IpAddr,
    opened_at: Instant,
    is_authenticated: AtomicBool,
    /// Evicted, but not closed yet.
    is_closing: AtomicBool,
    /// Number of requests whose response was not completely sent.
    requests: AtomicUsize,
    /// When the last of them ended, in milliseconds since the connection was opened.
    idle_since_ms: AtomicU64,
    unauthenticated_bytes: AtomicUsize,
    evicted: Notify,
    goaway: Notify,
}

impl Connections {
    pub fn new(limits: &Limits) -> Arc<Connections> {
        let unauthenticated = limits.unauthenticated_connections();
        Connections::with_limits(ConnectionLimits {
            all: limits.connections_max.max(1),
            per_address: (limits.connections_max * 3 / 4).max(1),
            unauthenticated,
            unauthenticated_per_address: (unauthenticated * 3 / 4).max(1),
            unauthenticated_bytes: limits.unauthenticated_bytes_max,
            unauthenticated_bytes_each: limits.header_bytes_max * 2,
        })
    }

    fn with_limits(limits: ConnectionLimits) -> Arc<Connections> {
        Arc::new(Connections {
            limits,
            table: Mutex::default(),
            closed: Notify::new(),
            unauthenticated_bytes: AtomicUsize::new(0),
        })
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.table().open
    }

    /// Waits until a connection has closed after this call.
    pub fn closed(&self) -> impl Future<Output = ()> {
        self.closed.notified()
    }

    /// Registers a new connection. May evict another one for it.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Result<ConnectionSlot, Full> {
        let mut table = self.table();
        let count = table.addresses.get(&address).copied().unwrap_or_default();
        let limits = self.limits;
        // The file descriptor of an evicted connection is not free yet, so wait for it.
        if count.open >= limits.per_address {
            if count.closing == 0 && !table.evict(|member| member.address == address) {
                return Err(Full::Address);
            }
            return Err(Full::Server);
        }
        if table.open >= limits.all {
            if table.closing == 0 {
                table.evict_from_busiest_addresses();
            }
            return Err(Full::Server);
        }
        if count.unauthenticated >= limits.unauthenticated_per_address {
            table.evict(|member| member.address == address);
        } else if table.unauthenticated.len() >= limits.unauthenticated {
            table.evict_from_busiest_addresses();
        }
        let member = table.insert(address);
        drop(table);
        Ok(ConnectionSlot(Arc::new(SlotInner { member, connections: self.clone() })))
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
            opened_at: Instant::now(),
            is_authenticated: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            idle_since_ms: AtomicU64::new(0),
            unauthenticated_bytes: AtomicUsize::new(0),
            evicted: Notify::new(),
            goaway: Notify::new(),
        });
        self.next += 1;
        self.open += 1;
        self.unauthenticated.insert(member.number, member.clone());
        let count = self.addresses.entry(address).or_default();
        count.open += 1;
        count.unauthenticated += 1;
        member
    }

    /// Evicts the oldest idle candidate, or the oldest one if none is idle. Returns false if there
    /// is none.
    fn evict(&mut self, is_candidate: impl Fn(&Member) -> bool) -> bool {
        let candidates = || self.unauthenticated.values().filter(|member| is_candidate(member));
        let idle = candidates().find(|member| member.requests.load(Ordering::Relaxed) == 0);
        let Some(victim) = idle.or_else(|| candidates().next()).cloned() else { return false };
        self.remove_unauthenticated(&victim);
        victim.is_closing.store(true, Ordering::Relaxed);
        self.closing += 1;
        if let Some(count) = self.addresses.get_mut(&victim.address) {
            count.closing += 1;
        }
        victim.evicted.notify_one();
        tracing::debug!(address = %victim.address, "too many connections; closing the oldest idle");
        true
    }

    /// Evicts a connection of the addresses that have the most unauthenticated ones.
    fn evict_from_busiest_addresses(&mut self) {
        let most = self.addresses.values().map(|count| count.unauthenticated).max();
        let busiest = |(_, count): &(&IpAddr, &Count)| Some(count.unauthenticated) == most;
        let busiest: Vec<IpAddr> =
            self.addresses.iter().filter(busiest).map(|(address, _)| *address).collect();
        self.evict(|member| busiest.contains(&member.address));
    }

    fn remove_unauthenticated(&mut self, member: &Member) {
        if self.unauthenticated.remove(&member.number).is_none() {
            return;
        }
        if let Some(count) = self.addresses.get_mut(&member.address) {
            count.unauthenticated -= 1;
        }
    }

    fn remove(&mut self, member: &Member) {
        self.remove_unauthenticated(member);
        let closing = usize::from(member.is_closing.load(Ordering::Relaxed));
        self.open -= 1;
        self.closing -= closing;
        if let Some(count) = self.addresses.get_mut(&member.address) {
            count.open -= 1;
            count.closing -= closing;
            if count.open == 0 {
                self.addresses.remove(&member.address);
            }
        }
    }
}

/// The registration of a connection, shared with WebSockets that outlive its HTTP connection.
#[derive(Clone)]
pub(crate) struct ConnectionSlot(Arc<SlotInner>);

struct SlotInner {
    member: Arc<Member>,
    connections: Arc<Connections>,
}

impl ConnectionSlot {
    /// Returns the client's address.
    pub fn address(&self) -> IpAddr {
        self.0.member.address
    }

    /// Marks the connection as authenticated.
    pub fn mark_authenticated(&self) {
        let SlotInner { member, connections } = &*self.0;
        // Most calls find it set already, and then avoid writes to shared memory.
        if member.is_authenticated.load(Ordering::Relaxed) {
            return;
        }
        if !member.is_authenticated.swap(true, Ordering::Relaxed) {
            connections.table().remove_unauthenticated(member);
            self.reset_unauthenticated_bytes();
        }
    }

    /// Counts received bytes. Returns false if an unauthenticated client has sent too many without
    /// a complete request head.
    pub fn record_received(&self, bytes: usize) -> bool {
        let SlotInner { member, connections } = &*self.0;
        if member.is_authenticated.load(Ordering::Relaxed)
            || member.requests.load(Ordering::Relaxed) > 0
        {
            return true;
        }
        let own = member.unauthenticated_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = connections.unauthenticated_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let limits = &connections.limits;
        let fits = own <= limits.unauthenticated_bytes_each && all <= limits.unauthenticated_bytes;
        if !fits {
            // The connection is closed soon. Until then its bytes must not close others.
            self.reset_unauthenticated_bytes();
        }
        fits
    }

    fn reset_unauthenticated_bytes(&self) {
        let SlotInner { member, connections } = &*self.0;
        if member.unauthenticated_bytes.load(Ordering::Relaxed) > 0 {
            let bytes = member.unauthenticated_bytes.swap(0, Ordering::Relaxed);
            connections.unauthenticated_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Counts a request until the returned guard is dropped.
    pub fn request(&self) -> OpenRequest {
        self.0.member.requests.fetch_add(1, Ordering::Relaxed);
        self.reset_unauthenticated_bytes();
        OpenRequest(self.clone())
    }

    /// Returns how long the connection has been idle, or `None` if it has a request.
    pub fn idle_for(&self) -> Option<Duration> {
        let member = &self.0.member;
        if member.requests.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let since = Duration::from_millis(member.idle_since_ms.load(Ordering::Relaxed));
        Some(member.opened_at.elapsed().saturating_sub(since))
    }

    /// Requests a graceful end (GOAWAY) of an HTTP/2 connection.
    pub fn request_goaway(&self) {
        self.0.member.goaway.notify_one();
    }

    /// Waits until a graceful end is requested.
    pub async fn goaway_requested(&self) {
        self.0.member.goaway.notified().await;
    }

    /// Waits until the connection is evicted.
    pub async fn evicted(&self) {
        self.0.member.evicted.notified().await;
    }
}

impl Drop for SlotInner {
    fn drop(&mut self) {
        // The bytes first: whoever sees that the connection is gone finds its bytes free.
        let bytes = self.member.unauthenticated_bytes.load(Ordering::Relaxed);
        self.connections.unauthenticated_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.connections.table().remove(&self.member);
        self.connections.closed.notify_one();
    }
}

/// A request whose response is not completely sent. Dropping it ends the count.
pub(crate) struct OpenRequest(ConnectionSlot);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let member = &self.0.0.member;
        let now = u64::try_from(member.opened_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        member.idle_since_ms.store(now, Ordering::Relaxed);
        member.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    /// At most 16 connections, 12 per address; 4 unauthenticated, 2 per address.
    fn connections() -> Arc<Connections> {
        Connections::with_limits(ConnectionLimits {
            all: 16,
            per_address: 12,
            unauthenticated: 4,
            unauthenticated_per_address: 2,
            unauthenticated_bytes: 100,
            unauthenticated_bytes_each: 100,
        })
    }

    fn host(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    fn is_evicted(slot: &ConnectionSlot) -> bool {
        slot.evicted().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_idle_connection_of_the_address_is_evicted() {
        let all = connections();
        let first = all.enter(host(1)).expect("a slot");
        let second = all.enter(host(1)).expect("a slot");
        let busy = first.request();
        let third = all.enter(host(1)).expect("a slot");
        assert_eq!([&first, &second, &third].map(is_evicted), [false, true, false]);
        let fourth = all.enter(host(1)).expect("a slot");
        assert_eq!([&first, &third, &fourth].map(is_evicted), [false, true, false]);
        drop(busy);
    }

    #[test]
    fn the_address_with_the_most_connections_loses_one() {
        let all = connections();
        let alone = all.enter(host(3)).expect("a slot");
        let crowd = [1, 1, 2].map(|number| all.enter(host(number)).expect("a slot"));
        let new = all.enter(host(4)).expect("a slot");
        assert!(is_evicted(&crowd[0]));
        assert_eq!([&alone, &crowd[1], &crowd[2], &new].map(is_evicted), [false; 4]);
    }

    #[test]
    fn authenticated_connections_are_not_evicted() {
        let all = connections();
        let admin = all.enter(host(1)).expect("a slot");
        admin.mark_authenticated();
        let crowd: Vec<ConnectionSlot> =
            (0..10).map(|_| all.enter(host(1)).expect("a slot")).collect();
        assert!(!is_evicted(&admin));
        assert_eq!(crowd.iter().filter(|slot| is_evicted(slot)).count(), 8);
        assert_eq!(all.open(), 11);
        drop((admin, crowd));
        assert_eq!(all.open(), 0);
        assert!(all.table().addresses.is_empty());
    }

    #[test]
    fn an_address_gets_only_a_part_of_all_slots() {
        let all = connections();
        let known = |number| {
            let slot = all.enter(host(number)).expect("a slot");
            slot.mark_authenticated();
            slot
        };
        let own: Vec<ConnectionSlot> = (0..12).map(|_| known(1)).collect();
        assert_eq!(all.enter(host(1)).err(), Some(Full::Address));
        let _others: Vec<ConnectionSlot> = (0..4).map(|_| known(2)).collect();
        assert_eq!(all.enter(host(2)).err(), Some(Full::Server));
        drop(own);
        assert!(all.enter(host(1)).is_ok());
    }

    /// Evicted connections may take a while to close, and new ones wait for them.
    #[test]
    fn a_closing_connection_is_waited_for() {
        let all = connections();
        let crowd: Vec<ConnectionSlot> =
            (0..12).map(|_| all.enter(host(1)).expect("a slot")).collect();
        let closing =
            || crowd.iter().filter(|slot| slot.0.member.is_closing.load(Ordering::Relaxed));
        assert_eq!(closing().count(), 10);
        for _ in 0..5 {
            assert_eq!(all.enter(host(1)).err(), Some(Full::Server));
        }
        assert_eq!(closing().count(), 10, "no further connection is evicted");
        drop(crowd);
        assert!(all.enter(host(1)).is_ok());
        assert_eq!(all.table().closing, 0);
    }

    #[test]
    fn bytes_without_a_request_are_bounded_for_all_together() {
        let all = connections();
        let one = all.enter(host(1)).expect("a slot");
        let two = all.enter(host(2)).expect("a slot");
        assert!(one.record_received(60));
        assert!(!two.record_received(60));
        let three = all.enter(host(3)).expect("a slot");
        assert!(three.record_received(40), "bytes that were refused close no other connection");
        drop((two, three));
        drop(one.request());
        assert!(one.record_received(90));
        one.mark_authenticated();
        assert!(one.record_received(1000));
        assert_eq!(all.unauthenticated_bytes.load(Ordering::Relaxed), 0);
    }
}
