//! Calls to the members of a cluster: which one, over which connection, how long, and what their
//! errors mean.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::Stream;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::options::{EtcdTls, OpenError};

/// How long a call may take, with all its repetitions.
const CALL_TIME_MAX: Duration = Duration::from_secs(10);
/// How long connecting to a member may take.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// A connection is asked whether it is alive this often, and given up after as long.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Between repetitions of a call when no member could be reached.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// Largest answer: etcd bounds a value (1.5 MiB by default), and the store the values of a page.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// Bytes that a member may have sent and nobody has read yet: of one call, and of all together.
const CALL_UNREAD_BYTES_MAX: u32 = 1 << 20;
const UNREAD_BYTES_MAX: u32 = 4 << 20;

/// Paths of the calls.
pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(crate) const PUT: &str = "/etcdserverpb.KV/Put";
pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(crate) const COMPACT: &str = "/etcdserverpb.KV/Compact";
pub(crate) const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(crate) const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub(crate) const STATUS: &str = "/etcdserverpb.Maintenance/Status";

/// The members of a cluster, and which one is asked at present.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    members: Arc<[Channel]>,
    /// Index of the member that answered last. Any value is valid: it is taken modulo their number.
    present: Arc<AtomicUsize>,
}

impl Client {
    /// Connects to nobody yet.
    pub(crate) fn new(servers: &[String], tls: &EtcdTls) -> Result<Self, OpenError> {
        let members: Result<Vec<_>, _> = servers.iter().map(|url| channel(url, tls)).collect();
        let members: Arc<[Channel]> = members?.into();
        if members.is_empty() {
            return Err(OpenError::Server { url: String::new(), why: "no server is named".into() });
        }
        Ok(Self { members, present: Arc::default() })
    }

    /// The member to ask now, and its number for [`Client::leave`].
    pub(crate) fn member(&self) -> (usize, Grpc<Channel>) {
        let number = self.present.load(Ordering::Relaxed);
        let channel = self.members[number % self.members.len()].clone();
        (number, Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX))
    }

    /// Asks the next member from now on, unless somebody else said so already.
    pub(crate) fn leave(&self, number: usize) {
        let next = number.wrapping_add(1);
        let _ = self.present.compare_exchange(number, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// A call that changes nothing, and may thus be repeated until it is answered.
    pub(crate) async fn read<Q, A>(&self, path: &'static str, ask: Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.call(path, ask, |error| error.code() == Code::Unavailable).await
    }

    /// A call that changes something: it is repeated only while it was certainly not sent.
    pub(crate) async fn write<Q, A>(&self, path: &'static str, ask: Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.call(path, ask, was_not_sent).await
    }

    async fn call<Q, A>(
        &self,
        path: &'static str,
        ask: Q,
        may_repeat: impl Fn(&Status) -> bool,
    ) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let until = Instant::now() + CALL_TIME_MAX;
        for tried in 1_usize.. {
            let (number, mut member) = self.member();
            let answer = timeout_at(until, unary(&mut member, path, ask.clone())).await;
            let Ok(answer) = answer else {
                self.leave(number);
                break;
            };
            match answer {
                Err(error) if may_repeat(&error) => self.leave(number),
                answer => return answer,
            }
            if tried % self.members.len() == 0 {
                if Instant::now() + RETRY_DELAY >= until {
                    break;
                }
                sleep(RETRY_DELAY).await;
            }
        }
        Err(Status::deadline_exceeded(format!("no answer in {} s", CALL_TIME_MAX.as_secs())))
    }

    /// Asks each member once; the first answer, or the last error.
    pub(crate) async fn first<Q, A>(&self, path: &'static str, ask: Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut last = Status::unavailable("no server is named");
        for _ in 0..self.members.len() {
            let (number, mut member) = self.member();
            let until = Instant::now() + CALL_TIME_MAX;
            match timeout_at(until, unary(&mut member, path, ask.clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => last = error,
                Err(_) => last = Status::deadline_exceeded("no answer"),
            }
            self.leave(number);
        }
        Err(last)
    }
}

/// One call to one member.
pub(crate) async fn unary<Q, A>(
    member: &mut Grpc<Channel>,
    path: &'static str,
    ask: Q,
) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    ready(member).await?;
    let codec = ProstCodec::<Q, A>::default();
    let answer = member.unary(Request::new(ask), PathAndQuery::from_static(path), codec).await?;
    Ok(answer.into_inner())
}

/// Opens a stream of questions and answers that ends when the member has no leader.
pub(crate) async fn stream<Q, A>(
    member: &mut Grpc<Channel>,
    path: &'static str,
    asks: impl Stream<Item = Q> + Send + 'static,
) -> Result<Streaming<A>, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    ready(member).await?;
    let mut request = Request::new(asks);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    let codec = ProstCodec::<Q, A>::default();
    let answer = member.streaming(request, PathAndQuery::from_static(path), codec).await?;
    Ok(answer.into_inner())
}

async fn ready(member: &mut Grpc<Channel>) -> Result<(), Status> {
    member.ready().await.map_err(|error| Status::from_error(Box::new(error)))
}

/// Whether an error came before anything of the call was sent: no connection could be made.
fn was_not_sent(error: &Status) -> bool {
    causes(error).any(|cause| cause.is::<tonic::ConnectError>())
}

/// Whether one side refused the certificate of the other.
pub(crate) fn is_distrust(error: &Status) -> bool {
    let mut causes = causes(error).filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    causes.any(|cause| cause.kind() == std::io::ErrorKind::InvalidData)
}

fn causes(error: &Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}

/// An error of a call in one line: what etcd said, or the deepest cause when it said nothing.
pub(crate) fn line(error: &Status) -> String {
    let deepest = causes(error).last().map(ToString::to_string);
    deepest.unwrap_or_else(|| error.message().to_owned())
}

fn channel(url: &str, tls: &EtcdTls) -> Result<Channel, OpenError> {
    let bad = |why: &dyn fmt::Display| OpenError::Server { url: url.into(), why: why.to_string() };
    let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|error| bad(&error))?;
    let uri = endpoint.uri().clone();
    let is_secure = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(bad(&"an address looks like https://HOST:2379")),
    };
    if uri.host().is_none() {
        return Err(bad(&"an address looks like https://HOST:2379"));
    }
    let mut endpoint = endpoint
        .connect_timeout(CONNECT_TIME_MAX)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .initial_stream_window_size(CALL_UNREAD_BYTES_MAX)
        .initial_connection_window_size(UNREAD_BYTES_MAX)
        .user_agent("keelson")
        .map_err(|error| bad(&error))?;
    if is_secure {
        let mut config = ClientTlsConfig::new();
        config = match &tls.authorities {
            Some(pem) => config.ca_certificate(Certificate::from_pem(pem)),
            None => config.with_native_roots(),
        };
        if let Some((certificate, key)) = &tls.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        endpoint = endpoint.tls_config(config).map_err(|error| bad(&error))?;
    }
    Ok(endpoint.connect_lazy())
}
