//! The allocated node ports: one bitmap in the store, in kube-apiserver's form (registry
//! `core/service/allocator/storage`). Servers that share the store update it by compare and swap,
//! so that no port is allocated twice.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use keelson_meta::{Failure, GroupVersionKind, Object, Status, Value};
use keelson_registry::{PortRange, Registry};
use keelson_resources::OtherRecord;
use keelson_schema::catalogue::Catalogue;
use keelson_schema::{Schema, decode, proto, yaml};
use keelson_store::{Compare, KeyValue, Op, ReadError, Revision, Store, Txn, TxnOutcome};
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// The key of the bitmap.
const PORTS_KEY: &[u8] = b"/registry/ranges/servicenodeports";
/// What is in the store besides objects, for `keelson check`.
pub const OTHER_RECORDS: &[OtherRecord] =
    &[OtherRecord { key: PORTS_KEY, name: "ranges/servicenodeports", check: check_ports }];
/// The smallest and largest number of ports at the lower end that are used last (KEP-3070).
const RESERVED_MIN: usize = 16;
const RESERVED_MAX: usize = 128;
/// Maximum tries of an update that conflicts with other servers.
const TRIES_MAX: usize = 100;

/// Errors of decoding a stored bitmap.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DecodeError {
    /// The bitmap is of another range.
    OtherRange,
    /// The value is not a bitmap.
    Unreadable(String),
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DecodeError::OtherRange => "the provided range does not match the previous range",
            DecodeError::Unreadable(why) => why,
        })
    }
}

impl From<String> for DecodeError {
    fn from(why: String) -> Self {
        DecodeError::Unreadable(why)
    }
}

/// A bitmap of allocated ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    range: PortRange,
    /// A big-endian number whose lowest bit is the first port. Invariant: it has a bit for each
    /// port of the range.
    bits: Vec<u8>,
}

impl Ports {
    /// Returns a bitmap without allocated ports.
    pub fn empty(range: PortRange) -> Ports {
        Ports { range, bits: vec![0; range.size().div_ceil(8)] }
    }

    /// Returns the range of the bitmap.
    pub fn range(&self) -> PortRange {
        self.range
    }

    /// Returns the byte index and the bit mask of a port of the range.
    fn bit(&self, port: u16) -> (usize, u8) {
        let offset = self.range.offset(port);
        (self.bits.len() - 1 - offset / 8, 1 << (offset % 8))
    }

    pub fn contains(&self, port: u16) -> bool {
        let (byte, mask) = self.bit(port);
        self.bits[byte] & mask != 0
    }

    /// Marks a port as allocated; a port outside the range is ignored.
    pub fn insert(&mut self, port: u16) {
        if self.range.contains(port) {
            let (byte, mask) = self.bit(port);
            self.bits[byte] |= mask;
        }
    }

