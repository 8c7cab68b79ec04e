//! Moves the bytes of a translated stream: a WebSocket towards the client, a raw connection towards
//! the kubelet. What they mean is decided by [`keelson_streams`].

use crate::peer::shutdown_requested;
use crate::throttle::Throttled;
use crate::websocket;
use bytes::{Buf, Bytes};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper_util::rt::TokioIo;
use keelson_egress::Upgraded;
use keelson_streams::channels::CommandStreams;
use keelson_streams::translate::{OPENING_TIME_MAX, PING_PERIOD, Translator};
use std::future::poll_fn;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, interval, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Message;

/// A connection of a client that has left HTTP.
type Near = TokioIo<hyper::upgrade::Upgraded>;
type Socket = WebSocketStream<Near>;

/// Most bytes of a message of a client (client-go sends 32 KiB and one byte).
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// How many bytes are read from a kubelet at once.
const READ_BYTES: usize = 32 << 10;
/// How long a connection may be idle.
const IDLE_TIME_MAX: Duration = Duration::from_secs(4 * 3600);
/// How long the last messages to a client may take.
const LAST_WRITE_TIME_MAX: Duration = Duration::from_secs(10);

/// Translates a client that speaks v5 of the channel protocol towards a kubelet that speaks SPDY.
pub(crate) async fn run(
    near: Near,
    streams: CommandStreams,
    far: impl Future<Output = Result<(Throttled<Upgraded>, String), String>>,
    mut shutdown: watch::Receiver<bool>,
) {
    let (sink, source) = websocket::socket(near, MESSAGE_BYTES_MAX).await.split();
    let mut pump = Pump {
        translator: Translator::new(streams),
        sink,
        source,
        held: None,
        is_unflushed: false,
    };
    let ended = tokio::select! {
        ended = pump.run(far) => ended,
        () = shutdown_requested(&mut shutdown) => Ok(()),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "translated stream ended");
    }
    let close = pump.close();
    if timeout(LAST_WRITE_TIME_MAX, close).await.is_err() {
        tracing::debug!("the client of a translated stream does not read its end");
    }
}

/// The client's side of a translated stream.
struct Pump {
    translator: Translator,
    sink: SplitSink<Socket, Message>,
    source: SplitStream<Socket>,
    /// The next message for the client.
    held: Option<Vec<u8>>,
    is_unflushed: bool,
}

/// The kubelet's side.
struct FarPump {
    reader: ReadHalf<Throttled<Upgraded>>,
    writer: WriteHalf<Throttled<Upgraded>>,
    /// What is not written yet.
    output: Bytes,
    is_unflushed: bool,
}

impl Pump {
    /// Runs until the command has ended, or a side is lost.
    async fn run(
        &mut self,
        far: impl Future<Output = Result<(Throttled<Upgraded>, String), String>>,
    ) -> io::Result<()> {
        self.greet().await?;
        let mut far = match far.await {
            Ok((far, protocol)) => {
                self.translator.connected(&protocol);
                let (reader, writer) = tokio::io::split(far);
                FarPump { reader, writer, output: Bytes::new(), is_unflushed: false }
            }
            Err(why) => {
                self.translator.failed(why);
                return Ok(());
            }
        };
        let opening_ends = Instant::now() + OPENING_TIME_MAX;
        let mut pings = interval(PING_PERIOD);
        let mut last_moved = Instant::now();
        let mut buffer = vec![0; READ_BYTES];
        while !self.translator.is_done() {
            self.take(&mut far);
            let has_message = self.held.is_some();
            let has_output = !far.output.is_empty();
            let translator = &mut self.translator;
            let mut moved = true;
            tokio::select! {
                ready = near_ready(&mut self.sink, has_message),
                    if has_message || self.is_unflushed =>
                {
                    ready.map_err(io::Error::other)?;
                    if let Some(message) = self.held.take() {
                        let message = Message::binary(message);
                        self.sink.start_send_unpin(message).map_err(io::Error::other)?;
                    }
                    self.is_unflushed = has_message;
                }
                message = self.source.next(), if translator.may_read_client() || !has_output => {
                    receive(translator, message)?;
                }
                written = write_far(&mut far.writer, &far.output), if has_output || far.is_unflushed => {
                    match written {
                        Ok(bytes) => far.output.advance(bytes),
                        // The kubelet reads no more; what it has sent is read to its end.
                        Err(_) => far.output.clear(),
                    }
                    far.is_unflushed = has_output;
                }
                read = far.reader.read(&mut buffer), if translator.may_read_node() => match read {
                    Ok(0) | Err(_) => translator.node_gone(),
                    Ok(bytes) => translator.receive_node(Bytes::copy_from_slice(&buffer[..bytes])),
                },
                _ = pings.tick() => {
                    moved = false;
                    translator.ping_node();
                }
                () = sleep_until(opening_ends), if translator.is_opening() => {
                    translator.opening_timed_out();
                }
                () = sleep_until(last_moved + IDLE_TIME_MAX) => return Ok(()),
            }
            if moved {
                last_moved = Instant::now();
            }
        }
        self.take(&mut far);
        let _ = timeout(LAST_WRITE_TIME_MAX, far.writer.write_all(&far.output)).await;
        let _ = timeout(LAST_WRITE_TIME_MAX, far.writer.shutdown()).await;
        Ok(())
    }

