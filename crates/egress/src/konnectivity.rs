//! The protocol of konnectivity's proxy (`proto/client/client.proto` of apiserver-network-proxy):
//! one connection in one stream of a gRPC connection over a Unix domain socket. The messages have
//! the field numbers of that file; what is never used is left out.

use bytes::Bytes;
use futures_util::Stream;
use http::uri::PathAndQuery;
use prost::{Message, Oneof};
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::Streaming;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

const PROXY: &str = "/ProxyService/Proxy";
/// How long connecting to the socket may take.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(30);
/// How long the proxy may take to open a connection, whatever the deadline.
const DIAL_TIME_MAX: Duration = Duration::from_secs(30);
/// How long the proxy may take to confirm the end of a connection.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes that were received and not read yet, in each direction.
const UNREAD_BYTES_MAX: usize = 64 << 10;
/// Most bytes of the data of a packet that is sent.
const DATA_BYTES_MAX: usize = 32 << 10;
/// Most bytes of a packet that is received.
const PACKET_BYTES_MAX: usize = 4 << 20;
/// Packets that wait to be sent.
const PACKETS_MAX: usize = 4;

const DIAL_REQUEST: i32 = 0;
const CLOSE_REQUEST: i32 = 2;
const DATA: i32 = 4;
const CLOSE_DIAL: i32 = 5;

/// A message in either direction.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Packet {
    /// The number of the payload's kind.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(oneof = "Payload", tags = "2, 3, 4, 5, 6, 7")]
    pub payload: Option<Payload>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Payload {
    #[prost(message, tag = "2")]
    DialRequest(DialRequest),
    #[prost(message, tag = "3")]
    DialResponse(DialResponse),
    #[prost(message, tag = "4")]
    Data(Data),
    #[prost(message, tag = "5")]
    CloseRequest(CloseRequest),
    #[prost(message, tag = "6")]
    CloseResponse(CloseResponse),
    #[prost(message, tag = "7")]
    CloseDial(CloseDial),
}

