//! exec, attach, logs and port-forward of the clients for Python and JavaScript and of kube-rs,
//! with Keelson and with a stock kube-apiserver, in front of a node that runs commands on this
//! machine.

use super::{folder, python};
use crate::http::POLL_TIMEOUT;
use crate::kubectl::streams::world::World;
use futures_util::{AsyncBufReadExt, AsyncReadExt as _};
use k8s_openapi::api::core::v1::Pod;
use keelson_testkit::poll;
use keelson_testkit::prerequisites::{JAVASCRIPT_CLIENT, prerequisite};
use kube::api::{Api, AttachParams, AttachedProcess, LogParams, TerminalSize};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// The container whose log the clients read.
const CONTAINER: &str = "default/web/main";
/// How many bytes kube-rs sends to a command, and through a forwarded port.
const PIPE_BYTES: usize = 8 << 20;
const FORWARDED_BYTES: usize = 1 << 20;
/// The sizes of a client's terminal: at first, and later.
const SIZES: [(u16, u16); 2] = [(80, 25), (101, 43)];
/// What a status says about a command with another exit code than 0.
const NON_ZERO: &str = "command terminated with non-zero exit code";

/// Runs a client's steps with Keelson, in front of nodes that speak v4 and v5.
fn with_keelson(steps: impl Fn(&World)) {
    for has_v5 in [false, true] {
        let world = World::of_keelson(PathBuf::from("kubectl"), has_v5);
        steps(&world);
        world.stop();
    }
}

/// Runs a client's steps with a kube-apiserver, if there is one.
fn with_reference(steps: impl Fn(&World)) {
    if let Some(world) = World::of_reference(PathBuf::from("kubectl")) {
        steps(&world);
    }
}

/// Runs a program of a client with the kubeconfig of a world. Returns its output.
fn run(program: &Path, script: &Path, world: &World) -> String {
    let kubeconfig = world.home.dir.path().join("admin.kubeconfig");
    let mut command = Command::new(program);
    command.arg(script).arg(kubeconfig).stdin(Stdio::null());
    let output = command.output().expect("the client runs");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{err}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).expect("text")
}

fn python_steps(python: &Path, world: &World) {
    let did = run(python, &folder().join("streams.py"), world);
    assert_eq!(did, "exec, attach, logs, port-forward\n");
}

#[test]
fn the_python_client_streams() {
    let Some(python) = python() else { return };
    with_keelson(|world| python_steps(&python, world));
}

#[test]
fn the_python_client_streams_from_a_kube_apiserver() {
    let Some(python) = python() else { return };
    with_reference(|world| python_steps(&python, world));
}

/// Returns the script of the JavaScript client, whose packages are installed beside it.
fn javascript() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/js");
    let node = Command::new("node").arg("--version").output();
    let has_node = node.is_ok_and(|output| output.status.success());
    let is_installed = folder.join("node_modules/@kubernetes/client-node").is_dir();
    prerequisite(JAVASCRIPT_CLIENT, (has_node && is_installed).then(|| folder.join("streams.js")))
}

/// What the JavaScript client does, step by step.
const JAVASCRIPT: &str = include_str!("../files/javascript_streams.txt");

fn javascript_steps(script: &Path, world: &World) {
    assert_eq!(run(Path::new("node"), script, world), JAVASCRIPT);
    assert_eq!(world.node.terminal_sizes(), SIZES);
}

#[test]
fn the_javascript_client_streams() {
    let Some(script) = javascript() else { return };
    with_keelson(|world| javascript_steps(&script, world));
}

#[test]
fn the_javascript_client_streams_from_a_kube_apiserver() {
    let Some(script) = javascript() else { return };
    with_reference(|world| javascript_steps(&script, world));
}

#[test]
fn kube_rs_streams() {
    with_keelson(kube_rs_steps);
}

#[test]
fn kube_rs_streams_from_a_kube_apiserver() {
    with_reference(kube_rs_steps);
}

fn kube_rs_steps(world: &World) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let path = world.home.dir.path().join("admin.kubeconfig");
        let kubeconfig = Kubeconfig::read_from(path).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a config");
        let pods = Api::default_namespaced(Client::try_from(config).expect("a client"));
        let steps = async {
            commands_run(&pods).await;
            a_terminal_is_resized(&pods, world).await;
            a_process_is_attached(&pods).await;
            logs_are_read(&pods, world).await;
            ports_are_forwarded(&pods).await;
        };
        tokio::time::timeout(8 * POLL_TIMEOUT, steps).await.expect("the server answers in time");
    });
}

