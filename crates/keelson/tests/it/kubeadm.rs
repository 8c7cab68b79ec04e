//! A control plane as kubeadm starts it, with Keelson under the name kube-apiserver: kubeadm's
//! flags, certificates, kubeconfigs and roles; etcd over TLS; the stock kube-controller-manager and
//! kube-scheduler 1.36 with kubeadm's flags; kubectl. Only ports, addresses and paths are others. A
//! node joins with a bootstrap token; its kubelet is that of the testkit.
//!
//! Without an etcd at hand Keelson under the name etcd takes its place.

mod pki;

use crate::kubectl::stock_kubectl;
use crate::swap::identity;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use keelson_testkit::api::Api;
use keelson_testkit::kubelet::{Kubelet, NodeOptions};
use keelson_testkit::poll;
use keelson_testkit::prerequisites::{CONTROLLERS, kubernetes_program, peer};
use keelson_testkit::process::Process;
use pki::{ADVERTISED, Folder, NODE};
use ring::hmac;
use serde_json::json;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Timeout of each wait on a busy machine.
const WAIT_TIME_MAX: Duration = Duration::from_secs(90);
/// The same for kubectl.
const TIMEOUT: &str = "--timeout=90s";
const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
/// kubeadm's flags, of which the paths and ports are replaced.
const API_SERVER_FLAGS: &str = include_str!("../../src/flags/lists/kubeadm.txt");
/// The objects that kubeadm creates.
const OBJECTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/files/kubeadm.yaml");
/// The bootstrap token in these objects.
const TOKEN: (&str, &str) = ("abcdef", "0123456789abcdef");
const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
const WORKER: &str = "worker";

/// The programs beside Keelson.
struct Programs {
    manager: PathBuf,
    scheduler: PathBuf,
    kubectl: PathBuf,
}

impl Programs {
    fn find() -> Option<Programs> {
        let manager = kubernetes_program(CONTROLLERS, "kube-controller-manager")?;
        let scheduler = kubernetes_program(CONTROLLERS, "kube-scheduler")?;
        Some(Programs { manager, scheduler, kubectl: stock_kubectl()? })
    }
}

/// The ports of the programs.
struct Ports {
    api: u16,
    etcd: [u16; 3],
    manager: u16,
    scheduler: u16,
}

impl Ports {
    fn choose() -> Ports {
        // All are open at the same time, so that the ports differ.
        let listeners = [(); 6].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let [api, client, peer, metrics, manager, scheduler] =
            listeners.map(|listener| listener.local_addr().expect("an address").port());
        Ports { api, etcd: [client, peer, metrics], manager, scheduler }
    }
}

/// A control plane. Dropping it stops the processes in reverse order of their start.
struct ControlPlane {
    scheduler: Process,
    manager: Process,
    api_server: Process,
    _etcd: Process,
    ports: Ports,
    files: Folder,
    kubectl: PathBuf,
    _dir: TempDir,
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn start(program: &Path, flags: &[String], log: PathBuf) -> Process {
    let mut command = Command::new(program);
    command.args(flags);
    Process::start(command, &log).expect("the program starts")
}

impl ControlPlane {
    /// Starts the programs in the order of kubeadm, and creates its objects.
    fn start(programs: Programs) -> ControlPlane {
        let dir = tempfile::tempdir().expect("a folder");
        let ports = Ports::choose();
        let files = Folder::make(dir.path(), &format!("https://{}", local(ports.api)));
        // The programs are called by their names.
        for name in ["etcd", "kube-apiserver"] {
            std::os::unix::fs::symlink(KEELSON, files.path(name)).expect("a link");
        }
        let program = peer("etcd").unwrap_or_else(|| files.path("etcd"));
        let etcd = start(&program, &etcd_flags(&files, &ports), files.path("etcd.log"));
        let program = files.path("kube-apiserver");
        let flags = api_server_flags(&files, &ports);
        let mut api_server = start(&program, &flags, files.path("kube-apiserver.log"));
        let probe = anonymous(&files, ports.api);
        // The probes of the static Pod.
        for path in ["/livez", "/readyz"] {
            let is_well = poll(WAIT_TIME_MAX, || {
                let answer = probe.get(path).ok().filter(|answer| answer.code == 200);
                (answer.is_some() || !api_server.is_running()).then_some(answer)?
            });
            assert!(is_well.is_some(), "{path}: {}\n{}", api_server.log(), etcd.log());
        }
        publish(&programs.kubectl, &files);
        let flags = manager_flags(&files, ports.manager);
        let manager = start(&programs.manager, &flags, files.path("manager.log"));
        let flags = scheduler_flags(&files, ports.scheduler);
        let scheduler = start(&programs.scheduler, &flags, files.path("scheduler.log"));
        let kubectl = programs.kubectl;
        ControlPlane {
            scheduler,
            manager,
            api_server,
            _etcd: etcd,
            ports,
            files,
            kubectl,
            _dir: dir,
        }
    }

