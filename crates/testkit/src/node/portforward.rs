//! Forwards ports of this machine.

use super::http::{Connection, Request};
use super::spdy::{self, Stream, StreamSender};
use super::websocket;
use bytes::{Bytes, BytesMut};
use keelson_streams::channels::{Channels, Encoding, Input, Message};
use keelson_streams::portforward::{PairError, Pairs, port_message, ports_of_query};
use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Most bytes that are read of a port at once.
const READ_BYTES_MAX: usize = 32 << 10;
/// Most messages that wait for a WebSocket, and pieces of data for a port.
const QUEUE_MAX: usize = 4;
/// The protocols over WebSocket; the first one is that of clients which ask for none.
const PROTOCOLS: [(&str, Encoding); 3] = [
    ("", Encoding::Binary),
    ("v4.channel.k8s.io", Encoding::Binary),
    ("v4.base64.channel.k8s.io", Encoding::Base64),
];

/// Serves an upgraded SPDY connection.
pub(super) async fn over_spdy(connection: Connection, pod: &str) -> io::Result<()> {
    let (opened, mut streams) = mpsc::channel(QUEUE_MAX);
    let pairing = async {
        let mut pairs = Pairs::default();
        let mut waiting: HashMap<u32, Stream> = HashMap::new();
        loop {
            let deadline = pairs.next_deadline();
            let late = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                stream = streams.recv() => {
                    let Some(stream) = stream else { return };
                    add(stream, &mut pairs, &mut waiting, pod).await;
                }
                () = late => {
                    for unpaired in pairs.expire(Instant::now()) {
                        if let Some(stream) = waiting.remove(&unpaired.stream)
                            && unpaired.is_error
                        {
                            let _ = stream.sender.send(unpaired.message).await;
                        }
                    }
                }
            }
        }
    };
    tokio::select! {
        served = spdy::serve(connection, opened) => served,
        () = pairing => Ok(()),
    }
}

/// Adds a stream; starts to forward when its counterpart is there.
async fn add(stream: Stream, pairs: &mut Pairs, waiting: &mut HashMap<u32, Stream>, pod: &str) {
    match pairs.add(stream.id, &stream.headers, Instant::now()) {
        Ok(None) => drop(waiting.insert(stream.id, stream)),
        Ok(Some(pair)) => {
            let other = if stream.id == pair.data { pair.error } else { pair.data };
            let Some(other) = waiting.remove(&other) else { return };
            let (data, error) = match stream.id == pair.data {
                true => (stream, other.sender),
                false => (other, stream.sender),
            };
            let pod = pod.to_owned();
            tokio::spawn(async move { forward_streams(pair.port, data, error, &pod).await });
        }
        Err(PairError::Headers(_)) => drop(stream.sender.reset().await),
        Err(PairError::Duplicate { error, message }) => {
            if let Some(error) = error.and_then(|error| waiting.get(&error)) {
                let _ = error.sender.send(message).await;
            }
        }
    }
}

/// Forwards one connection. Both streams end with it.
async fn forward_streams(port: u16, data: Stream, error: StreamSender, pod: &str) {
    let to = Destination::Stream(data.sender.clone());
    if let Err(failure) = forward(port, data.data, &to).await {
        let _ = error.send(error_text(port, pod, &failure)).await;
        let _ = data.sender.reset().await;
        let _ = error.reset().await;
        return;
    }
    let _ = data.sender.finish().await;
    let _ = error.finish().await;
}

/// Where the data of a port goes.
enum Destination {
    Stream(StreamSender),
    Channel(ChannelSender),
}

/// Copies in both directions until the port has ended. What the client still sends then goes
/// nowhere.
async fn forward(port: u16, data: Receiver<Bytes>, to: &Destination) -> io::Result<()> {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let (reading, writing) = socket.into_split();
    let input = async {
        let _ = copy_to_port(data, writing).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        copied = copy_from_port(reading, to) => copied,
        () = input => Ok(()),
    }
}

fn error_text(port: u16, pod: &str, failure: &io::Error) -> String {
    format!("error forwarding port {port} to pod {pod}, uid : {failure}")
}

