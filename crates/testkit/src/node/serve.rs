//! The routes of a node.

use super::command::{self, CommandIo};
use super::faults::{self, PREFIX};
use super::http::{Connection, Request};
use super::spdy::{self, Stream, StreamSender};
use super::{State, logs, pages, portforward, websocket};
use bytes::{Bytes, BytesMut};
use keelson_streams::channels::{
    Channels, CommandStreams, ERROR, Input, NODE_PROTOCOLS, Protocol, RESIZE, STDERR, STDIN,
    STDOUT, V5,
};
use keelson_streams::handshake::{
    ACCEPTED_STREAM_PROTOCOLS, COMMAND_PROTOCOLS, PORT_FORWARD_PROTOCOL, SPDY, STREAM_PROTOCOL,
    choose_spdy,
};
use keelson_streams::outcome::{Form, Outcome, Writer};
use keelson_streams::resize::ResizeReader;
use std::collections::{HashMap, HashSet};
use std::io;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{self, Receiver};
use tokio_rustls::server::TlsStream;

/// Most pieces that wait in a queue.
const QUEUE_MAX: usize = 4;
/// How long a client may take to open its streams.
const OPENING_TIME_MAX: Duration = Duration::from_secs(30);
/// What attach attaches to.
const MAIN_PROCESS: [&str; 1] = ["cat"];

/// Serves one request.
pub(super) async fn serve(stream: TlsStream<TcpStream>, state: &State) -> io::Result<()> {
    let has_certificate = stream.get_ref().1.peer_certificates().is_some();
    let mut connection = Connection { stream, unread: BytesMut::new() };
    let Some(request) = connection.read_request().await? else { return Ok(()) };
    let options = &state.options;
    if options.client_authority.is_some() && !options.is_open && !has_certificate {
        return connection.respond_error("401 Unauthorized", "Unauthorized").await;
    }
    let fault = request.path.split('/').find_map(|part| part.strip_prefix(PREFIX));
    if let Some(fault) = fault.filter(|fault| *fault != "lost") {
        return faults::misbehave(fault, connection, &request).await;
    }
    let path = request.path.clone();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match parts[..] {
        ["exec" | "attach" | "portForward" | "containerLogs", _, pod, ..]
            if pod.starts_with("missing") =>
        {
            connection.respond_error("404 Not Found", &format!("pod {pod:?} does not exist")).await
        }
        ["exec" | "attach" | "containerLogs", _, pod, container]
            if container.starts_with("missing") =>
        {
            let text = format!("container {container:?} not found in pod {pod:?}");
            connection.respond_error("404 Not Found", &text).await
        }
        ["exec", _, _, container] => {
            let command: Vec<&str> = request.parameters("command").collect();
            let is_lost = container == "fault-lost";
            run(Run { command: &command, is_lost, request: &request, state }, connection).await
        }
        ["attach", _, _, _] => {
            let command = &MAIN_PROCESS;
            run(Run { command, is_lost: false, request: &request, state }, connection).await
        }
        ["portForward", namespace, pod] => {
            forward(connection, &request, &format!("{pod}_{namespace}")).await
        }
        ["containerLogs", namespace, pod, container] => {
            let container = format!("{namespace}/{pod}/{container}");
            state.logs.serve(&mut connection, &request, &container).await
        }
        ["testkit", "log", namespace, pod, container] => {
            let container = format!("{namespace}/{pod}/{container}");
            change_log(connection, &request, &state.logs, &container).await
        }
        _ => pages::serve(&mut connection, &request, state).await,
    }
}

async fn change_log(
    mut connection: Connection,
    request: &Request,
    logs: &logs::Logs,
    container: &str,
) -> io::Result<()> {
    if request.method == "DELETE" {
        logs.end(container);
    } else {
        let body = connection.read_body(request).await?;
        for line in String::from_utf8_lossy(&body).lines() {
            logs.add(container, request.parameter("stream"), line);
        }
    }
    connection.respond("200 OK", &[], b"").await
}

async fn forward(connection: Connection, request: &Request, pod: &str) -> io::Result<()> {
    if request.upgrades_to("websocket") {
        return portforward::over_websocket(connection, request, pod).await;
    }
    match upgrade_to_spdy(connection, request, &[PORT_FORWARD_PROTOCOL]).await? {
        Some((connection, _)) => portforward::over_spdy(connection, pod).await,
        None => Ok(()),
    }
}

