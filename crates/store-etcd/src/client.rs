//! Calls to the members of an etcd cluster: choice of the member, connections, timeouts and
//! retries.

use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use keelson_store::BoxFuture;
use prost::Message;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::client::Grpc;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;

use crate::calls::{Calls, Responses};
use crate::options::{DialedStream, Dialer, EtcdTls, OpenError};

/// Time limit of a call, including retries.
const CALL_TIME_MAX: Duration = Duration::from_secs(10);
/// Time limit of a connection attempt.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// Interval of HTTP/2 keepalive pings, and how long to wait for their response.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// How long a member that has not answered a call in time is only used if no other can be.
const SILENCE_PENALTY: Duration = Duration::from_secs(30);
/// Delay before the members are tried again, after none could be reached.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// Largest response. etcd limits a value (1.5 MiB by default), and the store the values of a page.
const RESPONSE_BYTES_MAX: usize = 1 << 30;

/// HTTP/2 flow control windows: bytes sent but not yet read, of one call and of a connection.
const CALL_UNREAD_BYTES_MAX: u32 = 1 << 20;
const UNREAD_BYTES_MAX: u32 = 4 << 20;

/// gRPC method paths.
pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(crate) const PUT: &str = "/etcdserverpb.KV/Put";
pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(crate) const COMPACT: &str = "/etcdserverpb.KV/Compact";
pub(crate) const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(crate) const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub(crate) const STATUS: &str = "/etcdserverpb.Maintenance/Status";

/// The members of a cluster, one of which is current.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    members: Arc<[Member]>,
    pub(crate) calls: Arc<Calls>,
    /// Number of the current member. Any value is valid: it is taken modulo the count of members.
    current: Arc<AtomicUsize>,
    began: Instant,
}

#[derive(Debug)]
struct Member {
    channel: Channel,
    /// When it was left last, in milliseconds since the client began. Later than now after a
    /// silence: see [`SILENCE_PENALTY`].
    left: AtomicU64,
    /// How often it has not answered.
    silences: watch::Sender<u64>,
}

/// Calls one member.
pub(crate) struct Caller {
    grpc: Grpc<Channel>,
    calls: Arc<Calls>,
}

/// Why a member is left.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Left {
    /// It answered that it cannot serve, or could not be reached.
    Failed,
    /// It did not answer.
    Silent,
}

impl Client {
    /// Creates a client. Connects on the first call.
    pub(crate) fn new(
        servers: &[String],
        tls: &EtcdTls,
        dialer: Option<&Dialer>,
    ) -> Result<Self, OpenError> {
        let member = |url: &String| {
            let channel = channel(url, tls, dialer)?;
            Ok(Member { channel, left: AtomicU64::new(0), silences: watch::Sender::new(0) })
        };
        let members: Result<Vec<_>, _> = servers.iter().map(member).collect();
        let members: Arc<[Member]> = members?.into();
        if members.is_empty() {
            return Err(OpenError::Server { url: String::new(), why: "no server is named".into() });
        }
        // Any member, so that several servers do not depend on the same one.
        let any = RandomState::new().build_hasher().finish() as usize % members.len();
        let current = Arc::new(AtomicUsize::new(any));
        Ok(Self { members, calls: Arc::default(), current, began: Instant::now() })
    }

    /// Returns the current member, and its number for [`Client::leave`].
    pub(crate) fn member(&self) -> (usize, Caller) {
        let number = self.current.load(Ordering::Relaxed);
        let channel = self.members[number % self.members.len()].channel.clone();
        let grpc = Grpc::new(channel).max_decoding_message_size(RESPONSE_BYTES_MAX);
        (number, Caller { grpc, calls: self.calls.clone() })
    }

    /// Returns how often a member has not answered, which may change.
    pub(crate) fn silences(&self, number: usize) -> watch::Receiver<u64> {
        self.members[number % self.members.len()].silences.subscribe()
    }

    /// Switches to the member that was left the longest time ago, unless another call has already
    /// left member `number`.
    pub(crate) fn leave(&self, number: usize, left: Left) {
        let count = self.members.len();
        let member = &self.members[number % count];
        let mut time = self.began.elapsed();
        if matches!(left, Left::Silent) {
            time += SILENCE_PENALTY;
            member.silences.send_modify(|silences| *silences += 1);
        }
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        member.left.fetch_max(time, Ordering::Relaxed);
        let others = (1..=count).map(|more| number.wrapping_add(more));
        let next = others.min_by_key(|n| self.members[n % count].left.load(Ordering::Relaxed));
        let next = next.unwrap_or(number);
        let _ = self.current.compare_exchange(number, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Makes a read-only call, which is retried until it gets a response or the time is over.
    pub(crate) async fn read<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.call(path, request, |error| error.code() == Code::Unavailable).await
    }

    /// Makes a call that writes. It is retried only if it was certainly not sent.
    pub(crate) async fn write<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.call(path, request, was_not_sent).await
    }