/// Asks for a connection.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DialRequest {
    #[prost(string, tag = "1")]
    pub protocol: String,
    /// `host:port`.
    #[prost(string, tag = "2")]
    pub address: String,
    /// Tells this request from others of the proxy.
    #[prost(int64, tag = "3")]
    pub random: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DialResponse {
    #[prost(string, tag = "1")]
    pub error: String,
    /// The number of the connection.
    #[prost(int64, tag = "2")]
    pub connection: i64,
    #[prost(int64, tag = "3")]
    pub random: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct CloseRequest {
    #[prost(int64, tag = "1")]
    pub connection: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CloseResponse {
    #[prost(string, tag = "1")]
    pub error: String,
    #[prost(int64, tag = "2")]
    pub connection: i64,
}

/// Ends a request for a connection.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct CloseDial {
    #[prost(int64, tag = "1")]
    pub random: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Data {
    #[prost(int64, tag = "1")]
    pub connection: i64,
    #[prost(string, tag = "2")]
    pub error: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub data: Bytes,
}

/// A connection to the proxy.
pub(crate) struct Proxy {
    sender: mpsc::Sender<Packet>,
    packets: Streaming<Packet>,
    /// Ends the connection to the proxy when it is dropped.
    _channel: Channel,
}

/// Connects to the proxy at a socket.
pub(crate) async fn connect(path: &str) -> Result<Proxy, String> {
    let failed = |error: &dyn std::error::Error| {
        let causes = std::iter::successors(Some(error), |cause| cause.source());
        let deepest = causes.last().map(ToString::to_string).unwrap_or_default();
        format!(
            "connection error: desc = \"transport: Error while dialing: dial unix {path}: {deepest}\""
        )
    };
    let endpoint = Endpoint::from_shared(format!("unix:{path}"))
        .and_then(|made| made.user_agent("keelson"))
        .map_err(|error| failed(&error))?;
    let connected = timeout(CONNECT_TIME_MAX, endpoint.connect()).await;
    let channel = connected
        .map_err(|_| "context deadline exceeded".to_owned())?
        .map_err(|error| failed(&error))?;
    let (sender, queue) = mpsc::channel(PACKETS_MAX);
    let mut client = Grpc::new(channel.clone()).max_decoding_message_size(PACKET_BYTES_MAX);
    client.ready().await.map_err(|error| failed(&error))?;
    let codec = ProstCodec::<Packet, Packet>::default();
    let request = tonic::Request::new(Queue(queue));
    let path = PathAndQuery::from_static(PROXY);
    let answer = client.streaming(request, path, codec).await;
    let answer = answer.map_err(|status| crate::grpc_error_text(&status))?;
    Ok(Proxy { sender, packets: answer.into_inner(), _channel: channel })
}

/// Packets that are to be sent.
struct Queue(mpsc::Receiver<Packet>);

impl Stream for Queue {
    type Item = Packet;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Packet>> {
        self.0.poll_recv(cx)
    }
}

/// Asks the proxy for a connection to `host:port`.
pub(crate) async fn dial(
    mut proxy: Proxy,
    address: &str,
    deadline: Instant,
) -> Result<DuplexStream, String> {
    let random = random();
    let request = DialRequest { protocol: "tcp".to_owned(), address: address.to_owned(), random };
    let packet = Packet { kind: DIAL_REQUEST, payload: Some(Payload::DialRequest(request)) };
    proxy.sender.send(packet).await.map_err(|_| "tunnel is closed".to_owned())?;
    let until = deadline.min(Instant::now() + DIAL_TIME_MAX);
    let Ok(answer) = timeout_at(until, dial_answer(&mut proxy.packets, random)).await else {
        let close = Payload::CloseDial(CloseDial { random });
        let _ = proxy.sender.try_send(Packet { kind: CLOSE_DIAL, payload: Some(close) });
        return Err("dial timeout, context".to_owned());
    };
    let connection = answer?;
    let (near, far) = tokio::io::duplex(UNREAD_BYTES_MAX);
    tokio::spawn(pass_on(proxy, connection, far));
    Ok(near)
}

/// Waits for the number of the connection.
async fn dial_answer(packets: &mut Streaming<Packet>, random: i64) -> Result<i64, String> {
    loop {
        let packet = packets.message().await.map_err(|status| crate::grpc_error_text(&status))?;
        match packet.ok_or("tunnel closed")?.payload {
            Some(Payload::DialResponse(answer)) if answer.random == random => {
                return match answer.error.is_empty() {
                    true => Ok(answer.connection),
                    false => Err(answer.error),
                };
            }
            Some(Payload::CloseDial(_)) => return Err("dial closed".to_owned()),
            _ => {}
        }
    }
}

/// A number that other servers at the same proxy do not use.
fn random() -> i64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let hashed = RandomState::new().hash_one(COUNT.fetch_add(1, Ordering::Relaxed));
    // The sign stays clear, as in Go's random numbers.
    i64::try_from(hashed >> 1).unwrap_or_default()
}

/// Passes bytes on in both directions until one side has ended the connection.
async fn pass_on(mut proxy: Proxy, connection: i64, far: DuplexStream) {
    let (reader, mut writer) = tokio::io::split(far);
    let is_closed = {
        let sending = send_data(&proxy.sender, connection, reader);
        let receiving = receive_data(&mut proxy.packets, connection, &mut writer);
        tokio::select! {
            () = sending => false,
            () = receiving => true,
        }
    };
    if is_closed {
        let _ = writer.shutdown().await;
        return;
    }
    let close = Payload::CloseRequest(CloseRequest { connection });
    let packet = Packet { kind: CLOSE_REQUEST, payload: Some(close) };
    if proxy.sender.send(packet).await.is_err() {
        return;
    }
    let closed = async {
        while let Ok(Some(packet)) = proxy.packets.message().await {
            if is_close_of(&packet, connection) {
                return;
            }
        }
    };
    let _ = timeout(CLOSE_TIME_MAX, closed).await;
}

fn is_close_of(packet: &Packet, number: i64) -> bool {
    matches!(&packet.payload, Some(Payload::CloseResponse(close)) if close.connection == number)
}

/// Sends what is written until the near side ends.
async fn send_data(
    sender: &mpsc::Sender<Packet>,
    connection: i64,
    mut reader: ReadHalf<DuplexStream>,
) {
    let mut buffer = vec![0; DATA_BYTES_MAX];
    while let Ok(bytes @ 1..) = reader.read(&mut buffer).await {
        let data = Bytes::copy_from_slice(&buffer[..bytes]);
        let payload = Payload::Data(Data { connection, error: String::new(), data });
        if sender.send(Packet { kind: DATA, payload: Some(payload) }).await.is_err() {
            return;
        }
    }
}

/// Receives data until the far side ends.
async fn receive_data(
    packets: &mut Streaming<Packet>,
    connection: i64,
    writer: &mut WriteHalf<DuplexStream>,
) {
    while let Ok(Some(packet)) = packets.message().await {
        if is_close_of(&packet, connection) {
            return;
        }
        let Some(Payload::Data(data)) = packet.payload else { continue };
        if data.connection == connection && writer.write_all(&data.data).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::{Buf, BytesMut};
    use futures_util::stream::poll_fn;
    use http_body_util::{BodyExt, StreamBody};
    use hyper::body::{Frame, Incoming};
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use std::convert::Infallible;
    use std::net::SocketAddr;
    use std::path::Path;
    use std::sync::{Arc, Mutex};
    use tokio::net::{TcpListener, TcpStream, UnixListener};

    const CONNECTION: i64 = 7;
    const TIME_MAX: Duration = Duration::from_secs(20);

    /// What a proxy has seen.
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<String>>>);

    impl Seen {
        fn add(&self, what: String) {
            self.0.lock().expect("a lock").push(what);
        }

        fn has(&self, what: &str) -> bool {
            self.0.lock().expect("a lock").iter().any(|seen| seen == what)
        }
    }

    type Frames = mpsc::Sender<Result<Frame<Bytes>, Infallible>>;

    /// Sends a packet in the frame of a gRPC message.
    async fn send(frames: &Frames, kind: i32, payload: Payload) {
        let message = Packet { kind, payload: Some(payload) }.encode_to_vec();
        let length = u32::try_from(message.len()).expect("a short message");
        let frame = [&[0], &length.to_be_bytes()[..], &message].concat();
        let _ = frames.send(Ok(Frame::data(frame.into()))).await;
    }

    /// Answers the packets of a stream: addresses that begin with `gone` cannot be reached.
    async fn proxy(mut body: Incoming, frames: Frames, target: SocketAddr, seen: Seen) {
        let mut unread = BytesMut::new();
        let mut far = None;
        while let Some(Ok(frame)) = body.frame().await {
            unread.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            while unread.len() >= 5 && unread.len() >= 5 + (&unread[1..5]).get_u32() as usize {
                let length = (&unread[1..5]).get_u32() as usize;
                unread.advance(5);
                let packet = Packet::decode(unread.split_to(length).freeze()).expect("a packet");
                match packet.payload {
                    Some(Payload::DialRequest(dial)) => {
                        seen.add(format!("{} {}", dial.protocol, dial.address));
                        let mut answer =
                            DialResponse { random: dial.random, ..DialResponse::default() };
                        if dial.address.starts_with("gone") {
                            "no agent available".clone_into(&mut answer.error);
                        } else {
                            answer.connection = CONNECTION;
                            let stream = TcpStream::connect(target).await.expect("it listens");
                            let (reader, writer) = stream.into_split();
                            far = Some(writer);
                            tokio::spawn(back(reader, frames.clone()));
                        }
                        send(&frames, 1, Payload::DialResponse(answer)).await;
                    }
                    Some(Payload::Data(data)) => {
                        let far = far.as_mut().expect("a connection");
                        let _ = far.write_all(&data.data).await;
                    }
                    Some(Payload::CloseRequest(close)) => {
                        seen.add(format!("close {}", close.connection));
                        let connection = close.connection;
                        let answer = CloseResponse { connection, error: String::new() };
                        send(&frames, 3, Payload::CloseResponse(answer)).await;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Sends what the target sends, and its end.
    async fn back(mut reader: tokio::net::tcp::OwnedReadHalf, frames: Frames) {
        let mut buffer = vec![0; 1000];
        while let Ok(bytes @ 1..) = reader.read(&mut buffer).await {
            let data = Bytes::copy_from_slice(&buffer[..bytes]);
            let data = Data { connection: CONNECTION, error: String::new(), data };
            send(&frames, DATA, Payload::Data(data)).await;
        }
        let close = CloseResponse { connection: CONNECTION, error: String::new() };
        send(&frames, 3, Payload::CloseResponse(close)).await;
    }

    fn start(socket: &Path, target: SocketAddr) -> Seen {
        let seen = Seen::default();
        let listener = UnixListener::bind(socket).expect("a socket");
        let told = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let told = told.clone();
                let answers = service_fn(move |request: http::Request<Incoming>| {
                    assert_eq!(request.uri().path(), PROXY);
                    let (frames, mut queue) = mpsc::channel(4);
                    tokio::spawn(proxy(request.into_body(), frames, target, told.clone()));
                    let body = StreamBody::new(poll_fn(move |cx| queue.poll_recv(cx)));
                    let mut answer = http::Response::new(body);
                    let grpc = http::HeaderValue::from_static("application/grpc");
                    answer.headers_mut().insert(http::header::CONTENT_TYPE, grpc);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(http2.serve_connection(TokioIo::new(stream), answers));
            }
        });
        seen
    }

    /// A target that sends back what it gets, and ends the connection after `end`.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut buffer = vec![0; 64 << 10];
                    while let Ok(bytes @ 1..) = stream.read(&mut buffer).await {
                        if &buffer[..bytes] == b"end" {
                            return;
                        }
                        let _ = stream.write_all(&buffer[..bytes]).await;
                    }
                });
            }
        });
        address
    }

    async fn dialed(socket: &Path, address: &str) -> Result<DuplexStream, String> {
        let proxy = connect(&socket.display().to_string()).await?;
        dial(proxy, address, Instant::now() + TIME_MAX).await
    }

    #[tokio::test]
    async fn bytes_pass_in_both_directions_until_a_side_ends() {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("proxy.sock");
        let seen = start(&socket, echo().await);
        let mut stream = dialed(&socket, "node:10250").await.expect("a connection");
        assert!(seen.has("tcp node:10250"));
        // More than fits into any buffer on the way.
        let sent: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let mut received = vec![0; sent.len()];
        let (mut reader, mut writer) = tokio::io::split(&mut stream);
        let written = async { writer.write_all(&sent).await.expect("written") };
        let read = async { reader.read_exact(&mut received).await.expect("read") };
        tokio::join!(written, read);
        assert!(received == sent);
        stream.write_all(b"end").await.expect("written");
        assert_eq!(stream.read(&mut received).await.expect("the end"), 0);
        // The near side ends it.
        let stream = dialed(&socket, "node:10250").await.expect("a connection");
        drop(stream);
        let closed = async {
            while !seen.has("close 7") {
                tokio::task::yield_now().await;
            }
        };
        timeout(TIME_MAX, closed).await.expect("the proxy is told");
    }

    #[tokio::test]
    async fn failures_are_those_of_the_proxy() {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("proxy.sock");
        start(&socket, echo().await);
        let refused = dialed(&socket, "gone:1").await;
        assert_eq!(refused.map(drop), Err("no agent available".to_owned()));
        let absent = dir.path().join("absent.sock");
        let refused = dialed(&absent, "node:1").await.map(drop).expect_err("nobody listens");
        let beginning = format!(
            "connection error: desc = \"transport: Error while dialing: dial unix {}: ",
            absent.display()
        );
        assert!(refused.starts_with(&beginning), "{refused}");
    }

    #[test]
    fn random_numbers_differ_and_are_not_negative() {
        let numbers: Vec<i64> = (0..100).map(|_| random()).collect();
        assert!(numbers.iter().all(|number| *number >= 0));
        let different: std::collections::BTreeSet<_> = numbers.iter().collect();
        assert_eq!(different.len(), 100);
    }
}