/// Answers the handshake of SPDY as a kubelet does. `None`: it was refused.
async fn upgrade_to_spdy(
    mut connection: Connection,
    request: &Request,
    supported: &[&'static str],
) -> io::Result<Option<(Connection, &'static str)>> {
    let requested = request.headers_of(STREAM_PROTOCOL);
    // Go counts names, and keeps Host apart.
    let names: HashSet<String> = request
        .headers
        .iter()
        .map(|(name, _)| name.to_ascii_lowercase())
        .filter(|name| name != "host")
        .collect();
    let protocol = match choose_spdy(&requested, supported, names.len()) {
        Ok(protocol) => protocol,
        Err(refusal) => {
            let accepted = refusal.accepted.iter();
            let headers: Vec<(&str, &str)> =
                accepted.map(|protocol| (ACCEPTED_STREAM_PROTOCOLS, *protocol)).collect();
            let reason = if refusal.code == 403 { "Forbidden" } else { "Bad Request" };
            let status = format!("{} {reason}", refusal.code);
            let body = format!("{}\n", refusal.message);
            connection.respond(&status, &headers, body.as_bytes()).await?;
            return Ok(None);
        }
    };
    if !request.upgrades_to("spdy/3.1") {
        let text = "unable to upgrade: missing upgrade headers in request";
        connection.respond_error("400 Bad Request", text).await?;
        return Ok(None);
    }
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {SPDY}\r\n\
         {STREAM_PROTOCOL}: {protocol}\r\n\r\n"
    );
    connection.stream.write_all(head.as_bytes()).await?;
    connection.stream.flush().await?;
    Ok(Some((connection, protocol)))
}

/// A command that is to be run for a request.
struct Run<'a> {
    command: &'a [&'a str],
    /// The connection is lost while the command runs.
    is_lost: bool,
    request: &'a Request,
    state: &'a State,
}

async fn run(run: Run<'_>, mut connection: Connection) -> io::Result<()> {
    let flag = |name| run.request.parameter(name) == "1";
    let tty = flag("tty");
    let streams = CommandStreams {
        stdin: flag("input"),
        stdout: flag("output"),
        stderr: flag("error") && !tty,
        tty,
    };
    if !streams.stdin && !streams.stdout && !streams.stderr {
        let text = "you must specify at least 1 of stdin, stdout, stderr";
        return connection.respond_error("400 Bad Request", text).await;
    }
    if run.request.upgrades_to("websocket") {
        return over_websocket(run, streams, connection).await;
    }
    let supported = &COMMAND_PROTOCOLS[1..];
    let upgraded = upgrade_to_spdy(connection, run.request, supported).await?;
    let Some((connection, protocol)) = upgraded else { return Ok(()) };
    let (opened, arriving) = mpsc::channel(QUEUE_MAX);
    tokio::select! {
        served = spdy::serve(connection, opened) => served,
        () = over_spdy(&run, streams, protocol, arriving) => Ok(()),
    }
}

/// Runs a command over the streams of a SPDY connection; ends if the connection must be cut.
async fn over_spdy(
    run: &Run<'_>,
    streams: CommandStreams,
    protocol: &str,
    mut arriving: Receiver<Stream>,
) {
    let form = match protocol {
        "v4.channel.k8s.io" => Form::Status,
        _ => Form::Text,
    };
    let can_resize = matches!(protocol, "v4.channel.k8s.io" | "v3.channel.k8s.io");
    let flags = [streams.stdin, streams.stdout, streams.stderr, streams.tty && can_resize];
    let expected = 1 + flags.into_iter().filter(|is_wanted| *is_wanted).count();
    let mut opened: HashMap<String, Stream> = HashMap::new();
    let collecting = async {
        while opened.len() < expected {
            let Some(stream) = arriving.recv().await else { return };
            let name = stream.headers.get("streamType").unwrap_or_default().to_owned();
            opened.insert(name, stream);
        }
    };
    if tokio::time::timeout(OPENING_TIME_MAX, collecting).await.is_err() {
        return;
    }
    let Some(error) = opened.remove("error") else { return };
    let sender = |name| opened.get(name).map(|stream: &Stream| stream.sender.clone());
    let outputs = [(STDOUT, sender("stdout")), (STDERR, sender("stderr"))];
    if run.is_lost {
        if let [(_, Some(stdout)), _] = &outputs {
            let _ = stdout.send("partial\n").await;
        }
        // The reset must not overtake the data.
        tokio::time::sleep(Duration::from_millis(100)).await;
        return;
    }
    let resizing = read_sizes(run.state, opened.remove("resize").map(|stream| stream.data));
    let stdin = opened.remove("stdin").map(|stream| stream.data);
    let (output, pieces) = mpsc::channel(QUEUE_MAX);
    let io = CommandIo { stdin, output, tty: streams.tty };
    let running = command::run(run.command, run.state.options.folder.as_deref(), io);
    let outcome = tokio::select! {
        (outcome, ()) = async { tokio::join!(running, send_output(pieces, &outputs)) } => outcome,
        () = resizing => return,
    };
    end(&outcome, form, &error.sender, &outputs).await;
    // The connection is served until the client closes it.
    std::future::pending().await
}