    async fn call<Q, A>(
        &self,
        path: &'static str,
        request: Q,
        is_retryable: impl Fn(&Status) -> bool,
    ) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let deadline = Instant::now() + CALL_TIME_MAX;
        for attempt in 1_usize.. {
            let (number, mut member) = self.member();
            let response = timeout_at(deadline, member.unary(path, request.clone())).await;
            let Ok(response) = response else {
                self.leave(number, Left::Silent);
                break;
            };
            match response {
                Err(error) if is_retryable(&error) => self.leave(number, Left::Failed),
                Err(error) => {
                    // The next call may have more luck, also if this one must not be repeated.
                    if is_of_member(&error) {
                        self.leave(number, Left::Failed);
                    }
                    return Err(error);
                }
                Ok(response) => return Ok(response),
            }
            if attempt % self.members.len() == 0 {
                if Instant::now() + RETRY_DELAY >= deadline {
                    break;
                }
                sleep(RETRY_DELAY).await;
            }
        }
        Err(Status::deadline_exceeded(format!("no answer in {} s", CALL_TIME_MAX.as_secs())))
    }

    /// Calls each member once, until one responds. Returns the last error if none does.
    pub(crate) async fn try_each<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut last = Status::unavailable("no server is named");
        for _ in 0..self.members.len() {
            let (number, mut member) = self.member();
            let deadline = Instant::now() + CALL_TIME_MAX;
            match timeout_at(deadline, member.unary(path, request.clone())).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) => {
                    last = error;
                    self.leave(number, Left::Failed);
                }
                Err(_) => {
                    last = Status::deadline_exceeded("no answer");
                    self.leave(number, Left::Silent);
                }
            }
        }
        Err(last)
    }
}

/// The scope of upstream's spans.
const TRACE_SCOPE: &str =
    "go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc";

impl Caller {
    /// Makes a call with one request and one response.
    pub(crate) async fn unary<Q, A>(&mut self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut call = self.calls.unary(path);
        let response = self.traced(path, request).await;
        call.answered(&response);
        response
    }

    async fn traced<Q, A>(&mut self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.ready().await?;
        let codec = ProstCodec::<Q, A>::default();
        let span = keelson_traces::start_client("etcd", TRACE_SCOPE);
        let mut request = Request::new(request);
        if span.is_some() {
            let method = path.trim_start_matches('/');
            span.rename(method);
            span.set("rpc.method", method);
            span.set("rpc.system.name", "grpc");
            let mut headers = std::mem::take(request.metadata_mut()).into_headers();
            keelson_traces::propagate(&span, &mut headers);
            *request.metadata_mut() = MetadataMap::from_headers(headers);
        }
        let response = self.grpc.unary(request, PathAndQuery::from_static(path), codec).await;
        match &response {
            Ok(_) => span.set("rpc.response.status_code", "OK"),
            Err(error) => {
                span.set("rpc.response.status_code", format!("{:?}", error.code()));
                span.fail();
            }
        }
        Ok(response?.into_inner())
    }

    /// Opens a bidirectional stream, which ends if the member loses its leader.
    pub(crate) async fn stream<Q, A>(
        &mut self,
        path: &'static str,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Responses<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut call = self.calls.stream(path);
        let opened = self.opened(path, call.sending(requests)).await;
        match opened {
            Ok(responses) => Ok(Responses::new(responses, call)),
            Err(error) => {
                call.answered::<()>(&Err(error.clone()));
                Err(error)
            }
        }
    }

    async fn opened<Q, A>(
        &mut self,
        path: &'static str,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.ready().await?;
        let mut request = Request::new(requests);
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        Ok(self.grpc.streaming(request, path, codec).await?.into_inner())
    }

    async fn ready(&mut self) -> Result<(), Status> {
        self.grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))
    }
}

/// Returns whether the call failed before anything was sent, because no connection could be made.
fn was_not_sent(error: &Status) -> bool {
    causes(error).any(|cause| cause.is::<tonic::ConnectError>())
}

/// Returns whether another member may answer otherwise: this one has no leader, or is not reached.
fn is_of_member(error: &Status) -> bool {
    matches!(
        error.code(),
        Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
            | Code::Internal
    )
}

/// Returns whether one side refused the certificate of the other.
pub(crate) fn is_certificate_error(error: &Status) -> bool {
    let mut causes = causes(error).filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    causes.any(|cause| cause.kind() == std::io::ErrorKind::InvalidData)
}

fn causes(error: &Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}

/// Describes an error in one line: its deepest cause, or etcd's message if it has no cause.
pub(crate) fn error_line(error: &Status) -> String {
    let deepest = causes(error).last().map(ToString::to_string);
    deepest.unwrap_or_else(|| error.message().to_owned())
}

/// Connects by a [`Dialer`].
struct Connector(Dialer);

impl Service<Uri> for Connector {
    type Response = TokioIo<DialedStream>;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, std::io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let address = uri.authority().map(ToString::to_string).unwrap_or_default();
        let dialing = self.0.dial(address);
        Box::pin(async { dialing.await.map(TokioIo::new) })
    }
}

fn channel(url: &str, tls: &EtcdTls, dialer: Option<&Dialer>) -> Result<Channel, OpenError> {
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
    Ok(match dialer {
        Some(dialer) => endpoint.connect_with_connector_lazy(Connector(dialer.clone())),
        None => endpoint.connect_lazy(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn the_member_that_was_left_the_longest_time_ago_is_next() {
        let urls = ["1", "2", "3"].map(|port| format!("http://127.0.0.1:{port}"));
        let client = Client::new(&urls, &EtcdTls::default(), None).expect("URLs");
        let leave = async |left| {
            advance(Duration::from_secs(1)).await;
            let (number, _) = client.member();
            client.leave(number, left);
            // Another call to the same member has no effect.
            client.leave(number, Left::Failed);
            (number % 3, client.member().0 % 3)
        };
        let (first, second) = leave(Left::Silent).await;
        let (left, third) = leave(Left::Failed).await;
        assert_eq!((left, first + second + third), (second, 3), "each once");
        // The silent one is not asked again for half a minute.
        for _ in 0..10 {
            leave(Left::Failed).await;
            assert_ne!(client.member().0 % 3, first);
        }
        advance(SILENCE_PENALTY).await;
        leave(Left::Failed).await;
        leave(Left::Failed).await;
        assert_eq!(client.member().0 % 3, first);
    }
}
