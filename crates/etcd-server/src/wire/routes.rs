//! Which call does what: the paths of etcd's services.

use std::sync::Arc;

use futures_util::StreamExt;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tonic::Status;
use tonic::body::Body;

use super::calls::{refusal, server_stream, stream, unary, unary_beside};
use super::many_keys::{self, Prepared};
use super::shared::Shared;
use crate::engine::Engine;
use crate::error::EtcdError;
use crate::limits::{KEEP_ALIVE_RESPONSES_MAX, REQUEST_OVERHEAD_BYTES, WATCH_RESPONSES_MAX};
use crate::proto::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use crate::room::Sent;
use crate::{snapshot, watch};

/// What answers calls.
#[derive(Clone)]
pub(crate) struct Routes {
    pub engine: Arc<Engine>,
    pub shared: Shared,
    /// Whether calls are answered, or pages only.
    pub has_calls: bool,
}

impl Routes {
    /// Answers a call.
    pub(crate) async fn answer(self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let Some((service, call)) = path.trim_start_matches('/').split_once('/') else {
            return unknown(&path);
        };
        match service {
            "etcdserverpb.KV" => self.kv(call, request).await,
            "etcdserverpb.Watch" if call == "Watch" => self.watch(request).await,
            "etcdserverpb.Lease" => self.lease(call, request).await,
            "etcdserverpb.Maintenance" => self.maintenance(call, request).await,
            "etcdserverpb.Cluster" => self.cluster(call, request).await,
            "etcdserverpb.Auth" => self.auth(call, request).await,
            _ => unknown(&path),
        }
    }

    async fn kv(self, call: &str, request: Request<Incoming>) -> Response<Body> {
        let engine = self.engine.clone();
        let shared = &self.shared;
        let max = self.message_bytes_max();
        match call {
            "Range" => self.range(request).await,
            "Put" => unary(request, max, shared, |req| engine.put(req)).await,
            "DeleteRange" => unary(request, max, shared, |req| engine.delete_range(req)).await,
            "Txn" => unary(request, max, shared, |req| engine.txn(req)).await,
            "Compact" => unary(request, max, shared, |req| engine.compact_range(req)).await,
            _ => unknown(call),
        }
    }

    async fn range(&self, request: Request<Incoming>) -> Response<Body> {
        let engine = self.engine.clone();
        let shared = self.shared.clone();
        let prepared = Prepared::default();
        let filled = prepared.clone();
        let answer = move |req| many_keys::range(engine, req, shared, filled);
        let max = self.message_bytes_max();
        let response = unary_beside(request, max, &self.shared, answer).await;
        prepared.into_response(response)
    }

    async fn lease(self, call: &str, request: Request<Incoming>) -> Response<Body> {
        let engine = self.engine.clone();
        let shared = &self.shared;
        let max = self.message_bytes_max();
        match call {
            "LeaseGrant" => unary(request, max, shared, |req| engine.lease_grant(req)).await,
            "LeaseRevoke" => unary(request, max, shared, |req| engine.lease_revoke(req)).await,
            "LeaseTimeToLive" => {
                unary(request, max, shared, |req| engine.lease_time_to_live(req)).await
            }
            "LeaseLeases" => unary(request, max, shared, |req| engine.lease_leases(req)).await,
            "LeaseKeepAlive" => self.keep_alive(request).await,
            _ => unknown(call),
        }
    }

    async fn maintenance(self, call: &str, request: Request<Incoming>) -> Response<Body> {
        let engine = self.engine.clone();
        let shared = &self.shared;
        let max = self.message_bytes_max();
        match call {
            "Alarm" => unary(request, max, shared, |req| engine.alarm(req)).await,
            "Status" => unary(request, max, shared, |req| engine.status(req)).await,
            "Defragment" => unary(request, max, shared, |req| engine.defragment(req)).await,
            "Hash" => unary(request, max, shared, |req| engine.hash(req)).await,
            "HashKV" => unary(request, max, shared, |req| engine.hash_kv(req)).await,
            "MoveLeader" => unary(request, max, shared, |req| engine.move_leader(req)).await,
            "Snapshot" => {
                server_stream(request, max, shared, |req| snapshot::stream(engine, req)).await
            }
            _ => unknown(call),
        }
    }

    async fn cluster(self, call: &str, request: Request<Incoming>) -> Response<Body> {
        let engine = self.engine.clone();
        let shared = &self.shared;
        let max = self.message_bytes_max();
        match call {
            "MemberList" => unary(request, max, shared, |req| engine.member_list(req)).await,
            "MemberAdd" => unary(request, max, shared, |req| engine.member_add(req)).await,
            "MemberRemove" | "MemberUpdate" => {
                unary(request, max, shared, |req| engine.member_remove(req)).await
            }
            "MemberPromote" => unary(request, max, shared, |req| engine.member_promote(req)).await,
            _ => unknown(call),
        }
    }

    async fn auth(self, call: &str, request: Request<Incoming>) -> Response<Body> {
        let engine = self.engine.clone();
        let shared = &self.shared;
        let max = self.message_bytes_max();
        match call {
            "AuthStatus" => unary(request, max, shared, |req| engine.auth_status(req)).await,
            "Authenticate" => unary(request, max, shared, |req| engine.authenticate(req)).await,
            "AuthEnable" => unary(request, max, shared, |req| engine.auth_enable(req)).await,
            "AuthDisable" | "UserList" | "RoleList" => {
                unary(request, max, shared, |req| engine.auth_list(req)).await
            }
            _ => refusal(Status::unimplemented("etcdserver: users and roles are not there")),
        }
    }

    async fn watch(self, request: Request<Incoming>) -> Response<Body> {
        let Ok(slot) = self.engine.watch_streams.clone().try_acquire_owned() else {
            return refusal(EtcdError::TooManyRequests.into());
        };
        let max = self.message_bytes_max();
        let past_reads = self.shared.past_reads;
        let engine = self.engine;
        stream(request, max, WATCH_RESPONSES_MAX, |requests, responses| async move {
            let _slot = slot;
            watch::run(engine, past_reads, requests, responses).await;
        })
        .await
    }

    async fn keep_alive(self, request: Request<Incoming>) -> Response<Body> {
        let Ok(slot) = self.engine.keep_alive_streams.clone().try_acquire_owned() else {
            return refusal(EtcdError::TooManyRequests.into());
        };
        let max = self.message_bytes_max();
        let engine = self.engine;
        let renew = |mut requests: tonic::Streaming<LeaseKeepAliveRequest>,
                     responses: mpsc::Sender<Sent<LeaseKeepAliveResponse>>| async move {
            let _slot = slot;
            while let Some(Ok(req)) = requests.next().await {
                let response = Ok(engine.lease_keep_alive(req)).into();
                if responses.send(response).await.is_err() {
                    return;
                }
            }
        };
        stream(request, max, KEEP_ALIVE_RESPONSES_MAX, renew).await
    }

    fn message_bytes_max(&self) -> usize {
        self.engine.options.request_bytes_max.saturating_add(REQUEST_OVERHEAD_BYTES)
    }
}

fn unknown(call: &str) -> Response<Body> {
    refusal(Status::unimplemented(format!("unknown call {call}")))
}