/// Ends the streams as a kubelet does, and the connection.
async fn end(
    outcome: &Outcome,
    form: Form,
    error: &StreamSender,
    outputs: &[(u8, Option<StreamSender>)],
) {
    for sender in outputs.iter().filter_map(|(_, sender)| sender.as_ref()) {
        let _ = sender.finish().await;
    }
    if let Some(message) = outcome.to_message(form, Writer::Node) {
        let _ = error.send(message).await;
    }
    let _ = error.finish().await;
    let _ = error.close_connection().await;
}

async fn send_output(mut pieces: Receiver<(u8, Bytes)>, outputs: &[(u8, Option<StreamSender>)]) {
    while let Some((channel, data)) = pieces.recv().await {
        let sender = outputs.iter().find(|(number, _)| *number == channel);
        if let Some((_, Some(sender))) = sender {
            let _ = sender.send(data).await;
        }
    }
}

/// Records the sizes that a client sends; never ends.
async fn read_sizes(state: &State, data: Option<Receiver<Bytes>>) {
    let mut reader = ResizeReader::default();
    if let Some(mut data) = data {
        while let Some(piece) = data.recv().await {
            record_size(state, &mut reader, &piece);
        }
    }
    std::future::pending().await
}

fn record_size(state: &State, reader: &mut ResizeReader, piece: &[u8]) {
    const SIZES_MAX: usize = 1_000;
    if let (Some(size), Ok(mut sizes)) = (reader.receive(piece), state.sizes.lock())
        && sizes.len() < SIZES_MAX
    {
        sizes.push((size.width, size.height));
    }
}

async fn over_websocket(
    run: Run<'_>,
    streams: CommandStreams,
    connection: Connection,
) -> io::Result<()> {
    let with_v5 = NODE_PROTOCOLS.into_iter().chain([V5]);
    let supported: Vec<Protocol> =
        with_v5.filter(|protocol| !protocol.has_close || run.state.options.has_v5).collect();
    let names: Vec<&str> = supported.iter().map(|protocol| protocol.name).collect();
    let accepted = websocket::accept(connection, run.request, &names).await?;
    let Some((socket, chosen)) = accepted else { return Ok(()) };
    let protocol =
        supported.into_iter().find(|protocol| protocol.name == chosen).unwrap_or(NODE_PROTOCOLS[0]);
    let channels = Channels::of_command(protocol, streams);
    let (inputs, received) = mpsc::channel(QUEUE_MAX);
    let (outputs, messages) = mpsc::channel(QUEUE_MAX);
    let served = websocket::serve(socket, channels.clone(), inputs, messages);
    let encode = |channel, data: &[u8]| channels.encode(channel, data);
    let running = async {
        if let Some(first) = encode(streams.first_channel(), b"") {
            let _ = outputs.send(first).await;
        }
        let (stdin, stdin_data) = mpsc::channel(QUEUE_MAX);
        let (output, mut pieces) = mpsc::channel(QUEUE_MAX);
        let stdin_data = streams.stdin.then_some(stdin_data);
        let io = CommandIo { stdin: stdin_data, output, tty: streams.tty };
        let command = command::run(run.command, run.state.options.folder.as_deref(), io);
        let sending = async {
            while let Some((channel, data)) = pieces.recv().await {
                if let Some(message) = encode(channel, &data) {
                    let _ = outputs.send(message).await;
                }
            }
        };
        let dispatching = dispatch(run.state, received, stdin);
        let outcome = tokio::select! {
            (outcome, ()) = async { tokio::join!(command, sending) } => outcome,
            () = dispatching => return,
        };
        let writer = if protocol == V5 { Writer::Server } else { Writer::Node };
        let message = outcome.to_message(protocol.errors, writer);
        if let Some(message) = message.and_then(|message| encode(ERROR, message.as_bytes())) {
            let _ = outputs.send(message).await;
        }
        drop(outputs);
    };
    tokio::join!(served, running);
    Ok(())
}

/// Gives a client's inputs to the command; ends when the client has gone.
async fn dispatch(state: &State, mut received: Receiver<Input>, stdin: mpsc::Sender<Bytes>) {
    let mut stdin = Some(stdin);
    let mut sizes = ResizeReader::default();
    while let Some(input) = received.recv().await {
        match input {
            Input::Data { channel: STDIN, data } => {
                if let Some(stdin) = &stdin {
                    let _ = stdin.send(data).await;
                }
            }
            Input::Data { channel: RESIZE, data } => record_size(state, &mut sizes, &data),
            Input::Closed { channel: STDIN } => stdin = None,
            Input::Data { .. } | Input::Closed { .. } => {}
        }
    }
}
