//! kubectl's port-forward and proxy: connections to it, which it passes on.

use super::world::{TRANSPORTS, World};
use crate::kubectl::every_kubectl;
use crate::kubectl::home::Running;
use keelson_testkit::http::Client;
use keelson_testkit::websocket::{UPGRADE, frame, upgrade_at};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};

/// How many clients use a forwarded port at the same time.
const CLIENTS: usize = 100;

/// Starts a server that sends back what it receives, piece by piece, until the client is done.
fn start_echo() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut output = stream.try_clone().expect("a stream");
            std::thread::spawn(move || std::io::copy(&mut stream, &mut output));
        }
    });
    port
}

/// Sends a text and reads it back.
fn talk(address: SocketAddr, number: usize) {
    let text = format!("hello {number} ").repeat(1000);
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(text.as_bytes()).expect("written");
    let mut answer = String::new();
    if number.is_multiple_of(2) {
        // Half closed: the answer still comes, and its end.
        stream.shutdown(Shutdown::Write).expect("half closed");
        stream.read_to_string(&mut answer).expect("an answer");
    } else {
        let mut exact = vec![0; text.len()];
        stream.read_exact(&mut exact).expect("an answer");
        answer = String::from_utf8(exact).expect("text");
    }
    assert_eq!(answer, text);
}

/// Reads the address from the line that says it: `Forwarding from 127.0.0.1:40123 -> 80`.
fn address(running: &mut Running) -> SocketAddr {
    let line = running.line();
    let port = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next());
    let port: u16 = port.and_then(|port| port.parse().ok()).expect("a local port");
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Proves: R-SUB-07.
#[test]
fn ports_of_pods_are_forwarded() {
    let port = start_echo();
    for (number, program) in every_kubectl().into_iter().enumerate() {
        let world = World::of_keelson(program, number.is_multiple_of(2));
        for transport in TRANSPORTS {
            let mut forwarding = world.home.spawn_shell(&format!(
                "{transport}exec \"$KUBECTL\" --kubeconfig=admin.kubeconfig port-forward pod/web :{port}"
            ));
            let address = address(&mut forwarding);
            std::thread::scope(|scope| {
                (0..CLIENTS).for_each(|number| {
                    scope.spawn(move || talk(address, number));
                });
            });
        }
        world.stop();
    }
}

#[test]
fn a_proxy_passes_on_requests_and_web_sockets() {
    const POD: &str = "/api/v1/namespaces/default/pods/web";
    for program in every_kubectl() {
        let world = World::of_keelson(program, false);
        // The filter of `kubectl proxy` refuses exec and attach.
        let mut filtering =
            world.home.spawn("\"$KUBECTL\" --kubeconfig=admin.kubeconfig proxy --port=0");
        let client = Client { address: address(&mut filtering) };
        let exec = format!("{POD}/exec?command=echo&command=hi&stdout=true&container=main");
        let refused = client.raw_response("GET", &exec, "", &[]);
        assert_eq!((refused.status, &*refused.body), (403, b"Forbidden\n".as_slice()));
        let mut proxying = world
            .home
            .spawn("\"$KUBECTL\" --kubeconfig=admin.kubeconfig proxy --port=0 --disable-filter");
        let client = Client { address: address(&mut proxying) };
        let got = client.get(POD);
        assert_eq!((got.status, &got.body["metadata"]["name"]), (200, &json!("web")));
        let got = client.get("/api/v1/namespaces/default/pods/gone");
        assert_eq!((got.status, &got.body["reason"]), (404, &json!("NotFound")));
        let headers = format!("{UPGRADE}Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n");
        let (head, mut stream) = upgrade_at(&client, &exec, &headers);
        assert_eq!(head[0], "HTTP/1.1 101 Switching Protocols", "{head:?}");
        let frames = [(); 4].map(|()| frame(&mut stream));
        let success = b"\x03{\"status\":\"Success\"}".to_vec();
        let close = 1000_u16.to_be_bytes().to_vec();
        let expected = [(2, vec![1]), (2, b"\x01hi\n".to_vec()), (2, success), (8, close)];
        assert_eq!(frames, expected);
        world.stop();
    }
}