    pub fn remove(&mut self, port: u16) {
        if self.range.contains(port) {
            let (byte, mask) = self.bit(port);
            self.bits[byte] &= !mask;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.range.ports().filter(|port| self.contains(*port))
    }

    /// Allocates a requested port. The error is the message for the client.
    pub fn allocate(&mut self, port: u16) -> Result<(), String> {
        if !self.range.contains(port) {
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {}",
                self.range
            ));
        }
        if self.contains(port) {
            return Err("provided port is already allocated".to_owned());
        }
        self.insert(port);
        Ok(())
    }

    /// Allocates any free port, at a random position, so that a released port is not reused
    /// immediately. The lower end of the range is used last, because manifests name its ports.
    pub fn allocate_any(&mut self, random: u128) -> Result<u16, String> {
        let size = self.range.size();
        let reserved = reserved(self.range.size());
        let within = |count: usize| usize::try_from(random % (count.max(1) as u128)).unwrap_or(0);
        let upper = within(size - reserved);
        let lower = within(reserved);
        let above = (reserved + upper..size).chain(reserved..reserved + upper);
        let mut offsets = above.chain(lower..reserved).chain(0..lower);
        let free = |offset: usize| self.range.ports().nth(offset).filter(|p| !self.contains(*p));
        let port = offsets.find_map(free).ok_or_else(|| "range is full".to_owned())?;
        self.insert(port);
        Ok(port)
    }

    /// Encodes the bitmap as a `RangeAllocation`.
    fn encode(&self) -> Result<Bytes, Failure> {
        let first = self.bits.iter().position(|byte| *byte != 0).unwrap_or(self.bits.len());
        let mut obj = Object::new();
        obj.root.insert("range", self.range.to_string());
        obj.root.insert("data", STANDARD.encode(&self.bits[first..]));
        let mut out = vec![];
        proto::encode(&schema(), &obj, &mut out).map_err(Status::internal)?;
        Ok(out.into())
    }

    /// Decodes a `RangeAllocation` of this range, in protobuf, JSON or YAML.
    fn decode(value: &[u8], range: PortRange) -> Result<Ports, DecodeError> {
        let schema = schema();
        let obj = if value.starts_with(&proto::PREFIX) {
            let envelope = proto::decode_envelope(value).map_err(|error| error.to_string())?;
            proto::decode_message(&schema, envelope.raw).map_err(|error| error.to_string())?
        } else {
            let parsed = yaml::parse(value).map_err(|error| error.to_string())?;
            decode::canonicalize(&schema, parsed.value)?.object
        };
        if obj.str_at(&["range"]) != range.to_string() {
            return Err(DecodeError::OtherRange);
        }
        let mut ports = Ports::empty(range);
        let data = obj.get("data").and_then(Value::as_str).unwrap_or_default();
        let data = STANDARD.decode(data).map_err(|error| error.to_string())?;
        let start = ports
            .bits
            .len()
            .checked_sub(data.len())
            .ok_or_else(|| "it has more ports than its range".to_owned())?;
        ports.bits[start..].copy_from_slice(&data);
        Ok(ports)
    }
}

/// Returns the number of ports at the lower end of a range that are used last (KEP-3070).
fn reserved(size: usize) -> usize {
    if size <= RESERVED_MIN { 0 } else { (size / 32).clamp(RESERVED_MIN, RESERVED_MAX) }
}

/// Checks a stored bitmap. One of another range is valid, because a server replaces it.
fn check_ports(value: &[u8]) -> Result<(), String> {
    match Ports::decode(value, PortRange::default()) {
        Ok(_) | Err(DecodeError::OtherRange) => Ok(()),
        Err(DecodeError::Unreadable(why)) => Err(why),
    }
}

fn schema() -> Schema {
    let gvk = GroupVersionKind::new("", "v1", "RangeAllocation");
    Catalogue::shared().schema_or_unserved(&gvk).expect("the catalogue has every kind of core/v1")
}

/// The stored bitmap at a revision.
#[derive(Clone, Debug)]
struct StoredPorts {
    ports: Ports,
    /// 0: nothing is stored.
    modified: Revision,
}

/// The allocated node ports of all servers on a store.
pub(crate) struct PortPool {
    store: Arc<dyn Store>,
    range: PortRange,
    cached: Mutex<Option<StoredPorts>>,
    /// Serializes the updates of this process, which would conflict with each other.
    update_lock: Semaphore,
}

impl std::fmt::Debug for PortPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PortPool").finish_non_exhaustive()
    }
}

impl PortPool {
    pub fn new(store: Arc<dyn Store>, range: PortRange) -> Self {
        PortPool { store, range, cached: Mutex::new(None), update_lock: Semaphore::new(1) }
    }

    /// Counts the ports of the range that are allocated and that are free, as far as this process
    /// knows.
    pub fn count(&self, registry: &Registry) {
        if let Some(stored) = self.cached() {
            let size = stored.ports.range().size();
            let allocated = stored.ports.iter().count();
            registry.metrics.services.ports_in_use(allocated, size.saturating_sub(allocated));
        }
    }

    /// Returns an empty bitmap of the pool's range.
    pub(super) fn empty(&self) -> Ports {
        Ports::empty(self.range)
    }

    /// Updates the bitmap. `change` is called again after a conflict with another server, and its
    /// error is returned only if the bitmap was the newest. A change without effect writes nothing,
    /// and may have seen an older bitmap.
    pub(super) async fn update<T>(
        &self,
        change: impl Fn(&mut Ports) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let _permit = self.update_lock.acquire().await.map_err(Status::internal)?;
        self.update_locked(change).await
    }

