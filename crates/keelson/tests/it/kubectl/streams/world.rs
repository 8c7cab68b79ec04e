//! [`World`]: a server with a node that runs commands as processes of this machine, and a pod on
//! it. The server is Keelson or a stock kube-apiserver.

use crate::etcd::etcd;
use crate::http::{Server, without_controllers};
use crate::kubectl::home::Home;
use crate::reference::Reference;
use keelson::Builder;
use keelson_store_etcd::testing::EtcdProcess;
use keelson_testkit::api::Api;
use keelson_testkit::node::{NodeServer, ServerOptions, machine_address};
use keelson_testkit::prerequisites::{API_SERVER, kubernetes_program};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// How kubectl connects: over WebSocket, as by default, or over SPDY.
pub const SPDY: &str =
    "export KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false KUBECTL_PORT_FORWARD_WEBSOCKETS=false\n";
pub const TRANSPORTS: [&str; 2] = ["", SPDY];

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A command, its exit code, its output, and a part of its error output.
pub type ExactRow<'a> = (&'a str, i32, &'a str, &'a str);

/// A server with a node and the pod `web` on it.
pub struct World {
    pub home: Home,
    pub node: NodeServer,
    /// Requests as an administrator.
    pub api: Api,
    server: Behind,
}

enum Behind {
    Keelson(Server),
    /// All of it ends when it is dropped, etcd last.
    Reference {
        _server: Box<Reference>,
        _dir: TempDir,
        _etcd: EtcdProcess,
        _runtime: Runtime,
    },
}

/// What a command did.
#[derive(Debug, PartialEq, Eq)]
pub struct Did {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Returns a text without the lines by which kubectl says that the first, empty message of a stream
/// has come before it knew the stream.
pub fn without_races(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| !line.contains("] Unknown stream id ")).collect()
}

impl World {
    /// Starts Keelson. `has_v5`: the node declares that it speaks v5 of the channel protocol.
    pub fn of_keelson(program: PathBuf, has_v5: bool) -> World {
        World::of_builder(without_controllers(), program, has_v5)
    }

    /// Starts a Keelson with options of its own.
    pub fn of_builder(builder: Builder, program: PathBuf, has_v5: bool) -> World {
        let server = Server::start(builder);
        let home = Home::new(program, server.keelson.kubeconfig().text());
        let api = Api::from_kubeconfig(&home.dir.path().join("admin.kubeconfig"));
        World::around(Behind::Keelson(server), home, api.expect("a client"), has_v5)
    }

    /// Starts a kube-apiserver; `None` if it is missing.
    pub fn of_reference(program: PathBuf) -> Option<World> {
        World::of_reference_with(program, &[])
    }

