//! [`Client`]: sends requests to one peer over pooled connections. [`Egress`]: the clients of all
//! peers.

use crate::address::authority;
use crate::body::Body;
use crate::connection::{self, SecuredStream, Sender, Target};
use crate::error::{Cause, Error};
use crate::http1_sender::{Http1Sender, is_replayable};
use crate::hyper_errors::{hyper_cause, was_refused};
use crate::metrics::{self, Sent};
use crate::peer::{Network, NetworkChoice, Peer, Route, Scheme};
use crate::proxy::Proxy;
use crate::resolve::{ADDRESSES_MAX, NoServices, Reach, Resolved, Resolver, lookup};
use crate::selector::{EgressSelector, Tunneler};
use crate::tls::{self, ConfigError};
use crate::traced;
use crate::wire::{AddrPair, Security};
use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use keelson_traces::Span;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// Maximum pooled clients; a further peer gets a client that is not shared.
const CLIENTS_MAX: usize = 1024;
/// Maximum concurrent exchanges with one peer; further ones wait.
const EXCHANGES_MAX: usize = 256;
/// Maximum concurrent streams to one peer; further ones wait until the deadline for connecting.
const STREAMS_MAX: usize = 4096;
/// Maximum bytes of a response that is read without a place among the long ones.
const SHORT_ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Maximum long responses of all peers that are read or evaluated at once; further ones wait. Peers
/// that send long responses take no more memory than these.
const LONG_ANSWERS_MAX: usize = 8;
/// The same of one peer, so that one does not take the places of all.
const LONG_ANSWERS_OF_PEER_MAX: usize = 2;
/// Bytes of a piece of a response that is read.
const PIECE_BYTES: usize = 64 * 1024;
/// Maximum idle HTTP/1.1 connections to one peer.
const IDLE_CONNECTIONS_MAX: usize = 32;
/// Idle timeout of a pooled connection.
const IDLE_TIME_MAX: Duration = Duration::from_secs(90);
/// Maximum attempts to send a request that the peer did not process.
const TRIES_MAX: usize = 4;

/// A request to a peer.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// Headers, without `Host` and `Authorization`.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// A complete response.
#[derive(Debug)]
pub struct Response {
    /// The status code; redirects are not followed.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The place of a long response, until it has been evaluated.
    _place: Option<Place>,
}

/// A place among the long responses of the peer, and one among those of all.
#[derive(Debug)]
struct Place {
    _of_peer: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// The clients of all peers. Peers that are equal share a client, and so connections.
pub struct Egress {
    resolver: Arc<dyn Resolver>,
    selector: EgressSelector,
    clients: Mutex<HashMap<Peer, Arc<Client>>>,
    long_answers: Arc<Semaphore>,
}

impl Egress {
    /// Returns the clients of all peers; `resolver` resolves peers with [`Route::Given`].
    pub fn new(resolver: Arc<dyn Resolver>) -> Egress {
        Egress {
            resolver,
            selector: EgressSelector::default(),
            clients: Mutex::default(),
            long_answers: Arc::new(Semaphore::new(LONG_ANSWERS_MAX)),
        }
    }

    /// Sets the proxies of networks.
    #[must_use]
    pub fn with_selector(self, selector: EgressSelector) -> Egress {
        Egress { selector, ..self }
    }

    /// Returns the clients of peers that are no services: those with [`Route::Given`] are not
    /// found.
    pub fn without_services() -> Egress {
        Egress::new(Arc::new(NoServices))
    }

    /// Returns the client of a peer.
    pub fn client(&self, peer: &Peer) -> Result<Arc<Client>, ConfigError> {
        if let Some(client) = self.clients().get(peer) {
            return Ok(client.clone());
        }
        let tunneler = self.selector.for_peer(peer).cloned();
        let client =
            Client::new(peer.clone(), self.resolver.clone(), tunneler, self.long_answers.clone())?;
        let client = Arc::new(client);
        let mut clients = self.clients();
        if clients.len() >= CLIENTS_MAX {
            // No other references exist.
            clients.retain(|_, client| Arc::strong_count(client) > 1);
        }
        if clients.len() < CLIENTS_MAX {
            clients.insert(peer.clone(), client.clone());
        }
        Ok(client)
    }

