//! What a server passes on: streams to the containers and ports of a node, and requests to a server
//! behind it. Node and server run in this process.

use crate::Bench;
use crate::client::{ApiRequest, Client, MERGE_PATCH, open};
use crate::drive::{CpuTimes, Load, drive};
use crate::histogram::Histogram;
use crate::http1::Stream;
use crate::process::Processes;
use crate::target::{Target, Trust};
use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use keelson_streams::channels::{CLOSE, ERROR, STDIN, STDOUT};
use keelson_streams::spdy::{Event, Headers, Session};
use keelson_testkit::node::{NodeServer, ServerOptions};
use rustls::ServerConfig;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Bytes of a small message.
const MESSAGE_BYTES: usize = 32;
/// Bytes of the messages of a pipe, as client-go sends them.
const PIECE_BYTES: usize = 32 << 10;
/// Idle streams whose memory is measured. Each of the translated ones has a process.
const PASSED_THROUGH: usize = 500;
const TRANSLATED: usize = 100;
/// Timeout until requests are passed on to a new server.
const SERVED_TIME_MAX: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const NODE: &str = "bench-node";
const GROUP: &str = "bench.example";
const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const SOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                      Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                      Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n";

/// The figures of streams.
pub struct StreamFigures {
    /// Round trips of a small message a second, through `cat`.
    pub socket_trips: f64,
    pub spdy_trips: f64,
    /// MB a second that a command reads, and the server's CPU time for one, in milliseconds.
    pub stdin_rate: f64,
    pub stdin_cpu_ms: Option<f64>,
    /// The same of a port.
    pub port_rate: f64,
    pub port_cpu_ms: Option<f64>,
    /// Resident memory of an idle stream, in kB.
    pub passed_through_kb: Option<f64>,
    pub translated_kb: Option<f64>,
}

/// Measures streams to a node.
pub async fn streams(bench: &Bench) -> Result<StreamFigures> {
    let node = NodeServer::start(ServerOptions::default()).context("a node")?;
    let pod = make_pod(bench, &node).await?;
    let exec = |command: &str| format!("{pod}/exec?{command}&stdin=true&stdout=true&container=c");
    let passed_through = memory(bench, bench.run.scaled(PASSED_THROUGH), async || {
        spdy(bench, &format!("{pod}/portforward"), "portforward.k8s.io").await
    });
    let passed_through_kb = passed_through.await?;
    let translated = memory(bench, bench.run.scaled(TRANSLATED), async || {
        let mut socket = socket(bench, &exec("command=cat")).await?;
        socket.echo(&[b'a'; MESSAGE_BYTES]).await?;
        Ok(socket)
    });
    let translated_kb = translated.await?;
    let socket_trips = socket_trips(bench, &exec("command=cat")).await?;
    let spdy_trips = spdy_trips(bench, &exec("command=cat")).await?;
    let (stdin_rate, stdin_cpu_ms) = stdin(bench, &exec("command=wc&command=-c")).await?;
    let (port_rate, port_cpu_ms) = port(bench, &format!("{pod}/portforward")).await?;
    let mut client = Client::connect(&bench.target).await?;
    client.require_success(ApiRequest::delete(format!("/api/v1/nodes/{NODE}"))).await?;
    Ok(StreamFigures {
        socket_trips,
        spdy_trips,
        stdin_rate,
        stdin_cpu_ms,
        port_rate,
        port_cpu_ms,
        passed_through_kb,
        translated_kb,
    })
}

