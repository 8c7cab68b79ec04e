//! A node that misbehaves: this program is the node. Each of its behaviors is a pod, whose name it
//! is; clients connect to all of them at the same time.

use super::{Entry, Outcome};
use crate::far_scene::{Descriptors, Node, ROUND, check_unseen, connect_until, get, upgrade};
use crate::far_side::Connection;
use crate::spdy;
use crate::target::Target;
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant};

/// Clients of each behavior: every second one reads nothing. Those of answers ask for logs and for
/// commands.
const CLIENTS: usize = 2;
const CLIENTS_OF_ANSWERS: usize = 4;
/// How many bytes of headers a bomb inflates to.
const BOMB_BYTES: usize = 64 << 20;
/// Frames that are sent in one write.
const BATCH: usize = 500;
const EXEC: &str = "exec?command=true&stdin=true&stdout=true&stderr=true&container=c";
const LOG: &str = "log?follow=true&container=c";

pub const ATTACKS: [Entry; 3] = [
    ("node-spdy", "a node that sends bombs and floods of SPDY frames", None, spdy_frames),
    ("node-websocket", "a node that sends hostile WebSocket frames", None, websocket_frames),
    ("node-answers", "a node whose answers never end, drip, or lead elsewhere", None, answers),
];

/// What the node does after it has switched to SPDY.
const SPDY: [&str; 11] = [
    "bomb",
    "long",
    "settings-count",
    "settings",
    "pings",
    "streams",
    "replies",
    "headers",
    "windows",
    "stdout",
    "error-stream",
];

/// What it does after it has switched to a WebSocket.
const WEBSOCKET: [&str; 5] = ["long", "fragments", "pings", "masked", "reserved"];

/// What it answers to requests for logs and to requests to upgrade.
const ANSWERS: [&str; 15] = [
    "head-endless",
    "head-many",
    "head-drip",
    "informational",
    "switch",
    "body-endless",
    "body-drip",
    "chunk-extensions",
    "chunk-long",
    "length-longer",
    "lengths-two",
    "redirect-301",
    "redirect-302",
    "redirect-307",
    "redirect-308",
];

fn spdy_frames(target: &Target, end: Instant) -> Result<Outcome> {
    let serve = |connection: &mut Connection| serve(connection, send_spdy);
    attack(
        target,
        end,
        Hostile { name: "spdy", pods: &SPDY, clients: CLIENTS, serve, connect: translated },
    )
}

fn websocket_frames(target: &Target, end: Instant) -> Result<Outcome> {
    let serve = |connection: &mut Connection| serve(connection, send_websocket);
    attack(
        target,
        end,
        Hostile { name: "ws", pods: &WEBSOCKET, clients: CLIENTS, serve, connect: passed_through },
    )
}

fn answers(target: &Target, end: Instant) -> Result<Outcome> {
    let serve = |connection: &mut Connection| serve(connection, send_answer);
    attack(
        target,
        end,
        Hostile {
            name: "answer",
            pods: &ANSWERS,
            clients: CLIENTS_OF_ANSWERS,
            serve,
            connect: any,
        },
    )
}

/// A node that misbehaves, and how clients connect to it.
struct Hostile<S> {
    name: &'static str,
    pods: &'static [&'static str],
    clients: usize,
    serve: S,
    connect: fn(&Target, &Node<'_>, &str, usize) -> Result<crate::client::TlsStream>,
}

fn translated(
    target: &Target,
    node: &Node<'_>,
    pod: &str,
    _: usize,
) -> Result<crate::client::TlsStream> {
    upgrade(target, &node.path(pod, EXEC), "v5.channel.k8s.io")
}

fn passed_through(
    target: &Target,
    node: &Node<'_>,
    pod: &str,
    _: usize,
) -> Result<crate::client::TlsStream> {
    upgrade(target, &node.path(pod, EXEC), "v4.channel.k8s.io")
}

fn any(
    target: &Target,
    node: &Node<'_>,
    pod: &str,
    number: usize,
) -> Result<crate::client::TlsStream> {
    match number / 2 % 2 {
        0 => get(target, &node.path(pod, LOG)),
        _ => upgrade(target, &node.path(pod, EXEC), "v4.channel.k8s.io"),
    }
}

/// Lets clients connect to all pods until the end.
fn attack<S>(target: &Target, end: Instant, hostile: Hostile<S>) -> Result<Outcome>
where
    S: Fn(&mut Connection) -> Result<()> + Clone + Send + 'static,
{
    let Hostile { name, pods, clients, serve, connect } = hostile;
    let descriptors = Descriptors::of(target)?;
    let node = Node::register(target, name, pods, serve)?;
    let end = end.max(Instant::now() + ROUND);
    let sent = connect_until(end, pods, clients, |pod, number| {
        connect(target, &node, pod, number).with_context(|| format!("connect to {pod}"))
    })?;
    check_unseen(&node.far_side)?;
    let reached = node.far_side.heads().len();
    ensure!(reached >= pods.len(), "{reached} requests have reached the node");
    node.remove()?;
    descriptors.check()?;
    Ok(Outcome { sent, note: format!("{reached} reached it") })
}

/// Reads a request, and does what its pod says. Paths are `/exec/NAMESPACE/NODE-POD/CONTAINER`.
fn serve(
    connection: &mut Connection,
    act: fn(&mut Connection, &str, &[String]) -> Result<()>,
) -> Result<()> {
    let (path, lines) = connection.read_head()?;
    let pod = path.split('/').nth(3).and_then(|name| name.split_once('-')).map(|(_, pod)| pod);
    act(connection, pod.unwrap_or_default(), &lines)
}

