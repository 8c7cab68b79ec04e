//! Ports of pods on simulated nodes, at which a test answers: port-forward ends in this process, as
//! it does at a kubelet. Clients come over SPDY, or over a WebSocket that tunnels SPDY.

use crate::app::App;
use crate::body::Body;
use crate::outcome::Outcome;
use crate::request_head::RequestHead;
use crate::respond::{self, Reply};
use crate::translation;
use crate::upgrade::Tunnel;
use crate::websocket;
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, header};
use keelson_meta::{Failure, Object, Status};
use keelson_registry::hooks::{PodPort, PortHandler, SimulatedNodes};
use keelson_streams::handshake::{self, PORT_FORWARD_PROTOCOL, SPDY, choose_spdy};
use keelson_streams::portforward::{Pair, PairError, Pairs};
use keelson_streams::spdy::{CANCEL, Event, Session};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Bytes between this server and what answers at a port, in each direction.
const PORT_BYTES: usize = 64 << 10;
/// Bytes that are read at once.
const READ_BYTES: usize = 32 << 10;
/// Pieces of data that wait for a port, and for the client.
const PIECES_MAX: usize = 4;
/// Connections of one session at the same time.
const CONNECTIONS_MAX: usize = 256;

/// Connects a client to the registered ports of a pod.
pub(crate) fn run(app: &Arc<App>, head: &RequestHead, pod: Object) -> Result<Outcome, Failure> {
    if !head.is_upgrade() {
        return Err(Status::bad_request("Upgrade request required"));
    }
    let nodes = app
        .registry
        .options
        .simulated_nodes
        .clone()
        .ok_or_else(|| Status::internal("no node is simulated"))?;
    let ports = PodPorts { nodes, pod };
    if head.is_websocket() {
        return run_tunnel(app, head, ports);
    }
    let requested: Vec<&str> = head
        .headers
        .get_all(handshake::STREAM_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    let supported = [PORT_FORWARD_PROTOCOL];
    let protocol = match choose_spdy(&requested, &supported, head.headers.keys_len()) {
        Ok(protocol) => protocol,
        Err(refusal) => {
            let why = format!("{}\n", refusal.message);
            return Ok(Outcome::Reply(respond::text(refusal.code, &why)));
        }
    };
    let mut reply = Reply::new(Body::empty());
    let headers = reply.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(SPDY));
    headers.insert(handshake::STREAM_PROTOCOL, HeaderValue::from_static(protocol));
    let run = move |near| Box::pin(ended(forward(near, ports))) as _;
    Ok(Outcome::Tunnel(Tunnel { reply, run: Box::new(run) }))
}

fn run_tunnel(app: &Arc<App>, head: &RequestHead, ports: PodPorts) -> Result<Outcome, Failure> {
    let requested = head.header(header::SEC_WEBSOCKET_PROTOCOL).unwrap_or_default();
    if !handshake::tunnelled_protocols(requested).contains(&PORT_FORWARD_PROTOCOL) {
        let why =
            format!("ports of simulated pods need the protocol {SPDY}+{PORT_FORWARD_PROTOCOL}");
        return Ok(Outcome::Reply(respond::text(400, &why)));
    }
    if let Some(refused) = websocket::tunnel_refusal(head) {
        return Ok(Outcome::Reply(refused));
    }
    let protocol = handshake::tunnel_protocol(PORT_FORWARD_PROTOCOL);
    let reply = match websocket::accept(&head.headers, protocol.as_deref()) {
        Ok(reply) => reply,
        Err(refused) => return Ok(Outcome::Reply(*refused)),
    };
    let shutdown = app.shutdown.clone();
    let run = move |near| {
        let (far, kubelet) = tokio::io::duplex(PORT_BYTES);
        let tunnel = translation::run_tunnel(near, far, shutdown);
        Box::pin(async move {
            tokio::join!(tunnel, ended(forward(kubelet, ports)));
        }) as _
    };
    Ok(Outcome::Tunnel(Tunnel { reply, run: Box::new(run) }))
}

