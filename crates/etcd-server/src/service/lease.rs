//! `etcdserverpb.Lease`, and the loop that ends expired leases.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::Engine;
use crate::error::EtcdError;
use crate::limits::{EXPIRED_MAX, LEASE_SECONDS_MAX, LEASES_MAX};
use crate::proto::{
    EmptyRequest, HeaderResponse, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse, LeaseLeasesResponse, LeaseRevokeRequest, LeaseStatus,
    LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};

/// How long an expired lease waits after its keys could not be deleted.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Engine {
    pub(crate) async fn lease_grant(
        self: Arc<Self>,
        req: LeaseGrantRequest,
    ) -> Result<LeaseGrantResponse, EtcdError> {
        if req.ttl > LEASE_SECONDS_MAX {
            return Err(EtcdError::LeaseTtlTooLarge);
        }
        self.check_space(0).await?;
        let seconds = req.ttl.max(self.options.lease_seconds_min);
        // The task ends also if the caller goes away: no lease stays half granted.
        let engine = Arc::clone(&self);
        let granting = tokio::spawn(async move { engine.grant(req.id, seconds).await });
        let id = granting.await.map_err(|_| EtcdError::Stopped)??;
        let header = Some(self.header(self.revision()));
        Ok(LeaseGrantResponse { header, id, ttl: seconds, error: String::new() })
    }

    async fn grant(&self, asked: i64, seconds: i64) -> Result<i64, EtcdError> {
        let id = self.reserve(asked, seconds)?;
        if let Err(error) = self.state.add_lease(id, seconds).await {
            self.leases.table().remove(id);
            return Err(error);
        }
        let mut table = self.leases.table();
        table.cancel_end(id, Instant::now());
        table.renew(id, Instant::now());
        drop(table);
        self.leases.expiry_changed.notify_one();
        Ok(id)
    }

    /// Takes an id, to which no key can be attached until the lease is stored.
    fn reserve(&self, asked: i64, seconds: i64) -> Result<i64, EtcdError> {
        let mut table = self.leases.table();
        if table.len() >= LEASES_MAX {
            return Err(EtcdError::TooManyRequests);
        }
        loop {
            let id = if asked == 0 { random_id()? } else { asked };
            if table.grant(id, seconds, Instant::now()) {
                table.begin_end(id);
                return Ok(id);
            }
            if asked != 0 {
                return Err(EtcdError::LeaseExists);
            }
        }
    }

    pub(crate) async fn lease_revoke(
        self: Arc<Self>,
        req: LeaseRevokeRequest,
    ) -> Result<HeaderResponse, EtcdError> {
        let engine = Arc::clone(&self);
        let revoking = tokio::spawn(async move { engine.revoke(req.id).await });
        revoking.await.map_err(|_| EtcdError::Stopped)??;
        Ok(HeaderResponse { header: Some(self.header(self.revision())) })
    }

    /// Deletes the keys of a lease in one transaction, then the lease.
    async fn revoke(self: &Arc<Self>, id: i64) -> Result<(), EtcdError> {
        self.leases.loaded().await;
        if !self.leases.table().begin_end(id) {
            return Err(EtcdError::LeaseNotFound);
        }
        let result = self.delete_keys_of(id).await;
        if result.is_err() {
            self.leases.table().cancel_end(id, Instant::now() + RETRY_AFTER);
            return result;
        }
        self.leases.table().remove(id);
        Ok(())
    }

    async fn delete_keys_of(self: &Arc<Self>, id: i64) -> Result<(), EtcdError> {
        // Puts that were decided before the lease began to end have attached their keys after this.
        self.write(0, |_| Ok(())).await?;
        let leases = Arc::clone(&self.leases);
        let delete = move |evaluation: &mut crate::kv::Evaluation<'_, '_, '_>| {
            let keys = leases.table().keys(id);
            keys.into_iter().try_for_each(|key| evaluation.delete_attached(key, id))
        };
        self.write(0, delete).await?;
        self.state.remove_lease(id).await
    }

    /// Renews a lease; the seconds are 0 if there is none.
    pub(crate) fn lease_keep_alive(&self, req: LeaseKeepAliveRequest) -> LeaseKeepAliveResponse {
        let seconds = self.leases.table().renew(req.id, Instant::now());
        let header = Some(self.header(self.revision()));
        LeaseKeepAliveResponse { header, id: req.id, ttl: seconds.unwrap_or(0) }
    }

    pub(crate) async fn lease_time_to_live(
        self: Arc<Self>,
        req: LeaseTimeToLiveRequest,
    ) -> Result<LeaseTimeToLiveResponse, EtcdError> {
        if req.keys {
            self.leases.loaded().await;
        }
        let table = self.leases.table();
        let header = Some(self.header(self.revision()));
        let response = LeaseTimeToLiveResponse { header, id: req.id, ..Default::default() };
        let Some(times) = table.times(req.id, Instant::now()) else {
            return Ok(LeaseTimeToLiveResponse { ttl: -1, ..response });
        };
        let keys = if req.keys { table.keys(req.id) } else { Vec::new() };
        Ok(LeaseTimeToLiveResponse {
            ttl: times.left,
            granted_ttl: times.granted,
            keys,
            ..response
        })
    }

    pub(crate) async fn lease_leases(
        self: Arc<Self>,
        _: EmptyRequest,
    ) -> Result<LeaseLeasesResponse, EtcdError> {
        let leases = self.leases.table().ids().into_iter().map(|id| LeaseStatus { id });
        let header = Some(self.header(self.revision()));
        Ok(LeaseLeasesResponse { header, leases: leases.collect() })
    }

    /// Ends leases that have expired, for as long as it is polled.
    pub(crate) async fn expire_leases(self: Arc<Self>) {
        self.leases.loaded().await;
        loop {
            let next = self.leases.table().next_expiry();
            let changed = self.leases.expiry_changed.notified();
            match next {
                None => changed.await,
                Some(next) if next > Instant::now() => {
                    tokio::select! {
                        () = tokio::time::sleep_until(next) => {}
                        () = changed => {}
                    }
                }
                Some(_) => self.end_expired().await,
            }
        }
    }

    async fn end_expired(self: &Arc<Self>) {
        let expired = self.leases.table().expired(Instant::now(), EXPIRED_MAX);
        for id in expired {
            match self.revoke(id).await {
                // A client may have revoked it meanwhile.
                Ok(()) | Err(EtcdError::LeaseNotFound) => {}
                Err(error) => tracing::warn!(%error, "an expired lease could not be ended"),
            }
        }
    }
}

/// Returns a positive number, as clients show ids in hexadecimal.
fn random_id() -> Result<i64, EtcdError> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| EtcdError::Storage(error.to_string()))?;
    Ok((i64::from_le_bytes(random) & i64::MAX).max(1))
}