/// Copies until the client has finished; then the port sees the end of the input.
async fn copy_to_port(mut from: Receiver<Bytes>, mut to: OwnedWriteHalf) -> io::Result<()> {
    while let Some(data) = from.recv().await {
        to.write_all(&data).await?;
    }
    to.shutdown().await
}

async fn copy_from_port(mut from: OwnedReadHalf, to: &Destination) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(READ_BYTES_MAX);
        if from.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        let data = buffer.split().freeze();
        let sent = match to {
            Destination::Stream(sender) => sender.send(data).await,
            Destination::Channel(sender) => sender.send(sender.channel, &data).await,
        };
        // The client has gone.
        if sent.is_err() {
            return Ok(());
        }
    }
}

/// Serves a WebSocket.
pub(super) async fn over_websocket(
    mut connection: Connection,
    request: &Request,
    pod: &str,
) -> io::Result<()> {
    let ports = match ports_of_query(request.parameters("port")) {
        Ok(ports) => ports,
        Err(text) => return connection.respond_error("400 Bad Request", &text).await,
    };
    let names = PROTOCOLS.map(|(name, _)| name);
    let accepted = websocket::accept(connection, request, &names).await?;
    let Some((socket, protocol)) = accepted else { return Ok(()) };
    let found = PROTOCOLS.iter().find(|(name, _)| *name == protocol);
    let encoding = found.map_or(Encoding::Binary, |(_, encoding)| *encoding);
    let channels = Channels::of_ports(encoding, ports.len());
    let (inputs, received) = mpsc::channel(QUEUE_MAX);
    let (outputs, messages) = mpsc::channel(QUEUE_MAX);
    let served = websocket::serve(socket, channels.clone(), inputs, messages);
    let forwarding = forward_channels(&ports, &channels, received, outputs, pod);
    tokio::join!(served, forwarding);
    Ok(())
}

/// Forwards all ports until each has ended.
async fn forward_channels(
    ports: &[u16],
    channels: &Channels,
    mut received: Receiver<Input>,
    outputs: Sender<Message>,
    pod: &str,
) {
    let mut queues = vec![];
    let mut tasks = vec![];
    for (place, port) in ports.iter().copied().enumerate() {
        let channel = place as u8 * 2;
        for channel in [channel, channel + 1] {
            let message = channels.encode(channel, &port_message(port));
            let _ = outputs.send(message.expect("the channel exists")).await;
        }
        let (queue, data) = mpsc::channel(QUEUE_MAX);
        queues.push(queue);
        let sender =
            ChannelSender { channel, channels: channels.clone(), outputs: outputs.clone() };
        let pod = pod.to_owned();
        tasks.push(tokio::spawn(async move { forward_channel(port, data, sender, &pod).await }));
    }
    drop(outputs);
    // Ends when the client has gone; the ports then see the end of their input.
    let dispatching = async {
        while let Some(input) = received.recv().await {
            if let Input::Data { channel, data } = input
                && let Some(queue) = queues.get(usize::from(channel / 2))
            {
                let _ = queue.send(data).await;
            }
        }
        drop(queues);
    };
    let finished = async {
        for task in tasks {
            let _ = task.await;
        }
    };
    tokio::select! {
        () = finished => {}
        () = dispatching => {}
    }
}

/// Sends on the two channels of a port.
#[derive(Clone)]
struct ChannelSender {
    channel: u8,
    channels: Channels,
    outputs: Sender<Message>,
}

impl ChannelSender {
    async fn send(&self, channel: u8, data: &[u8]) -> io::Result<()> {
        let message = self.channels.encode(channel, data).ok_or(io::ErrorKind::NotFound)?;
        let sent = self.outputs.send(message).await;
        sent.map_err(|_| io::ErrorKind::ConnectionReset.into())
    }
}

async fn forward_channel(port: u16, data: Receiver<Bytes>, sender: ChannelSender, pod: &str) {
    let to = Destination::Channel(sender.clone());
    if let Err(failure) = forward(port, data, &to).await {
        let text = error_text(port, pod, &failure);
        let _ = sender.send(sender.channel + 1, text.as_bytes()).await;
    }
}
