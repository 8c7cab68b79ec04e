//! Recorded answers to requests that upgrade a connection, and to those that are passed on to
//! nodes.
//!
//! A recording is a file of JSON lines, one a case: `name`, `method`, `path`, `headers`, and the
//! `answer`. `{"send": [...]}` are messages that are sent on a WebSocket after its first message:
//! binary ones in base64, or `{"text": "..."}`. The objects that the paths name are created by
//! [`prepare`], in the namespace `default`:
//!
//! | object | what it is |
//! |---|---|
//! | node `node` | the fake node |
//! | node `away` | a node at a port where nobody listens |
//! | node `nowhere` | a node without addresses |
//! | pod `one` | on `node`, with the container `main` |
//! | pod `two` | on `node`, with the containers `main`, `side` and `fault-*` |
//! | pod `missing` | on `node`, which does not have it |
//! | pods `unassigned`, `far`, `lost` | on no node, on `away`, on `nowhere` |
//! | pods `fault-*` | on `node`, for port-forward |
//!
//! Cases that kube-apiserver answers differently from run to run are left out, for example a node
//! that closes the connection while its streams are opened.
//!
//! An answer has a `status` (null: none in [`ANSWER_TIME_MAX`]), `headers` in a normal form, and a
//! `body`, or `messages` and a `close` code.

pub mod generated;

use crate::api::Api;
use crate::node::faults::FAULTS;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use futures_util::{SinkExt, StreamExt};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

/// How long an answer, or its next part, may take.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// Most bytes of a body that are recorded; the rest is not read.
const BODY_BYTES_MAX: usize = 16 << 10;
/// Headers that are different in each answer, or that say nothing about the request.
const DROPPED_HEADERS: [&str; 4] = [
    "date",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
    "sec-websocket-accept",
];
/// Headers of every answer of the server but those that switch protocols, which have neither.
const HEADERS_OF_ANSWERS: [&str; 2] = ["audit-id", "cache-control"];
/// What stands for the port of the node in recordings.
const NODE_PORT: &str = "NODEPORT";
/// What stands for the address of the node.
const NODE_ADDRESS: &str = "NODEADDRESS";

/// The servers of a recording.
#[derive(Clone, Debug)]
pub struct Servers {
    /// The API server.
    pub api: SocketAddr,
    /// The token of an administrator.
    pub token: String,
    /// The fake node.
    pub node: SocketAddr,
}

/// Creates the objects that the cases need.
pub fn prepare(api: &Api, node: SocketAddr) -> io::Result<()> {
    let ip = node.ip().to_string();
    let nodes = [
        ("node", json!([{"type": "InternalIP", "address": ip}]), node.port()),
        ("away", json!([{"type": "InternalIP", "address": ip}]), 1),
        ("nowhere", json!([]), 1),
    ];
    for (name, addresses, port) in nodes {
        let path = "/api/v1/nodes";
        create(api, path, &json!({"metadata": {"name": name}}))?;
        let status = json!({"addresses": addresses,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}});
        patch_status(api, &format!("{path}/{name}"), &status)?;
    }
    let faults = || FAULTS.iter().flat_map(|(name, _)| fault_names(name));
    let mut of_two = vec!["main".to_owned(), "side".to_owned(), "missing".to_owned()];
    of_two.extend(faults());
    let main = vec!["main".to_owned()];
    let mut pods = vec![
        ("one".to_owned(), Some("node"), main.clone()),
        ("two".to_owned(), Some("node"), of_two),
        ("missing".to_owned(), Some("node"), main.clone()),
        ("unassigned".to_owned(), None, main.clone()),
        ("far".to_owned(), Some("away"), main.clone()),
        ("lost".to_owned(), Some("nowhere"), main.clone()),
    ];
    pods.extend(faults().map(|name| (name, Some("node"), main.clone())));
    for (name, node, containers) in pods {
        let containers: Vec<Value> =
            containers.iter().map(|name| json!({"name": name, "image": "x"})).collect();
        let mut spec = json!({"containers": containers, "automountServiceAccountToken": false,
            "tolerations": [{"operator": "Exists"}]});
        if let Some(node) = node {
            spec["nodeName"] = node.into();
        }
        let path = "/api/v1/namespaces/default/pods";
        create(api, path, &json!({"metadata": {"name": name}, "spec": spec}))?;
        let status = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]});
        patch_status(api, &format!("{path}/{name}"), &status)?;
    }
    Ok(())
}

