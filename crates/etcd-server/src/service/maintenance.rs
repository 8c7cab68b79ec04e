//! `etcdserverpb.Maintenance`.

use std::ops::ControlFlow;
use std::sync::Arc;

use keelson_store::{HealthError, Store};

use crate::engine::{Engine, TERM};
use crate::error::EtcdError;
use crate::hash::KeyValueHash;
use crate::proto::{
    AlarmAction, AlarmMember, AlarmRequest, AlarmResponse, AlarmType, DowngradeInfo, EmptyRequest,
    HashKvRequest, HashKvResponse, HashResponse, HeaderResponse, StatusResponse,
};
use crate::record::from_etcd;

/// The version of etcd whose protocol is spoken.
pub(crate) const ETCD_VERSION: &str = "3.6.8";
/// The version of the format of snapshots.
pub(crate) const STORAGE_VERSION: &str = "3.6.0";

impl Engine {
    pub(crate) async fn status(
        self: Arc<Self>,
        _: EmptyRequest,
    ) -> Result<StatusResponse, EtcdError> {
        let revision = self.revision();
        let size = i64::try_from(self.size()).unwrap_or(i64::MAX);
        let mut errors = Vec::new();
        if self.is_full() {
            errors.push(format!("memberID:{} alarm:NOSPACE ", self.ids.member));
        }
        errors.extend(self.health().err().map(|error| error.to_string()));
        let quota = self.options.quota_bytes.map(|quota| i64::try_from(quota).unwrap_or(i64::MAX));
        Ok(StatusResponse {
            header: Some(self.header(revision)),
            version: ETCD_VERSION.to_owned(),
            db_size: size,
            leader: self.ids.member,
            // There is no log: the number of the newest write stands for its index.
            raft_index: revision.cast_unsigned(),
            raft_term: TERM,
            raft_applied_index: revision.cast_unsigned(),
            errors,
            db_size_in_use: size,
            is_learner: false,
            storage_version: STORAGE_VERSION.to_owned(),
            db_size_quota: quota.unwrap_or(0),
            downgrade_info: Some(DowngradeInfo { enabled: false }),
        })
    }

    /// Returns why writes cannot succeed.
    pub(crate) fn health(&self) -> Result<(), HealthError> {
        self.store.health()
    }

    pub(crate) async fn alarm(
        self: Arc<Self>,
        req: AlarmRequest,
    ) -> Result<AlarmResponse, EtcdError> {
        let is_this = req.member_id == 0 || req.member_id == self.ids.member;
        let alarm = AlarmType::try_from(req.alarm).unwrap_or(AlarmType::None);
        let alarms = |is_shown: bool| {
            let alarm =
                AlarmMember { member_id: self.ids.member, alarm: AlarmType::NoSpace.into() };
            if is_shown { vec![alarm] } else { Vec::new() }
        };
        let shown = match AlarmAction::try_from(req.action) {
            Ok(AlarmAction::Activate) if alarm == AlarmType::NoSpace && is_this => {
                self.set_full(true).await?;
                true
            }
            // Clients disarm either by the kind, or all by none.
            Ok(AlarmAction::Deactivate) if alarm != AlarmType::Corrupt && is_this => {
                let was_full = self.is_full();
                self.set_full(false).await?;
                was_full
            }
            Ok(AlarmAction::Get) => alarm != AlarmType::Corrupt && self.is_full(),
            _ => false,
        };
        let header = Some(self.header(self.revision()));
        Ok(AlarmResponse { header, alarms: alarms(shown) })
    }

    /// The store copies its file by itself when much of it is free.
    pub(crate) async fn defragment(
        self: Arc<Self>,
        _: EmptyRequest,
    ) -> Result<HeaderResponse, EtcdError> {
        Ok(HeaderResponse { header: Some(self.header(self.revision())) })
    }

    pub(crate) async fn hash(self: Arc<Self>, _: EmptyRequest) -> Result<HashResponse, EtcdError> {
        let response = self.hash_kv(HashKvRequest { revision: 0 }).await?;
        Ok(HashResponse { header: response.header, hash: response.hash })
    }

    /// Returns the hash that etcd has of the same history.
    pub(crate) async fn hash_kv(
        self: Arc<Self>,
        req: HashKvRequest,
    ) -> Result<HashKvResponse, EtcdError> {
        self.revision_to_read(req.revision)?;
        let newest = self.revision();
        let revision = if req.revision > 0 { req.revision } else { newest };
        let compacted = self.compacted();
        let permit =
            Arc::clone(&self.long_reads).acquire_owned().await.map_err(|_| EtcdError::Stopped)?;
        let engine = Arc::clone(&self);
        let hashing = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let mut hash = KeyValueHash::new();
            let oldest = from_etcd(compacted);
            let through = from_etcd(revision);
            engine.store.records(oldest, through, &mut |record| {
                let head = &record.head;
                // As etcd has it: of what is older than the compaction only what lives at the
                // revision.
                if head.id.revision > oldest
                    || engine.store.modified_at(&head.key, through) == Some(head.id.revision)
                {
                    hash.add(record);
                }
                ControlFlow::Continue(())
            })?;
            hash.finish()
        });
        let hash = hashing.await.map_err(|_| EtcdError::Stopped)??;
        let header = Some(self.header(newest));
        Ok(HashKvResponse { header, hash, compact_revision: compacted, hash_revision: revision })
    }

    pub(crate) async fn move_leader(
        self: Arc<Self>,
        _: EmptyRequest,
    ) -> Result<HeaderResponse, EtcdError> {
        Err(EtcdError::BadTransferee)
    }
}