async fn ended(session: impl Future<Output = io::Result<()>>) {
    if let Err(error) = session.await {
        tracing::debug!(%error, "session of a simulated pod ended");
    }
}

/// The ports of a pod.
struct PodPorts {
    nodes: Arc<dyn SimulatedNodes>,
    pod: Object,
}

impl PodPorts {
    fn handler(&self, port: u16) -> Option<PortHandler> {
        let namespace = self.pod.namespace().into();
        let pod = self.pod.name().into();
        self.nodes.port(&PodPort { namespace, pod, port })
    }

    fn refusal(&self, port: u16) -> String {
        let pod = self.pod.name();
        let uid = self.pod.uid();
        format!(
            "error forwarding port {port} to pod {pod}, uid {uid}: the pod is simulated, and nothing \
             is registered for this port"
        )
    }
}

/// What is sent to the client on a stream.
enum Sent {
    Data(u32, Bytes),
    /// Both streams of a connection end.
    End(u32, u32),
}

/// Speaks SPDY with the client until it leaves.
async fn forward(
    connection: impl AsyncRead + AsyncWrite + Unpin,
    ports: PodPorts,
) -> io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(connection);
    let (sender, mut answers) = mpsc::channel(PIECES_MAX);
    let mut state = Forwarding {
        session: Session::server(),
        pairs: Pairs::default(),
        queues: HashMap::new(),
        held: VecDeque::new(),
        connections: JoinSet::new(),
        sender,
        ports,
    };
    let mut input = BytesMut::new();
    let mut output = Bytes::new();
    let mut needs_flush = false;
    loop {
        state.receive(&mut input)?;
        if output.is_empty() {
            output = state.session.take_output();
        }
        let late = state.pairs.next_deadline();
        let next = state.held.front().map(|(stream, _)| *stream);
        let queue = next.and_then(|stream| state.queues.get(&stream).cloned());
        if next.is_some() && queue.is_none() {
            // Nobody reads this stream.
            state.held.pop_front();
            continue;
        }
        tokio::select! {
            permit = reserve(queue), if next.is_some() => state.deliver(permit),
            read = reader.read_buf(&mut input), if next.is_none() => {
                if read? == 0 {
                    return writer.shutdown().await;
                }
                input.reserve(READ_BYTES);
            }
            written = write_some(&mut writer, &output), if !output.is_empty() || needs_flush => {
                needs_flush = !output.is_empty();
                output = output.split_off(written?);
            }
            Some(sent) = answers.recv(), if output.is_empty() => state.send(sent),
            Some(_) = state.connections.join_next() => {}
            () = at(late) => state.expire(),
        }
    }
}

async fn reserve(queue: Option<mpsc::Sender<Bytes>>) -> Option<mpsc::OwnedPermit<Bytes>> {
    queue?.reserve_owned().await.ok()
}