    /// Like [`PortPool::update`], but reads the newest bitmap first.
    pub(super) async fn update_newest<T>(
        &self,
        change: impl Fn(&mut Ports) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let _permit = self.update_lock.acquire().await.map_err(Status::internal)?;
        self.set_cached(None);
        self.update_locked(change).await
    }

    /// Replaces a stored bitmap of another range by `ports` (portallocator `controller/repair.go`).
    /// Until then, no port can be allocated.
    pub(super) async fn replace_other_range(&self, ports: Ports) -> Result<(), Failure> {
        let _permit = self.update_lock.acquire().await.map_err(Status::internal)?;
        let stored = self.store.get(PORTS_KEY).await.map_err(|error| store_failure(&error))?;
        let is_other =
            |kv: &KeyValue| Ports::decode(&kv.value, self.range) == Err(DecodeError::OtherRange);
        let other = stored.filter(is_other);
        if let Some(KeyValue { modified, .. }) = other {
            tracing::warn!(range = %self.range, "stored node ports are of another range; replacing");
            // On a conflict, another server has replaced it.
            self.write(StoredPorts { ports: self.empty(), modified }, ports).await?;
        }
        Ok(())
    }

    /// [`PortPool::update`] for a caller that holds the lock.
    async fn update_locked<T>(
        &self,
        change: impl Fn(&mut Ports) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut is_newest = false;
        for _ in 0..TRIES_MAX {
            let stored = match self.cached() {
                Some(stored) => stored,
                None => {
                    is_newest = true;
                    self.load().await?
                }
            };
            let mut ports = stored.ports.clone();
            let result = match change(&mut ports) {
                Err(_) if !is_newest => {
                    self.set_cached(None);
                    continue;
                }
                Err(failure) => return Err(failure),
                Ok(result) => result,
            };
            if ports == stored.ports || self.write(stored, ports).await? {
                return Ok(result);
            }
            // The conflict has returned the newest bitmap.
            is_newest = true;
        }
        Err(Status::internal("the ports of nodes changed during every try to take one"))
    }

    /// Returns the result of a change of the newest bitmap, without writing it.
    pub(super) async fn simulate<T>(
        &self,
        change: impl Fn(&mut Ports) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        change(&mut self.load().await?.ports)
    }

    /// Releases ports. If that fails, the repair of leaked ports releases them.
    pub async fn release(&self, released: &[u16]) {
        let remove = |ports: &mut Ports| {
            released.iter().for_each(|port| ports.remove(*port));
            Ok(())
        };
        if released.is_empty() {
            return;
        }
        if let Err(status) = self.update_newest(remove).await {
            tracing::warn!(ports = ?released, %status.message, "node ports not released");
        }
    }

    /// Replaces the stored bitmap; returns false on a conflict.
    async fn write(&self, stored: StoredPorts, ports: Ports) -> Result<bool, Failure> {
        let key = Bytes::from_static(PORTS_KEY);
        let txn = Txn {
            compare: vec![Compare { key: key.clone(), modified: stored.modified }],
            ops: vec![Op::Put { key, value: ports.encode()?, lease: None }],
        };
        // If this future is dropped, the stored bitmap is unknown.
        self.set_cached(None);
        let outcome = self.store.txn(txn).await.map_err(|error| store_failure(&error))?;
        let (stored, is_written) = match outcome {
            TxnOutcome::Committed(modified) => (StoredPorts { ports, modified }, true),
            TxnOutcome::Conflict { current, .. } => (self.decode(current)?, false),
        };
        self.set_cached(Some(stored));
        Ok(is_written)
    }

    async fn load(&self) -> Result<StoredPorts, Failure> {
        let value = self.store.get(PORTS_KEY).await;
        let stored = self.decode(value.map_err(|error: ReadError| store_failure(&error))?)?;
        self.set_cached(Some(stored.clone()));
        Ok(stored)
    }

    fn decode(&self, value: Option<KeyValue>) -> Result<StoredPorts, Failure> {
        let Some(kv) = value else {
            return Ok(StoredPorts { ports: self.empty(), modified: Revision(0) });
        };
        let ports = Ports::decode(&kv.value, self.range).map_err(|why| {
            let key = String::from_utf8_lossy(PORTS_KEY);
            Status::internal(format!("unable to refresh the port allocations: {key}: {why}"))
        })?;
        Ok(StoredPorts { ports, modified: kv.modified })
    }