/// Returns the names of containers and pods that stand for a fault.
fn fault_names(fault: &str) -> Vec<String> {
    const CODES: [u16; 9] = [200, 204, 301, 302, 307, 400, 403, 404, 500];
    match fault.strip_suffix("NNN") {
        Some(kind) => CODES.iter().map(|code| format!("fault-{kind}{code}")).collect(),
        None => vec![format!("fault-{fault}")],
    }
}

fn create(api: &Api, path: &str, object: &Value) -> io::Result<()> {
    let response = api.post(path, object)?;
    match response.code {
        200..300 | 409 => Ok(()),
        code => Err(io::Error::other(format!("{path}: {code}: {}", response.body))),
    }
}

fn patch_status(api: &Api, path: &str, status: &Value) -> io::Result<()> {
    let response = api.patch(&format!("{path}/status"), &json!({"status": status}))?;
    match response.is_ok() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{path}: {}", response.body))),
    }
}

/// Performs the cases of a recording, one after the other. Returns the recording with the answers
/// of now.
pub fn perform(text: &str, servers: &Servers) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|why| why.to_string())?;
    let mut out = String::new();
    for (number, line) in text.lines().enumerate() {
        let at = |why: String| format!("line {}: {why}", number + 1);
        let mut case: Value = serde_json::from_str(line).map_err(|why| at(why.to_string()))?;
        let answer = runtime.block_on(answer(&case, servers)).map_err(|why| at(why.to_string()))?;
        case["answer"] = answer;
        out.push_str(&crate::sorted(case).to_string());
        out.push('\n');
    }
    Ok(out)
}

/// Returns the answer to a case.
async fn answer(case: &Value, servers: &Servers) -> io::Result<Value> {
    let mut stream = connect(servers.api).await?;
    let text = |name: &str| case[name].as_str().unwrap_or_default();
    let mut request = format!(
        "{} {} HTTP/1.1\r\nHost: server\r\nAuthorization: Bearer {}\r\n",
        text("method"),
        text("path").replace(NODE_PORT, &servers.node.port().to_string()),
        servers.token
    );
    for header in case["headers"].as_array().into_iter().flatten() {
        let name = &header[0];
        let value = &header[1];
        let part = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        request.push_str(&format!("{}: {}\r\n", part(name), part(value)));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut received = BytesMut::new();
    let head = loop {
        if let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            break received.split_to(end + 4);
        }
        match next_bytes(&mut stream, &mut received).await {
            Next::Bytes => {}
            Next::End if received.is_empty() => return Ok(json!({"status": "closed"})),
            Next::End => break received.split(),
            Next::Nothing => return Ok(json!({"status": null})),
        }
    };
    let head = String::from_utf8_lossy(&head).into_owned();
    let status = head.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok());
    let headers = normal_headers(&normal_text(&head, servers.node), status == Some(101));
    let mut answer = json!({"status": status, "headers": headers});
    let is_websocket = head.to_ascii_lowercase().contains("upgrade: websocket");
    if status == Some(101) && is_websocket {
        let socket =
            WebSocketStream::from_partially_read(stream, received.to_vec(), Role::Client, None);
        let (messages, close) = read_messages(socket.await, case, servers.node).await;
        answer["messages"] = messages.into();
        answer["close"] = close;
    } else if status != Some(101) {
        let is_head = case["method"] == "HEAD" || matches!(status, Some(204 | 304));
        let body = match is_head {
            true => String::new(),
            false => read_body(&mut stream, received, &head).await,
        };
        let normal = normal_text(&body, servers.node);
        // The length depends on the digits of the addresses.
        if let Some(headers) = answer["headers"].as_array_mut().filter(|_| normal != body) {
            headers.retain(|header| header[0] != "content-length");
        }
        answer["body"] = normal.into();
    }
    Ok(answer)
}