/// Writes a part, or flushes if there is none. Cancelling it loses nothing.
async fn write_some(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<usize> {
    match bytes {
        [] => writer.flush().await.map(|()| 0),
        bytes => writer.write(bytes).await,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

struct Forwarding {
    session: Session,
    pairs: Pairs,
    /// Where the data of each connection goes.
    queues: HashMap<u32, mpsc::Sender<Bytes>>,
    /// Data that waits for its queue; `None`: the end of the stream. Meanwhile nothing is read.
    held: VecDeque<(u32, Option<Bytes>)>,
    connections: JoinSet<()>,
    sender: mpsc::Sender<Sent>,
    ports: PodPorts,
}

impl Forwarding {
    /// Takes what the client sent, until something must wait.
    fn receive(&mut self, input: &mut BytesMut) -> io::Result<()> {
        let mut bytes = input.split().freeze();
        while self.held.is_empty() {
            match self.session.receive(&mut bytes).map_err(io::Error::other)? {
                None => break,
                Some(Event::Opened { stream, headers }) => {
                    // A stream that the client has reset needs no reply.
                    let _ = self.session.reply(stream);
                    match self.pairs.add(stream, &headers, Instant::now()) {
                        Ok(None) => {}
                        Ok(Some(pair)) => self.connect(&pair),
                        Err(PairError::Headers(_)) => self.reset(stream),
                        Err(PairError::Duplicate { error, message }) => {
                            if let Some(error) = error {
                                let _ = self.session.send(error, message.as_bytes());
                            }
                        }
                    }
                }
                Some(Event::Data { stream, data }) => self.held.push_back((stream, Some(data))),
                Some(Event::Finished { stream }) => self.held.push_back((stream, None)),
                Some(Event::Reset { stream, .. }) => {
                    self.pairs.remove(stream);
                    self.queues.remove(&stream);
                }
                Some(Event::Replied { .. } | Event::Pong { .. } | Event::GoneAway) => {}
            }
        }
        input.extend_from_slice(&bytes);
        Ok(())
    }

    /// Gives the data that waits to its connection.
    fn deliver(&mut self, permit: Option<mpsc::OwnedPermit<Bytes>>) {
        let Some((stream, data)) = self.held.pop_front() else { return };
        match (permit, data) {
            (Some(permit), Some(data)) => drop(permit.send(data)),
            // The end of the stream, or nobody reads it any more.
            _ => drop(self.queues.remove(&stream)),
        }
    }

    fn reset(&mut self, stream: u32) {
        // The client may have reset it, too.
        let _ = self.session.reset(stream, CANCEL);
    }

    /// Starts a connection, or says on its error stream why there is none.
    fn connect(&mut self, pair: &Pair) {
        let handler =
            self.ports.handler(pair.port).filter(|_| self.connections.len() < CONNECTIONS_MAX);
        let Some(handler) = handler else {
            let why = self.ports.refusal(pair.port);
            let _ = self.session.send(pair.error, why.as_bytes());
            let _ = self.session.finish(pair.error);
            return self.reset(pair.data);
        };
        let (queue, data) = mpsc::channel(PIECES_MAX);
        self.queues.insert(pair.data, queue);
        let connection = connection(handler, pair.data, pair.error, data, self.sender.clone());
        self.connections.spawn(connection);
    }

    fn send(&mut self, sent: Sent) {
        // The client may have reset the stream.
        match sent {
            Sent::Data(stream, data) => drop(self.session.send(stream, &data)),
            Sent::End(data, error) => {
                self.queues.remove(&data);
                let _ = self.session.finish(data);
                let _ = self.session.finish(error);
            }
        }
    }

    /// Says of streams whose counterpart does not come that it does not.
    fn expire(&mut self) {
        for unpaired in self.pairs.expire(Instant::now()) {
            if unpaired.is_error {
                let _ = self.session.send(unpaired.stream, unpaired.message.as_bytes());
            }
        }
    }
}

/// Runs one connection to a port until what answers there has ended it.
async fn connection(
    handler: PortHandler,
    data_stream: u32,
    error_stream: u32,
    mut data: mpsc::Receiver<Bytes>,
    sender: mpsc::Sender<Sent>,
) {
    let (ours, theirs) = tokio::io::duplex(PORT_BYTES);
    let (mut reader, mut writer) = tokio::io::split(ours);
    let input = async {
        while let Some(piece) = data.recv().await {
            if writer.write_all(&piece).await.is_err() {
                return;
            }
        }
        // The handler sees the end of what the client sends.
        let _ = writer.shutdown().await;
    };
    let output = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(READ_BYTES);
            match reader.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {
                    let sent = Sent::Data(data_stream, buffer.split().freeze());
                    if sender.send(sent).await.is_err() {
                        return;
                    }
                }
            }
        }
    };
    let input = async {
        input.await;
        std::future::pending::<()>().await;
    };
    let answering = async { tokio::join!(handler(theirs), output) };
    tokio::select! {
        _ = answering => {}
        () = input => {}
    }
    // The session may have ended.
    let _ = sender.send(Sent::End(data_stream, error_stream)).await;
}