/// Registers the node and creates a pod on it. Returns the path of the pod.
async fn make_pod(bench: &Bench, node: &NodeServer) -> Result<String> {
    let mut client = Client::connect(&bench.target).await?;
    let body = json!({"metadata": {"name": NODE}}).to_string();
    client.require_success(ApiRequest::post("/api/v1/nodes", body)).await?;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": node.address().ip().to_string()}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": node.address().port()}}}});
    let path = format!("/api/v1/nodes/{NODE}/status");
    let patch = ApiRequest::new(Method::PATCH, path, MERGE_PATCH, status.to_string());
    client.require_success(patch).await?;
    // A server without controllers has no service account, which pods may need.
    let account = json!({"metadata": {"name": "default"}}).to_string();
    let accounts = bench.path("/api/v1", "serviceaccounts");
    client.execute(&ApiRequest::post(accounts, account), 0, &mut vec![]).await?;
    let body = json!({"metadata": {"name": "streams"}, "spec": {"nodeName": NODE,
        "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]}});
    client.require_success(ApiRequest::post(bench.pods(), body.to_string())).await?;
    Ok(format!("{}/streams", bench.pods()))
}

/// Opens streams and returns the growth of the server's resident memory for each, in kB.
async fn memory<T>(
    bench: &Bench,
    count: usize,
    open: impl AsyncFn() -> Result<T>,
) -> Result<Option<f64>> {
    // The first one warms up what all share.
    let mut streams = vec![open().await?];
    tokio::time::sleep(bench.settle_time()).await;
    let before = bench.sample(Processes::memory)?;
    for _ in 0..count {
        streams.push(open().await?);
    }
    tokio::time::sleep(bench.settle_time()).await;
    let after = bench.sample(Processes::memory)?;
    Ok(after.zip(before).map(|(after, before)| (after.rss - before.rss) * 1e3 / count as f64))
}

type Wire = BufReader<Box<dyn Stream>>;

/// Sends a request to upgrade, and reads the response 101.
async fn upgrade(bench: &Bench, method: &str, path: &str, headers: &str) -> Result<Wire> {
    let mut wire = BufReader::new(open(&bench.target).await?);
    let mut head = format!("{method} {path} HTTP/1.1\r\n{headers}").into_bytes();
    head.extend_from_slice(&bench.target.headers());
    head.extend_from_slice(b"\r\n");
    wire.write_all(&head).await?;
    wire.flush().await?;
    let mut first = String::new();
    wire.read_line(&mut first).await?;
    ensure!(first.starts_with("HTTP/1.1 101 "), "an upgrade of {path}: {first}");
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        ensure!(wire.read_line(&mut line).await? > 0, "an upgrade of {path} ends in its head");
    }
    Ok(wire)
}

/// A WebSocket with the channels of a command.
struct Socket(Wire);

async fn socket(bench: &Bench, path: &str) -> Result<Socket> {
    Ok(Socket(upgrade(bench, "GET", path, SOCKET).await?))
}

impl Socket {
    /// Sends a message on a channel. The mask is 0, which changes nothing.
    async fn send(&mut self, channel: u8, data: &[u8]) -> Result<()> {
        let length = u16::try_from(data.len() + 1).context("a short message")?;
        let mut frame = vec![0x82];
        match length {
            0..126 => frame.push(0x80 | length as u8),
            long => {
                frame.push(0x80 | 126);
                frame.extend_from_slice(&long.to_be_bytes());
            }
        }
        frame.extend_from_slice(&[0, 0, 0, 0, channel]);
        frame.extend_from_slice(data);
        self.0.write_all(&frame).await?;
        Ok(self.0.flush().await?)
    }

    /// Reads the next frame of data: its channel and its payload.
    async fn receive(&mut self) -> Result<(u8, Vec<u8>)> {
        loop {
            let [kind, length] = [self.0.read_u8().await?, self.0.read_u8().await?];
            let length = match length {
                126 => usize::from(self.0.read_u16().await?),
                127 => usize::try_from(self.0.read_u64().await?)?,
                short => usize::from(short),
            };
            ensure!(length <= 1 << 20, "a frame of {length} bytes");
            let mut payload = vec![0; length];
            self.0.read_exact(&mut payload).await?;
            match (kind & 0x0f, payload.split_first()) {
                (1 | 2, Some((channel, data))) => return Ok((*channel, data.to_vec())),
                (8, _) => bail!("the stream was closed: {}", String::from_utf8_lossy(&payload)),
                _ => {}
            }
        }
    }

    /// Sends a message to a command that sends it back.
    async fn echo(&mut self, message: &[u8]) -> Result<()> {
        self.send(STDIN, message).await?;
        let mut missing = message.len();
        while missing > 0 {
            match self.receive().await? {
                (STDOUT, data) => missing = missing.saturating_sub(data.len()),
                (ERROR, status) => bail!("{}", String::from_utf8_lossy(&status)),
                _ => {}
            }
        }
        Ok(())
    }
}

async fn socket_trips(bench: &Bench, path: &str) -> Result<f64> {
    let mut socket = socket(bench, path).await?;
    let message = [b'a'; MESSAGE_BYTES];
    socket.echo(&message).await?;
    let began = Instant::now();
    let mut trips = 0;
    while began.elapsed() < bench.duration() {
        socket.echo(&message).await?;
        trips += 1;
    }
    Ok(f64::from(trips) / began.elapsed().as_secs_f64())
}

/// A SPDY connection.
struct Spdy {
    wire: Wire,
    session: Session,
    input: Bytes,
}

async fn spdy(bench: &Bench, path: &str, protocol: &str) -> Result<Spdy> {
    let headers = format!(
        "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {protocol}\r\n\
         Content-Length: 0\r\n"
    );
    let wire = upgrade(bench, "POST", path, &headers).await?;
    Ok(Spdy { wire, session: Session::client(), input: Bytes::new() })
}

impl Spdy {
    /// Opens a stream and waits until it is accepted.
    async fn open<const COUNT: usize>(&mut self, headers: [(&str, &str); COUNT]) -> Result<u32> {
        let headers = Headers::from(headers);
        let opened = self.session.open(&headers)?;
        self.flush().await?;
        loop {
            match self.receive().await? {
                Event::Replied { stream } if stream == opened => return Ok(opened),
                Event::Reset { stream, .. } if stream == opened => bail!("a stream is refused"),
                _ => {}
            }
        }
    }

    async fn send(&mut self, stream: u32, data: &[u8]) -> Result<()> {
        self.session.send(stream, data)?;
        self.flush().await
    }

    async fn flush(&mut self) -> Result<()> {
        let output = self.session.take_output();
        self.wire.write_all(&output).await?;
        Ok(self.wire.flush().await?)
    }

    async fn receive(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.session.receive(&mut self.input)? {
                return Ok(event);
            }
            self.flush().await?;
            let mut buffer = vec![0; PIECE_BYTES];
            let count = self.wire.read(&mut buffer).await?;
            ensure!(count > 0, "the connection ended");
            buffer.truncate(count);
            self.input = Bytes::from(buffer);
        }
    }
}

