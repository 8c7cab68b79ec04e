//! The ports of nodes that are in use: one value in the store, in the form in which kube-apiserver keeps
//! it (registry `core/service/allocator/storage`), which every server that shares the store changes only
//! where it stands as known. So no port is given twice, whoever gives it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use keelson_meta::{Failure, GroupVersionKind, Object, Status, Value};
use keelson_registry::PortRange;
use keelson_schema::catalogue::Catalogue;
use keelson_schema::{Schema, decode, json, proto};
use keelson_store::{Compare, KeyValue, Op, ReadError, Revision, Store, Txn, TxnOutcome};
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Where the value stands.
pub(crate) const PORTS_KEY: &[u8] = b"/registry/ranges/servicenodeports";
/// How far from each other the searches for a free port begin; a prime, so that they get everywhere.
const STRIDE: usize = 7_919;
/// Tries of a change that other servers overtake.
const TRIES_MAX: usize = 100;

/// Why the stored form is not the ports of the range.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DecodeError {
    /// They are those of another range.
    OtherRange,
    /// They are none.
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

/// Which ports are in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    range: PortRange,
    /// A number, most significant byte first; its lowest bit is the first port. Invariant: a bit for each port
    /// of the range.
    bits: Vec<u8>,
}

impl Ports {
    /// None of a range.
    pub fn none(range: PortRange) -> Ports {
        Ports { range, bits: vec![0; range.size().div_ceil(8)] }
    }

    /// The ports that can be in use.
    pub fn range(&self) -> PortRange {
        self.range
    }

    /// Byte and bit of a port of the range.
    fn place(&self, port: u16) -> (usize, u8) {
        let offset = self.range.offset(port);
        (self.bits.len() - 1 - offset / 8, 1 << (offset % 8))
    }

    pub fn contains(&self, port: u16) -> bool {
        let (byte, bit) = self.place(port);
        self.bits[byte] & bit != 0
    }

    /// Notes that a port is in use; one that lies outside of the range is nobody's to give.
    pub fn insert(&mut self, port: u16) {
        if self.range.contains(port) {
            let (byte, bit) = self.place(port);
            self.bits[byte] |= bit;
        }
    }

    pub fn remove(&mut self, port: u16) {
        if self.range.contains(port) {
            let (byte, bit) = self.place(port);
            self.bits[byte] &= !bit;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.range.ports().filter(|port| self.contains(*port))
    }

    /// Takes a port that the client wants.
    pub fn take(&mut self, port: u16) -> Result<(), String> {
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

    /// Takes any port; where the search begins differs from call to call, so that a port that was given
    /// back is not at once another service's.
    pub fn take_any(&mut self) -> Result<u16, String> {
        let used: usize = self.bits.iter().map(|byte| byte.count_ones() as usize).sum();
        let (range, size) = (self.range.ports(), self.range.size());
        let first = used.wrapping_mul(STRIDE) % size;
        let mut ports = range.clone().chain(range).skip(first).take(size);
        let port = ports.find(|port| !self.contains(*port));
        let port = port.ok_or_else(|| "range is full".to_owned())?;
        self.insert(port);
        Ok(port)
    }

    /// The stored form.
    fn encode(&self) -> Result<Bytes, Failure> {
        let first = self.bits.iter().position(|byte| *byte != 0).unwrap_or(self.bits.len());
        let mut obj = Object::new();
        obj.root.insert("range", self.range.to_string());
        obj.root.insert("data", STANDARD.encode(&self.bits[first..]));
        let mut out = vec![];
        proto::encode(&schema(), &obj, &mut out).map_err(Status::internal)?;
        Ok(out.into())
    }

    /// Reads the stored form of ports of this range.
    fn decode(value: &[u8], range: PortRange) -> Result<Ports, DecodeError> {
        let schema = schema();
        let obj = if value.starts_with(&proto::PREFIX) {
            let envelope = proto::decode_envelope(value).map_err(|error| error.to_string())?;
            proto::decode_message(&schema, envelope.raw).map_err(|error| error.to_string())?
        } else {
            let parsed = json::parse(value).map_err(|error| error.to_string())?;
            decode::canonicalize(&schema, parsed.value)?.object
        };
        if obj.str_at(&["range"]) != range.to_string() {
            return Err(DecodeError::OtherRange);
        }
        let mut ports = Ports::none(range);
        let data = obj.get("data").and_then(Value::as_str).unwrap_or_default();
        let data = STANDARD.decode(data).map_err(|error| error.to_string())?;
        let start = ports.bits.len().checked_sub(data.len());
        let start = start.ok_or_else(|| "it has more ports than its range".to_owned())?;
        ports.bits[start..].copy_from_slice(&data);
        Ok(ports)
    }
}

/// Whether a stored value is such ports. Those of another range are: a server that has this one puts its own
/// in their place.
pub(crate) fn check_ports(value: &[u8]) -> Result<(), String> {
    match Ports::decode(value, PortRange::default()) {
        Ok(_) | Err(DecodeError::OtherRange) => Ok(()),
        Err(DecodeError::Unreadable(why)) => Err(why),
    }
}

fn schema() -> Schema {
    let gvk = GroupVersionKind::new("", "v1", "RangeAllocation");
    Catalogue::shared().schema_or_unserved(&gvk).expect("the catalogue has every kind of core/v1")
}

/// The ports as the store had them last.
#[derive(Clone, Debug)]
struct Known {
    ports: Ports,
    /// 0: the store has none.
    modified: Revision,
}

/// The ports that are in use, shared with all servers on the same store.
pub(crate) struct PortPool {
    store: Arc<dyn Store>,
    range: PortRange,
    known: Mutex<Option<Known>>,
    /// Changes of this process wait for each other: side by side all but one would fail.
    turn: Semaphore,
}

impl std::fmt::Debug for PortPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PortPool").finish_non_exhaustive()
    }
}