/// Returns the code of a refusal.
fn code_of(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// The output, the error output, and how a command ended: its status, reason and message.
type Ended = (String, String, [String; 3]);

/// Reads the output of a command until it ends.
async fn end(mut process: AttachedProcess) -> Ended {
    let status = process.take_status().expect("a status");
    let mut out = String::new();
    let mut err = String::new();
    let stdout = process.stdout();
    let stderr = process.stderr();
    let reading = async {
        if let Some(mut stdout) = stdout {
            stdout.read_to_string(&mut out).await.expect("output");
        }
    };
    let reading_errors = async {
        if let Some(mut stderr) = stderr {
            stderr.read_to_string(&mut err).await.expect("error output");
        }
    };
    let ((), (), status) = tokio::join!(reading, reading_errors, status);
    let status = status.expect("a status");
    let words = [status.status, status.reason, status.message].map(Option::unwrap_or_default);
    (out, err, words)
}

async fn commands_run(pods: &Api<Pod>) {
    let failed = |code: u8| {
        let text = format!("{NON_ZERO}: command terminated with exit code {code}");
        ["Failure".to_owned(), "NonZeroExitCode".to_owned(), text]
    };
    let success = || ["Success".to_owned(), String::new(), String::new()];
    for (script, out, err, ended) in [
        ("echo out; echo err >&2; exit 7", "out\n", "err\n", failed(7)),
        ("true", "", "", success()),
        ("seq 200000 | tail -n 1", "200000\n", "", success()),
    ] {
        let params = AttachParams::default();
        let process = pods.exec("web", ["sh", "-c", script], &params).await.expect("a command");
        let did = end(process).await;
        assert_eq!(did, (out.to_owned(), err.to_owned(), ended), "{script}");
    }

    let params = AttachParams::default().stdin(true).stderr(false);
    let mut process = pods.exec("web", ["cat"], &params).await.expect("a command");
    let mut input = process.stdin().expect("an input");
    let text = "0123456789abcde\n".repeat(PIPE_BYTES / 16);
    let sending = async {
        input.write_all(text.as_bytes()).await.expect("written");
        input.shutdown().await.expect("its end");
    };
    let ((), did) = tokio::join!(sending, end(process));
    assert!(did.0 == text, "{} of {} bytes came back", did.0.len(), text.len());
    assert_eq!(did.2, success());

    for (pod, container, code) in [("gone", None, 404), ("web", Some("other"), 400)] {
        let params =
            AttachParams { container: container.map(str::to_owned), ..AttachParams::default() };
        let refused = pods.exec(pod, ["true"], &params).await.err().expect("an error");
        assert_eq!(code_of(&refused), Some(code), "{pod}: {refused}");
    }
}

async fn a_terminal_is_resized(pods: &Api<Pod>, world: &World) {
    let script = "echo ready; read line; echo got $line; exit 5";
    let params = AttachParams::interactive_tty();
    let mut process = pods.exec("web", ["sh", "-c", script], &params).await.expect("a command");
    let mut sizes = process.terminal_size().expect("a terminal");
    let mut input = process.stdin().expect("an input");
    for (width, height) in SIZES {
        sizes.try_send(TerminalSize { width, height }).expect("a size");
    }
    let known = || (world.node.terminal_sizes() == SIZES).then_some(());
    let typing = async {
        let known = tokio::task::block_in_place(|| poll(POLL_TIMEOUT, known));
        assert!(known.is_some(), "{:?}", world.node.terminal_sizes());
        input.write_all(b"word\r").await.expect("typed");
    };
    let ((), (out, _, [_, _, message])) = tokio::join!(typing, end(process));
    assert_eq!(out, "ready\r\nword\r\ngot word\r\n");
    assert_eq!(message, format!("{NON_ZERO}: command terminated with exit code 5"));
}

async fn a_process_is_attached(pods: &Api<Pod>) {
    let params = AttachParams::default().stdin(true);
    let mut process = pods.attach("web", &params).await.expect("a process");
    let mut input = process.stdin().expect("an input");
    let mut output = process.stdout().expect("an output");
    input.write_all(b"typed\n").await.expect("typed");
    let mut echoed = [0; 6];
    output.read_exact(&mut echoed).await.expect("an output");
    assert_eq!(&echoed, b"typed\n");
    process.abort();
}

async fn logs_are_read(pods: &Api<Pod>, world: &World) {
    let params = LogParams { container: Some("main".to_owned()), ..LogParams::default() };
    let read = async |params: LogParams| pods.logs("web", &params).await;
    world.node.restart(CONTAINER);
    world.node.log(CONTAINER, "stdout", "first");
    let follow = LogParams { follow: true, ..params.clone() };
    let mut followed = pods.log_stream("web", &follow).await.expect("a log");
    let mut line = String::new();
    followed.read_line(&mut line).await.expect("a line");
    world.node.log(CONTAINER, "stdout", "second");
    followed.read_line(&mut line).await.expect("a line");
    assert_eq!(line, "first\nsecond\n");
    let tail = read(LogParams { tail_lines: Some(1), ..params.clone() }).await;
    assert_eq!(tail.expect("a log"), "second\n");
    world.node.restart(CONTAINER);
    let mut rest = String::new();
    followed.read_to_string(&mut rest).await.expect("the end");
    assert_eq!(rest, "", "the log ends with the container");
    world.node.log(CONTAINER, "stdout", "third");
    assert_eq!(read(params.clone()).await.expect("a log"), "third\n");
    let previous = read(LogParams { previous: true, ..params.clone() }).await;
    assert_eq!(previous.expect("a log"), "first\nsecond\n");
    let refused = read(LogParams { container: Some("other".to_owned()), ..params }).await;
    let refused = refused.expect_err("no such container").to_string();
    assert!(refused.contains("container other is not valid for pod web"), "{refused}");
}

async fn ports_are_forwarded(pods: &Api<Pod>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let echo = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    });
    let mut forwarded = pods.portforward("web", &[port]).await.expect("a forwarded port");
    let (mut from, mut to) = tokio::io::split(forwarded.take_stream(port).expect("a stream"));
    let sent = vec![b'x'; FORWARDED_BYTES];
    let mut received = vec![0; FORWARDED_BYTES];
    let (written, read) = tokio::join!(to.write_all(&sent), from.read_exact(&mut received));
    written.expect("written");
    read.expect("read");
    assert!(sent == received);
    drop((from, to));
    echo.await.expect("the far side sees the end");

    // Nobody listens there any more.
    let mut refused = pods.portforward("web", &[port]).await.expect("a forwarded port");
    let error = refused.take_error(port).expect("an error").await.expect("an error");
    assert!(error.contains(&format!("error forwarding port {port} to pod")), "{error}");
    let gone = pods.portforward("gone", &[port]).await.err().expect("an error");
    assert_eq!(code_of(&gone), Some(404), "{gone}");
}