fn send_spdy(connection: &mut Connection, behavior: &str, _: &[String]) -> Result<()> {
    connection.send(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
          X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n",
    )?;
    let first_stream = 1_u32.to_be_bytes();
    // The streams are 1 error, 3 stdin, 5 stdout, 7 stderr.
    let replies: Vec<u8> =
        [1, 3, 5, 7].iter().flat_map(|id| spdy::empty_reply(*id, *id == 1)).collect();
    let zeros = vec![0; 1 << 16];
    match behavior {
        "bomb" => {
            let payload = [&first_stream[..], &spdy::bomb(BOMB_BYTES)].concat();
            connection.send(&spdy::control(spdy::SYN_REPLY, &payload))?;
            connection.drain()
        }
        "long" => {
            connection.send(&spdy::control_head(spdy::HEADERS, spdy::LENGTH_MAX))?;
            connection.send_without_end(&zeros)
        }
        "settings-count" => {
            connection.send(&spdy::control(spdy::SETTINGS, &u32::MAX.to_be_bytes()))?;
            connection.drain()
        }
        "settings" => {
            let entries = [[0, 0, 0, 4, 0, 0, 0, 100]; 1000].concat();
            let payload = [&1000_u32.to_be_bytes()[..], &entries].concat();
            connection.send_without_end(&spdy::control(spdy::SETTINGS, &payload))
        }
        "pings" => {
            let ping = spdy::control(spdy::PING, &2_u32.to_be_bytes());
            connection.send_without_end(&ping.repeat(BATCH))
        }
        "streams" => {
            connection.send(&replies)?;
            let mut stream = 2_u32;
            while connection.goes_on() {
                let mut frames = vec![];
                for _ in 0..BATCH {
                    let ids = [&stream.to_be_bytes()[..], &[0; 6], &spdy::empty_block(false)];
                    frames.extend(spdy::control(spdy::SYN_STREAM, &ids.concat()));
                    stream += 2;
                }
                connection.send(&frames)?;
            }
            Ok(())
        }
        "replies" => {
            connection.send(&replies)?;
            connection.send_without_end(&spdy::empty_reply(1, false).repeat(BATCH))
        }
        "headers" => {
            connection.send(&replies)?;
            let payload = [&first_stream[..], &spdy::empty_block(false)].concat();
            connection.send_without_end(&spdy::control(spdy::HEADERS, &payload).repeat(BATCH))
        }
        "windows" => {
            let payload = [first_stream, u32::MAX.to_be_bytes()].concat();
            connection.send_without_end(&spdy::control(spdy::WINDOW_UPDATE, &payload).repeat(BATCH))
        }
        stream => {
            connection.send(&replies)?;
            let stream = if stream == "stdout" { 5 } else { 1 };
            connection.send(&spdy::data_head(stream, spdy::LENGTH_MAX))?;
            connection.send_without_end(&zeros)
        }
    }
}

fn send_websocket(connection: &mut Connection, behavior: &str, _: &[String]) -> Result<()> {
    connection.send(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
          Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\
          Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n",
    )?;
    let zeros = vec![0; 1 << 16];
    match behavior {
        "long" => {
            connection.send(&[0x82, 127, 0x7f, 255, 255, 255, 255, 255, 255, 255])?;
            connection.send_without_end(&zeros)
        }
        // Neither the first nor the last fragment.
        "fragments" => connection.send_without_end(&[0, 2, 1, b'a'].repeat(BATCH)),
        "pings" => connection.send_without_end(&[0x89, 1, b'p'].repeat(BATCH)),
        "masked" => connection.send_without_end(&[0x82, 0x82, 1, 2, 3, 4, 0, 0].repeat(BATCH)),
        _ => connection.send_without_end(&[0xf3, 2, 1, b'a'].repeat(BATCH)),
    }
}

fn send_answer(connection: &mut Connection, behavior: &str, _: &[String]) -> Result<()> {
    send_hostile_answer(connection, behavior)
}

/// Answers any request as a behavior says; those that it does not know are redirects.
pub fn send_hostile_answer(connection: &mut Connection, behavior: &str) -> Result<()> {
    let drip = Duration::from_millis(50);
    match behavior {
        "head-endless" => {
            connection.send(b"HTTP/1.1 200 OK\r\n")?;
            connection.send_without_end(&b"A: b\r\n".repeat(BATCH))
        }
        "head-many" => {
            connection.send(b"HTTP/1.1 200 OK\r\n")?;
            for number in 0..20_000 {
                connection.send(format!("X-{number}: {number}\r\n").as_bytes())?;
            }
            connection.send(b"\r\n")
        }
        "head-drip" => connection.drip(b'H', drip),
        "informational" => {
            connection.send_without_end(&b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n".repeat(BATCH))
        }
        "switch" => connection.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n",
        ),
        "body-endless" => {
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")?;
            connection.send_without_end(&b"a line of a log\n".repeat(BATCH))
        }
        "body-drip" => {
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")?;
            connection.drip(b'a', drip)
        }
        "chunk-extensions" => {
            connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1")?;
            connection.send_without_end(&b";a=b".repeat(BATCH))
        }
        "chunk-long" => {
            connection.send(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            )?;
            connection.send_without_end(&[b'a'; 1 << 16])
        }
        "length-longer" => {
            connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfour")?;
            connection
                .send_without_end(&b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".repeat(BATCH))
        }
        "lengths-two" => connection.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 9\r\n\r\nfour and more",
        ),
        // To the metadata service of clouds, and to the server itself.
        redirect => {
            let code = redirect.rsplit('-').next().unwrap_or_default();
            let there = "http://169.254.169.254/latest/meta-data/";
            connection.send(
                format!("HTTP/1.1 {code} Moved\r\nLocation: {there}\r\nContent-Length: 0\r\n\r\n")
                    .as_bytes(),
            )
        }
    }
}