    fn cached(&self) -> Option<StoredPorts> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_cached(&self, stored: Option<StoredPorts>) {
        *self.cached.lock().unwrap_or_else(PoisonError::into_inner) = stored;
    }
}

fn store_failure(error: &dyn Error) -> Failure {
    let why = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    Status::internal(format!(
        "cannot allocate resources of type servicenodeportallocations at this time: {error}{why}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: PortRange = PortRange::DEFAULT;

    #[test]
    fn ports_are_encoded_as_in_kube_apiserver() {
        let mut ports = Ports::empty(RANGE);
        for port in [30_000, 30_003, 30_009] {
            ports.allocate(port).expect("it is free");
        }
        assert_eq!(
            ports.allocate(30_003).expect_err("taken"),
            "provided port is already allocated"
        );
        let value = ports.encode().expect("a value");
        let tail = b"\x12\x0b30000-32767\x1a\x02\x02\x09\x1a\0\x22\0";
        assert!(value.ends_with(tail), "{value:?}");
        assert!(value.starts_with(b"k8s\0\x0a\x15\x0a\x02v1\x12\x0fRangeAllocation"), "{value:?}");
        assert_eq!(Ports::decode(&value, RANGE), Ok(ports.clone()));
        let text =
            br#"{"kind":"RangeAllocation","apiVersion":"v1","range":"30000-32767","data":"Agk="}"#;
        assert_eq!(Ports::decode(text, RANGE), Ok(ports.clone()));
        assert_eq!(ports.iter().collect::<Vec<_>>(), [30_000, 30_003, 30_009]);
        let other = br#"{"kind":"RangeAllocation","apiVersion":"v1","range":"1-9","data":"Agk="}"#;
        assert_eq!(Ports::decode(other, RANGE), Err(DecodeError::OtherRange));
        assert_eq!((check_ports(&value), check_ports(other)), (Ok(()), Ok(())));
        check_ports(b"no ports").expect_err("it is no value of ours");
        let row = OTHER_RECORDS.iter().find(|other| other.key == PORTS_KEY).expect("a row");
        assert_eq!(((row.check)(&value), row.name), (Ok(()), "ranges/servicenodeports"));
    }

    #[test]
    fn other_ranges_have_ports_of_their_own() {
        let mut ports = Ports::empty("80+9".parse().expect("a range"));
        assert_eq!(ports.allocate(80), Ok(()));
        assert_eq!(ports.allocate(89), Ok(()));
        let error = ports.allocate(90).expect_err("it lies outside");
        assert!(error.ends_with("The range of valid ports is 80-89"), "{error}");
        let value = ports.encode().expect("a value");
        assert_eq!(Ports::decode(&value, ports.range()), Ok(ports));
        assert_eq!(Ports::decode(&value, RANGE), Err(DecodeError::OtherRange));
    }

    #[test]
    fn every_port_is_allocated_once_and_the_reserved_ones_last() {
        let mut ports = Ports::empty(RANGE);
        let mut order = vec![];
        for at in 0..RANGE.size() as u128 {
            let random = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            order.push(ports.allocate_any(random).expect("a port"));
        }
        assert_eq!(ports.iter().count(), RANGE.size());
        assert_eq!(ports.allocate_any(7).expect_err("all are taken"), "range is full");
        assert_eq!(Ports::decode(&ports.encode().expect("a value"), RANGE), Ok(ports));
        let (first, last) = order.split_at(order.len() - 86);
        assert!(first.iter().all(|port| *port > 30_085), "{first:?}");
        assert!(last.iter().all(|port| *port <= 30_085), "{last:?}");
    }

    #[test]
    fn the_position_is_random() {
        let any = |random| Ports::empty(RANGE).allocate_any(random);
        let all: Vec<_> = [0, 1, 2_681, 2_682].map(any).into_iter().collect();
        assert_eq!(all, [Ok(30_086), Ok(30_087), Ok(32_767), Ok(30_086)]);
    }

    #[test]
    fn a_share_of_a_range_is_reserved() {
        let sizes = [1, 16, 17, 512, 2_768, 4_096, 65_535];
        assert_eq!(sizes.map(reserved), [0, 0, 16, 16, 86, 128, 128]);
    }
}