impl PortPool {
    pub fn new(store: Arc<dyn Store>, range: PortRange) -> Self {
        PortPool { store, range, known: Mutex::new(None), turn: Semaphore::new(1) }
    }

    /// No ports, of the range that is given out.
    pub(super) fn none(&self) -> Ports {
        Ports::none(self.range)
    }

    /// Changes the ports. `change` is done again when another server came between, and a refusal counts
    /// only when it is that of the newest ports. What changes nothing costs nothing, and may be so of
    /// older ports.
    pub(super) async fn change<T>(
        &self,
        change: impl Fn(&mut Ports) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let _turn = self.turn.acquire().await.map_err(Status::internal)?;
        self.change_known(change).await
    }

    /// The same, beginning with the newest ports.
    pub(super) async fn change_newest<T>(
        &self,
        change: impl Fn(&mut Ports) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let _turn = self.turn.acquire().await.map_err(Status::internal)?;
        self.set_known(None);
        self.change_known(change).await
    }

    /// Puts `ports` in the place of those of another range, if there are such (portallocator
    /// `controller/repair.go`): until then none can be given.
    pub(super) async fn replace_other_range(&self, ports: Ports) -> Result<(), Failure> {
        let _turn = self.turn.acquire().await.map_err(Status::internal)?;
        let stored = self.store.get(PORTS_KEY).await.map_err(|error| failed(&error))?;
        let is_other =
            |kv: &KeyValue| Ports::decode(&kv.value, self.range) == Err(DecodeError::OtherRange);
        let other = stored.filter(is_other);
        if let Some(KeyValue { modified, .. }) = other {
            tracing::warn!(range = %self.range, "the stored ports of nodes are of another range");
            // Who came between has put right what was stored.
            self.store_ports(Known { ports: self.none(), modified }, ports).await?;
        }
        Ok(())
    }

    /// For whoever has the turn.
    async fn change_known<T>(
        &self,
        change: impl Fn(&mut Ports) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut is_newest = false;
        for _ in 0..TRIES_MAX {
            let known = match self.known() {
                Some(known) => known,
                None => {
                    is_newest = true;
                    self.load().await?
                }
            };
            let mut ports = known.ports.clone();
            let made = match change(&mut ports) {
                Err(_) if !is_newest => {
                    self.set_known(None);
                    continue;
                }
                Err(failure) => return Err(failure),
                Ok(made) => made,
            };
            if ports == known.ports || self.store_ports(known, ports).await? {
                return Ok(made);
            }
            // What is known now was told by the store.
            is_newest = true;
        }
        Err(Status::internal("the ports of nodes changed during every try to take one"))
    }

