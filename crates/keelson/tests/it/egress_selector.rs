//! `--egress-selector-config-file`: logs and commands of a node, and etcd, that only a proxy
//! reaches.

use crate::etcd::etcd;
use crate::http::{Client, Server, without_controllers};
use keelson::{Builder, Etcd, read_egress_selector};
use keelson_testkit::node::{NodeServer, ServerOptions};
use keelson_testkit::websocket::{UPGRADE, frame, upgrade_at};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

/// A proxy at a Unix domain socket that leads to one address, whatever it is asked for.
struct Proxy {
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start(socket: &Path, target: SocketAddr) -> Proxy {
        let listener = UnixListener::bind(socket).expect("a socket");
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let told = told.clone();
                thread::spawn(move || serve(stream, target, &told));
            }
        });
        Proxy { asked }
    }

    /// Returns the different addresses that it was asked for.
    fn asked(&self) -> Vec<String> {
        let mut asked = self.asked.lock().expect("a lock").clone();
        asked.sort();
        asked.dedup();
        asked
    }
}

fn serve(mut near: UnixStream, target: SocketAddr, asked: &Mutex<Vec<String>>) {
    let mut head = vec![];
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if near.read_exact(&mut byte).is_err() {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let address = head.split(' ').nth(1).unwrap_or_default().to_owned();
    asked.lock().expect("a lock").push(address);
    let mut far = TcpStream::connect(target).expect("the target listens");
    near.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("written");
    let mut to_far = near.try_clone().expect("a copy");
    let mut from_near = far.try_clone().expect("a copy");
    thread::spawn(move || {
        let _ = std::io::copy(&mut to_far, &mut from_near);
        let _ = from_near.shutdown(Shutdown::Both);
    });
    let _ = std::io::copy(&mut far, &mut near);
    let _ = near.shutdown(Shutdown::Both);
}

/// Returns a configuration with a proxy for one network.
fn through(dir: &Path, network: &str, socket: &Path) -> Builder {
    let file = dir.join(format!("{network}.yaml"));
    let selection = json!({"kind": "EgressSelectorConfiguration",
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "egressSelections": [{"name": network, "connection": {"proxyProtocol": "HTTPConnect",
            "transport": {"uds": {"udsName": socket.display().to_string()}}}}]});
    std::fs::write(&file, selection.to_string()).expect("a file");
    let egress_selector = read_egress_selector(&file).expect("a configuration");
    without_controllers().with(|builder| builder.far_side.egress_selector = egress_selector)
}

/// Creates a node with a name that nobody resolves, and a pod on it.
fn prepare(client: &Client, port: u16) {
    let nodes = "/api/v1/nodes";
    assert_eq!(client.post(nodes, &json!({"metadata": {"name": "n"}})).status, 201);
    let status = json!({"status": {"addresses": [{"type": "Hostname", "address": "node.invalid"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    let merge = "application/merge-patch+json";
    let patched = client.call("PATCH", &format!("{nodes}/n/status"), merge, Some(&status));
    assert_eq!(patched.status, 200, "{patched:?}");
    let pod = json!({"metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    let created = client.post("/api/v1/namespaces/default/pods", &pod);
    assert_eq!(created.status, 201, "{created:?}");
}

#[test]
fn nodes_are_reached_through_the_proxy_of_the_cluster() {
    let node = NodeServer::start(ServerOptions::default()).expect("a node");
    node.log("default/p/c", "stdout", "hello");
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("cluster.sock");
    let proxy = Proxy::start(&socket, node.address());
    let server = Server::start_plain(through(dir.path(), "cluster", &socket));
    let client = server.client();
    prepare(&client, node.address().port());
    let log = client.get("/api/v1/namespaces/default/pods/p/log");
    assert_eq!(log.status, 200, "{log:?}");
    let exec = "/api/v1/namespaces/default/pods/p/exec?command=echo&command=hi&stdout=true";
    let headers = format!(
        "Authorization: Bearer t\r\n{UPGRADE}Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n"
    );
    let (head, mut reader) = upgrade_at(&client, exec, &headers);
    assert!(head[0].contains(" 101 "), "{head:?}");
    let output = loop {
        let (_, payload) = frame(&mut reader);
        if payload.len() > 1 && payload[0] == 1 {
            break String::from_utf8_lossy(&payload[1..]).into_owned();
        }
    };
    assert_eq!(output, "hi\n");
    assert_eq!(proxy.asked(), [format!("node.invalid:{}", node.address().port())]);
    let metrics = client.get("/metrics").body;
    let metrics = metrics.as_str().expect("text");
    let series =
        "apiserver_egress_dialer_dial_start_total{protocol=\"http_connect\",transport=\"uds\"}";
    assert!(metrics.contains(series));
    server.stop();
}

#[test]
fn etcd_is_reached_through_its_proxy() {
    let Some((_runtime, etcd)) = etcd() else { return };
    let url = etcd.url();
    let target: SocketAddr = url.trim_start_matches("http://").parse().expect("an address");
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("etcd.sock");
    let proxy = Proxy::start(&socket, target);
    let builder = through(dir.path(), "etcd", &socket);
    let etcd = Etcd::new(vec!["http://etcd.invalid:2379".to_owned()]);
    let server = Server::start_plain(builder.etcd(etcd));
    let client = server.client();
    let maps = "/api/v1/namespaces/default/configmaps";
    let mut watch = client.open_watch(&format!("{maps}?watch=1&fieldSelector=metadata.name%3Dm"));
    assert_eq!(client.post(maps, &json!({"metadata": {"name": "m"}})).status, 201);
    assert_eq!(watch.next_types_and_names(1), [("ADDED".to_owned(), "m".to_owned())]);
    assert_eq!(proxy.asked(), ["etcd.invalid:2379"]);
    server.stop();
}