    /// Starts a kube-apiserver with further flags; `None` if it is missing.
    pub fn of_reference_with(program: PathBuf, more: &[&str]) -> Option<World> {
        let api_server = kubernetes_program(API_SERVER, "kube-apiserver")?;
        let (runtime, etcd) = etcd()?;
        let dir = tempfile::tempdir().expect("a folder");
        // No loop creates service accounts.
        let flags = [&["--disable-admission-plugins=ServiceAccount"], more].concat();
        let server = Reference::start(&api_server, &etcd.url(), dir.path(), &flags);
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {
                "server": format!("https://{}", server.address), "insecure-skip-tls-verify": true}}],
            "users": [{"name": "it", "user": {"token": "t"}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        });
        let home = Home::new(program, &kubeconfig.to_string());
        let api = Api::unchecked(server.address, Some("t".to_owned())).expect("a client");
        let server = Behind::Reference {
            _server: Box::new(server),
            _dir: dir,
            _etcd: etcd,
            _runtime: runtime,
        };
        Some(World::around(server, home, api, false))
    }

    fn around(server: Behind, home: Home, api: Api, has_v5: bool) -> World {
        let address = machine_address();
        let options = ServerOptions { has_v5, address, ..ServerOptions::default() };
        let node = NodeServer::start(options).expect("a node");
        let world = World { home, node, api, server };
        let features: &[&str] = if has_v5 { &["ExtendWebSocketsToKubelet"] } else { &[] };
        world.add_node("n1", world.node.address().ip(), features);
        world.add_pod("web");
        world
    }

    /// Creates a node, whose kubelet has the port of the test's node.
    pub fn add_node(&self, name: &str, address: IpAddr, features: &[&str]) {
        self.add_node_at(name, SocketAddr::new(address, self.node.address().port()), features);
    }

    /// Creates a node with a kubelet at an address.
    pub fn add_node_at(&self, name: &str, kubelet: SocketAddr, features: &[&str]) {
        let object = json!({"metadata": {"name": name}});
        assert_eq!(self.api.post("/api/v1/nodes", &object).expect("an answer").code, 201);
        self.set_status(
            &format!("/api/v1/nodes/{name}"),
            &json!({
                "addresses": [{"type": "InternalIP", "address": kubelet.ip()}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port()}},
                "declaredFeatures": features
            }),
        );
    }

    /// Creates a pod that runs on the node.
    pub fn add_pod(&self, name: &str) {
        self.add(name, &json!({"name": "main", "image": "i"}));
    }

    /// Creates a pod whose container has a terminal.
    pub fn add_terminal(&self, name: &str) {
        self.add(name, &json!({"name": "main", "image": "i", "stdin": true, "tty": true}));
    }

    fn add(&self, name: &str, container: &Value) {
        let pod = json!({"metadata": {"name": name},
            "spec": {"nodeName": "n1", "containers": [container]}});
        assert_eq!(self.api.post(PODS, &pod).expect("an answer").code, 201);
        let status = json!({
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [running("main")]
        });
        self.set_status(&format!("{PODS}/{name}"), &status);
    }

    /// Starts the ephemeral container of a pod, as its node would do, once there is one.
    pub fn run_ephemeral_container(&self, pod: &str) {
        let path = format!("{PODS}/{pod}");
        let api = self.api.with_new_connection();
        let name = keelson_testkit::poll(crate::http::POLL_TIMEOUT, || {
            let pod = api.get(&path).ok()?.body;
            Some(pod["spec"]["ephemeralContainers"][0]["name"].as_str()?.to_owned())
        });
        let name = name.expect("an ephemeral container");
        self.set_status(&path, &json!({"ephemeralContainerStatuses": [running(&name)]}));
    }

    /// Merges into the status of an object.
    pub fn set_status(&self, path: &str, status: &Value) {
        let patch = json!({"status": status});
        let answer = self.api.with_new_connection().patch(&format!("{path}/status"), &patch);
        let answer = answer.expect("an answer");
        assert_eq!(answer.code, 200, "{path}: {}", answer.body);
    }

    /// Runs a line, and returns what it did, without what differs between servers: ports and the
    /// folder.
    pub fn does(&self, line: &str) -> Did {
        let output = self.home.shell(line).output().expect("a shell");
        let normal = |bytes: &[u8]| self.normal(&String::from_utf8_lossy(bytes));
        let code = output.status.code();
        Did { code, out: normal(&output.stdout), err: normal(&output.stderr) }
    }

    /// Returns a text without ports of this machine, the path of the folder, and what kubectl says
    /// about its own races.
    pub fn normal(&self, text: &str) -> String {
        let folder = self.home.dir.path().display().to_string();
        let text = without_races(text).replace(&folder, "HOME");
        // tar removes the slash.
        let text = text.replace(folder.trim_start_matches('/'), "HOME");
        let mut parts = text.split("127.0.0.1:");
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            out.push_str("127.0.0.1:PORT");
            out.push_str(part.trim_start_matches(|letter: char| letter.is_ascii_digit()));
        }
        out
    }

    /// Runs rows over both transports, then reports all failed rows.
    pub fn run(&self, rows: &[ExactRow<'_>]) {
        let mut faults = vec![];
        for transport in TRANSPORTS {
            for (line, code, out, err) in rows {
                let did = self.does(&format!("{transport}{line}"));
                if did.code != Some(*code) || did.out != *out || !did.err.contains(err) {
                    faults.push(format!(
                        "{transport}{line}\n  wants {code} {out:?} {err:?}\n  got {did:?}"
                    ));
                }
            }
        }
        assert!(faults.is_empty(), "{}: {}", self.home.program.display(), faults.join("\n"));
    }

    /// Stops the server.
    pub fn stop(self) {
        if let Behind::Keelson(server) = self.server {
            server.stop();
        }
    }
}

/// Returns the status of a container that runs.
fn running(name: &str) -> Value {
    json!({
        "name": name, "ready": true, "restartCount": 0, "image": "i", "imageID": "i",
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    })
}