    /// What a change would make of the newest ports; nothing is taken.
    pub(super) async fn look<T>(
        &self,
        change: impl Fn(&mut Ports) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        change(&mut self.load().await?.ports)
    }

    /// Frees ports. When that fails, they stay taken until the next look for ports that nobody has.
    pub async fn give_back(&self, freed: &[u16]) {
        let free = |ports: &mut Ports| {
            freed.iter().for_each(|port| ports.remove(*port));
            Ok(())
        };
        if freed.is_empty() {
            return;
        }
        if let Err(status) = self.change_newest(free).await {
            tracing::warn!(ports = ?freed, %status.message, "ports of nodes stay taken");
        }
    }

    /// Stores ports in the place of those that are known; false when these were no longer there.
    async fn store_ports(&self, known: Known, ports: Ports) -> Result<bool, Failure> {
        let key = Bytes::from_static(PORTS_KEY);
        let txn = Txn {
            compare: vec![Compare { key: key.clone(), modified: known.modified }],
            ops: vec![Op::Put { key, value: ports.encode()?, lease: None }],
        };
        // Should this be given up half-way, nothing is known any more.
        self.set_known(None);
        let outcome = self.store.txn(txn).await.map_err(|error| failed(&error))?;
        let (known, done) = match outcome {
            TxnOutcome::Committed(modified) => (Known { ports, modified }, true),
            TxnOutcome::Conflict { current, .. } => (self.read(current)?, false),
        };
        self.set_known(Some(known));
        Ok(done)
    }

    async fn load(&self) -> Result<Known, Failure> {
        let stored = self.store.get(PORTS_KEY).await;
        let known = self.read(stored.map_err(|error: ReadError| failed(&error))?)?;
        self.set_known(Some(known.clone()));
        Ok(known)
    }

    fn read(&self, stored: Option<KeyValue>) -> Result<Known, Failure> {
        let Some(kv) = stored else {
            return Ok(Known { ports: self.none(), modified: Revision(0) });
        };
        let ports = Ports::decode(&kv.value, self.range).map_err(|why| {
            let key = String::from_utf8_lossy(PORTS_KEY);
            Status::internal(format!("unable to refresh the port allocations: {key}: {why}"))
        })?;
        Ok(Known { ports, modified: kv.modified })
    }

    fn known(&self) -> Option<Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_known(&self, known: Option<Known>) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }
}

fn failed(error: &dyn Error) -> Failure {
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
    fn ports_are_a_number_whose_lowest_bit_is_the_first() {
        let mut ports = Ports::none(RANGE);
        for port in [30_000, 30_003, 30_009] {
            ports.take(port).expect("it is free");
        }
        assert_eq!(ports.take(30_003).expect_err("taken"), "provided port is already allocated");
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
    }

    #[test]
    fn other_ranges_have_ports_of_their_own() {
        let mut ports = Ports::none("80+9".parse().expect("a range"));
        assert_eq!(ports.take(80), Ok(()));
        assert_eq!(ports.take(89), Ok(()));
        let refused = ports.take(90).expect_err("it lies outside");
        assert!(refused.ends_with("The range of valid ports is 80-89"), "{refused}");
        let value = ports.encode().expect("a value");
        assert_eq!(Ports::decode(&value, ports.range()), Ok(ports));
        assert_eq!(Ports::decode(&value, RANGE), Err(DecodeError::OtherRange));
    }

    #[test]
    fn every_port_is_given_once() {
        let mut ports = Ports::none(RANGE);
        for _ in RANGE.ports() {
            ports.take_any().expect("a port");
        }
        assert_eq!(ports.iter().count(), RANGE.size());
        assert_eq!(ports.take_any().expect_err("all are taken"), "range is full");
        assert_eq!(Ports::decode(&ports.encode().expect("a value"), RANGE), Ok(ports));
    }
}
