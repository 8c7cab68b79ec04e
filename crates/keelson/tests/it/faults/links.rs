//! [`Links`]: the connections between the members of an etcd cluster, each of which can be cut.
//!
//! The members reach each other through ports of this process. Who connects is told by the header
//! `X-Server-From` of etcd's peer protocol; requests without it (the version, the members) always
//! pass.

use keelson_store_etcd::testing::EtcdProcess;
use serde_json::Value;
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Most bytes of the head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// The links of a cluster. Ports and threads end with the process.
#[derive(Clone, Default)]
pub struct Links(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// From whom (an id, in hexadecimal) to which port.
    cut: HashSet<(String, u16)>,
    open: Vec<Link>,
}

struct Link {
    from: String,
    to: u16,
    streams: [TcpStream; 2],
}

impl Links {
    /// Opens a port that leads to the own port of a member.
    pub fn front(&self, to: u16) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let links = self.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let links = links.clone();
                std::thread::spawn(move || links.serve(near, to));
            }
        });
        port
    }

    fn serve(&self, mut near: TcpStream, to: u16) -> io::Result<()> {
        let head = head(&mut near)?;
        let mut far = TcpStream::connect(("127.0.0.1", to))?;
        if let Some(from) = sender(&head) {
            let streams = [near.try_clone()?, far.try_clone()?];
            let mut state = self.0.lock().expect("the links");
            if state.cut.contains(&(from.clone(), to)) {
                return Ok(());
            }
            state.open.push(Link { from, to, streams });
        }
        far.write_all(&head)?;
        let mut answers = far.try_clone()?;
        let mut back = near.try_clone()?;
        std::thread::spawn(move || {
            let _ = io::copy(&mut answers, &mut back);
            let _ = back.shutdown(Shutdown::Both);
        });
        let copied = io::copy(&mut near, &mut far);
        let _ = far.shutdown(Shutdown::Both);
        copied.map(drop)
    }

    /// Cuts the links between two members, in both directions.
    pub fn cut(&self, one: &Member, other: &Member) {
        let mut state = self.0.lock().expect("the links");
        for (from, to) in [(one, other), (other, one)] {
            state.cut.insert((from.id.clone(), to.port));
        }
        let cut = state.cut.clone();
        state.open.retain(|link| {
            let stays = !cut.contains(&(link.from.clone(), link.to));
            if !stays {
                for stream in &link.streams {
                    let _ = stream.shutdown(Shutdown::Both);
                }
            }
            stays
        });
    }

    /// Mends all links.
    pub fn mend(&self) {
        self.0.lock().expect("the links").cut.clear();
    }
}

/// Reads the head of a request.
fn head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = vec![];
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut part)?;
        if count == 0 || head.len() > HEAD_BYTES_MAX {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&part[..count]);
    }
    Ok(head)
}

fn sender(head: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(head);
    let line = text.lines().find_map(|line| line.strip_prefix("X-Server-From: "));
    line.map(|id| id.trim().to_owned())
}

/// A member as its peers know it.
pub struct Member {
    /// In hexadecimal.
    id: String,
    /// Its own port.
    port: u16,
}

impl Member {
    /// Asks a member of a running cluster who it is.
    pub fn of(process: &EtcdProcess) -> Member {
        let port = process.peer_port();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let request = "GET /members HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("written");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let start = text.find('[').expect("a list");
        let end = text.rfind(']').expect("a list") + 1;
        let members: Vec<Value> = serde_json::from_str(&text[start..end]).expect("members");
        let own = members.iter().find(|member| member["name"] == process.name());
        let id = own.and_then(|member| member["id"].as_u64()).expect("an id");
        Member { id: format!("{id:x}"), port }
    }
}
