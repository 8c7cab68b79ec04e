//! The scene of attacks from behind: a node and its pods, servers behind the one that is attacked,
//! clients whose requests are passed on, and what must hold afterwards: no descriptor is lost, and
//! no far side has seen a credential.

use crate::client::{TlsStream, connect_tls};
use crate::far_side::{Connection, FarSide};
use crate::target::{ADMIN_TOKEN, Target};
use crate::victim::Victim;
use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

/// How long the server may take to serve a new APIService, and to let a pod be created.
const SERVED_MAX: Duration = Duration::from_secs(20);
/// How long a client of the last round may be connected after the end.
pub const ROUND: Duration = Duration::from_secs(2);
/// How soon the other side must have ended when one has.
pub const END_MAX: Duration = Duration::from_secs(10);
/// Descriptors that an idle server may use more: connections of the administrator, its files.
const DESCRIPTORS_MORE_MAX: usize = 8;
const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// What asks for a WebSocket.
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
/// Headers that no far side may see as they are. `admin-token` is the last part of the protocol.
const SECRETS: &str = "X-Remote-User: forged\r\nX-Remote-Group: forged\r\nX-Remote-Extra-a: forged\r\n\
                       X-Remote-Uid: forged\r\nProxy-Authorization: Basic forged\r\n";
/// Parts of the head of a request that a far side may not see, in lower case.
const UNSEEN: [&str; 6] = [
    "authorization:",
    ADMIN_TOKEN,
    "forged",
    "impersonate-",
    "base64url.bearer.authorization.k8s.io",
    "ywrtaw4tdg9rzw4",
];

/// A node, whose pods have the names of behaviors.
pub struct Node<'a> {
    target: &'a Target,
    pub far_side: FarSide,
    name: String,
    pods: &'a [&'a str],
}

impl<'a> Node<'a> {
    /// Registers a node that serves the pods `NAME-POD`, each with the container `c`.
    pub fn register<F>(
        target: &'a Target,
        name: &str,
        pods: &'a [&'a str],
        serve: F,
    ) -> Result<Node<'a>>
    where
        F: Fn(&mut Connection) -> Result<()> + Clone + Send + 'static,
    {
        let far_side = FarSide::start(&["127.0.0.1"], serve)?;
        let node = Node { target, far_side, name: name.to_owned(), pods };
        let mut admin = target.admin()?;
        let created =
            admin.send_json("POST", "/api/v1/nodes", &json!({"metadata": {"name": name}}))?;
        ensure!(created.status == 201, "create a node: {}", created.status);
        node.move_to(node.far_side.address.port())?;
        for pod in pods {
            let pod = json!({"metadata": {"name": format!("{name}-{pod}")},
                "spec": {"nodeName": name, "containers": [{"name": "c", "image": "i"}]}});
            // The service account of the namespace may not be there yet.
            poll("a pod", SERVED_MAX, || Ok(admin.send_json("POST", PODS, &pod)?.status == 201))?;
        }
        Ok(node)
    }

    /// Says that the node is at another port.
    pub fn move_to(&self, port: u16) -> Result<()> {
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
        let headers = [("Content-Type", "application/merge-patch+json".as_bytes())];
        let path = format!("/api/v1/nodes/{}/status", self.name);
        let body = status.to_string();
        let patched = self.target.admin()?.send("PATCH", &path, &headers, body.as_bytes())?;
        ensure!(patched.status == 200, "the status of a node: {}", patched.status);
        Ok(())
    }

    /// Returns the path of a subresource of a pod.
    pub fn path(&self, pod: &str, rest: &str) -> String {
        format!("{PODS}/{}-{pod}/{rest}", self.name)
    }

    /// Removes the node and its pods.
    pub fn remove(self) -> Result<()> {
        let mut admin = self.target.admin()?;
        for pod in self.pods {
            let path = format!("{PODS}/{}-{pod}?gracePeriodSeconds=0", self.name);
            admin.send("DELETE", &path, &[], b"")?;
        }
        admin.send("DELETE", &format!("/api/v1/nodes/{}", self.name), &[], b"")?;
        Ok(())
    }
}

/// A server behind the one that is attacked, which serves the version `v1` of a group.
pub struct Behind<'a> {
    target: &'a Target,
    pub far_side: FarSide,
    group: String,
}