async fn spdy_trips(bench: &Bench, path: &str) -> Result<f64> {
    let mut spdy = spdy(bench, path, "v4.channel.k8s.io").await?;
    // The node accepts streams only when it has all of them.
    let mut ids = vec![];
    for name in ["error", "stdin", "stdout"] {
        ids.push(spdy.session.open(&Headers::from([("streamtype", name)]))?);
    }
    let [_, stdin, stdout] = ids[..] else { bail!("three streams") };
    let message = [b'a'; MESSAGE_BYTES];
    let began = Instant::now();
    let mut trips = 0;
    while began.elapsed() < bench.duration() {
        spdy.send(stdin, &message).await?;
        let mut missing = message.len();
        while missing > 0 {
            match spdy.receive().await? {
                Event::Data { stream, data } if stream == stdout => {
                    missing = missing.saturating_sub(data.len());
                }
                Event::Finished { .. } | Event::Reset { .. } => bail!("the command has ended"),
                _ => {}
            }
        }
        trips += 1;
    }
    Ok(f64::from(trips) / began.elapsed().as_secs_f64())
}

/// Bytes that were passed on.
struct Passed {
    bytes: usize,
    began: Instant,
    cpu: CpuTimes,
}

impl Passed {
    fn begin(bench: &Bench) -> Result<Passed> {
        Ok(Passed { bytes: 0, began: Instant::now(), cpu: CpuTimes::now(bench)? })
    }

    /// Returns the MB a second, and the server's CPU time for each in milliseconds.
    fn end(&self, bench: &Bench) -> Result<(f64, Option<f64>)> {
        let seconds = self.began.elapsed().as_secs_f64();
        let megabytes = self.bytes as f64 / 1e6;
        let (server, _) = self.cpu.since(bench)?;
        let each = server.map(|time| time.as_secs_f64() * 1e3 / megabytes);
        Ok((megabytes / seconds, each))
    }
}

/// Sends bytes to a command that counts them.
async fn stdin(bench: &Bench, path: &str) -> Result<(f64, Option<f64>)> {
    let mut socket = socket(bench, path).await?;
    let piece = [b'a'; PIECE_BYTES];
    let mut passed = Passed::begin(bench)?;
    while passed.began.elapsed() < bench.duration() {
        socket.send(STDIN, &piece).await?;
        passed.bytes += piece.len();
    }
    socket.send(CLOSE, &[STDIN]).await?;
    let mut counted = vec![];
    loop {
        match socket.receive().await? {
            (STDOUT, data) => counted.extend(data),
            (ERROR, _) => break,
            _ => {}
        }
    }
    let counted: usize = String::from_utf8(counted)?.trim().parse().context("a count")?;
    ensure!(counted == passed.bytes, "{counted} of {} bytes arrived", passed.bytes);
    passed.end(bench)
}

/// Sends bytes to a port whose server says how many have come.
async fn port(bench: &Bench, path: &str) -> Result<(f64, Option<f64>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port().to_string();
    let counting = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        let count = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
        stream.write_all(count.to_string().as_bytes()).await?;
        stream.shutdown().await
    });
    let mut spdy = spdy(bench, path, "portforward.k8s.io").await?;
    let stream = |kind| [("streamtype", kind), ("port", port.as_str()), ("requestid", "0")];
    spdy.open(stream("error")).await?;
    let data = spdy.open(stream("data")).await?;
    let piece = [b'a'; PIECE_BYTES];
    let mut passed = Passed::begin(bench)?;
    while passed.began.elapsed() < bench.duration() {
        spdy.send(data, &piece).await?;
        passed.bytes += piece.len();
    }
    spdy.session.finish(data)?;
    spdy.flush().await?;
    let mut counted = vec![];
    loop {
        match spdy.receive().await? {
            Event::Data { stream, data: more } if stream == data => counted.extend(more),
            Event::Finished { stream } | Event::Reset { stream, .. } if stream == data => break,
            _ => {}
        }
    }
    let counted: usize = String::from_utf8(counted)?.trim().parse().context("a count")?;
    ensure!(counted == passed.bytes, "{counted} of {} bytes arrived", passed.bytes);
    counting.await??;
    passed.end(bench)
}