    /// Returns a client of a kubeconfig's user.
    fn api(&self, file: &str) -> Api {
        Api::from_kubeconfig(&self.files.path(&format!("{file}.conf"))).expect("a kubeconfig")
    }

    /// Runs kubectl as a user. Returns whether it succeeded, and its output with its error output.
    fn kubectl(&self, user: &str, line: &str) -> (bool, String) {
        kubectl(&self.kubectl, &self.files, user, &line.split(' ').collect::<Vec<_>>())
    }

    /// Runs kubectl as the administrator. Returns its output.
    fn admin(&self, line: &str) -> String {
        let (is_well, output) = self.kubectl("admin", line);
        assert!(is_well, "kubectl {line}: {output}\n{}", self.logs());
        output
    }

    /// Runs kubectl as a user until its output has a text.
    fn kubectl_says(&self, user: &str, line: &str, is_well: bool, text: &str) {
        let mut last = (false, String::new());
        let said = poll(WAIT_TIME_MAX, || {
            last = self.kubectl(user, line);
            (last.0 == is_well && last.1.contains(text)).then_some(())
        });
        assert!(said.is_some(), "{user}: kubectl {line}: {last:?}\n{}", self.logs());
    }

    fn logs(&self) -> String {
        let end = |process: &Process| {
            let log = process.log();
            let lines: Vec<&str> = log.lines().collect();
            lines[lines.len().saturating_sub(20)..].join("\n")
        };
        let all = [&self.api_server, &self.manager, &self.scheduler].map(end);
        format!("kube-apiserver: {}\nmanager: {}\nscheduler: {}", all[0], all[1], all[2])
    }
}

/// Returns a client without credentials that trusts the cluster's authority.
fn anonymous(files: &Folder, port: u16) -> Api {
    Api::new(local(port), files.read_pki("ca.crt").as_bytes(), None, None).expect("a client")
}

fn kubectl(program: &Path, files: &Folder, user: &str, words: &[&str]) -> (bool, String) {
    let mut command = Command::new(program);
    command.arg("--kubeconfig").arg(files.path(&format!("{user}.conf")));
    command.arg("--cache-dir").arg(files.path("cache")).args(words).env_remove("KUBECONFIG");
    let output = command.output().expect("kubectl runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Creates the objects of kubeadm. Its administrators have no rights before.
fn publish(program: &Path, files: &Folder) {
    let words = ["auth", "can-i", "create", "namespaces"];
    assert!(!kubectl(program, files, "admin", &words).0);
    let (is_well, output) = kubectl(program, files, "super-admin", &["apply", "-f", OBJECTS]);
    assert!(is_well, "{output}");
    let path = files.path("cluster-info");
    std::fs::write(&path, files.cluster_info()).expect("a file");
    let from = format!("--from-file=kubeconfig={}", path.display());
    let words = ["create", "configmap", "cluster-info", "--namespace=kube-public", &from];
    let made = poll(WAIT_TIME_MAX, || {
        let (is_well, output) = kubectl(program, files, "admin", &words);
        (is_well || !output.contains("orbidden")).then_some((is_well, output))
    });
    assert!(made.as_ref().is_some_and(|made| made.0), "{made:?}");
}

fn etcd_flags(files: &Folder, ports: &Ports) -> Vec<String> {
    let [client, peer, metrics] = ports.etcd;
    let mut flags = vec![
        format!("--advertise-client-urls=https://127.0.0.1:{client}"),
        "--client-cert-auth=true".to_owned(),
        format!("--data-dir={}", files.path("etcd-data").display()),
        "--feature-gates=InitialCorruptCheck=true".to_owned(),
        format!("--initial-advertise-peer-urls=https://127.0.0.1:{peer}"),
        format!("--initial-cluster={NODE}=https://127.0.0.1:{peer}"),
        format!("--listen-client-urls=https://127.0.0.1:{client}"),
        format!("--listen-metrics-urls=http://127.0.0.1:{metrics}"),
        format!("--listen-peer-urls=https://127.0.0.1:{peer}"),
        format!("--name={NODE}"),
        "--peer-client-cert-auth=true".to_owned(),
        "--snapshot-count=10000".to_owned(),
        "--watch-progress-notify-interval=5s".to_owned(),
    ];
    flags.extend(
        [
            ("cert-file", "etcd/server.crt"),
            ("key-file", "etcd/server.key"),
            ("peer-cert-file", "etcd/peer.crt"),
            ("peer-key-file", "etcd/peer.key"),
            ("peer-trusted-ca-file", "etcd/ca.crt"),
            ("trusted-ca-file", "etcd/ca.crt"),
        ]
        .map(|(flag, file)| format!("--{flag}={}", files.pki(file))),
    );
    flags
}

/// Returns kubeadm's flags with the files, ports and addresses of the test.
fn api_server_flags(files: &Folder, ports: &Ports) -> Vec<String> {
    let flags = API_SERVER_FLAGS.lines().map(|line| {
        let (flag, value) = line.split_once('=').expect("a flag with a value");
        let value = match (flag, value) {
            ("--etcd-servers", _) => format!("https://127.0.0.1:{}", ports.etcd[0]),
            ("--secure-port", _) => ports.api.to_string(),
            ("--advertise-address", _) => ADVERTISED.to_owned(),
            (_, "KUBELET_CLIENT_CERTIFICATE") => files.pki("apiserver-kubelet-client.crt"),
            (_, "KUBELET_CLIENT_KEY") => files.pki("apiserver-kubelet-client.key"),
            (_, "PROXY_CLIENT_CERTIFICATE") => files.pki("front-proxy-client.crt"),
            (_, "PROXY_CLIENT_KEY") => files.pki("front-proxy-client.key"),
            (_, "FRONT_PROXY_CA") => files.pki("front-proxy-ca.crt"),
            (_, value) => match value.strip_prefix("/nowhere/") {
                Some(file) => files.pki(file),
                None => value.to_owned(),
            },
        };
        format!("{flag}={value}")
    });
    flags.chain(["--bind-address=127.0.0.1".to_owned()]).collect()
}

/// Returns the flag with the kubeconfig, and those that let the API server decide who reads the
/// pages of a component.
fn kubeconfig_flags(files: &Folder, name: &str) -> impl Iterator<Item = String> + use<> {
    let file = files.path(&format!("{name}.conf")).display().to_string();
    ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
        .into_iter()
        .map(move |flag| format!("--{flag}={file}"))
}

fn manager_flags(files: &Folder, port: u16) -> Vec<String> {
    let of_files = [
        ("client-ca-file", "ca.crt"),
        ("cluster-signing-cert-file", "ca.crt"),
        ("cluster-signing-key-file", "ca.key"),
        ("requestheader-client-ca-file", "front-proxy-ca.crt"),
        ("root-ca-file", "ca.crt"),
        ("service-account-private-key-file", "sa.key"),
    ]
    .map(|(flag, file)| format!("--{flag}={}", files.pki(file)));
    let others = [
        "--bind-address=127.0.0.1".to_owned(),
        "--cluster-name=kubernetes".to_owned(),
        "--controllers=*,bootstrap-signer-controller,token-cleaner-controller".to_owned(),
        "--leader-elect=true".to_owned(),
        "--use-service-account-credentials=true".to_owned(),
        format!("--secure-port={port}"),
    ];
    kubeconfig_flags(files, "controller-manager").chain(of_files).chain(others).collect()
}

fn scheduler_flags(files: &Folder, port: u16) -> Vec<String> {
    let others = [
        "--bind-address=127.0.0.1".to_owned(),
        "--leader-elect=true".to_owned(),
        format!("--secure-port={port}"),
    ];
    kubeconfig_flags(files, "scheduler").chain(others).collect()
}

/// Reads `cluster-info` as `kubeadm join` does: without credentials, and checked with the token.
fn discover(plane: &ControlPlane) {
    let (id, secret) = TOKEN;
    let api = anonymous(&plane.files, plane.ports.api);
    let signed = format!("jws-kubeconfig-{id}");
    let info = poll(WAIT_TIME_MAX, || {
        let answer = api.get(CLUSTER_INFO).ok()?;
        answer.body["data"][&signed].is_string().then_some(answer.body)
    });
    let info = info.unwrap_or_else(|| panic!("no signature: {}", plane.logs()));
    let text = |name: &str| info["data"][name].as_str().expect("a text").to_owned();
    assert_eq!(text("kubeconfig"), plane.files.cluster_info());
    let signature = text(&signed);
    let (head, signature) = signature.split_once("..").expect("a detached signature");
    let message = format!("{head}.{}", URL_SAFE_NO_PAD.encode(text("kubeconfig")));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64");
    hmac::verify(&key, message.as_bytes(), &signature).expect("the token signs the kubeconfig");
    let others = api.get("/api/v1/namespaces/kube-public/configmaps/kube-root-ca.crt");
    assert_eq!(others.expect("an answer").code, 403);
}

/// A node joins: the manager approves and signs its request, and its kubelet registers it.
fn join(plane: &ControlPlane) -> Kubelet {
    let (id, secret) = TOKEN;
    let file = plane.files.kubeconfig_with_token("bootstrap-kubelet", &format!("{id}.{secret}"));
    let user = file.file_stem().and_then(|name| name.to_str()).expect("a name");
    plane.kubectl_says(user, "auth whoami", true, "system:bootstrap:abcdef");
    plane.kubectl_says(user, "get node worker", false, "nodes \"worker\" not found");
    plane.kubectl_says(user, "get secrets -n kube-system", false, "Forbidden");
    let token = format!("{id}.{secret}");
    let bootstrapper = plane.api("admin").with_token(Some(&token)).expect("a client");
    let node = identity::sign_node(&bootstrapper, WORKER);
    let name = WORKER.to_owned();
    let options = NodeOptions { name, labels: json!({}), taints: json!([]), subnet: 1 };
    Kubelet::start(&node, options).expect("the node is registered")
}

/// A Deployment becomes available, and a namespace goes away.
fn workloads(plane: &ControlPlane) {
    plane.admin(&format!("wait --for=condition=Ready node/{WORKER} {TIMEOUT}"));
    plane.kubectl_says("admin", "get serviceaccount default", true, "default");
    plane.admin("create namespace shop");
    plane.kubectl_says("admin", "get serviceaccount default -n shop", true, "default");
    plane.admin("create deployment web --image=web:1 --replicas=2 -n shop");
    plane.admin(&format!("rollout status deployment/web -n shop {TIMEOUT}"));
    let nodes = plane.admin("get pods -n shop -l app=web -o jsonpath={.items[*].spec.nodeName}");
    assert_eq!(nodes, format!("{WORKER} {WORKER}"));
    let authority = "get configmap kube-root-ca.crt -n shop -o jsonpath={.data.ca\\.crt}";
    assert_eq!(plane.admin(authority), plane.files.read_pki("ca.crt"));
    let trust = "get configmap extension-apiserver-authentication -n kube-system -o \
                 jsonpath={.data.requestheader-client-ca-file}";
    assert_eq!(plane.admin(trust), plane.files.read_pki("front-proxy-ca.crt"));
}

/// The tokens of service accounts.
fn tokens(plane: &ControlPlane) {
    plane.admin("create serviceaccount robot -n shop");
    let token = plane.admin("create token robot -n shop");
    plane.files.kubeconfig_with_token("robot", token.trim());
    plane.kubectl_says("robot", "auth whoami", true, "system:serviceaccount:shop:robot");
    plane.kubectl_says("robot", "get pods -n shop", false, "Forbidden");
    plane.admin("create rolebinding robot --clusterrole=view --serviceaccount=shop:robot -n shop");
    plane.kubectl_says("robot", "get pods -n shop", true, "web-");
}

/// An ordinary user: a certificate that an administrator approves and the manager signs.
fn ordinary_user(plane: &ControlPlane) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let asked = identity::request_of(&key, "jane", "devs");
    let request = format!(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: \
         jane}}\nspec:\n  request: {}\n  signerName: kubernetes.io/kube-apiserver-client\n  \
         usages: [client auth]\n",
        STANDARD.encode(asked)
    );
    let file = plane.files.path("jane.yaml");
    std::fs::write(&file, request).expect("a file");
    plane.admin(&format!("create -f {}", file.display()));
    plane.admin("certificate approve jane");
    let issued = "get csr jane -o jsonpath={.status.certificate}";
    let issued = poll(WAIT_TIME_MAX, || Some(plane.admin(issued)).filter(|text| !text.is_empty()));
    let issued = issued.unwrap_or_else(|| panic!("no certificate: {}", plane.logs()));
    let certificate = STANDARD.decode(issued).expect("base64");
    let certificate = String::from_utf8(certificate).expect("PEM");
    plane.files.kubeconfig("jane", &certificate, &pki::private_pem(&key));
    plane.kubectl_says("jane", "auth whoami", true, "jane");
    plane.kubectl_says("jane", "get pods -n shop", false, "Forbidden");
    plane.admin("create role pods --verb=get,list,watch --resource=pods -n shop");
    plane.admin("create rolebinding jane --role=pods --user=jane -n shop");
    plane.kubectl_says("jane", "get pods -n shop", true, "web-");
    let refused = "User \"jane\" cannot list resource \"secrets\" in API group \"\" in the \
                   namespace \"shop\"";
    plane.kubectl_says("jane", "get secrets -n shop", false, refused);
}

