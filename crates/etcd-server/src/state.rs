//! What is kept beside the keys, in a store of its own, so that it takes no revisions of the keys:
//! leases, alarms and the ids of cluster and member.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use keelson_store::{Durability, Embedded, EmbeddedOptions, Op, OpenError, Store, Txn};

use crate::error::EtcdError;

const LEASES: &str = "leases/";
const NO_SPACE: &str = "alarms/nospace";
const IDS: &str = "ids";
/// The history is dropped after so many writes.
const COMPACTION_WRITES: u64 = 256;

/// The ids of the cluster and its only member: random, and kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ids {
    pub cluster: u64,
    pub member: u64,
}

/// The store of the state.
pub(crate) struct State {
    store: Arc<Embedded>,
}

impl State {
    /// Opens it in a folder, or in memory.
    pub(crate) fn open(dir: Option<&Path>, durability: Durability) -> Result<Self, OpenError> {
        let store = match dir {
            Some(dir) => {
                Embedded::open(EmbeddedOptions { durability, ..EmbeddedOptions::new(dir) })?
            }
            None => Embedded::in_memory(),
        };
        Ok(Self { store })
    }

    /// Returns the ids; makes them the first time.
    pub(crate) async fn ids(&self) -> Result<Ids, EtcdError> {
        if let Some(kv) = self.store.get(IDS.as_bytes()).await?
            && let Some((cluster, rest)) = kv.value.split_first_chunk()
            && let Some((member, [])) = rest.split_first_chunk()
        {
            let cluster = u64::from_be_bytes(*cluster);
            let member = u64::from_be_bytes(*member);
            return Ok(Ids { cluster, member });
        }
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| EtcdError::Storage(error.to_string()))?;
        self.put(IDS.into(), Bytes::copy_from_slice(&random)).await?;
        let [a, b, c, d, e, f, g, h, member @ ..] = random;
        let cluster = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        Ok(Ids { cluster, member: u64::from_be_bytes(member) })
    }

    /// Returns ids and seconds of all leases.
    pub(crate) async fn leases(&self) -> Result<Vec<(i64, i64)>, EtcdError> {
        let mut leases = Vec::new();
        let mut add = |kv: keelson_store::KeyValue| {
            let id = std::str::from_utf8(&kv.key[LEASES.len()..])
                .ok()
                .and_then(|id| u64::from_str_radix(id, 16).ok())
                .map(u64::cast_signed);
            let seconds = kv.value[..].try_into().map(i64::from_be_bytes).ok();
            leases.extend(id.zip(seconds));
        };
        self.store.load(LEASES.as_bytes(), None, &mut add).await?;
        Ok(leases)
    }

    pub(crate) async fn add_lease(&self, id: i64, seconds: i64) -> Result<(), EtcdError> {
        self.put(lease_key(id), Bytes::copy_from_slice(&seconds.to_be_bytes())).await
    }

    pub(crate) async fn remove_lease(&self, id: i64) -> Result<(), EtcdError> {
        self.delete(lease_key(id)).await
    }

    pub(crate) async fn has_no_space_alarm(&self) -> Result<bool, EtcdError> {
        Ok(self.store.get(NO_SPACE.as_bytes()).await?.is_some())
    }

    pub(crate) async fn set_no_space_alarm(&self, is_set: bool) -> Result<(), EtcdError> {
        match is_set {
            true => self.put(NO_SPACE.into(), Bytes::new()).await,
            false => self.delete(NO_SPACE.into()).await,
        }
    }

    async fn put(&self, key: Bytes, value: Bytes) -> Result<(), EtcdError> {
        self.write(Op::put(key, value)).await
    }

    async fn delete(&self, key: Bytes) -> Result<(), EtcdError> {
        self.write(Op::Delete { key }).await
    }

    async fn write(&self, op: Op) -> Result<(), EtcdError> {
        self.store.txn(Txn { compare: vec![], ops: vec![op] }).await?;
        // Nobody reads its history. The compaction is not waited for by anyone else.
        let newest = self.store.revision();
        if newest.0.is_multiple_of(COMPACTION_WRITES) {
            self.store.compact(newest).await?;
        }
        Ok(())
    }
}

fn lease_key(id: i64) -> Bytes {
    format!("{LEASES}{:x}", id.cast_unsigned()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_state_is_kept() {
        let dir = tempfile::tempdir().expect("a folder");
        let open = || State::open(Some(dir.path()), Durability::Sync).expect("open");
        let state = open();
        let ids = state.ids().await.expect("ids");
        for id in [1, i64::MAX, -7, 300] {
            state.add_lease(id, id / 2).await.expect("a lease");
        }
        state.remove_lease(1).await.expect("removed");
        state.set_no_space_alarm(true).await.expect("an alarm");
        drop(state);
        let state = open();
        assert_eq!(state.ids().await.expect("ids"), ids);
        let mut leases = state.leases().await.expect("leases");
        leases.sort_unstable();
        assert_eq!(leases, [(-7, -3), (300, 150), (i64::MAX, i64::MAX / 2)]);
        assert!(state.has_no_space_alarm().await.expect("alarms"));
        state.set_no_space_alarm(false).await.expect("no alarm");
        assert!(!state.has_no_space_alarm().await.expect("alarms"));
    }
}