/// The figures of requests that are passed on.
pub struct BehindFigures {
    /// Gets by several connections.
    pub load: Load,
    /// By how many milliseconds the median get of a single connection takes longer than one of the
    /// server behind itself.
    pub added_ms: f64,
}

/// Measures requests that are passed on to a server behind.
pub async fn behind(bench: &Bench, workers: usize) -> Result<BehindFigures> {
    let behind = Behind::start().await?;
    behind.register(bench).await?;
    let path = format!("/apis/{GROUP}/v1/things/a");
    let get = || {
        let path = path.clone();
        move |_: usize, _: u64, _: &[u8]| Some(ApiRequest::get(&path))
    };
    let url = format!("https://127.0.0.1:{}", behind.port);
    let direct = Target::new(&url, &Trust::AnyCertificate, None, None, false)?;
    // Both in turn, so that noise of the machine affects both.
    let mut latencies = [Histogram::default(), Histogram::default()];
    const ROUNDS: u32 = 4;
    for _ in 0..ROUNDS {
        let there = bench.with(direct.clone());
        for (latency, bench) in latencies.iter_mut().zip([bench, &there]) {
            let load = drive(bench, 1, bench.duration() / ROUNDS, get()).await?;
            ensure!(load.errors.total() == 0, "{:?}", load.errors);
            latency.merge(&load.latency);
        }
    }
    let [through, direct] = latencies.map(|latency| latency.quantile(0.5));
    let load = drive(bench, workers, bench.duration(), get()).await?;
    let mut client = Client::connect(&bench.target).await?;
    client.require_success(ApiRequest::delete(format!("{SERVICES}/v1.{GROUP}"))).await?;
    Ok(BehindFigures { load, added_ms: through - direct })
}

/// A server that answers all requests with the same object.
struct Behind {
    port: u16,
    certificate: String,
}

impl Behind {
    async fn start() -> Result<Behind> {
        let names = ["behind.default.svc".to_owned(), "127.0.0.1".to_owned()];
        let own = rcgen::generate_simple_self_signed(names)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], own.signing_key.into())?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                // An error also fails the request to the server.
                tokio::spawn(async move {
                    stream.set_nodelay(true)?;
                    let stream = TokioIo::new(acceptor.accept(stream).await?);
                    let answer = service_fn(|request| std::future::ready(answer(&request)));
                    http1::Builder::new().serve_connection(stream, answer).await?;
                    Ok::<_, anyhow::Error>(())
                });
            }
        });
        Ok(Behind { port, certificate: own.cert.pem() })
    }

    /// Registers the server, and waits until requests are passed on to it.
    async fn register(&self, bench: &Bench) -> Result<()> {
        let mut client = Client::connect(&bench.target).await?;
        let service = json!({"metadata": {"name": "behind"}, "spec": {
            "type": "ExternalName", "externalName": "localhost"}});
        let services = "/api/v1/namespaces/default/services";
        client.execute(&ApiRequest::post(services, service.to_string()), 0, &mut vec![]).await?;
        let api = json!({"metadata": {"name": format!("v1.{GROUP}")}, "spec": {
            "group": GROUP, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
            "caBundle": STANDARD.encode(&self.certificate),
            "service": {"name": "behind", "namespace": "default", "port": self.port}}});
        client.require_success(ApiRequest::post(SERVICES, api.to_string())).await?;
        let get = ApiRequest::get(format!("/apis/{GROUP}/v1/things/a"));
        let began = Instant::now();
        while client.execute(&get, 0, &mut vec![]).await?.0 != 200 {
            ensure!(began.elapsed() < SERVED_TIME_MAX, "requests are not passed on");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

fn answer(request: &Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = match request.uri().path() {
        path if path.ends_with("/v1") => json!({"kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": format!("{GROUP}/v1"), "resources": []}),
        _ => json!({"kind": "Thing", "apiVersion": format!("{GROUP}/v1"),
            "metadata": {"name": "a"}, "spec": {"payload": "x".repeat(1024)}}),
    };
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    Ok(response)
}