async fn connect(address: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(crate::api::AnyCertificate(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::from(address.ip());
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

enum Next {
    Bytes,
    /// The connection was closed or reset.
    End,
    /// Nothing came in time.
    Nothing,
}

async fn next_bytes(stream: &mut TlsStream<TcpStream>, received: &mut BytesMut) -> Next {
    match tokio::time::timeout(ANSWER_TIME_MAX, stream.read_buf(received)).await {
        Ok(Ok(count)) if count > 0 => Next::Bytes,
        Ok(_) => Next::End,
        Err(_) => Next::Nothing,
    }
}

/// Replaces the addresses of the node, of the client, and of the server's connections to the node.
fn normal_text(text: &str, node: SocketAddr) -> String {
    let address = node.to_string();
    let text = text
        .replace(&address, &format!("{NODE_ADDRESS}:{NODE_PORT}"))
        .replace(&node.ip().to_string(), NODE_ADDRESS)
        .replace(&format!(":{}", node.port()), &format!(":{NODE_PORT}"));
    // `read tcp ADDRESS:12345->ADDRESS:PORT: ...`; the arrow may be escaped several times.
    let mut out = String::new();
    let mut rest = text.as_str();
    let own = format!("tcp {NODE_ADDRESS}:");
    while let Some(at) = rest.find(&own) {
        let (before, after) = rest.split_at(at + own.len());
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        out.push_str(before);
        let is_own_port = after[digits..].starts_with('-');
        out.push_str(if is_own_port { "CLIENTPORT" } else { &after[..digits] });
        rest = &after[digits..];
    }
    out + rest
}

/// Returns the headers with names in lower case, sorted, without those that always differ.
fn normal_headers(head: &str, is_switched: bool) -> Value {
    let lines = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    let mut headers: Vec<(String, String)> = lines
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .filter(|(name, _)| !DROPPED_HEADERS.contains(&name.as_str()))
        .filter(|(name, _)| is_switched || !HEADERS_OF_ANSWERS.contains(&name.as_str()))
        .collect();
    headers.sort();
    headers.into_iter().map(|(name, value)| json!([name, value])).collect()
}

/// Reads until the length that the head announces, the last chunk, or the end of the connection.
async fn read_body(
    stream: &mut TlsStream<TcpStream>,
    mut received: BytesMut,
    head: &str,
) -> String {
    let head = head.to_ascii_lowercase();
    let value = |name: &str| {
        let line = head.split("\r\n").find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim().to_owned())
    };
    let length = value("content-length:").and_then(|length| length.parse::<usize>().ok());
    let is_chunked = value("transfer-encoding:").is_some();
    loop {
        let is_whole = match length {
            Some(length) => received.len() >= length,
            None => is_chunked && received.ends_with(b"0\r\n\r\n"),
        };
        let is_read = is_whole || received.len() >= BODY_BYTES_MAX;
        if is_read || !matches!(next_bytes(stream, &mut received).await, Next::Bytes) {
            break;
        }
    }
    let text = String::from_utf8_lossy(&received).into_owned();
    match is_chunked {
        true => text.split("\r\n").skip(1).step_by(2).collect(),
        false => text,
    }
}

/// Reads the messages of a WebSocket until its end. Data that follows on the same channel is
/// joined.
async fn read_messages(
    mut socket: WebSocketStream<TlsStream<TcpStream>>,
    case: &Value,
    node: SocketAddr,
) -> (Vec<Value>, Value) {
    let sent = case["send"].as_array().cloned().unwrap_or_default();
    let mut sent = Some(sent);
    let mut messages: Vec<(&str, Vec<u8>)> = vec![];
    let close = loop {
        let next = match tokio::time::timeout(ANSWER_TIME_MAX, socket.next()).await {
            Err(_) => break json!("open"),
            Ok(None | Some(Err(_))) => break json!("lost"),
            Ok(Some(Ok(message))) => message,
        };
        let (kind, data) = match next {
            Message::Binary(data) => ("binary", data.to_vec()),
            Message::Text(text) => ("text", text.as_bytes().to_vec()),
            Message::Close(frame) => break json!(frame.map(|frame| u16::from(frame.code))),
            _ => continue,
        };
        match messages.last_mut() {
            Some((_, last)) if last.len() > 1 && data.len() > 1 && last[0] == data[0] => {
                last.extend_from_slice(&data[1..]);
            }
            _ => messages.push((kind, data)),
        }
        for message in sent.take().into_iter().flatten() {
            let message = match message["text"].as_str() {
                Some(text) => Message::text(text),
                None => {
                    let bytes = STANDARD.decode(message.as_str().unwrap_or_default());
                    Message::binary(bytes.unwrap_or_default())
                }
            };
            let _ = socket.send(message).await;
        }
    };
    let shown = |(kind, data): (&str, Vec<u8>)| {
        json!([kind, normal_text(&data.escape_ascii().to_string(), node)])
    };
    (messages.into_iter().map(shown).collect(), close)
}
