//! The messages of etcd's v3 API that the store uses, with the field numbers and types of etcd's
//! `rpc.proto` and `kv.proto`. Fields that are never used are left out.

use bytes::Bytes;
use prost::{Message, Oneof};

/// The header of every response (`ResponseHeader`).
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Header {
    /// The cluster's revision when the request was applied.
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(int64, tag = "2")]
    pub create_revision: i64,
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    /// Number of writes since the key was created.
    #[prost(int64, tag = "4")]
    pub version: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// Empty means only `key`.
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// 0 means the newest.
    #[prost(int64, tag = "4")]
    pub revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    /// 0 means none. etcd deletes the key when the lease expires.
    #[prost(int64, tag = "3")]
    pub lease: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseGrantRequest {
    /// TTL in seconds.
    #[prost(int64, tag = "1")]
    pub ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub id: i64,
}

/// The response to a put, a delete or a compaction, of which only the header is used.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeaderResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2, 3")]
    pub request: Option<Request>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
}

impl From<Request> for RequestOp {
    fn from(request: Request) -> Self {
        Self { request: Some(request) }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseOp {
    #[prost(oneof = "Response", tags = "1")]
    pub response: Option<Response>,
}

/// Responses to puts and deletes are left out, because they are not used.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Response {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compare {
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub key: Bytes,
    #[prost(oneof = "Expected", tags = "4, 6")]
    pub expected: Option<Expected>,
}

impl Compare {
    /// Compares `mod_revision`; 0 means that the key is absent.
    pub(crate) fn modified(key: Bytes, revision: i64) -> Self {
        let expected = Some(Expected::Modified(revision));
        Self { target: CompareTarget::Modified.into(), key, expected }
    }

    /// Compares the number of writes since the key was created; 0 means that it is absent.
    pub(crate) fn version(key: Bytes, version: i64) -> Self {
        let expected = Some(Expected::Version(version));
        Self { target: CompareTarget::Version.into(), key, expected }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum CompareTarget {
    Version = 0,
    Modified = 2,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Expected {
    #[prost(int64, tag = "4")]
    Version(i64),
    #[prost(int64, tag = "6")]
    Modified(i64),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub responses: Vec<ResponseOp>,
}

impl TxnResponse {
    /// Returns the first key of each range response, in order.
    pub(crate) fn kvs(self) -> impl Iterator<Item = Option<KeyValue>> {
        self.responses.into_iter().map(|op| match op.response {
            Some(Response::Range(range)) => range.kvs.into_iter().next(),
            None => None,
        })
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(oneof = "WatchRequestUnion", tags = "1, 3")]
    pub request_union: Option<WatchRequestUnion>,
}

impl From<WatchRequestUnion> for WatchRequest {
    fn from(request_union: WatchRequestUnion) -> Self {
        Self { request_union: Some(request_union) }
    }
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum WatchRequestUnion {
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
    #[prost(message, tag = "3")]
    Progress(WatchProgressRequest),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    #[prost(bool, tag = "4")]
    pub progress_notify: bool,
    #[prost(bool, tag = "6")]
    pub prev_kv: bool,
    #[prost(bool, tag = "8")]
    pub fragment: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct WatchProgressRequest {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    #[prost(bool, tag = "3")]
    pub created: bool,
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    /// Above 0 if the watch was cancelled because of compaction.
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    /// Whether more fragments of the same response follow.
    #[prost(bool, tag = "7")]
    pub fragment: bool,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Event {
    /// 0 is put, 1 is delete.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
    #[prost(message, optional, tag = "3")]
    pub prev_kv: Option<KeyValue>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusResponse {
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(int64, tag = "3")]
    pub db_size: i64,
}