    /// Resolves a peer with [`Route::Given`], once: the result is reached at the address, or by the
    /// name, that was found, and its certificate must have the name from before. Its requests name
    /// the address as their host. The error text is that of the [`Resolver`].
    pub async fn located(&self, peer: Peer) -> Result<Peer, String> {
        if peer.route != Route::Given {
            return Ok(peer);
        }
        let found = match self.resolver.resolve(&peer.host, peer.port).await? {
            Resolved::Addresses(found) => {
                found.first().map(|address| (address.ip().to_string(), address.port()))
            }
            Resolved::Name { host, port } => Some((host, port)),
        };
        let (host, port) = found.ok_or_else(|| format!("{} has no address", peer.host))?;
        let selection = match peer.selection {
            NetworkChoice::ByRoute => NetworkChoice::Network(Network::Cluster),
            chosen => chosen,
        };
        let server_name = peer.server_name.or(Some(peer.host));
        Ok(Peer { host, port, route: Route::Dns, server_name, selection, ..peer })
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<Peer, Arc<Client>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends requests to one peer.
pub struct Client {
    peer: Peer,
    authority: String,
    authorization: Option<HeaderValue>,
    resolver: Arc<dyn Resolver>,
    /// The proxy of the peer's network.
    tunneler: Option<Arc<Tunneler>>,
    security: Security,
    exchanges: Semaphore,
    streams: Arc<Semaphore>,
    long_answers: Arc<Semaphore>,
    /// Those of all peers.
    all_long_answers: Arc<Semaphore>,
    /// Held while a connection is opened to a peer that may speak HTTP/2, so that others wait and
    /// share it.
    opening: tokio::sync::Mutex<()>,
    pool: Mutex<Pool>,
}

#[derive(Default)]
struct Pool {
    http2: Option<IdleConnection<http2::SendRequest<Body>>>,
    /// Idle connections; the most recently used is last.
    http1: Vec<IdleConnection<Http1Sender>>,
    speaks_http1: bool,
    is_swept: bool,
}

struct IdleConnection<S> {
    sender: S,
    addrs: AddrPair,
    since: Instant,
}

/// A connection that is used for one exchange.
pub(crate) struct PooledConnection {
    pub sender: Sender,
    pub addrs: AddrPair,
    pub is_new: bool,
}

/// A response whose body has not been read.
struct PendingResponse {
    response: http::Response<Incoming>,
    addrs: AddrPair,
    http1: Option<Http1Sender>,
}

impl Client {
    fn new(
        peer: Peer,
        resolver: Arc<dyn Resolver>,
        tunneler: Option<Arc<Tunneler>>,
        all_long_answers: Arc<Semaphore>,
    ) -> Result<Client, ConfigError> {
        let authorization = peer.authorization.as_deref().map(|text| {
            let mut value = HeaderValue::from_str(text)?;
            value.set_sensitive(true);
            Ok::<_, http::header::InvalidHeaderValue>(value)
        });
        Ok(Client {
            authority: peer.authority(),
            authorization: authorization.transpose().map_err(|_| ConfigError::Authorization)?,
            resolver,
            tunneler,
            security: match peer.scheme {
                Scheme::Https => {
                    let config = tls::config(&peer, tls::ANY_HTTP)?;
                    Security::Tls(Arc::new(config), tls::server_name(&peer)?)
                }
                Scheme::Http => Security::None,
            },
            exchanges: Semaphore::new(EXCHANGES_MAX),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            long_answers: Arc::new(Semaphore::new(LONG_ANSWERS_OF_PEER_MAX)),
            all_long_answers,
            opening: tokio::sync::Mutex::default(),
            pool: Mutex::default(),
            peer,
        })
    }

    /// Sends a request and reads the whole response, whose body may have `bytes_max` bytes. The
    /// deadline covers everything.
    pub async fn send(
        self: &Arc<Self>,
        request: &Request,
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<Response, Error> {
        let begun = Instant::now();
        let sent = self.exchange(request, bytes_max, deadline).await;
        let outcome = sent.as_ref().map(|response| (response.status, response.body.len()));
        let method = request.method.as_str();
        let bytes = request.body.len();
        metrics::ended(Sent { host: &self.authority, method, bytes }, outcome, begun.elapsed());
        sent
    }

    async fn exchange(
        self: &Arc<Self>,
        request: &Request,
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<Response, Error> {
        let late = |_| Cause::Deadline;
        let span = traced::start(&request.method, &self.peer, &request.path);
        let head = async {
            let Ok(_permit) = self.exchanges.acquire().await else { return Err(Cause::Closed) };
            Ok((self.begin(request, &span, deadline).await?, _permit))
        };
        let head = timeout_at(deadline, head).await.map_err(late).flatten();
        let (begun, _permit) = head.inspect_err(|_| span.fail()).map_err(Error::head)?;
        traced::answered(&span, &begun.response);
        let (parts, body) = begun.response.into_parts();
        let collected = self.collect(body, bytes_max, begun.addrs);
        let collected = timeout_at(deadline, collected).await;
        let (body, _place) = collected.map_err(late).flatten().map_err(Error::body)?;
        if let Some(sender) = begun.http1 {
            self.put_back(sender, begun.addrs);
        }
        Ok(Response { status: parts.status, headers: parts.headers, body, _place })
    }

    /// Reads a body. When it turns out to be long, it waits for a place.
    async fn collect(
        &self,
        mut body: Incoming,
        bytes_max: usize,
        addrs: AddrPair,
    ) -> Result<(Bytes, Option<Place>), Cause> {
        let mut collected = Collected::default();
        let mut place = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| match hyper_cause(&error, addrs) {
                Cause::Closed | Cause::Protocol(_) => Cause::Cut,
                other => other,
            })?;
            let Ok(data) = frame.into_data() else { continue };
            let read = collected.len + data.len();
            if read > bytes_max {
                return Err(Cause::TooLarge { bytes_max });
            }
            if read > SHORT_ANSWER_BYTES_MAX && place.is_none() {
                place = Some(self.place().await?);
            }
            collected.push(data);
        }
        Ok((collected.into_bytes(), place))
    }

    /// Waits for a place among the long responses.
    async fn place(&self) -> Result<Place, Cause> {
        let closed = |_| Cause::Closed;
        let of_peer = self.long_answers.clone().acquire_owned().await.map_err(closed)?;
        let of_all = self.all_long_answers.clone().acquire_owned().await.map_err(closed)?;
        Ok(Place { _of_peer: of_peer, _of_all: of_all })
    }

    /// Sends a request. If the peer did not process it, it is sent again over another connection;
    /// also if nobody knows, because a pooled connection has ended, and twice does no harm.
    async fn begin(
        self: &Arc<Self>,
        request: &Request,
        span: &Span,
        deadline: Instant,
    ) -> Result<PendingResponse, Cause> {
        let may_repeat = is_replayable(&request.method, &request.headers);
        let mut tries = 0;
        loop {
            tries += 1;
            let PooledConnection { sender, addrs, is_new } = self.take(deadline).await?;
            let may_retry = !is_new && tries < TRIES_MAX;
            match sender {
                Sender::Http1(mut sender) => {
                    let sent = sender.send(self.message(request, span, Version::HTTP_11));
                    match sent.await {
                        Ok(response) => {
                            return Ok(PendingResponse { response, addrs, http1: Some(sender) });
                        }
                        Err(failed)
                            if may_retry
                                && (failed.unsent.is_some() || !failed.is_begun && may_repeat) => {}
                        Err(failed) => return Err(failed.cause(addrs)),
                    }
                }
                Sender::Http2(mut sender) => {
                    let sent =
                        sender.try_send_request(self.message(request, span, Version::HTTP_2));
                    match sent.await {
                        Ok(response) => {
                            return Ok(PendingResponse { response, addrs, http1: None });
                        }
                        Err(error)
                            if may_retry
                                && (error.message().is_some() || was_refused(error.error())) =>
                        {
                            self.pool().http2 = None;
                        }
                        Err(error) => return Err(hyper_cause(error.error(), addrs)),
                    }
                }
            }
        }
    }

    fn message(&self, request: &Request, span: &Span, version: Version) -> http::Request<Body> {
        let body = Body::Left(Full::new(request.body.clone()));
        let mut message = http::Request::new(body);
        *message.method_mut() = request.method.clone();
        *message.version_mut() = version;
        *message.headers_mut() = request.headers.clone();
        keelson_traces::propagate(span, message.headers_mut());
        if let Some(value) = &self.authorization {
            message.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        let path = request.path.as_str();
        let uri = if version == Version::HTTP_2 {
            Uri::builder()
                .scheme("https")
                .authority(self.authority.as_str())
                .path_and_query(path)
                .build()
        } else {
            if let Ok(host) = HeaderValue::from_str(&self.authority) {
                message.headers_mut().insert(HOST, host);
            }
            Uri::builder().path_and_query(path).build()
        };
        *message.uri_mut() = uri.unwrap_or_default();
        message
    }

    /// Returns a pooled connection or opens a new one.
    pub(crate) async fn take(
        self: &Arc<Self>,
        deadline: Instant,
    ) -> Result<PooledConnection, Cause> {
        if let Some(taken) = self.pooled().await {
            return Ok(taken);
        }
        if self.pool().speaks_http1 {
            return self.open(deadline).await;
        }
        let _opening = self.opening.lock().await;
        match self.pooled().await {
            Some(taken) => Ok(taken),
            None => self.open(deadline).await,
        }
    }

    async fn pooled(&self) -> Option<PooledConnection> {
        loop {
            let mut idle = {
                let mut pool = self.pool();
                if let Some(idle) = &mut pool.http2 {
                    if !idle.sender.is_closed() {
                        idle.since = Instant::now();
                        let sender = Sender::Http2(idle.sender.clone());
                        return Some(PooledConnection { sender, addrs: idle.addrs, is_new: false });
                    }
                    pool.http2 = None;
                }
                pool.http1.pop()?
            };
            // A connection becomes ready a moment after the body of the last answer was read.
            if !idle.sender.is_closed() && idle.sender.is_ready().await {
                let sender = Sender::Http1(idle.sender);
                return Some(PooledConnection { sender, addrs: idle.addrs, is_new: false });
            }
        }
    }

    async fn open(self: &Arc<Self>, deadline: Instant) -> Result<PooledConnection, Cause> {
        let target = self.target().await?;
        let (sender, addrs) =
            connection::open(&target, &self.peer, &self.security, deadline).await?;
        let is_swept = {
            let mut pool = self.pool();
            pool.speaks_http1 = matches!(sender, Sender::Http1(_));
            if let Sender::Http2(sender) = &sender {
                let sender = sender.clone();
                pool.http2 = Some(IdleConnection { sender, addrs, since: Instant::now() });
            }
            std::mem::replace(&mut pool.is_swept, true)
        };
        if !is_swept {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
        Ok(PooledConnection { sender, addrs, is_new: true })
    }

    async fn target(&self) -> Result<Target, Cause> {
        match &self.tunneler {
            None => self.addresses().await.map(Target::Addresses),
            Some(tunneler) => Ok(Target::Through(tunneler.clone(), self.far_address().await?)),
        }
    }

    /// Returns the address that the proxy of the network is asked for. It resolves names itself,
    /// but for those of services, and those that users chose.
    async fn far_address(&self) -> Result<String, Cause> {
        let Peer { host, port, route, proxy, .. } = &self.peer;
        if let Some(Proxy { host, port, .. }) = proxy {
            return Ok(authority(host, *port));
        }
        let found = match route {
            Route::Dns | Route::Node => return Ok(authority(host, *port)),
            Route::Public => lookup(host, *port, Reach::GlobalUnicast).await?,
            Route::Given => {
                match self.resolver.resolve(host, *port).await.map_err(Cause::Resolve)? {
                    Resolved::Addresses(found) => found,
                    Resolved::Name { host, port } => return Ok(authority(&host, port)),
                }
            }
        };
        let first = found.first().map(ToString::to_string);
        first.ok_or_else(|| Cause::Resolve("dial tcp: no address".to_owned()))
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, Cause> {
        let Peer { host, port, route, proxy, .. } = &self.peer;
        if let Some(Proxy { host, port, .. }) = proxy {
            return lookup(host, *port, Reach::Anywhere).await;
        }
        match route {
            Route::Given => {}
            Route::Dns => return lookup(host, *port, Reach::NotLocal).await,
            Route::Node => return lookup(host, *port, Reach::Anywhere).await,
            Route::Public => return lookup(host, *port, Reach::GlobalUnicast).await,
        }
        match self.resolver.resolve(host, *port).await.map_err(Cause::Resolve)? {
            Resolved::Addresses(mut found) => {
                found.truncate(ADDRESSES_MAX);
                Ok(found)
            }
            Resolved::Name { host, port } => lookup(&host, port, Reach::NotLocal).await,
        }
    }

    pub(crate) fn put_back(&self, sender: Http1Sender, addrs: AddrPair) {
        let mut pool = self.pool();
        if !sender.is_closed() && pool.http1.len() < IDLE_CONNECTIONS_MAX {
            pool.http1.push(IdleConnection { sender, addrs, since: Instant::now() });
        }
    }

    /// Waits until another stream may be opened.
    pub(crate) async fn stream_permit(
        &self,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, Cause> {
        let permit = timeout_at(deadline, self.streams.clone().acquire_owned()).await;
        permit.map_err(|_| Cause::Deadline)?.map_err(|_| Cause::Closed)
    }

    /// Opens a connection for HTTP/1.1 that is not pooled.
    pub(crate) async fn connect_http1(
        &self,
        deadline: Instant,
    ) -> Result<(SecuredStream, AddrPair), Cause> {
        let mut security = self.security.clone();
        if let Security::Tls(config, _) = &mut security {
            Arc::make_mut(config).alpn_protocols = tls::alpn(tls::HTTP1);
        }
        connection::connect(&self.target().await?, &self.peer, &security, deadline).await
    }

    /// Returns the peer.
    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Returns `host:port` of the peer.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// Closes connections that are idle for too long or broken. Returns whether any is left.
    fn sweep(&mut self, now: Instant) -> bool {
        let is_fresh = |since: Instant| now.duration_since(since) < IDLE_TIME_MAX;
        self.http1.retain(|idle| is_fresh(idle.since) && !idle.sender.is_closed());
        self.http2 =
            self.http2.take().filter(|idle| is_fresh(idle.since) && !idle.sender.is_closed());
        self.http2.is_some() || !self.http1.is_empty()
    }
}

/// Sweeps the pool of a client periodically while it has idle connections.
async fn sweep(client: std::sync::Weak<Client>) {
    loop {
        tokio::time::sleep(IDLE_TIME_MAX / 2).await;
        let Some(client) = client.upgrade() else { return };
        let mut pool = client.pool();
        if !pool.sweep(Instant::now()) {
            pool.is_swept = false;
            return;
        }
    }
}

/// The data of a body so far, in pieces: one growing buffer would be copied, and take three times
/// the memory, each time that it grows.
#[derive(Default)]
struct Collected {
    len: usize,
    /// The first data, if there is no more.
    first: Bytes,
    pieces: Vec<BytesMut>,
}

impl Collected {
    fn push(&mut self, data: Bytes) {
        let was_empty = self.len == 0;
        self.len += data.len();
        if was_empty {
            self.first = data;
            return;
        }
        if self.pieces.is_empty() {
            let first = std::mem::take(&mut self.first);
            self.copy(&first);
        }
        self.copy(&data);
    }

    /// Copies data to the end of the last piece, and further pieces.
    fn copy(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let room = |piece: &BytesMut| PIECE_BYTES - piece.len();
            if self.pieces.last().is_none_or(|piece| room(piece) == 0) {
                self.pieces.push(BytesMut::with_capacity(PIECE_BYTES));
            }
            let Some(piece) = self.pieces.last_mut() else { return };
            let (fits, rest) = data.split_at(room(piece).min(data.len()));
            piece.extend_from_slice(fits);
            data = rest;
        }
    }

    fn into_bytes(self) -> Bytes {
        if self.pieces.is_empty() {
            return self.first;
        }
        let mut all = BytesMut::with_capacity(self.len);
        // Each piece is freed once it is copied.
        self.pieces.into_iter().for_each(|piece| all.extend_from_slice(&piece));
        all.freeze()
    }
}