impl<'a> Behind<'a> {
    /// Registers a server, and waits until it is asked if `waits`: its lists must be good for that.
    pub fn register<F>(target: &'a Target, group: &str, waits: bool, serve: F) -> Result<Behind<'a>>
    where
        F: Fn(&mut Connection) -> Result<()> + Clone + Send + 'static,
    {
        let far_side = FarSide::start(&["behind.default.svc"], serve)?;
        let mut admin = target.admin()?;
        let service = json!({"metadata": {"name": "behind"}, "spec": {
            "type": "ExternalName", "externalName": "localhost"}});
        let made = admin.send_json("POST", "/api/v1/namespaces/default/services", &service)?;
        ensure!(matches!(made.status, 201 | 409), "create a service: {}", made.status);
        let port = far_side.address.port();
        let api = json!({"metadata": {"name": format!("v1.{group}")}, "spec": {
            "group": group, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
            "caBundle": far_side.bundle,
            "service": {"name": "behind", "namespace": "default", "port": port}}});
        let made = admin.send_json("POST", SERVICES, &api)?;
        ensure!(made.status == 201, "create an APIService: {}", made.status);
        let behind = Behind { target, far_side, group: group.to_owned() };
        if waits {
            let path = behind.path("");
            poll("a server behind", SERVED_MAX, || Ok(admin.get(&path)?.status == 200))?;
        }
        Ok(behind)
    }

    /// Returns a path that this server answers.
    pub fn path(&self, rest: &str) -> String {
        format!("/apis/{}/v1{rest}", self.group)
    }

    /// Removes the server.
    pub fn remove(self) -> Result<()> {
        let path = format!("{SERVICES}/v1.{}", self.group);
        self.target.admin()?.send("DELETE", &path, &[], b"")?;
        Ok(())
    }
}

/// Opens a connection of a client and sends a GET, with credentials that no far side may see.
pub fn get(target: &Target, path: &str) -> Result<TlsStream> {
    request(target, path, &format!("Authorization: Bearer {ADMIN_TOKEN}\r\n{SECRETS}"))
}

/// The same, asking for a WebSocket with a subprotocol. The token is one, too.
pub fn upgrade(target: &Target, path: &str, protocol: &str) -> Result<TlsStream> {
    let token = "base64url.bearer.authorization.k8s.io.YWRtaW4tdG9rZW4";
    let protocols = format!("Sec-WebSocket-Protocol: {token}, {protocol}\r\n");
    // As whom it acts is nobody's business either.
    let acts = "Impersonate-User: somebody\r\nImpersonate-Group: system:masters\r\n";
    request(target, path, &format!("{UPGRADE}{protocols}{acts}{SECRETS}"))
}

fn request(target: &Target, path: &str, headers: &str) -> Result<TlsStream> {
    let config = Arc::new(crate::client::tls_config(&target.roots).with_no_client_auth());
    let mut stream = connect_tls(target.address, config)?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: attack\r\n{headers}\r\n");
    stream.write_all(head.as_bytes())?;
    stream.flush()?;
    Ok(stream)
}

/// Reads the status of a response.
pub fn status(stream: &mut TlsStream) -> Result<u16> {
    let mut start = [0; 12];
    stream.read_exact(&mut start).context("a status line")?;
    let text = std::str::from_utf8(&start)?;
    match text.strip_prefix("HTTP/1.1 ").and_then(|code| code.parse().ok()) {
        Some(code) => Ok(code),
        None => bail!("no status: {text:?}"),
    }
}

/// Lets several clients for each behavior connect until a time, again and again. Every second one
/// reads nothing. `connect` gets the behavior and the client's number. Returns how often they did.
pub fn connect_until(
    end: Instant,
    behaviors: &[&str],
    clients: usize,
    connect: impl Fn(&str, usize) -> Result<TlsStream> + Sync,
) -> Result<usize> {
    let sent = AtomicUsize::new(0);
    let run = |behavior: &str, number: usize| -> Result<()> {
        while Instant::now() < end {
            let mut stream = connect(behavior, number)?;
            sent.fetch_add(1, Ordering::Relaxed);
            match number % 2 {
                0 => drop(read_until(&mut stream, end)?),
                _ => crate::pause(ROUND),
            }
        }
        Ok(())
    };
    let run = &run;
    let result: Result<()> = scope(|scope| {
        let clients: Vec<_> = behaviors
            .iter()
            .flat_map(|behavior| (0..clients).map(move |number| (*behavior, number)))
            .map(|(behavior, number)| scope.spawn(move || run(behavior, number)))
            .collect();
        clients.into_iter().try_for_each(|it| it.join().ok().context("a client panicked")?)
    });
    result?;
    Ok(sent.load(Ordering::Relaxed))
}

/// Reads until the end of the connection or until a time, whichever is first. Returns the number of
/// bytes.
pub fn read_until(stream: &mut TlsStream, end: Instant) -> Result<usize> {
    stream.sock.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut bytes = 0;
    let mut buffer = [0; 65_536];
    while Instant::now() < end {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => bytes += count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    Ok(bytes)
}

/// Fails if a far side has seen what it may not see, or nothing at all.
pub fn check_unseen(far_side: &FarSide) -> Result<()> {
    let heads = far_side.heads();
    ensure!(!heads.is_empty(), "no request has reached the far side");
    for head in heads {
        let seen = UNSEEN.iter().find(|part| head.contains(**part));
        ensure!(seen.is_none(), "the far side has seen {seen:?}: {head}");
    }
    Ok(())
}

/// The number of descriptors of a server, before an attack.
pub struct Descriptors {
    pid: u32,
    before: usize,
}

impl Descriptors {
    pub fn of(target: &Target) -> Result<Descriptors> {
        let pid = target.pid();
        Ok(Descriptors { pid, before: descriptors(pid)? })
    }

    /// Waits until the server has no more descriptors than before.
    pub fn check(&self) -> Result<()> {
        let end = Instant::now() + END_MAX;
        loop {
            let now = descriptors(self.pid)?;
            if now <= self.before + DESCRIPTORS_MORE_MAX {
                return Ok(());
            }
            ensure!(Instant::now() < end, "{} descriptors became {now}", self.before);
            crate::pause(Duration::from_millis(50));
        }
    }
}

fn descriptors(pid: u32) -> Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// Waits until something holds.
pub fn poll(what: &str, time_max: Duration, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + time_max;
    while !holds()? {
        ensure!(Instant::now() < end, "{what}: not within {time_max:?}");
        crate::pause(Duration::from_millis(50));
    }
    Ok(())
}