/// The probes of the other static Pods, and a page for which they ask the API server.
fn component_pages(plane: &ControlPlane) {
    plane.admin("create serviceaccount monitor -n shop");
    plane.admin(
        "create clusterrolebinding monitor --clusterrole=system:monitoring \
         --serviceaccount=shop:monitor",
    );
    let token = plane.admin("create token monitor -n shop");
    for (name, port) in [("manager", plane.ports.manager), ("scheduler", plane.ports.scheduler)] {
        let pages = Api::unchecked(local(port), None).expect("a client");
        assert_eq!(pages.get("/healthz").expect("an answer").code, 200, "{name}");
        assert_eq!(pages.get("/metrics").expect("an answer").code, 403, "{name}");
        let pages = Api::unchecked(local(port), Some(token.trim().to_owned())).expect("a client");
        // A refusal is kept for ten seconds.
        let shown =
            poll(WAIT_TIME_MAX, || pages.get("/metrics").ok().filter(|got| got.code == 200));
        assert!(shown.is_some(), "{name}: {:?}", pages.get("/metrics").map(|got| got.code));
    }
}

#[test]
fn a_control_plane_of_kubeadm_runs_with_keelson_as_kube_apiserver() {
    let Some(programs) = Programs::find() else { return };
    let plane = ControlPlane::start(programs);
    discover(&plane);
    let worker = join(&plane);
    workloads(&plane);
    tokens(&plane);
    ordinary_user(&plane);
    component_pages(&plane);
    plane.admin(&format!("delete namespace shop {TIMEOUT}"));
    plane.kubectl_says("admin", "get namespace shop", false, "NotFound");
    assert_eq!(worker.errors(), Vec::<String>::new());
}
