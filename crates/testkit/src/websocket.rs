//! Upgrades to WebSocket and the frames of a server, byte by byte.

use crate::http::Client;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;

/// The headers that ask for a WebSocket.
pub const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Sends a GET with these headers. Returns the lines of the response's head, and the rest.
pub fn upgrade_at(
    client: &Client,
    path: &str,
    headers: &str,
) -> (Vec<String>, BufReader<TcpStream>) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
    let mut reader = client.write(request.as_bytes());
    let mut head = vec![];
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line of the head");
        match line.trim_end() {
            "" => return (head, reader),
            line => head.push(line.to_owned()),
        }
    }
}

/// Reads the next frame. Returns its opcode and payload.
pub fn frame(reader: &mut impl Read) -> (u8, Vec<u8>) {
    let mut start = [0; 2];
    reader.read_exact(&mut start).expect("a frame");
    assert_eq!(start[1] & 0x80, 0, "servers do not mask");
    let length = match start[1] {
        126 => {
            let mut long = [0; 2];
            reader.read_exact(&mut long).expect("a length");
            usize::from(u16::from_be_bytes(long))
        }
        short => usize::from(short),
    };
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a payload");
    (start[0] & 0x0f, body)
}