    /// Tells the client that the connection works, before the kubelet is reached.
    async fn greet(&mut self) -> io::Result<()> {
        while let Some(message) = self.translator.next_message() {
            self.sink.feed(Message::binary(message)).await.map_err(io::Error::other)?;
        }
        self.sink.flush().await.map_err(io::Error::other)
    }

    /// Takes what the translator has for both sides.
    fn take(&mut self, far: &mut FarPump) {
        if self.held.is_none() {
            self.held = self.translator.next_message();
        }
        if far.output.is_empty() {
            far.output = self.translator.take_node_output();
        }
    }

    /// Sends what is left, and the end.
    async fn close(&mut self) {
        let mut next = self.held.take().or_else(|| self.translator.next_message());
        while let Some(message) = next {
            if self.sink.feed(Message::binary(message)).await.is_err() {
                return;
            }
            next = self.translator.next_message();
        }
        if self.sink.send(websocket::normal_close()).await.is_ok() {
            // The client answers with its own close frame.
            while let Some(Ok(_)) = self.source.next().await {}
        }
    }
}

/// Waits until a message may be sent, or else until all of them are on their way.
async fn near_ready(
    sink: &mut SplitSink<Socket, Message>,
    has_message: bool,
) -> Result<(), tokio_tungstenite::tungstenite::Error> {
    match has_message {
        true => poll_fn(|cx| sink.poll_ready_unpin(cx)).await,
        false => sink.flush().await,
    }
}

/// Writes a part of the output and returns its length, or else flushes what was written.
async fn write_far(
    writer: &mut WriteHalf<Throttled<Upgraded>>,
    output: &[u8],
) -> io::Result<usize> {
    match output {
        [] => writer.flush().await.map(|()| 0),
        output => writer.write(output).await,
    }
}

type Received = Option<Result<Message, tokio_tungstenite::tungstenite::Error>>;

/// Passes a message of the client on.
fn receive(translator: &mut Translator, message: Received) -> io::Result<()> {
    match message {
        Some(Ok(Message::Binary(data))) => {
            translator.receive_client(data).map_err(|error| io::Error::other(error.to_string()))
        }
        // As upstream: what a message carries counts, not its kind.
        Some(Ok(Message::Text(text))) => translator
            .receive_client(text.into())
            .map_err(|error| io::Error::other(error.to_string())),
        // The library answers pings, and a close with a close.
        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Ok(()),
        Some(Ok(Message::Close(_))) | None => {
            translator.client_gone();
            Ok(())
        }
        Some(Err(error)) => {
            translator.client_gone();
            Err(io::Error::other(error))
        }
    }
}

/// Passes a SPDY connection on that a client tunnels through a WebSocket: each binary message is a
/// piece of it.
pub(crate) async fn run_tunnel(
    near: Near,
    far: impl AsyncRead + AsyncWrite,
    mut shutdown: watch::Receiver<bool>,
) {
    let (mut sink, mut source) = websocket::socket(near, MESSAGE_BYTES_MAX).await.split();
    let (mut reader, mut writer) = tokio::io::split(far);
    let to_far = async {
        while let Some(message) = source.next().await {
            match message.map_err(io::Error::other)? {
                Message::Binary(data) => {
                    writer.write_all(&data).await?;
                    writer.flush().await?;
                }
                Message::Text(_) => return Err(io::Error::other("the client sent a text message")),
                Message::Close(_) => break,
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
        Ok(())
    };
    let to_near = async {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match reader.read(&mut buffer).await? {
                0 => break,
                bytes => {
                    let message = Message::binary(Bytes::copy_from_slice(&buffer[..bytes]));
                    sink.send(message).await.map_err(io::Error::other)?;
                }
            }
        }
        sink.send(websocket::normal_close()).await.map_err(io::Error::other)
    };
    let ended: Option<io::Result<()>> = tokio::select! {
        ended = to_far => Some(ended),
        ended = to_near => Some(ended),
        () = shutdown_requested(&mut shutdown) => None,
    };
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%error, "tunnelled connection ended"),
        None => {
            let _ = timeout(LAST_WRITE_TIME_MAX, sink.send(websocket::normal_close())).await;
        }
    }
    let _ = timeout(LAST_WRITE_TIME_MAX, writer.shutdown()).await;
}
